"""``python -m bigsap``: the command line."""

import sys

from bigsap.cli import main

if __name__ == "__main__":
    sys.exit(main())
