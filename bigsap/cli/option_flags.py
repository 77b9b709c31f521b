"""Options of a solve on the command line, made from the table of options."""

from __future__ import annotations

import argparse
import os
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import bigsap
from bigsap.errors import InputError, OptionError
from bigsap.option_table import ARRAYS, BY_NAME, OPTIONS, SolveOption

#: Options that define the problem, which a result does not hold.
PROBLEM = ("unassigned_cost", "dtype")
_TYPES = {"count": int, "number": float, "seconds": float}


def add_solve_options(parser: argparse.ArgumentParser, *, without: Container[str] = ()) -> None:
    """Add the options of ``bigsap solve``, but for some names."""
    _add(parser, (option for option in OPTIONS if option.name not in without), remote=False)


def add_request_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a job request."""
    _add(parser, OPTIONS, remote=True)


def add_problem_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the options that define the problem, and further ones; a result is verified with the same."""
    _add(parser, (BY_NAME[name] for name in (*PROBLEM, *names)), remote=False)


def _add(parser: argparse.ArgumentParser, options: Iterable[SolveOption], *, remote: bool) -> None:
    for option in options:
        text = option.off or (option.remote_help if remote else option.help)
        settings: dict[str, Any] = {"dest": option.name, "help": text}
        if option.kind == "flag":
            settings |= {"action": "store_const", "const": not option.default}
        else:
            choices = (option.remote_choices if remote else ()) or option.choices
            if choices:
                settings["choices"] = choices
            else:
                settings["metavar"] = option.example
            settings["type"] = _TYPES.get(option.kind, str)
        parser.add_argument(option.flag, **settings)


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that were given, as ``bigsap.solve`` takes them."""
    given = {}
    for option in OPTIONS:
        value = getattr(args, option.name, None)
        if value is None:
            continue
        if option.kind in ARRAYS:
            value = costs_of(option.flag, value)
        elif option.name == "device" and "," in value:
            value = value.split(",")
        given[option.name] = value
    return given


def given_request_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that were given, as a job request has them; files as ``{"npy": path}``."""
    given = {}
    for option in OPTIONS:
        value = getattr(args, option.name, None)
        if value is None:
            continue
        if option.kind in ARRAYS:
            value = number_or_file(option.flag, value)
            if isinstance(value, Path):
                value = {"npy": os.path.abspath(value)}
        given[option.remote] = value
    return given


def number_or_file(flag: str, text: str) -> int | float | Path:
    """Return an option's number, or the ``.npy`` file that it names. Raises OptionError."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    file = Path(text)
    if file.suffix == ".npy" and not file.exists():
        raise OptionError(f"{flag} {text}: no such file")
    if not file.is_file():
        raise OptionError(f"{flag} {text}: is neither a number nor a .npy file")
    return file


def costs_of(flag: str, text: str) -> Any:
    """Return an option's number, or the array in the file that it names."""
    from bigsap.sources.spec_files import load_npy

    found = number_or_file(flag, text)
    return load_npy(found) if isinstance(found, Path) else found


def warm_start_of(text: str | None) -> Any:
    """Return ``warm_start=`` of ``bigsap.solve``: a saved result, or prices."""
    from bigsap.sources.spec_files import load_npy

    if text is None:
        return None
    file = Path(text)
    if not file.is_file():
        raise InputError(f"--warm-start {text}: no such file")
    return bigsap.Result.load(file) if file.suffix == ".npz" else load_npy(file)
