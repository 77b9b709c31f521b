"""The command line."""

from __future__ import annotations

from bigsap.cli.commands import main

__all__ = ["main"]
