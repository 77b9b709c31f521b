"""Result.plot: what the picture shows, and that it can be drawn without a display."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import numpy as np
import pytest

import bigsap
from bigsap.result import Status
from solved import PHASES, cost_of, solved


def drawn(phases, **stats):
    pytest.importorskip("matplotlib")
    result = solved(cost_of("real"))
    result.stats.update(phases=phases, **stats)
    return result.plot()


@pytest.mark.parametrize("phases", [PHASES, PHASES[2:], []])
def test_panels(phases):
    figure = drawn(phases)
    epsilon, scans, moves = figure.axes
    assert epsilon.lines[0].get_ydata().tolist() == [p["epsilon"] for p in phases]
    heights = [bar.get_height() for bar in scans.patches]
    assert heights == [p["rows_scanned"] / 6 for p in phases]
    assert len(moves.patches) == len(phases)
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert [label.partition("\n")[0] for label in labels] == ["epsilon", "rows scanned", "prices moved"]
    assert moves.get_xlabel() == "phase"
    png = io.BytesIO()
    figure.savefig(png)
    assert png.getvalue().startswith(b"\x89PNG")


def test_gap_over_time():
    gaps = [{"seconds": 0.5, "gap": None}, {"seconds": 1, "gap": 3.0}, {"seconds": 2, "gap": 0.0}]
    figure = drawn(PHASES, gaps=gaps)
    gap = figure.axes[3]
    assert gap.lines[0].get_xdata().tolist() == [1.0, 2.0]
    assert gap.lines[0].get_ydata().tolist() == [3.0, 0.0]
    assert gap.get_xlabel() == "time (s)"


def test_a_real_solve():
    pytest.importorskip("matplotlib")
    x, y = np.random.default_rng(0).random((2, 60, 2))
    result = bigsap.solve(bigsap.points(x, y))
    figure = result.plot()
    phases = result.stats["phases"]
    heights = [bar.get_height() for bar in figure.axes[1].patches]
    assert heights == [p["rows_scanned"] / 60 for p in phases]
    assert [b.get_height() for b in figure.axes[2].patches] == [p["prices_moved"] for p in phases]
    assert "60 x 60, optimal" in figure.get_suptitle()
    assert f"{result.fun:.6g}" in figure.get_suptitle()


def test_unfinished():
    pytest.importorskip("matplotlib")
    result = replace(solved(cost_of("real")), status=Status.TIME_LIMIT, fun=None, gap=None, stats={})
    figure = result.plot()
    assert figure.get_suptitle() == "6 x 6, time limit"


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        solved(cost_of("real")).plot()
