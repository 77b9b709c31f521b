"""The command line, run by ``python -m bigsap``."""

import sys

from bigsap.cli import main

if __name__ == "__main__":
    sys.exit(main())
