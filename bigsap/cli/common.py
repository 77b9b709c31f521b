"""What all commands share: exit codes, JSON on stdout, notes on stderr, output files."""

from __future__ import annotations

import argparse
import enum
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from bigsap.errors import InputError
from bigsap.show.text import plain

if TYPE_CHECKING:
    from bigsap.result import Result


class ExitStatus(enum.IntEnum):
    """What the process returns."""

    OK = 0
    BAD_INPUT = 1
    USAGE = 2  # argparse's own
    INFEASIBLE = 3
    STOPPED = 4
    CERTIFICATE = 5
    SERVICE = 6
    JOB_FAILED = 7
    INTERNAL = 70
    INTERRUPTED = 130


EXIT_CODES = """\
exit codes:
  0    optimal, or within --gap (solve, demo, result), verified (verify), done (others)
  1    bad input, also as the service judges it: a file, a cost, an option's value, a missing
       optional package
  2    wrong usage of the command line
  3    infeasible: no complete assignment avoids the forbidden pairs
  4    stopped early (time limit or cancelled); what was found is saved all the same
  5    a certificate failed: the result is not what it claims
  6    the service cannot be reached, or refused the request for another reason
  7    the job failed on the service
  70   a mistake in BigSAP itself: please report it
  130  interrupted (Ctrl-C)

Errors are one line on stderr; BIGSAP_DEBUG=1 in the environment adds the traceback.
"""

STATUS_EXIT = {
    "optimal": ExitStatus.OK,
    "gap_reached": ExitStatus.OK,
    "infeasible": ExitStatus.INFEASIBLE,
    "time_limit": ExitStatus.STOPPED,
    "cancelled": ExitStatus.STOPPED,
}

COSTS_HELP = "matrix in a .npy file, a zarr store, or a .json cost spec"


class UsageExit(SystemExit):
    """Wrong usage of the command line, which has been told on stderr."""

    def __init__(self, message: str) -> None:
        super().__init__(int(ExitStatus.USAGE))
        self.message = message


class Parser(argparse.ArgumentParser):
    """One whose errors leave by ``UsageExit``; its subcommands' parsers are of this class too."""

    def error(self, message: str) -> NoReturn:
        """Usage and message on stderr."""
        self.print_usage(sys.stderr)
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        raise UsageExit(message)


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """What every command that prints a record takes."""
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def print_json(record: dict[str, Any]) -> None:
    """One JSON object on stdout, infinities as null."""
    print(json.dumps(plain(record), allow_nan=False), flush=True)


def note(args: argparse.Namespace, text: str) -> None:
    """A remark for people, on stderr."""
    if not getattr(args, "quiet", False):
        print(text, file=sys.stderr, flush=True)


def check_output(file: Path) -> Path:
    """``file`` with its suffix, when it can be written; before hours of work, not after."""
    if file.suffix != ".npz":
        file = file.with_name(file.name + ".npz")
    folder = file.parent
    if not folder.is_dir():
        raise InputError(f"{file}: the folder {folder} does not exist")
    if file.is_dir():
        raise InputError(f"{file}: is a folder")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{file}: the folder {folder} cannot be written")
    return file


def exit_of(result: Result) -> ExitStatus:
    """The exit code of an outcome."""
    return STATUS_EXIT[str(result.status)]
