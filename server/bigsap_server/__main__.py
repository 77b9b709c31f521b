"""``python -m bigsap_server`` is ``bigsap serve``."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv.insert(1, "serve")
    runpy.run_module("bigsap", run_name="__main__")
