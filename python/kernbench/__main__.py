"""python3 -m kernbench: the command line."""

import os
import sys

from kernbench.cli.main import main


def _run() -> int:
    """The exit code. A reader of the output that has gone is no error, as for the program."""
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(_run())
