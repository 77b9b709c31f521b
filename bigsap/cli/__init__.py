"""The command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from bigsap.errors import OptionError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (wrong usage and --help raise SystemExit)."""
    try:
        from bigsap.cli.commands import main as run
    except OptionError as error:  # NUMBA_DISABLE_JIT: the commands' own modules define kernels
        print(f"bigsap: error: {error}", file=sys.stderr)
        if "--json" in (sys.argv if argv is None else argv):
            print(json.dumps({"error": type(error).__name__, "message": str(error), "exit_code": 1}))
        return 1
    return run(argv)
