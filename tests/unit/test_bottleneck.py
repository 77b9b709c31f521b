"""``objective="bottleneck"`` against trying everything, its proof, and what it refuses."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

import bigsap
from bigsap import policy
from bigsap.cli import commands as cli
from bigsap.errors import CertificateError, InvalidCostError, OptionError
from bigsap.problem import Problem
from bigsap.proof.bottleneck import prove_entries, prove_threshold
from bigsap.sources.base import Entries
from bigsap.strategies import bottleneck
from contracts import whole
from kinds_of_costs import costs_of
from pairwise import each


def best(cost, maximize=False):
    """The best (largest cost, sum), as Fractions in the user's sense; None when infeasible."""
    n, m = cost.shape
    sign = -1 if maximize else 1
    numbers = [[None if np.isinf(c) else sign * Fraction(c.item()) for c in row] for row in cost]
    if n > m:
        numbers = [list(column) for column in zip(*numbers, strict=True)]
    found = None
    for columns in itertools.permutations(range(max(n, m)), min(n, m)):
        taken = [numbers[i][j] for i, j in enumerate(columns)]
        if None not in taken:
            key = max(taken), sum(taken)
            found = key if found is None else min(found, key)
    return None if found is None else (sign * found[0], sign * found[1])


KINDS = ["normal", "ties", "equal", "int64", "uint8", "float32", "forbidden"]


@each(kind=KINDS, maximize=[False, True])
def test_against_all_assignments(kind, maximize):
    rng = np.random.default_rng([KINDS.index(kind), maximize])
    shapes = [(1, 1), (1, 4), (4, 1), (3, 3), (5, 5), (6, 6), (3, 5), (5, 3)]
    for shape in (*shapes, *shapes, (7, 7)):
        cost = costs_of(rng, kind, shape, maximize, bits=49)
        expected = best(cost, maximize)
        found = bigsap.solve(cost, objective="bottleneck", maximize=maximize)
        if expected is None:
            assert found.status == "infeasible"
            assert found.bottleneck is None
            found.verify(cost)
            continue
        assert found.status == "optimal"
        assert found.bottleneck == expected[0]
        assert found.fun == (int if cost.dtype.kind in "iu" else float)(expected[1])
        assert isinstance(found.bottleneck, int) == (cost.dtype.kind in "iu")
        assert found.verify(cost).optimal


@each(
    metric=["euclidean", "sqeuclidean", "cityblock", "chebyshev", "cosine"],
    shape=[(90, 90), (60, 120), (120, 60)],
)
def test_points_are_as_their_matrix(metric, shape, monkeypatch):
    monkeypatch.setattr(policy, "BOTTLENECK_BOUNDED_ROWS", 1)
    rng = np.random.default_rng(shape)
    x, y = rng.random((shape[0], 3)), rng.random((shape[1], 3))
    source = bigsap.points(x, y, metric)
    matrix = whole(source)
    one = bigsap.solve(source, objective="bottleneck")
    other = bigsap.solve(matrix, objective="bottleneck", threads=2)
    assert (one.bottleneck, one.fun) == (other.bottleneck, other.fun)
    assert one.verify(source).optimal
    # Thresholds by sorting all costs: the least one that leaves a complete assignment.
    below = np.where(matrix < one.bottleneck, matrix, np.inf)
    assert bigsap.solve(below).status == "infeasible"
    assert one.fun == bigsap.solve(bigsap.forbid_above(source, one.bottleneck)).fun


def test_pairs_by_bounds_are_all_pairs(monkeypatch):
    x, y = np.random.default_rng(3).random((2, 700, 2))
    problem = Problem(bigsap.points(x, y, "euclidean"))
    ways = []
    for least in (1, 10**9):
        monkeypatch.setattr(policy, "BOTTLENECK_BOUNDED_ROWS", least)
        rows, columns, costs = bottleneck._pairs(problem, 0.1, 2, lambda: None)
        order = np.lexsort((columns, rows))
        assert (np.diff(rows) >= 0).all()
        ways.append((rows[order], columns[order], costs[order]))
    for one, other in zip(*ways, strict=True):
        assert np.array_equal(one, other)


def test_first_lists_grow_as_the_threshold_of_points_does():
    """Like log(n)**1.5: with 32 for each of 100,000 rows, the pairs are often listed twice."""
    agents = (0, 1, 20_000, 100_000, 1_000_000, 10_000_000)
    assert [bottleneck._first_per_agent(n) for n in agents] == [32, 32, 32, 39, 51, 65]


@pytest.mark.parametrize("per_agent", [1, 3, 10**9])
def test_short_lists_are_made_longer(per_agent, monkeypatch):
    cost = np.random.default_rng(5).random((80, 80))
    cost[7] += 2.0
    usual = bigsap.solve(cost, objective="bottleneck")
    monkeypatch.setattr(bottleneck, "_PER_AGENT", per_agent)
    found = bigsap.solve(cost, objective="bottleneck")
    assert (found.bottleneck, found.fun) == (usual.bottleneck, usual.fun)
    assert found.bottleneck > 2.0


@each(shape=[(60, 60), (50, 90), (90, 50)], kind=["random", "neighbours", "crowded"])
def test_a_larger_problem_against_a_matching_by_other_code(shape, kind, monkeypatch):
    """Complete within the threshold, and not below it, of random graphs, neighbours, and many for few."""
    rng = np.random.default_rng([*shape, len(kind)])
    n, m = shape
    if kind == "random":
        cost = rng.integers(0, 400, shape)
    elif kind == "neighbours":
        x, y = np.sort(rng.random(n)), np.sort(rng.random(m)) ** 2
        cost = np.abs(x[:, None] - y).round(2)
    else:
        cost = rng.integers(0, 9, shape) + 20 * (np.arange(m) > 5) + 50 * (np.arange(n) % 3 == 0)[:, None]
    rounds = []
    some = bottleneck.match_some

    def counted(lists, first, n_free):
        rounds.append(some(lists, first, n_free))
        return rounds[-1]

    monkeypatch.setattr(bottleneck, "match_some", counted)
    found = bigsap.solve(cost, objective="bottleneck")

    def size(limit):
        return (maximum_bipartite_matching(csr_array(cost <= limit)) >= 0).sum()

    values = np.unique(cost)
    k = int(np.searchsorted(values, found.bottleneck))
    assert size(values[k]) == min(shape)
    assert k == 0 or size(values[k - 1]) < min(shape)
    assert all(left <= min(shape) for _, left in rounds)
    assert any(left < 0 for _, left in rounds) or k == 0


def exact_distances(lists):
    """The least number of agents on a path from each slot to a free one; many where there is none."""
    far = 1 << 40
    found = np.where(lists.agent_of < 0, 0, far)
    agents = np.repeat(np.arange(lists.slot_of.size), np.diff(lists.start))
    within = np.arange(lists.slot.size) < lists.stop[agents]
    ends = agents[within], lists.slot[within]
    while True:
        nearest = np.full(lists.slot_of.size, far)
        np.minimum.at(nearest, ends[0], found[ends[1]])
        has = lists.slot_of >= 0
        again = found.copy()
        np.minimum.at(again, lists.slot_of[has], nearest[has] + 1)
        if (again == found).all():
            return found
        found = again


@pytest.mark.parametrize("shape", [(40, 40), (36, 42), (42, 36)])
def test_distances_are_bounds(shape, monkeypatch):
    """A slot that is said to be farther than it is would make agents seem to be too many."""
    rng = np.random.default_rng(shape)
    some, raised = bottleneck.match_some, []

    def checked(lists, first, n_free):
        found = some(lists, first, n_free)
        exact = exact_distances(lists)
        assert (lists.distance <= exact).all()
        raised.append((lists.distance > 1).any())
        return found

    monkeypatch.setattr(bottleneck, "match_some", checked)
    for _ in range(20):
        cost = np.abs(np.sort(rng.random(shape[0]))[:, None] - np.sort(rng.random(shape[1])) ** 2)
        bottleneck.threshold(Problem(bigsap.as_source(cost)), 1, lambda: None, lambda _: None)
    assert any(raised)


def test_a_search_for_the_threshold_looks_at_limits_in_each_matching(monkeypatch):
    """A round takes as long as a pass over the lists, and the next one begins with a look at the clock."""
    cost = np.random.default_rng(2).random((200, 200)) + np.arange(200)[:, None] % 2
    looks, calls = [], []
    problem = Problem(bigsap.as_source(cost))
    some = bottleneck.match_some

    def counted(*given):
        calls.append(len(looks))
        return some(*given)

    monkeypatch.setattr(bottleneck, "match_some", counted)
    bottleneck.threshold(problem, 1, lambda: looks.append(0), lambda _: None)
    assert len(calls) > 5
    assert len(set(calls)) == len(calls)


@pytest.mark.parametrize("turned", [False, True])
def test_longer_lists_begin_with_the_pairs_of_shorter_ones(turned, monkeypatch):
    rng = np.random.default_rng(12)
    x, y = rng.random((400, 2)) * [40, 1], rng.random((430, 2)) * [40, 1]
    source = bigsap.points(y, x) if turned else bigsap.points(x, y)
    expected = bigsap.solve(whole(source), objective="bottleneck")
    monkeypatch.setattr(policy, "BOTTLENECK_BOUNDED_ROWS", 1)
    monkeypatch.setattr(bottleneck, "_PER_AGENT", 2)
    monkeypatch.setattr(bottleneck, "_MORE", 2)
    orders, begun = [], []
    local_ordering, take = bottleneck.local_ordering, bottleneck._Search._take

    def ordering(*lists):
        orders.append(local_ordering(*lists))
        return orders[-1]

    def taken(search, slot_of):
        take(search, slot_of)
        begun.append(((slot_of >= 0).sum(), (search.lists.slot_of >= 0).sum()))
        assert np.array_equal(search.matching(), slot_of)

    monkeypatch.setattr(bottleneck, "local_ordering", ordering)
    monkeypatch.setattr(bottleneck._Search, "_take", taken)
    found = bigsap.solve(source, objective="bottleneck")
    assert (found.bottleneck, found.fun) == (expected.bottleneck, expected.fun)
    assert found.verify(source).optimal
    assert found.stats["proof"] in ("bounds", "pairs")
    every = bigsap.solve(source, objective="bottleneck", certify="pairs")
    assert (every.stats["proof"], every.fun) == ("pairs", found.fun)
    assert any(order is not None for order in orders)
    assert all(one == other for one, other in begun)
    assert max(begun)[0] > 0


@pytest.mark.parametrize("maximize", [False, True])
def test_sparse_costs_and_functions(maximize):
    cost = np.random.default_rng(6).random((30, 30))
    cost[cost > 0.5] = -np.inf if maximize else np.inf
    rows, columns = np.nonzero(np.isfinite(cost))
    expected = bigsap.solve(cost, objective="bottleneck", maximize=maximize)
    for source in (
        bigsap.sparse((rows, columns, cost[rows, columns]), (30, 30)),
        bigsap.from_function(lambda i: cost[i], (30, 30), kind="row"),
    ):
        found = bigsap.solve(source, objective="bottleneck", maximize=maximize)
        assert (found.bottleneck, found.fun) == (expected.bottleneck, expected.fun)
        assert found.verify(source).optimal


@pytest.mark.parametrize("maximize", [False, True])
def test_sparse_costs_are_proved_by_their_entries(maximize, monkeypatch):
    """No row is made of them, and whole numbers that a float does not hold stay exact."""
    cost = 2**53 + np.random.default_rng(6).integers(0, 99, (12, 9))
    rows, columns = np.nonzero(cost % 3)
    source = bigsap.sparse((rows, columns, cost[rows, columns]), cost.shape)

    def refuse(self, rows, columns, out):
        raise AssertionError("sparse costs were read as rows")

    monkeypatch.setattr(type(source), "read", refuse)
    found = bigsap.solve(source, objective="bottleneck", maximize=maximize)
    worst = cost[found.row_ind, found.col_ind]
    assert found.bottleneck == (worst.min() if maximize else worst.max())
    assert (found.status, found.fun) == ("optimal", sum(worst.tolist()))
    certificate = found.verify(source)
    assert (certificate.optimal, certificate.fun) == (True, found.fun)
    costs = cost[rows, columns]
    keep = costs >= found.bottleneck if maximize else costs <= found.bottleneck
    start = np.concatenate(([0], np.cumsum(np.bincount(rows[keep], minlength=12))))
    entries = Entries(start, columns[keep], costs[keep])
    for k in (np.argmax(keep), np.argmin(keep)):  # another cost; another pair within the threshold
        other = costs.copy()
        other[k] = found.bottleneck + (4 if maximize else -4)
        source = bigsap.sparse((rows, columns, other), cost.shape)
        with pytest.raises(CertificateError, match=f"row {rows[k]} "):
            prove_entries(source, found.bottleneck, entries, maximize=maximize)
    listed = cost[rows, columns].astype(float)
    listed[5] = np.inf if maximize else -np.inf
    for costs in (listed, np.where(np.isinf(listed), np.nan, listed)):
        with pytest.raises(InvalidCostError, match=rf"cost\[{rows[5]}, {columns[5]}\] is"):
            found.verify(bigsap.sparse((rows, columns, costs), cost.shape))


@pytest.mark.parametrize("maximize", [False, True])
def test_entries_of_sparse_costs_are_compared(maximize, tmp_path, monkeypatch):
    """No row is read: many rows take no longer than their entries, and integers are exact."""
    rng = np.random.default_rng(12)
    rows, columns = np.nonzero(rng.random((20, 20)) < 0.4)
    order = rng.permutation(rows.size)
    costs = rng.integers(0, 30, rows.size)
    small, large = (bigsap.sparse((rows[order], columns[order], c), (20, 20)) for c in (costs, costs + 2**61))
    monkeypatch.setattr(type(large), "read", lambda *_: pytest.fail("a row was read"))
    for certify in (True, "pairs"):
        expected = bigsap.solve(small, objective="bottleneck", maximize=maximize, certify=certify)
        found = bigsap.solve(large, objective="bottleneck", maximize=maximize, certify=certify)
        assert (found.status, found.bottleneck) == ("optimal", expected.bottleneck + 2**61)
        assert found.fun == expected.fun + 20 * 2**61
        found.save(tmp_path / "r.npz")
        assert bigsap.Result.load(tmp_path / "r.npz").verify(large).optimal
    entries = small.entries()
    prove_entries(small, 30, entries)
    for wrong, text in (
        (entries._replace(costs=entries.costs - 1), "row 0 lists another pair, or another cost"),
        (entries._replace(columns=np.roll(entries.columns, 1)), "lists another pair, or another cost"),
    ):
        with pytest.raises(CertificateError, match=text):
            prove_entries(small, 30, wrong)
    with pytest.raises(CertificateError, match="does not list all pairs"):
        prove_entries(bigsap.sparse((rows[1:], columns[1:], costs[1:]), (20, 20)), 30, entries)


def test_the_violator_is_checked():
    cost = np.random.default_rng(7).random((12, 12))
    found = bigsap.solve(cost, objective="bottleneck")
    rows, columns = np.nonzero(cost <= found.bottleneck)
    start = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=12))))
    entries = Entries(start, columns, cost[rows, columns])
    prove_threshold(entries, (12, 12), found.bottleneck, found.violator)
    better = (cost[found.violator] < found.bottleneck).any(axis=0)
    assert better.sum() < len(found.violator)
    with pytest.raises(CertificateError, match="does not rule out"):
        prove_threshold(entries, (12, 12), np.nextafter(found.bottleneck, 2), found.violator)
    for wrong in ([], [0, 0], [12], [-1]):
        with pytest.raises(CertificateError, match="distinct rows of 0 to 11"):
            prove_threshold(entries, (12, 12), found.bottleneck, np.array(wrong, int))
    lower = replace(found, stats={**found.stats, "bottleneck": found.bottleneck + 0.01})
    with pytest.raises(CertificateError):
        lower.verify(cost)
    with pytest.raises(CertificateError):
        found.verify(cost + np.eye(12))


def test_the_lists_are_checked():
    cost = np.random.default_rng(8).random((9, 9))
    source = bigsap.as_source(cost)
    rows, columns = np.nonzero(cost <= 0.4)
    start = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=9))))
    entries = Entries(start, columns, cost[rows, columns])
    prove_entries(source, 0.4, entries)
    with pytest.raises(CertificateError, match="does not list all pairs"):
        prove_entries(source, 0.45, entries)
    with pytest.raises(CertificateError, match="lists another cost"):
        prove_entries(source, 0.4, entries._replace(costs=entries.costs + 1e-9))


METRICS = ["sqeuclidean", "euclidean", "cityblock", "chebyshev", "haversine", "minkowski"]


@each(metric=METRICS, maximize=[False, True])
def test_lists_of_points_are_checked_by_boxes(metric, maximize, monkeypatch):
    rng = np.random.default_rng(10)
    x, y = np.round(rng.random((300, 2)), 2), np.round(rng.random((350, 2)), 2)
    options = {"p": 3} if metric == "minkowski" else {}
    source = bigsap.points(x, y, metric=metric, **options)
    cost = whole(source)
    limit = np.quantile(cost, 0.98 if maximize else 0.02, method="nearest")
    within = cost >= limit if maximize else cost <= limit
    rows, columns = np.nonzero(within)
    start = np.concatenate(([0], np.cumsum(within.sum(axis=1))))
    entries = Entries(start, columns, cost[rows, columns])
    monkeypatch.setattr(policy, "BOTTLENECK_BOUNDED_ROWS", 1)
    by, pairs = prove_entries(source, limit, entries, maximize=maximize)
    assert by == "pairs"  # with so few points, boxes exclude too little
    monkeypatch.setattr(policy, "PROOF_BOUNDS_SHARE", 0.01)
    by, pairs = prove_entries(source, limit, entries, maximize=maximize)
    assert by == "bounds"
    assert pairs < cost.size / 2 + rows.size
    assert prove_entries(source, limit, entries, maximize=maximize, bounds=False) == ("pairs", cost.size)
    outside = entries.costs.copy()
    outside[5] = cost.min() if maximize else cost.max()
    with pytest.raises(CertificateError, match=f"row {rows[5]} lists a pair beyond the threshold"):
        prove_entries(source, limit, entries._replace(costs=outside), maximize=maximize)
    (k,) = np.nonzero(entries.costs == limit)
    assert k.size  # ties with the limit count
    nearer = np.nextafter(limit, np.inf if maximize else -np.inf)
    for wrong, numbers in ((entries._replace(costs=entries.costs + 1e-3), limit), (entries, nearer)):
        with pytest.raises(
            CertificateError, match=r"lists another cost|a pair beyond|does not list all pairs"
        ):
            prove_entries(source, numbers, wrong, maximize=maximize)
    drop = np.delete(np.arange(rows.size), 7)
    start = np.concatenate(([0], np.cumsum(np.bincount(rows[drop], minlength=300))))
    with pytest.raises(CertificateError, match=f"row {rows[7]} does not list all pairs"):
        prove_entries(source, limit, Entries(start, columns[drop], entries.costs[drop]), maximize=maximize)


def test_results_are_kept(tmp_path):
    cost = np.random.default_rng(9).random((15, 18))
    found = bigsap.solve(cost, objective="bottleneck")
    found.save(tmp_path / "r.npz")
    again = bigsap.Result.load(tmp_path / "r.npz")
    assert again.bottleneck == found.bottleneck
    assert again.verify(cost).optimal
    quick = bigsap.solve(cost, objective="bottleneck", certify=False)
    assert (quick.bottleneck, quick.gap) == (found.bottleneck, None)
    assert quick.col4row.tolist() == found.col4row.tolist()


def test_options():
    cost = np.eye(4)
    with pytest.raises(OptionError, match="objective must be one of"):
        bigsap.solve(cost, objective="largest")
    for name, given in {"unassigned_cost": 1.0, "gap": 0.1, "device": "cuda", "cluster": "local"}.items():
        with pytest.raises(OptionError, match=f"{name} is not valid with objective"):
            bigsap.solve(cost, objective="bottleneck", **{name: given})
    with pytest.raises(InvalidCostError, match=r"cost\[0, 1\]"):
        bigsap.solve(np.array([[0, np.nan], [1, 1]]), objective="bottleneck")
    for shape in ((3, 2), (2, 3), (400, 400)):  # of the last one only short lists are kept
        cost = np.random.default_rng(1).random(shape)
        cost[1, 0] = np.nan
        for certify in (True, False):
            with pytest.raises(InvalidCostError, match=r"cost\[1, 0\] is nan"):
                bigsap.solve(cost, objective="bottleneck", certify=certify)
    empty = bigsap.solve(np.empty((0, 3)), objective="bottleneck")
    assert (empty.fun, empty.bottleneck) == (0.0, None)
    cancel = threading.Event()
    cancel.set()
    x, y = np.random.default_rng(1).random((2, 300, 2))
    stopped = bigsap.solve(bigsap.points(x, y), objective="bottleneck", cancel=cancel)
    assert (stopped.status, len(stopped.row_ind)) == ("cancelled", 300)


def test_a_sum_that_must_be_proved_proves_no_threshold():
    """Without a certificate, where rounding may have decided the sum, that alone is proved."""
    cost = 2**52 + np.random.default_rng(0).integers(0, 500, (50, 50))
    rows, columns = np.nonzero(cost)
    listed = bigsap.sparse((rows, columns, cost[rows, columns]))
    proved = bigsap.solve(listed, objective="bottleneck")
    found = bigsap.solve(listed, objective="bottleneck", method="auction", certify=False)
    assert (found.status, found.fun, found.bottleneck) == ("optimal", proved.fun, proved.bottleneck)
    assert (found.bound, found.gap, found.stats["proof"]) == (None, None, None)


def test_command_line(tmp_path, capsys):
    cost = np.random.default_rng(2).random((6, 6))
    np.save(tmp_path / "c.npy", cost)
    assert cli.main(["solve", str(tmp_path / "c.npy"), "--objective", "bottleneck"]) == 0
    expected = bigsap.solve(cost, objective="bottleneck")
    assert f"{expected.bottleneck:.12g}" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["f8", "i8"])
def test_many_rows_for_one_column(dtype):
    cost = np.arange(40).astype(dtype)[::-1, None]
    assert bigsap.solve(cost, objective="bottleneck").bottleneck == 0
    assert bigsap.solve(cost, objective="bottleneck", maximize=True).bottleneck == 39
