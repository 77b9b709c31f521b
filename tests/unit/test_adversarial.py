"""A minute of ``python tests/support/adversary.py``, and bounds of random problems in exact arithmetic."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import adversarial_inputs
import adversarial_ways
import bigsap
from adversarial import draw
from adversarial_costs import FAMILIES, matrix_of
from adversarial_ways import SEED, Place, found_by, place_named, tried
from exact_judge import Truth, judge
from examples_of import RANDOM

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.some(1)
@pytest.mark.parametrize("part", range(5))
def test_on_this_machine(part, tmp_path):
    numbers = range(part * 30, part * 30 + 30)
    assert found_by("host", numbers, tmp_path, Place(), most=40) == []


@pytest.mark.parametrize(
    ("seed", "number"),
    [
        (0, 586),
        (0, 4413),
        (0, 3524),
        (7, 3788),
        (7, 23973),
        (7, 40608),
        (20261127, 2812),
        (777, 906),
        (777, 1967),
    ],
)
def test_what_long_searches_found(seed, number, tmp_path):
    """Integers met after a checkpoint, a stopped solve's gap, large prices without a certificate,
    prices above 0 where columns may stay free, trees past the threshold of a list,
    rounded costs of a stopped solve, an empty sample."""
    case = draw(seed, number, "host", tmp_path, 2500)
    assert tried(case, Place(), tmp_path).faults == []


def test_larger_problems(tmp_path):
    assert found_by("host", range(1000, 1020), tmp_path, Place(), most=200) == []


@pytest.mark.some(1)
@pytest.mark.parametrize("part", range(4))
def test_other_inputs(part, tmp_path):
    """Sparse costs, capacities, demands, bottlenecks and rankings."""
    faults = []
    for number in range(part * 200, part * 200 + 200):
        case = adversarial_inputs.draw(SEED, number, most=60)
        faults += [
            f"{case}: {fault}" for fault in tried(case, Place(), tmp_path, adversarial_inputs.WAYS).faults
        ]
    assert faults == []


@pytest.mark.slow
def test_over_a_cluster(tmp_path):
    pytest.importorskip("distributed")
    with place_named("cluster", tmp_path) as where:
        assert found_by("cluster", range(10), tmp_path, where) == []


@pytest.mark.slow
def test_by_the_service(live_server, tmp_path):
    pytest.importorskip("httpx")
    from bigsap.client import Client

    with Client(live_server.url) as client:
        assert found_by("service", range(12), tmp_path, Place(client=client), most=40) == []


# -- bounds -------------------------------------------------------------------------------------


def random_problem(number):
    """Few costs of all sizes, and a way to solve them, now and then not to the end."""
    rng = np.random.default_rng((SEED, 1 << 20, number))
    n, m = (int(size) for size in rng.integers(1, 13, 2))
    if rng.random() < 0.6:
        m = n
    maximize = bool(rng.random() < 0.3)
    family, cost = matrix_of(rng, n, m, maximize, FAMILIES)
    options = {"maximize": maximize, "method": str(rng.choice(["auto", "ssp", "compressed"]))}
    if rng.random() < 0.3:
        options["certify"] = "pairs"
    if rng.random() < 0.4:
        calls, last = itertools.count(), int(rng.integers(0, 5))

        def callback(_):
            if next(calls) >= last:
                raise StopIteration

        options.update(callback=callback, callback_rows=1)
    return family, cost, options


@pytest.mark.some(5)
@pytest.mark.parametrize("part", range(10))
def test_bounds_are_true(part):
    """``bound <= optimum <= cost`` as real numbers, of stopped solves, too."""
    each = 1000 if RANDOM else 30
    known = 0
    for number in range(part * each, part * each + each):
        family, cost, options = random_problem(number)
        try:
            result = bigsap.solve(cost, **options)
        except bigsap.OverflowRiskError:
            assert np.abs(cost[np.isfinite(cost)].astype(float)).max() > 2**50
            continue
        faults = judge(Truth(cost, options["maximize"]), result).faults
        assert faults == [], (SEED, number, family, options)
        known += result.bound is not None
    assert known > each / 2


# -- what is wrong is noticed --------------------------------------------------------------------


def told(outcome):
    return {fault.split(":")[0] for fault in outcome.faults}


def plain_case(tmp_path):
    numbers = (draw(0, k, "host", tmp_path, 30) for k in itertools.count())
    fit = (
        c
        for c in numbers
        if c.way == "solve"
        and c.family == "plain"
        and c.unassigned is None
        and min(c.matrix.shape) > 3
        and c.options.get("certify") is not False
    )
    return next(fit)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda r: {"bound": r.fun + (-1 if r.maximize else 1), "gap": 0.0}, "false bound"),
        (lambda r: {"u": r.u + (-1e-9 if r.maximize else 1e-9)}, "false dual"),
        (lambda r: {"fun": r.fun + 1}, "wrong fun"),
        (lambda r: {"col4row": np.roll(r.col4row, 1)}, "wrong optimum"),
    ],
)
def test_changed_results_are_noticed(change, kind, tmp_path, monkeypatch):
    case = plain_case(tmp_path)
    solve = bigsap.solve

    def wrong(*given, **options):
        result = adversarial_ways._whole(solve(*given, **options))
        return replace(result, **change(result))

    assert told(tried(case, Place(), tmp_path)) == set()
    monkeypatch.setattr(bigsap, "solve", wrong)
    assert kind in told(tried(plain_case(tmp_path), Place(), tmp_path))


@pytest.mark.parametrize("kind", ["capacity", "demand", "bottleneck", "ranked"])
def test_changed_results_of_other_kinds_are_noticed(kind, tmp_path, monkeypatch):
    def first_fit():
        cases = (adversarial_inputs.draw(0, k, 30) for k in itertools.count())
        return next(
            c
            for c in cases
            if c.family == f"{kind} plain"
            and c.way in ("solve", "ranked")
            and c.unassigned is None
            and min(c.matrix.shape) > 3
            and np.sum(c.options.get("demand", 2)) > 1
            and c.options.get("k", 2) > 1
            and c.options.get("certify") is not False
        )

    def faults():
        return told(tried(first_fit(), Place(), tmp_path, adversarial_inputs.WAYS))

    solve, rank = bigsap.solve, bigsap.solve_k_best

    def wrong(cost, **options):
        """An answer to the costs of another problem, which lies about its own."""
        return adversarial_ways._whole(solve(-cost, **options))

    def without_the_first(*given, **options):
        ranking = rank(*given, **options)
        return replace(ranking, costs=ranking.costs[1:], col4row=ranking.col4row[1:])

    assert faults() == set()
    monkeypatch.setattr(bigsap, "solve", wrong)
    monkeypatch.setattr(bigsap, "solve_k_best", without_the_first)
    kinds = faults()
    assert kinds & {"wrong fun", "wrong optimum", "wrong bottleneck"}
