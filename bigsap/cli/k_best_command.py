"""The command ``bigsap k-best``: the k best assignments in exact order."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import bigsap
from bigsap.cli.common import (
    COSTS_HELP,
    STATUS_EXIT,
    AddCommand,
    ExitStatus,
    add_checkpoint_flags,
    add_output_flags,
    check_output,
    continues,
    note,
    on_terminal,
    print_json,
    print_table,
    save_arrays,
    save_table,
)
from bigsap.cli.option_flags import add_solve_options, given_options
from bigsap.display.text import number
from bigsap.errors import InputError
from bigsap.option_table import BY_NAME, REFUSED_BY_K_BEST

if TYPE_CHECKING:
    from bigsap.k_best import Assignments
    from bigsap.result import Status
    from bigsap.types import Array

#: Assignments that are printed.
_SHOWN = 20


def add_command(command: AddCommand) -> None:
    """Add ``k-best`` to the command line."""
    parser = command("k-best", _rank, "rank assignments: the best, the second best, and so on")
    parser.add_argument("costs", metavar="COSTS", help=COSTS_HELP)
    parser.add_argument("k", metavar="K", type=int, help="how many; fewer where there are no more")
    add_solve_options(parser, without=tuple(REFUSED_BY_K_BEST))
    add_checkpoint_flags(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where to save them: .npz (arrays costs and col4row, a row for each assignment; added where it"
        " is missing); .csv or .parquet: rank, cost, row and column of each pair",
    )
    add_output_flags(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no notes")


def _rank(args: argparse.Namespace) -> ExitStatus:
    from bigsap.cli.costspec import open_problem

    output = None if args.output is None else check_output(args.output, args.costs)
    goes_on = continues(args, output)
    costs, asked = open_problem(args.costs, args.maximize)
    # A request may name what it leaves as it is; ``solve_k_best`` refuses the names.
    for name in REFUSED_BY_K_BEST:
        if name in asked and name in BY_NAME and asked[name] == BY_NAME[name].default:
            del asked[name]
    given = {**asked, **given_options(args)}
    given |= {"checkpoint": args.checkpoint, "progress": not args.quiet and on_terminal()}
    rank = partial(bigsap.resume_k_best, args.checkpoint) if goes_on else bigsap.solve_k_best
    found = rank(costs, k=args.k, **given)
    if output is not None:
        _save(found, output)
    code = STATUS_EXIT[found.status]
    if args.json:
        print_json(
            {
                "costs": found.costs.tolist(),
                "complete": found.complete,
                "status": found.status,
                "shape": list(found.shape),
                "maximize": found.maximize,
                "stats": found.stats,
                "output": None if output is None else str(output),
                "exit_code": int(code),
            }
        )
        return code
    print_ranking(found.costs, found.complete, found.status)
    if output is not None:
        note(args, f"saved to {output}")
    elif len(found):
        note(args, "the assignments themselves were not saved; -o FILE.npz does that")
    return code


def print_ranking(costs: Array, complete: bool, status: Status) -> None:
    """Print rank, cost, and what each costs more than the best, or less where the largest was asked for.

    complete: whether there are no other assignments. status: of the ranking.
    """
    first = costs[:_SHOWN].tolist()
    lines = [(str(rank + 1), number(cost), number(abs(cost - first[0]))) for rank, cost in enumerate(first)]
    stopped = STATUS_EXIT[status] == ExitStatus.STOPPED
    early = f"stopped early ({status.replace('_', ' ')})"
    none = f"{early}: no assignment is ranked yet" if stopped else "infeasible: there is no assignment"
    print_table(("rank", "cost", "from the best"), lines, none)
    if len(costs) > _SHOWN:
        print(f"... {len(costs) - _SHOWN:,} more")
    if len(costs) and complete:
        print("there are no others")
    if len(costs) and stopped:
        print(f"{early}: these are the best, in order")


def _save(found: Assignments, file: Path) -> None:
    """Save all assignments, or a table of their pairs."""
    if found.costs.dtype == np.dtype(object) and file.suffix != ".csv":
        raise InputError(f"costs of the assignments lie beyond int64, as {file.suffix} holds them: use .csv")
    if file.suffix == ".npz":
        save_arrays({"costs": found.costs, "col4row": found.col4row}, file)
        return
    place, row = np.nonzero(found.col4row >= 0)
    columns = found.col4row[place, row]
    save_table({"rank": place + 1, "cost": found.costs[place], "row": row, "column": columns}, file)
