"""What all commands share: exit codes, JSON on stdout, notes on stderr, output files."""

from __future__ import annotations

import argparse
import enum
import io
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from bigsap.display.text import plain, shown
from bigsap.errors import InputError

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
    IMPRECISE = 8
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
  8    imprecise: an assignment was found, but its optimality is proved only to within the gap
       (solve, demo, result)
  70   a mistake in BigSAP itself: please report it
  130  interrupted (Ctrl-C)

Errors are one line on stderr; BIGSAP_DEBUG=1 in the environment adds the traceback.
"""

STATUS_EXIT = {
    "optimal": ExitStatus.OK,
    "gap_reached": ExitStatus.OK,
    "imprecise": ExitStatus.IMPRECISE,
    "infeasible": ExitStatus.INFEASIBLE,
    "time_limit": ExitStatus.STOPPED,
    "cancelled": ExitStatus.STOPPED,
}

OUTPUT_HELP = "where to save the result, a file; .npz is added"
COSTS_HELP = "matrix in a .npy file, a zarr store, or a .json cost spec"


class AddCommand(Protocol):
    """Makes the parser of a command: its name, what runs it, a line about it."""

    def __call__(
        self, name: str, run: Callable[[argparse.Namespace], ExitStatus], summary: str
    ) -> argparse.ArgumentParser: ...


class UsageExit(SystemExit):
    """Wrong usage of the command line, which has been told on stderr."""

    def __init__(self, message: str) -> None:
        super().__init__(int(ExitStatus.USAGE))
        self.message = message


class Parser(argparse.ArgumentParser):
    """One whose errors leave by ``UsageExit``; its subcommands' parsers are of this class too."""

    def error(self, message: str) -> NoReturn:
        """Usage and message on stderr."""
        tell(f"{self.format_usage().rstrip()}\n{self.prog}: error: {shown(message)}")
        raise UsageExit(message)


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """What every command that prints a record takes."""
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def print_json(record: dict[str, Any]) -> None:
    """One JSON object on stdout, infinities as null."""
    print(json.dumps(plain(record), allow_nan=False), flush=True)


def tell(text: str) -> None:
    """Lines on stderr. Whether anybody listens changes nothing: neither output nor exit code."""
    with suppress(OSError, ValueError, AttributeError):
        print(text, file=sys.stderr, flush=True)


def draw(text: str) -> None:
    """The same without a line break: part of a line that is drawn again and again."""
    with suppress(OSError, ValueError, AttributeError):
        print(text, end="", file=sys.stderr, flush=True)


def forget_stdout() -> None:
    """Nothing more can be written to stdout, and Python shall not complain again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def on_terminal() -> bool:
    """Whether a person sees stderr as it is written."""
    try:
        return sys.stderr.isatty()
    except (OSError, ValueError, AttributeError):
        return False


def note(args: argparse.Namespace, text: str) -> None:
    """A remark for people, on stderr: one line, which may name what others have named."""
    if not getattr(args, "quiet", False):
        tell(shown(text))


def open_streams() -> None:
    """Put the null device in the place of standard streams that are closed.

    Otherwise the next file that is opened would get their descriptor, and what anybody writes to
    stderr would go into it; and ``print(file=sys.stderr)`` would write to stdout.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free descriptor: those below are open by now.
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # labels may have what its encoding has not
        sys.stdout.reconfigure(errors="backslashreplace")


def check_output(name: str) -> Path:
    """The file that ``-o`` names, with its suffix, when it can be written; before hours of work,
    not after.

    A folder is no file: whether something in it may be overwritten is for its owner to say.
    """
    file = Path(name)
    if file.is_dir() or name.endswith(("/", os.sep)):
        raise InputError(f"{name}: is a folder; name a file in it, as {file / 'result.npz'}")
    if file.suffix != ".npz":
        file = file.with_name(file.name + ".npz")
    folder = file.parent
    if not folder.is_dir():
        raise InputError(f"{file}: the folder {folder} does not exist")
    if file.is_dir():
        raise InputError(f"{file}: is a folder; name a file in it, as {file / 'result.npz'}")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{file}: the folder {folder} cannot be written")
    return file


def exit_of(result: Result) -> ExitStatus:
    """The exit code of an outcome."""
    return STATUS_EXIT[str(result.status)]
