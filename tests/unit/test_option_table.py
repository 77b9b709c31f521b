"""The table of options against those who take them: ``solve``, the command line, the service."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap.cli.option_flags import add_request_options, add_solve_options, given_options
from bigsap.option_table import BY_NAME, OPTIONS
from bigsap.strategies import METHODS
from bigsap.strategies.baselines import auction
from bigsap.strategies.first_prices import STARTS
from bigsap.strategies.trees import VARIANTS
from pairwise import each

# Options that need more than a value: listeners, files, or what is given beside the problem.
PYTHON_ONLY = {"shape", "args", "callback", "callback_every", "callback_rows", "cancel", "progress"}
PYTHON_ONLY |= {"cluster"}
BY_HAND = {"warm_start", "checkpoint", "certify"}


def test_the_table_has_every_option_of_solve() -> None:
    taken = inspect.signature(bigsap.solve).parameters
    assert {option.name for option in OPTIONS} == set(taken) - PYTHON_ONLY - BY_HAND - {"cost"}
    for option in OPTIONS:
        assert taken[option.name].default == option.default, option.name


def test_choices_are_those_of_the_library() -> None:
    assert BY_NAME["method"].choices == ("auto", *METHODS)
    assert BY_NAME["start"].choices == STARTS
    assert set(BY_NAME["variant"].choices) == {*VARIANTS, *auction.VARIANTS}


def test_the_service_has_the_options_of_the_table() -> None:
    request = pytest.importorskip("bigsap_server.costs.request")
    members = request.Options.model_json_schema()["properties"]
    assert set(members) == {option.remote for option in OPTIONS} | {"certify"}
    aliases = pytest.importorskip("bigsap_server.costs.specs").ALIASES
    assert aliases == {option.remote: option.name for option in OPTIONS if option.remote != option.name}
    for option in OPTIONS:
        member = members[option.remote]
        if option.choices or option.remote_choices:
            assert tuple(member["enum"]) == (option.remote_choices or option.choices)
        if option.kind in ("flag", "number", "count") and option.default is not None:
            assert member["default"] == option.default


def test_only_what_was_given_is_passed_on() -> None:
    parser = argparse.ArgumentParser()
    add_solve_options(parser)
    assert given_options(parser.parse_args([])) == {}
    words = ["--maximize", "--no-epsilon", "--threads=2", "--gap=0.5", "--device=cuda:0,cuda:1"]
    assert given_options(parser.parse_args(words)) == {
        "maximize": True,
        "epsilon": False,
        "threads": 2,
        "gap": 0.5,
        "device": ["cuda:0", "cuda:1"],
    }


def test_submit_has_the_options_of_a_request() -> None:
    parser = argparse.ArgumentParser()
    add_request_options(parser)
    found = vars(parser.parse_args([]))
    assert set(found) == {option.name for option in OPTIONS}


# -- values that no option takes -----------------------------------------------------------

C = np.eye(3)
UNEVEN = [[0], [0, 1]]
ARRAY, TIME = np.array(["auto", "sum"]), np.timedelta64(1, "s")
BEYOND = Fraction(10**400, 3)
NULL = "a\0b"
CALLS = {
    "errors": lambda: bigsap.solve_many([C], errors=ARRAY),
    "device of a batch": lambda: bigsap.solve_many([C], device=ARRAY),
    "certify of a batch": lambda: bigsap.solve_many([C], certify=ARRAY),
    "maximize of a batch": lambda: bigsap.solve_many([C], maximize=ARRAY),
    "progress of a batch": lambda: bigsap.solve_many([C], progress=ARRAY),
    "checkpoint of a batch": lambda: bigsap.solve_many([C], checkpoint=ARRAY),
    "a batch of a number": lambda: bigsap.solve_many(np.array(3.0)),
    "missing": lambda: bigsap.as_source(C, missing=ARRAY),
    "maximize of a certificate": lambda: bigsap.certify(C, [0, 1, 2], maximize=ARRAY),
    "pairs of a certificate": lambda: bigsap.certify(C, [0, 1, 2], pairs=ARRAY),
    "maximize of a mask": lambda: bigsap.masked(C, C, maximize=ARRAY),
    "maximize of the best": lambda: bigsap.solve_k_best(C, 2, maximize=ARRAY),
    "pairs to verify": lambda: bigsap.solve(C).verify(C, pairs=ARRAY),
    "library": lambda: bigsap.solve(C).to_dataframe(ARRAY),
    "threads to verify": lambda: bigsap.solve(C).verify(C, threads="x"),
    "half a thread": lambda: bigsap.solve(C).verify(C, threads=1.5),
    "a sum of nothing": lambda: bigsap.sum_of(None),
    "a sum of points": lambda: bigsap.sum_of(bigsap.points(C, C)),
    "cache": lambda: bigsap.solve(C, method="ssp", cache=TIME),
    "memory_limit": lambda: bigsap.solve(C, method="ssp", memory_limit=TIME),
    "max_distance": lambda: bigsap.points(C, C, max_distance=TIME),
    "p": lambda: bigsap.points(C, C, "minkowski", p=TIME),
    "p beyond floats": lambda: bigsap.points(C, C, "minkowski", p=10**400),
    "a fraction beyond floats": lambda: bigsap.points(C, C, max_distance=BEYOND),
    "a limit beyond floats": lambda: bigsap.solve(C, time_limit=BEYOND),
    "a factor beyond floats": lambda: bigsap.scaled(C, BEYOND),
    "radius": lambda: bigsap.points(C[:, :2], C[:, :2], "haversine", radius=TIME),
    "checkpoint": lambda: bigsap.solve(C, checkpoint=NULL),
    "a checkpoint to continue": lambda: bigsap.resume(NULL, C),
    "a result's file": lambda: bigsap.solve(C).save(NULL),
    "an uneven start": lambda: bigsap.solve(C, warm_start=(UNEVEN, [0, 1, 2])),
    "an uneven start with prices": lambda: bigsap.solve(C[:, :2], warm_start=UNEVEN, unassigned_cost=1.0),
    "an uneven start with capacity": lambda: bigsap.solve(C, warm_start=(UNEVEN, [0, 1, 2]), capacity=1),
    "uneven prices of a batch": lambda: bigsap.solve_many([C], unassigned_cost=[[1, [2, 3], 4]]),
}
NAMES = ("method", "objective", "start", "variant", "device", "maximize", "epsilon", "certify", "progress")


@pytest.mark.some(10)
@pytest.mark.parametrize("name", CALLS)
def test_values_that_no_option_takes(name: str) -> None:
    with pytest.raises(bigsap.InputError):
        CALLS[name]()


@each(name=NAMES, value=[ARRAY, np.array([1, 2]), np.array(["a", None], object)])
def test_no_such_option_is_an_array(name: str, value: object) -> None:
    with pytest.raises(bigsap.OptionError, match=name):
        bigsap.solve(C, **{name: value})


@pytest.mark.parametrize(
    ("assignment", "v", "v_low"),
    [
        (UNEVEN, None, None),
        ((UNEVEN, [0, 1]), None, None),
        (([0, 1], UNEVEN), None, None),
        ([0, 1, 2], UNEVEN, None),
        ([0, 1, 2], [0.0, 0.0, 0.0], UNEVEN),
    ],
)
def test_uneven_lists_are_no_certificate(assignment: object, v: object, v_low: object) -> None:
    with pytest.raises(bigsap.ShapeError, match="equally long"):
        bigsap.certify(C, assignment, v, v_low)


def test_buffers_and_any_number_of_threads() -> None:
    assert bigsap.solve_many(memoryview(C[None]))[0].fun == 0.0
    assert bigsap.solve_many([C], threads=10**30, method="ssp")[0].fun == 0.0


def test_an_unknown_option_is_named_with_the_function_that_has_none(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    costs = np.arange(90_000.0).reshape(300, 300) % 977
    bigsap.solve(costs, method="ssp", checkpoint=file, callback=lambda progress: True)
    calls: dict[str, Callable[..., Any]] = {
        "solve": partial(bigsap.solve, costs),
        "resume": partial(bigsap.resume, file, costs),
        "solve_many": partial(bigsap.solve_many, [costs]),
        "solve_k_best": partial(bigsap.solve_k_best, costs, 2),
        "certify": partial(bigsap.certify, costs, range(300)),
    }
    for name, call in calls.items():
        words = rf"^{name}\(\) got an unexpected keyword argument 'epsilom'$"
        with pytest.raises(TypeError, match=words):
            call(epsilom=False)


@pytest.mark.parametrize("add", [add_solve_options, add_request_options])
def test_the_help_of_a_flag_that_turns_off_says_so(add: Callable[[Any], None]) -> None:
    """The page's tick has the other text: there it turns on."""
    parser = argparse.ArgumentParser()
    add(parser)
    helps = [action.help for action in parser._actions if action.option_strings[0].startswith("--no-")]
    assert helps == ["no phases with falling epsilon: plain successive shortest paths, one phase"]
    assert BY_NAME["epsilon"].remote_help.startswith("phases with falling epsilon")
