"""The benchmark's page: who won, charts, tables, and that nothing of a log is taken as markup."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from bench_log import HEADER, mixed
from benchmarks import charts, contest, markup, page, page_charts, run
from benchmarks.bench_settings import BenchSettings
from benchmarks.records import Log


@pytest.fixture
def log(tmp_path):
    return mixed(tmp_path)


@pytest.fixture
def text(log, tmp_path):
    return page.page(log, run.sections(BenchSettings(out=tmp_path), log), "2026-01-31")


def section(text: str, name: str) -> str:
    return re.search(rf'<section id="{name}">(.*?)</section>', text, re.S)[1]


def test_who_won(log):
    found = {(m.cls, m.n, m.threads): m for m in contest.matches(log)}
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
    log.add("peers", "random", 100, 0, "bigsap auto", 1, seconds=1.0, cost=1.0)
    assert contest.matches(log) == []
    made = page.page(log, {})
    assert "fastest" not in made
    assert 'id="losses"' not in made
    assert '<svg class="chart"' in made  # ours are drawn nevertheless


def test_an_empty_log_makes_a_page(tmp_path):
    made = page.page(Log(tmp_path / "runs.jsonl", HEADER), {})
    assert "Machine and versions" in made
    assert "<svg" not in made


def test_tiles(text):
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
    bar = "Bar missed. Rows scanned, against the paper's Table 1: random, 2,000 (bar 1.05)"
    assert items[-1] == bar
    cells = re.findall(r'<td class="(\w+-\d)"><strong>(.*?)</strong>', section(text, "contest"))
    assert cells.count(("lost-2", "\u2717 2.5\u00d7 slower")) == 4
    assert cells.count(("won-3", "\u2713 5.0\u00d7 faster")) == 4
    assert ("won-3", "\u2713 over 40.0\u00d7") in cells


def test_charts_hold_every_measurement(text):
    root = ET.fromstring(f"<r>{section(text, 'by-class')}</r>")
    panels = root.findall("div[@class]")
    one, two = (p for p in panels if p.get("class").startswith("panel"))
    for panel in (one, two):
        svgs = panel.findall(".//svg[@class='chart']")
        assert [svg.get("aria-label") for svg in svgs] == [
            f"Seconds by size, {cls}" for cls in ("random", "rank1", "sanity")
        ]
        titles = [t.text for t in panel.iter("title")]
        assert len(titles) == 12
        assert "bigsap auto, n = 4,000: 0.0800 s, best other 0.400 s" in titles
        assert titles.count("scipy, n = 1,000: stopped after 4 s") == 1
        assert len(panel.findall(".//circle[@class='lost']")) == 2  # rank 1, both sizes
        assert "Not shown: wrong &amp; fast WRONG." in ET.tostring(panel, encoding="unicode")


def test_places_in_a_chart():
    """Twice the logarithm, twice the way; larger is to the right and higher up."""
    points = [charts.Point(x, y, "") for x, y in ((10, 1), (100, 10), (1000, 100))]
    made = charts.chart([charts.Series("a", 0, points)], name="n", x_label="x", y_label="y")
    (path,) = re.findall(r'class="line s0" d="M([^"]*)"', made)
    (ax, ay), (bx, by), (cx, cy) = ([float(v) for v in p.split()] for p in path.split("L"))
    assert bx - ax == pytest.approx(cx - bx, abs=0.2)
    assert ay - by == pytest.approx(by - cy, abs=0.2)
    assert ax < bx < cx
    assert ay > by > cy
    ET.fromstring(made)
    assert charts.chart([charts.Series("a", 0)], name="n", x_label="x", y_label="y") == ""


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (0.5, 2.1, [0.5, 0.7, 1, 1.2, 1.5, 2]),
        (1, 100, [1, 3, 10, 30, 100]),
        (0.009, 9.0, [0.01, 0.03, 0.1, 0.3, 1, 3]),
        (1, 1e7, [1, 100, 1e4, 1e6]),
    ],
)
def test_ticks(low, high, found):
    assert charts.ticks(low, high) == pytest.approx(found)


@pytest.mark.parametrize(
    ("value", "text"), [(16000, "16k"), (1_024_000, "1.02M"), (0.02, "0.02"), (5, "5"), (2e9, "2G")]
)
def test_numbers_of_axes(value, text):
    assert charts.number_text(value) == text


def test_markdown_becomes_html():
    text = (
        "Some *text* with `a < b`.\nAnd more [here](https://example.org/x), [not](GPU.md).\n\n"
        "### Head\n\n| a | b |\n| --- | ---: |\n| x | MISSED |\n| <y> | met |\n\n"
        "- one\n  more\n- two\n\n![p](p.svg)"
    )
    made = markup.html(text, level=3)
    assert "<p>Some *text* with <code>a &lt; b</code>. And more" in made
    assert '<a href="https://example.org/x">here</a>, [not](GPU.md)' in made
    assert "<h4>Head</h4>" in made
    assert '<th scope="row">x</th><td class="bad">MISSED</td>' in made
    assert '<th scope="row">&lt;y&gt;</th><td class="good">met</td>' in made
    assert "<ul><li>one more</li><li>two</li></ul>" in made
    assert "p.svg" not in made


def test_nothing_of_a_log_is_markup(text):
    assert "Some <b>" not in text
    assert "Some &lt;b&gt;CPU" in text
    assert "wrong & fast" not in text
    assert "<script" not in text
    assert not re.search(r"(src|href)=|url\(|@import", text)


def test_every_table_of_the_report_is_there(text, log, tmp_path):
    markdown = run.report(BenchSettings(out=tmp_path), log)
    rows = [line for line in markdown.split("\n") if line.startswith("| ")]
    tables = section(text, "tables")
    heads = len(re.findall(r"^\| ---", markdown, re.M))
    assert tables.count("<tr>") == len(rows) - heads
    assert tables.count('class="bad"') == len(re.findall(r"\| (?:MISSED|WRONG) (?=\|)", markdown))


def test_written_beside_the_report(log, tmp_path, monkeypatch):
    monkeypatch.setattr(run.pictures, "draw", lambda log, folder: {})
    settings = BenchSettings(out=tmp_path)
    run.report_only(settings)
    made = (tmp_path / "report.html").read_text()
    assert made.startswith("<!doctype html>")
    (tmp_path / "HEAD.md").write_text("# Head\n")
    run.publish(settings, tmp_path / "HEAD.md", tmp_path / "to")
    assert (tmp_path / "to" / "report.html").read_text() == made


def test_caches(tmp_path):
    log = Log(tmp_path / "runs.jsonl", HEADER)
    for n in (1000, 2000):
        for share in ("all rows", "one row"):
            log.add("cached", "disjoint", n, 0, share, 2, seconds=n / 1000)
    made = page_charts.by_cache(log)
    assert made.count("<title>") == 4
    assert "disjoint, 2 threads" in made
    assert ">one row</li>" in made
