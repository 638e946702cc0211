#!/usr/bin/env python3
"""randomized.py: the random tests of tests/, with new seeds.

A test program that reads KB_SEED (tests/support/seed.h) makes other random cases with each. It is
run in its own folder of the build, as ctest does. The first failing case is repeated by
KB_SEED=N build/tests/test-NAME.
"""
import os
import re

import harness

# Tests whose cases are long, so that one run would take most of the time there is.
SLOW = 60.0


def setup(attack):
    folder = os.path.join(attack.build, "tests")
    attack.programs = []
    for name in sorted(os.listdir(folder) if os.path.isdir(folder) else ()):
        path = os.path.join(folder, name)
        if not name.startswith("test-") or "alloc" in name or not os.access(path, os.X_OK):
            continue
        with open(path, "rb") as file:
            if b"KB_SEED" in file.read():
                attack.programs.append(path)
    if attack.options.only:
        attack.programs = [path for path in attack.programs
                           if re.search(attack.options.only, os.path.basename(path))]


def one_case(attack, rng, number):
    if not attack.programs:
        return "done"
    order = rng.sample(attack.programs, len(attack.programs))
    program = order[number % len(order)] if not attack.options.only else order[0]
    seed = str(rng.randrange(1, 1 << 40))
    outcome = harness.run([program], env={"KB_SEED": seed}, timeout=SLOW, cwd=attack.build)
    if outcome.timed_out:
        attack.unfinished += 1
    elif outcome.code != 0:
        failed = re.findall(r"^\[  FAILED  \] (\w+)$", outcome.out + outcome.err, re.M)
        attack.finding(outcome, f"{os.path.basename(program)}: {outcome.ended()};"
                       f" failed: {', '.join(dict.fromkeys(failed)) or 'unknown'}")
    return None


def add_options(parser):
    parser.add_argument("--only", help="a regular expression: only test programs of such a name")


if __name__ == "__main__":
    harness.main("randomized", one_case, description=__doc__, add_options=add_options, setup=setup)
