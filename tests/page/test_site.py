"""The site: it is built without a warning, every link leads somewhere, and a browser can read it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import bigsap
from bigsap import client
from bigsap.cli.commands import build_parser

# The build takes some 15 seconds.
pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """The links of a page, the files that it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "iframe", "source") and "src" in given:
            self.loads.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(given["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file.read_text()) for file in sorted(site.rglob("*.html"))}


def test_the_site_has_its_pages(site, pages):
    assert len(pages) >= 35
    for name in ("index", "start/install", "start/tutorial", "guarantees", "search"):
        assert site / f"{name}.html" in pages, name


def test_no_link_is_dead(pages):
    dead = []
    for file, page in pages.items():
        for link in page.links:
            if re.match(r"\w+:", link) or link == "#":
                continue
            target, _, anchor = unquote(link).partition("#")
            there = (file.parent / target).resolve() if target else file
            if not there.exists():
                dead.append(f"{file.name}: {link}")
            elif anchor and there in pages and anchor not in pages[there].anchors:
                dead.append(f"{file.name}: {link} (no such anchor)")
    assert not dead


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for file, page in pages.items():
        for name in page.loads:
            assert not re.match(r"(\w+:)?//", name), f"{file.name}: {name}"
            assert (file.parent / name.partition("?")[0]).exists(), f"{file.name}: {name}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text()), style.name


def test_no_heading_of_a_table_is_empty(pages):
    """A screen reader would announce it: corners, and columns without a name, are plain cells."""
    headings = re.compile(r"<th\b[^>]*>(.*?)</th>", re.S)
    for file in pages:
        for heading in headings.findall(file.read_text()):
            assert re.sub(r"<[^>]+>", "", heading).strip(), file.name


def test_every_page_has_a_heading(pages):
    for file in pages:
        assert file.read_text().count("<h1") == 1, file.name


def test_everything_public_is_in_the_reference(site):
    from bigsap_server.problems import PROBLEMS

    reference = {name: (site / "reference" / f"{name}.html").read_text() for name in REFERENCE}
    text = "".join(reference.values())
    for name in bigsap.__all__:
        assert name == "__version__" or f'id="bigsap.{name}"' in text or f'id="{name.lower()}"' in text, name
    (action,) = (found for found in build_parser()._actions if found.dest == "command")
    for name in action.choices:
        assert f'id="bigsap-{name}"' in reference["commands"], name
    rest = (site / "service" / "rest.html").read_text()
    for slug in PROBLEMS:
        assert slug in rest, slug
    assert "POST /v1/jobs" in rest


def test_every_error_has_its_heading_in_troubleshooting(site):
    text = (site / "troubleshooting.html").read_text()
    kinds = [getattr(bigsap, name) for name in bigsap.__all__] + [
        getattr(client, name) for name in client.__all__
    ]
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, BaseException):
            assert f'id="{kind.__name__.lower()}"' in text, kind.__name__


REFERENCE = ("solve", "sources", "results", "client", "errors", "commands", "cost_specs")
