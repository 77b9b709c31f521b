"""What notebooks show: tables of results, batches and sources; the progress bar's widget; labels."""

from __future__ import annotations

import copy
import html
import io
import pickle
import re

import numpy as np
import pytest

import bigsap
from bigsap.display import progress_bar

RNG = np.random.default_rng(31)


def cells(shown):
    """The labels and values of a table."""
    return dict(re.findall(r"<th[^>]*>(.*?)</th><td[^>]*>(.*?)</td>", shown._repr_html_()))


def test_results_and_batches():
    result = bigsap.solve(np.eye(3))
    shown = cells(result)
    assert shown["status"].startswith("optimal")
    assert (shown["n"], shown["cost"], shown["gap"]) == ("3 x 3", "0", "0")
    costs = RNG.random((4, 3, 5))
    costs[2, 1] = np.inf
    shown = cells(bigsap.solve_many(costs))
    assert (shown["problems"], shown["largest sizes"], shown["optimal"]) == ("4", "3 x 5", "3")
    assert (shown["infeasible"], shown["assigned pairs"]) == ("1", "9")
    assert cells(bigsap.solve_many([]))["problems"] == "0"


def test_the_k_best():
    shown = cells(bigsap.solve_k_best([[1, 2], [3, 5]], 9))
    assert (shown["rows x columns"], shown["assignments"]) == ("2 x 2", "2")
    assert (shown["all that there are"], shown["best cost"], shown["last cost"]) == ("yes", "5", "6")
    assert cells(bigsap.solve_k_best([[1, 2], [3, 5]], 1))["all that there are"] == "no"
    assert "best cost" not in cells(bigsap.solve_k_best([[np.inf, np.inf], [1.0, 2.0]], 1))


def sources():
    x = RNG.random((5, 2))
    return [
        bigsap.as_source(np.ones((2, 3), "f4")),
        bigsap.points(x, x),
        bigsap.lowrank(x, x),
        bigsap.table(np.ones((2, 2)), [0, 1], [1, 0]),
        bigsap.expression("abs(i - j)", (3, 4)),
        bigsap.from_function(lambda i, j: i + j, (3, 4)),
        bigsap.sparse(([0, 1], [0, 1], [1.0, 2.0])),
        bigsap.sum_of([bigsap.points(x, x), bigsap.points(x, x, "cityblock")]),
    ]


@pytest.mark.parametrize("source", sources(), ids=lambda source: type(source).__name__)
def test_sources(source):
    shown = cells(source)
    assert shown["rows x columns"] == "{} x {}".format(*source.shape)
    assert shown["number type"] == str(source.dtype)
    assert html.unescape(shown["source"]) == repr(source)


def test_text_is_escaped_and_sizes_are_readable():
    source = bigsap.expression("(i < j) * 1.0", (1 << 20, 1 << 20))
    shown = cells(source)
    assert shown["as a matrix"] == "8.0 TiB"
    assert "<" not in shown["source"]


class Widget:
    """A bar of tqdm in a notebook: its widget learns the total when it is made, and by ``reset``."""

    def __init__(self, *, total, **options):
        self.total, self.maximum, self.n, self.start_t = total, total, 0, 5.0
        self.values = []

    def reset(self, total):
        self.total, self.maximum, self.n, self.start_t = total, total, 0, 9.0

    def refresh(self):
        self.values.append((self.n, self.maximum))

    def set_description_str(self, *texts, **options): ...
    def set_postfix_str(self, *texts, **options): ...
    def close(self): ...


def test_the_widget_of_a_notebook_learns_the_number_of_rows(monkeypatch):
    auto = pytest.importorskip("tqdm.auto")
    made = []
    monkeypatch.setattr(auto, "tqdm", lambda **options: made.append(Widget(**options)) or made[0])
    bar = progress_bar.Bar(io.StringIO(), plain=False)
    state = progress_bar._Nothing()
    state.n_rows, state.assigned, state.phase, state.stage = 40, 10, 1, "search"
    bar.update(state)
    state.assigned = 40
    bar.close()
    assert made[0].values == [(10, 40), (40, 40)]
    assert made[0].start_t == 5.0


# -- labels --------------------------------------------------------------------------------


def labelled_costs():
    xr = pytest.importorskip("xarray")
    coords = {"station": ["a", "b", "c"], "target": [10, 20, 30, 40]}
    return xr.DataArray(RNG.random((3, 4)), dims=("station", "target"), coords=coords)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_result_keeps_the_names_of_coordinates(library):
    pytest.importorskip(library)
    costs = labelled_costs()
    for given in (costs, costs.T):
        result = bigsap.solve(given)
        assert list(result.labels) == list(given.dims)
        frame = result.to_dataframe(library)
        assert list(frame.columns) == ["row", "column", "cost", *given.dims]
        for station, target, cost in zip(frame["station"], frame["target"], frame["cost"], strict=True):
            assert costs.sel(station=station, target=target).item() == cost
        for other in (copy.copy(result), pickle.loads(pickle.dumps(result))):
            assert other.to_dataframe(library).equals(frame)


def test_labels_are_those_that_there_are():
    costs = labelled_costs()
    assert list(bigsap.solve(costs.drop_vars("station")).labels) == ["target"]
    assert bigsap.solve(costs.values).labels == {}
    taken = costs.rename(station="cost")
    frame = bigsap.solve(taken).to_dataframe()
    assert list(frame.columns) == ["row", "column", "cost", "target"]
    assert frame["cost"].sum() == pytest.approx(bigsap.solve(costs).fun)
    result = bigsap.solve(costs)
    costs["station"] = ["x", "y", "z"]
    assert result.labels["station"].tolist() == ["a", "b", "c"]


def test_a_resumed_solve_keeps_labels(tmp_path):
    costs = labelled_costs()
    expected = bigsap.solve(costs, checkpoint=tmp_path / "c").labels
    found = bigsap.resume(tmp_path / "c", costs).labels
    assert {name: labels.tolist() for name, labels in found.items()} == {
        name: labels.tolist() for name, labels in expected.items()
    }
    assert len(found) == 2


def test_a_variable_without_coordinates_has_no_labels():
    costs = labelled_costs()
    result = bigsap.solve(costs.variable)
    assert (result.fun, result.labels) == (bigsap.solve(costs.values).fun, {})
    assert bigsap.solve_many([costs.variable])[0].fun == result.fun
