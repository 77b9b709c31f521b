"""The table of options against those who take them: ``solve``, the command line, the service."""

from __future__ import annotations

import argparse
import inspect

import pytest

import bigsap
from bigsap.cli.option_flags import add_request_options, add_solve_options, given_options
from bigsap.option_table import BY_NAME, OPTIONS
from bigsap.strategies import METHODS
from bigsap.strategies.baselines import auction
from bigsap.strategies.first_prices import STARTS
from bigsap.strategies.trees import VARIANTS

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
    assert set(members) == {option.remote for option in OPTIONS if option.remote} | {"certify"}
    for option in OPTIONS:
        if option.remote is None:
            continue
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


def test_submit_has_the_options_of_a_request_only() -> None:
    parser = argparse.ArgumentParser()
    add_request_options(parser)
    found = vars(parser.parse_args([]))
    assert set(found) == {option.name for option in OPTIONS if option.remote}
