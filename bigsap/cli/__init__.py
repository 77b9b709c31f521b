"""The command line: arguments in, files and exit codes out."""

from __future__ import annotations

from bigsap.cli.commands import main

__all__ = ["main"]
