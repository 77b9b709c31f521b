"""Shared parts of all commands: exit codes, JSON on stdout, notes on stderr, output files."""

from __future__ import annotations

import argparse
import enum
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from bigsap.display.text import plain, shown
from bigsap.errors import InputError, optional
from bigsap.system import replace

if TYPE_CHECKING:
    from bigsap.result import Result


class ExitStatus(enum.IntEnum):
    """The exit codes of the process."""

    OK = 0
    BAD_INPUT = 1
    USAGE = 2  # argparse's code
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
  0    optimal, or within --gap (solve, demo, result, certify), verified (verify), done (others)
  1    bad input, also as the service judges it: a file, a cost, an option's value, a missing
       optional package
  2    wrong usage of the command line
  3    infeasible: no complete assignment avoids the forbidden pairs
  4    stopped early (time limit or cancelled); what was found is saved all the same
  5    a certificate failed: the result is not what it claims
  6    the service cannot be reached, or refused the request for another reason
  7    the job failed on the service
  8    imprecise: an assignment was found, but its optimality is proved only to within the gap
       (solve, demo, result, certify)
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

OUTPUT_HELP = (
    "where to save the result: .npz (added where it is missing); .csv or .parquet: rows and columns of the"
    " pairs alone, with their costs if a solve here found them"
)
#: Files of pairs alone, which programs read that know nothing of BigSAP.
TABLES = (".csv", ".parquet")
COSTS_HELP = (
    "matrix in a .npy file, sparse costs in a .npz file, a zarr store, or a .json cost spec or job request"
)


# Lines of a table at a time.
_LINES = 8192


class AddCommand(Protocol):
    """Makes the parser of a command from its name, its function and a help line."""

    def __call__(
        self, name: str, run: Callable[[argparse.Namespace], ExitStatus], summary: str
    ) -> argparse.ArgumentParser: ...


class UsageExit(SystemExit):
    """Raised for wrong usage of the command line, after the message on stderr."""

    def __init__(self, message: str) -> None:
        super().__init__(int(ExitStatus.USAGE))
        self.message = message


class Parser(argparse.ArgumentParser):
    """A parser whose errors raise ``UsageExit``; its subcommands' parsers are of this class too."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message on stderr; raise ``UsageExit``."""
        tell(f"{self.format_usage().rstrip()}\n{self.prog}: error: {shown(message)}")
        raise UsageExit(message)


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that prints a record."""
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def add_checkpoint_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that writes checkpoints."""
    parser.add_argument("--checkpoint", metavar="FILE", help="where to keep what --resume continues from")
    parser.add_argument(
        "--resume", action="store_true", help="continue from --checkpoint FILE where it exists"
    )


def continues(args: argparse.Namespace, output: Path | None) -> bool:
    """Return whether there is a checkpoint to continue from.

    output: the file of ``-o``. Raises InputError if one file would overwrite the other, or the costs, or
    none is named.
    """
    if args.checkpoint is not None:
        spare(Path(args.checkpoint), args.costs)
        if output is not None and output.resolve() == Path(args.checkpoint).resolve():
            raise InputError(f"{args.checkpoint}: is the file of -o and of --checkpoint; name two files")
    elif args.resume:
        raise InputError("--resume needs --checkpoint FILE, the file to continue from")
    if args.resume and not Path(args.checkpoint).exists():
        text = f"there is no checkpoint {args.checkpoint} yet: starting from the beginning"
        tell(f"bigsap: note: {shown(text)}")
        return False
    return bool(args.resume)


def print_json(record: dict[str, Any]) -> None:
    """Print one JSON object on stdout, infinities as null."""
    print(json.dumps(plain(record), allow_nan=False), flush=True)


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]], nothing: str) -> None:
    """Print rows in columns, escaped, since they may contain names from others."""
    lines = [[shown(text) for text in row] for row in rows]
    if not lines:
        print(nothing)
        return
    lines.insert(0, list(head))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def tell(text: str) -> None:
    """Print lines on stderr. If that fails, output and exit code stay the same."""
    with suppress(OSError, ValueError, AttributeError):
        print(text, file=sys.stderr, flush=True)


def draw(text: str) -> None:
    """Print text without a line break: part of a line that is redrawn."""
    with suppress(OSError, ValueError, AttributeError):
        print(text, end="", file=sys.stderr, flush=True)


def forget_stdout() -> None:
    """Replace a closed stdout, so that Python reports no error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def on_terminal() -> bool:
    """Return whether stderr is an interactive terminal."""
    try:
        return sys.stderr.isatty()
    except (OSError, ValueError, AttributeError):
        return False


def note(args: argparse.Namespace, text: str) -> None:
    """Print a note on stderr: one line, escaped, since it may contain names from others."""
    if not getattr(args, "quiet", False):
        tell(shown(text))


def open_streams() -> None:
    """Open the null device in place of closed standard streams.

    Otherwise the next opened file would get their descriptor, and text for stderr would be written
    to that file; and ``print(file=sys.stderr)`` would write to stdout.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free descriptor is this one: those below are open by now.
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # labels may have characters that its encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")


def check_output(name: str, costs: str = "") -> Path:
    """Check, before the solve, that the file of ``-o`` can be written; return it with its suffix.

    A folder is refused: files in it must not be overwritten without the owner's decision. Raises
    InputError, also for the file of the ``costs``, and ImportError where the package that writes the
    file is missing.
    """
    file = Path(name)
    if file.is_dir() or name.endswith(("/", os.sep)):
        raise InputError(f"{name}: is a folder; name a file in it, as {file / 'result.npz'}")
    if file.suffix == ".parquet":
        optional("pyarrow.parquet", "-o FILE.parquet")
    if file.suffix not in (".npz", *TABLES):
        file = file.with_name(file.name + ".npz")
    folder = file.parent
    if not folder.is_dir():
        raise InputError(f"{file}: the folder {folder} does not exist")
    if file.is_dir():
        raise InputError(f"{file}: is a folder; name a file in it, as {file / 'result.npz'}")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{file}: the folder {folder} cannot be written")
    spare(file, costs)
    return file


def spare(file: Path, costs: str) -> None:
    """Raise InputError if writing the file would overwrite the ``costs``."""
    if file.exists() and os.path.exists(costs) and file.samefile(costs):  # costs: perhaps an address
        raise InputError(f"{file}: holds the costs, which would be overwritten; name another file")


def save_result(result: Result, file: Path, *, costs: bool = True) -> None:
    """Save a result, or its pairs alone where the name is that of a table.

    costs: whether a table without pairs has a column of costs; the tables of a service's results have none.
    """
    if file.suffix not in TABLES:
        result.save(file)
        return
    table = {"row": result.row_ind, "column": result.col_ind}
    if result.costs is not None or (costs and not len(result.row_ind)):
        table["cost"] = result.pairs(costs=True)["cost"]
    save_table(table, file)


def save_table(table: Mapping[str, Any], file: Path) -> None:
    """Write columns of one length as CSV or Parquet, by the file's name, atomically."""
    with _replacing(file) as part:
        _write_table(table, part, parquet=file.suffix == ".parquet")


def save_arrays(arrays: Mapping[str, Any], file: Path) -> None:
    """Write arrays by name as ``.npz``, atomically."""
    with _replacing(file) as part, part.open("wb") as out:
        np.savez(out, **arrays)


@contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """Give a file to write, which then replaces ``file``; a link stays one."""
    target = file.resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield part
        replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _write_table(table: Mapping[str, Any], file: Path, *, parquet: bool) -> None:
    if parquet:
        arrow, tables = (optional(f"pyarrow{name}", "-o FILE.parquet") for name in ("", ".parquet"))
        tables.write_table(arrow.table(dict(table)), file)
        return
    with file.open("w", encoding="ascii", newline="") as out:
        out.write(",".join(table) + "\r\n")
        for start in range(0, len(table["row"]), _LINES):
            part = zip(*(values[start : start + _LINES].tolist() for values in table.values()), strict=True)
            # repr: the shortest text that is read as the same number.
            out.writelines(",".join(map(repr, line)) + "\r\n" for line in part)


def exit_of(result: Result) -> ExitStatus:
    """Return the exit code of an outcome."""
    return STATUS_EXIT[str(result.status)]
