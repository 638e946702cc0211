/*
 * arguments.h: what a kernel is given, checked against its parameters. Private to rt.
 */
#ifndef KB_RT_ARGUMENTS_H
#define KB_RT_ARGUMENTS_H

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

/*
 * Checks that a kernel can be called with these arguments, as far as kinds and ranges go: as many
 * as it has parameters, tensors for addresses alone, numbers that the parameter's type can hold.
 */
KB_MUST_USE kb_error *rt_check_arguments(const kb_kernel *kernel, const kb_arg *args, size_t count);

#endif
