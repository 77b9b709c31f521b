"""Entry point of ``python -m bigsap_server``."""

from __future__ import annotations

import sys

from bigsap_server.serve import main

# Worker processes import this module too, and must not start a server.
if __name__ == "__main__":
    sys.exit(main())
