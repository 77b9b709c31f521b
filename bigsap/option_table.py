"""The options of a solve as a table, from which the command line and the service are made.

``bigsap.solve`` takes them by ``name``. A test compares the table with its signature, with what it
accepts, and with the service's model of a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

#: flag: true or false. count: a whole number. size: bytes, or text such as "4GiB". costs: a number,
#: or an array of one a row. counts: a whole number, or an array of them. text: anything else that is
#: written as text.
Kind: TypeAlias = Literal["flag", "choice", "count", "number", "seconds", "size", "costs", "counts", "text"]


@dataclass(frozen=True, kw_only=True)
class SolveOption:
    """An option of a solve.

    name: in ``bigsap.solve``. label: on the web page. help: a phrase without a full stop. example:
    how a value is written, in capitals. remote: the name in a job request; None: not in requests.
    remote_choices, remote_default: those of a request, where they differ.
    """

    name: str
    label: str
    help: str
    kind: Kind
    default: Any = None
    choices: tuple[str, ...] = ()
    example: str | None = None
    remote: str | None = None
    remote_choices: tuple[str, ...] = ()
    remote_default: Any = None

    @property
    def flag(self) -> str:
        """The option of the command line: a flag that is true by default is turned off."""
        name = self.name.replace("_", "-")
        return f"--no-{name}" if self.kind == "flag" and self.default else f"--{name}"


OPTIONS = (
    SolveOption(
        name="maximize",
        label="Maximise",
        help="largest total instead of smallest",
        kind="flag",
        default=False,
        remote="maximize",
    ),
    SolveOption(
        name="objective",
        label="Objective",
        help="sum, or bottleneck: the largest cost first, then the sum",
        kind="choice",
        default="sum",
        choices=("sum", "bottleneck"),
        remote="objective",
    ),
    SolveOption(
        name="method",
        label="Method",
        help="auto chooses; the total is the same with each",
        kind="choice",
        default="auto",
        choices=("auto", "ssp", "compressed", "hungarian", "auction"),
        remote="method",
    ),
    SolveOption(
        name="variant",
        label="Variant",
        help="classical and tree are of hungarian, plain and scaled of auction",
        kind="choice",
        default="auto",
        choices=("auto", "classical", "tree", "plain", "scaled"),
        remote="variant",
    ),
    SolveOption(
        name="epsilon",
        label="Epsilon phases",
        help="phases with falling epsilon; without: plain successive shortest paths, one phase",
        kind="flag",
        default=True,
        remote="epsilon",
    ),
    SolveOption(
        name="start",
        label="First prices",
        help="first prices: of solved samples, estimated, or zero; auto decides by a sample",
        kind="choice",
        default="auto",
        choices=("auto", "levels", "estimate", "none"),
        remote="start",
    ),
    SolveOption(
        name="unassigned_cost",
        label="Price of leaving a row out",
        help="price at which a row may stay unassigned: a number, or a .npy file of one a row",
        kind="costs",
        example="COST",
        remote="unassigned_cost",
    ),
    SolveOption(
        name="capacity",
        label="Rows that a column may take",
        help="rows that a column may take: a number, or a .npy file of one a column",
        kind="counts",
        example="COUNT",
        remote="capacity",
    ),
    SolveOption(
        name="demand",
        label="Columns that a row takes",
        help="columns that a row takes: a number, or a .npy file of one a row",
        kind="counts",
        example="COUNT",
        remote="demand",
    ),
    SolveOption(
        name="dtype",
        label="Type of the costs",
        help="type to read the costs as: float64, float32, int64 and others",
        kind="text",
        example="DTYPE",
        remote="dtype",
    ),
    SolveOption(
        name="device",
        label="Device",
        help="where the work is done: cpu, cuda, cuda:1, auto, or several, as cuda:0,cuda:1",
        kind="text",
        default="cpu",
        example="NAME",
        remote="device",
        remote_choices=("auto", "cpu", "cuda"),
        remote_default="auto",
    ),
    SolveOption(
        name="threads",
        label="Threads",
        help="default: all this process may use",
        kind="count",
        example="N",
        remote="threads",
    ),
    SolveOption(
        name="cache",
        label="Row cache",
        help="memory for rows that are read again, for instance 4GiB",
        kind="size",
        example="SIZE",
        remote="cache",
    ),
    SolveOption(
        name="memory_limit",
        label="Memory limit",
        help="memory for the whole solve, beyond costs in memory",
        kind="size",
        example="SIZE",
        remote="memory_limit",
    ),
    SolveOption(
        name="time_limit",
        label="Time limit (s)",
        help="seconds after which to return the best so far",
        kind="seconds",
        example="S",
        remote="time_limit_s",
    ),
    SolveOption(
        name="gap",
        label="Gap",
        help="stop when proved to be this close to the optimum",
        kind="number",
        default=0.0,
        example="G",
        remote="gap",
    ),
    SolveOption(
        name="checkpoint_every",
        label="Checkpoint every (s)",
        help="seconds between checkpoints; default 60",
        kind="seconds",
        default=60.0,
        example="S",
        remote="checkpoint_s",
    ),
    SolveOption(
        name="seed",
        label="Seed",
        help="of the order of rows",
        kind="count",
        default=0,
        example="N",
        remote="seed",
    ),
)
#: Kinds of options whose value may be an array.
ARRAYS = ("costs", "counts")
BY_NAME = {option.name: option for option in OPTIONS}
