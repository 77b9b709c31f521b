"""``python -m bigsap_server``."""

from __future__ import annotations

import sys

from bigsap_server.serve import main

# Worker processes import this module as well; they must not serve.
if __name__ == "__main__":
    sys.exit(main())
