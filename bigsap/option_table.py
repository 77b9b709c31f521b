"""The options of a solve as a table, from which the command line and the service are made.

``bigsap.solve`` takes them by ``name``. A test compares the table with its signature, with what it
accepts, and with the service's model of a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias

from bigsap.errors import InputError

#: flag: true or false. count: a whole number. size: bytes, or text such as "4GiB". costs: a number,
#: or an array of one a row. counts: a whole number, or an array of them. text: anything else that is
#: written as text.
Kind: TypeAlias = Literal["flag", "choice", "count", "number", "seconds", "size", "costs", "counts", "text"]


@dataclass(frozen=True)
class SolveOption:
    """An option of a solve.

    name: in ``bigsap.solve``. label: on the web page. help: a phrase without a full stop. example:
    how a value is written, in capitals. remote: the name in a job request, where it differs.
    remote_choices, remote_default, remote_help: those of a request, where they differ. off: what it does to
    leave out a flag that is true by default.
    """

    name: str
    label: str
    help: str
    _: KW_ONLY
    kind: Kind
    default: Any = None
    choices: tuple[str, ...] = ()
    example: str | None = None
    remote: str = ""
    remote_choices: tuple[str, ...] = ()
    remote_default: Any = None
    remote_help: str = ""
    off: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "remote", self.remote or self.name)
        object.__setattr__(self, "remote_help", self.remote_help or self.help)

    @property
    def flag(self) -> str:
        """The option of the command line: a flag that is true by default is turned off."""
        name = self.name.replace("_", "-")
        return f"--no-{name}" if self.kind == "flag" and self.default else f"--{name}"


OPTIONS = (
    SolveOption("maximize", "Maximise", "largest total instead of smallest", kind="flag", default=False),
    SolveOption(
        "objective",
        "Objective",
        "sum, or bottleneck: the largest cost first, then the sum",
        kind="choice",
        default="sum",
        choices=("sum", "bottleneck"),
    ),
    SolveOption(
        "method",
        "Method",
        "auto chooses; the total is the same with each",
        kind="choice",
        default="auto",
        choices=("auto", "ssp", "compressed", "hungarian", "auction"),
    ),
    SolveOption(
        "variant",
        "Variant",
        "classical and tree are of hungarian, plain and scaled of auction",
        kind="choice",
        default="auto",
        choices=("auto", "classical", "tree", "plain", "scaled"),
    ),
    SolveOption(
        "epsilon",
        "Epsilon phases",
        "phases with falling epsilon; without: plain successive shortest paths, one phase",
        kind="flag",
        default=True,
        off="no phases with falling epsilon: plain successive shortest paths, one phase",
    ),
    SolveOption(
        "start",
        "First prices",
        "first prices: of solved samples, estimated, or zero; auto decides by a sample",
        kind="choice",
        default="auto",
        choices=("auto", "levels", "estimate", "none"),
    ),
    SolveOption(
        "unassigned_cost",
        "Price of leaving a row out",
        "price at which a row may stay unassigned: a number, or a .npy file of one a row",
        kind="costs",
        example="COST",
    ),
    SolveOption(
        "capacity",
        "Rows that a column may take",
        "rows that a column may take: a number, or a .npy file of one a column",
        kind="counts",
        example="COUNT",
    ),
    SolveOption(
        "demand",
        "Columns that a row takes",
        "columns that a row takes: a number, or a .npy file of one a row",
        kind="counts",
        example="COUNT",
    ),
    SolveOption(
        "dtype",
        "Type of the costs",
        "type to read the costs as: float64, float32, int64 and others",
        kind="text",
        example="DTYPE",
    ),
    SolveOption(
        "device",
        "Device",
        "where the work is done: cpu, cuda, cuda:1, auto, or several, as cuda:0,cuda:1",
        kind="text",
        default="cpu",
        example="NAME",
        remote_choices=("auto", "cpu", "cuda"),
        remote_default="auto",
        remote_help="where the work is done",
    ),
    SolveOption(
        "threads",
        "Threads",
        "default: all this process may use",
        kind="count",
        example="N",
        remote_help="default: a fair share of the service's",
    ),
    SolveOption(
        "cache",
        "Row cache",
        "memory for rows that are read again, for instance 4GiB",
        kind="size",
        example="SIZE",
    ),
    SolveOption(
        "memory_limit",
        "Memory limit",
        "memory for the whole solve, beyond costs in memory",
        kind="size",
        example="SIZE",
    ),
    SolveOption(
        "time_limit",
        "Time limit (s)",
        "seconds after which to return the best so far",
        kind="seconds",
        example="S",
        remote="time_limit_s",
    ),
    SolveOption(
        "gap",
        "Gap",
        "stop when proved to be this close to the optimum",
        kind="number",
        default=0.0,
        example="G",
    ),
    SolveOption(
        "checkpoint_every",
        "Checkpoint every (s)",
        "seconds between checkpoints; default 60",
        kind="seconds",
        default=60.0,
        example="S",
        remote="checkpoint_s",
        remote_help="seconds between checkpoints; default: the service's",
    ),
    SolveOption("seed", "Seed", "of the order of rows", kind="count", default=0, example="N"),
)
#: Kinds of options whose value may be an array.
ARRAYS = ("costs", "counts")
BY_NAME = {option.name: option for option in OPTIONS}


def as_requested(options: Any) -> dict[str, Any]:
    """Return options by their names in a job request, where they may have those of ``solve``, too.

    ``certify=True`` becomes what a request calls it. Raises InputError if they are no mapping, or if
    one is given under both names.
    """
    if not isinstance(options, Mapping):
        raise InputError(f"options must be a mapping, got {type(options).__name__}")
    found: dict[str, Any] = {}
    for key, value in options.items():
        name = BY_NAME[key].remote if key in BY_NAME else key
        if name != key and name in options:
            raise InputError(f"/options/{name}: is {key}, given twice")
        found[name] = "bounds" if key == "certify" and value is True else value
    return found


#: Options of ``solve`` that ``solve_k_best`` does not take, and the reason.
REFUSED_BY_K_BEST = {
    "gap": "every assignment is exact",
    "certify": "every assignment is proved",
    "objective": "assignments are ordered by their sums",
    "capacity": "a column takes one row; repeat the column instead",
    "demand": "solve the transposed problem",
}
