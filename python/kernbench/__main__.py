"""python3 -m kernbench: the command line."""

import sys

from kernbench.cli.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
