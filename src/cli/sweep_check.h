/*
 * sweep_check.h: finds mistakes in a plan before anything runs: names that do not exist, parameters
 * that no run can have. Combinations that make no machine are found when their points run.
 */
#ifndef KB_CLI_SWEEP_CHECK_H
#define KB_CLI_SWEEP_CHECK_H

#include "sweep_worker.h"

KB_MUST_USE kb_error *sweep_check(const sweep_worker *worker);

#endif
