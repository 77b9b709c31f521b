"""The benchmarks' page: who won, losses shown, all figures of the log, nothing of it as markup."""

from __future__ import annotations

import re

import pytest

from bench_log import HEADER, mixed
from benchmarks import charts, page, run, standings
from benchmarks.records import Log


@pytest.fixture
def log(tmp_path):
    return mixed(tmp_path)


@pytest.fixture
def text(log):
    return page.page(log, run.sections(log), "2026-01-31")


def section(text: str, name: str) -> str:
    return re.search(rf'<section id="{name}">(.*?)</section>', text, re.S)[1]


def test_who_won(log):
    found = {(m.cls, m.n, m.threads): m for m in standings.matches(log)}
    assert len(found) == 12
    won, lost, alone = (found[cls, 4000, 2] for cls in ("random", "rank1", "sanity"))
    assert (won.rival, won.lost) == ("scipy", False)  # not who was fast and wrong
    assert won.lead == pytest.approx(5.0)
    assert (lost.rival, lost.lost) == ("scipy", True)
    assert lost.lead == pytest.approx(0.4)
    assert (alone.rival, alone.lost, alone.patience) == (None, False, 4.0)
    assert alone.lead == pytest.approx(40.0)


def test_nobody_else_took_part(tmp_path):
    log = Log(tmp_path / "runs.jsonl", HEADER)
    made = page.page(log, {})
    assert "Machine and versions" in made
    assert "<svg" not in made
    log.add(("peers", "random", 100, 0, "bigsap auto", 1), seconds=1.0, cost=1.0)
    assert standings.matches(log) == []
    made = page.page(log, {})
    assert "fastest" not in made
    assert 'id="losses"' not in made
    assert "<svg" in made  # ours are drawn nevertheless


def test_in_short(text):
    tiles = dict(re.findall(r"<strong>([^<]*)</strong><span>([^<]*)</span></div>", text))
    assert tiles["8 of 12"] == "classes and sizes where bigsap auto is the fastest"
    assert tiles["4"].startswith("lost")
    assert tiles["1 of 2"] == "bars met"
    assert "3.00 s, 477 MiB, optimal" in tiles["16,000 points"]


def test_losses_are_listed_the_worst_first_and_bars_too(text):
    items = re.findall("<li>(.*?)</li>", section(text, "losses"))
    assert len(items) == 5
    assert items[0].startswith("rank1, n = 1,000, 1 thread: scipy 0.200 s, bigsap auto 0.500 s")
    assert "(2.5\u00d7 slower)" in items[0]
    bar = "Bar missed. Rows scanned, against the paper&#39;s Table 1: random, 2,000 (bar 1.05)"
    assert items[-1] == bar
    cells = re.findall(r'<td class="(\w+)"><strong>(.*?)</strong>', section(text, "contest"))
    assert cells.count(("lost", "\u2717 2.5\u00d7 slower")) == 4
    assert cells.count(("won", "\u2713 5.0\u00d7 faster")) == 4
    assert ("won", "\u2713 over 40.0\u00d7") in cells


def test_charts_hold_what_was_measured(log):
    two = next(charts._by_class(log, 2))
    lines = {line.name: line for line in two[3]}
    assert two[0] == "random (not shown: wrong & fast WRONG)"
    assert lines["bigsap auto"].points == {1000.0: 0.02, 4000.0: 0.08}
    found = {caption: lines for caption, _, _, lines in charts._by_class(log, 2)}
    ours, scipy = (
        next(line for line in found[cls] if line.name == name)
        for cls, name in (("rank1", "bigsap auto"), ("sanity", "scipy"))
    )
    assert list(ours.lost) == [1000.0, 4000.0]
    assert scipy.stopped == {1000.0: 4.0, 4000.0: 4.0}
    drawn = charts.galleries(log)
    assert [len(one.charts) for one in drawn[:3]] == [3, 3, 2]
    assert all("currentColor" in svg for one in drawn for _, svg in one.charts)


def test_nothing_of_a_log_is_markup(text):
    assert "Some <b>" not in text
    assert "Some &lt;b&gt;CPU" in text
    assert "wrong & fast" not in text
    assert "<script" not in text
    assert not re.search(r'(src|href)="(?!#|data:)|url\((?!#)|@import', text)


def test_every_table_is_on_the_page(text, log):
    found = [b for _, blocks in run.sections(log).values() for b in blocks]
    tables = [block for block in found if isinstance(block, page.Table)]
    rows = [row for table in tables for row in table.rows]
    assert section(text, "tables").count("<tr>") == len(rows) + len(tables)
    bad = sum(cell in page._BAD for row in rows for cell in row)
    assert section(text, "tables").count('class="bad"') == bad > 3
