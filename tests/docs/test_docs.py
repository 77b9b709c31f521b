"""The documents: snippets run, commands parse, links and pictures exist, tables are true."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import bigsap
from bigsap.cli import commands as cli
from bigsap.cli.costspec import open_costs

ROOT = Path(__file__).parents[2]
# Notes and pictures are checked less: they are of their day.
ASIDE = {"decisions", "lab", "screenshots"}
DOCS = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name not in ASIDE]
PAGES = [ROOT / "README.md", *DOCS]
NOTES = sorted([*(ROOT / "docs" / "decisions").glob("*.md"), *(ROOT / "docs" / "lab").glob("2*.md")])
OTHERS = [*NOTES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "docker" / "README.md"]
# Programs of others in shell blocks: only their names are checked.
FOREIGN = {"make", "pip", "dask", "sqlite3", "rsync", "docker", "-H", "x", "y"}


def blocks(page: Path) -> list[tuple[int, str, str]]:
    """(line, language, text) of each fenced block."""
    found, start, language, lines = [], 0, "", []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if not line.startswith("```"):
            lines.append(line)
        elif start:
            found.append((start, language, "\n".join(lines)))
            start = 0
        else:
            start, language, lines = number, line[3:].strip(), []
    assert not start, f"{page}: block of line {start} is not closed"
    return found


def of(language: str, pages: list[Path] = PAGES) -> list:
    return [
        pytest.param(text, id=f"{page.name}:{line}")
        for page in pages
        for line, found, text in blocks(page)
        if found == language
    ]


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """A folder with the files that the snippets name."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    cost = rng.random((40, 40))
    np.save("costs.npy", cost)
    for name in ("x", "y", "a", "b"):
        np.save(f"{name}.npy", rng.random((40, 2)))
    zarr = pytest.importorskip("zarr")
    store = zarr.create_array("costs.zarr", shape=cost.shape, chunks=(8, 40), dtype="f8")
    store[:] = cost
    return tmp_path


def test_modules_and_members_that_documents_name_exist():
    """Of documents that describe the present: notes are of their day."""
    folders = (".ci", "bigsap", "server", "benchmarks", "tests", "docs", "docker", "examples")
    files = [path.as_posix() for folder in folders for path in (ROOT / folder).rglob("*.*")]
    files += [path.as_posix() for path in ROOT.glob("*.py")]
    pages = [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "RELEASING.md"]
    missing = []
    for page in pages:
        for name, member in re.findall(r"`([\w/.]+\.(?:py|cu|js))\b(?:::(\w+))?", page.read_text()):
            found = [path for path in files if path.endswith("/" + name)]
            if not any(member in Path(path).read_text() for path in found):
                missing.append(f"{page.relative_to(ROOT)}: {name}::{member}")
    assert not missing


# -- JSON, TOML -----------------------------------------------------------------------


@pytest.mark.parametrize("text", of("json"))
def test_cost_specs_open(text, prepared):
    for k, line in enumerate(text.splitlines()):
        Path(f"spec{k}.json").write_text(line)
        source = open_costs(f"spec{k}.json")
        assert min(source.shape) >= 2


@pytest.mark.parametrize("text", of("toml"))
def test_toml_is_understood(text, tmp_path):
    pytest.importorskip("fastapi", reason="extra server")
    from bigsap_server.auth import Key
    from bigsap_server.settings import Settings

    values = tomllib.loads(text)
    if any(isinstance(value, dict) and "hash" in value for value in values.values()):
        for value in values.values():
            Key(**value)
    else:
        Settings(**values)


# -- the shell ------------------------------------------------------------------------


def commands(text: str) -> list[list[str]]:
    """The words of each command of a shell block, continued lines joined, answers left out."""
    joined = re.sub(r"\\\n\s*", " ", text)
    if "$ " in joined:
        # A session: only what follows the prompt was typed; quotes may span lines.
        joined = "\n".join(re.findall(r"^\$ ((?:'[^']*'|[^'\n])*)$", joined, re.M))
    words = shlex.split(joined.replace("\n", " ;; "), comments=False)
    lines: list[list[str]] = [[]]
    for word in words:
        if word == ";;":
            lines.append([])
        else:
            lines[-1].append(word)
    found = []
    for line in lines:
        cut = line.index("#") if "#" in line else len(line)
        if line[:cut]:
            found.append(line[:cut])
    return found


ROLES = {"serve", "scheduler", "worker", "key"}


@pytest.mark.parametrize("text", of("", [*PAGES, *OTHERS[1:]]))
def test_commands_parse(text):
    if text.lstrip().startswith(("{", "|")):
        return
    makefile = (ROOT / "Makefile").read_text()
    for words in commands(text):
        name, *rest = words
        if name == "bigsap":
            cli.build_parser().parse_args([word for word in rest if word != "&"])
        elif words[:2] == ["docker", "build"] or words[:2] == ["docker", "compose"]:
            assert (ROOT / rest[rest.index("-f") + 1]).is_file(), words
        elif words[:2] == ["docker", "run"]:
            image = next(k for k, word in enumerate(rest) if re.fullmatch(r"bigsap(:\w+)?", word))
            if rest[image + 1] not in ROLES:  # else the entrypoint hands it to bigsap
                cli.build_parser().parse_args(rest[image + 1 :])
        elif name == "make":
            assert re.search(rf"^{rest[0]}:", makefile, re.M), words
        elif name == "pip":
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            for extra in re.findall(r"\[(\w+)\]", " ".join(rest)):
                assert extra in extras["optional-dependencies"]
        elif name == "curl":
            assert any("http://127.0.0.1:8765/" in word for word in rest), words
        else:
            assert name in FOREIGN, words


def shell_block(page: Path, start: str) -> list[list[str]]:
    """The commands of the block of a page that has a line beginning so."""
    (text,) = (
        text
        for _, language, text in blocks(page)
        if not language and re.search(rf"^{re.escape(start)}", text, re.M)
    )
    return commands(text)


# Commands that run for ever or for minutes; each has tests of its own.
LONG = {"serve": "client/test_cli_service.py", "demo": "docs/test_demo.py", "warmup": "unit/test_warmup.py"}


def test_the_commands_of_the_manual_run(prepared, capsys):
    import zarr

    shutil.copy(prepared / "costs.npy", "c.npy")
    shutil.copy(prepared / "costs.npy", "later.npy")
    spec = {"type": "points", "x": {"npy": "x.npy"}, "y": {"npy": "y.npy"}}
    Path("spec.json").write_text(json.dumps(spec))
    columns = zarr.create_array("columns.zarr", shape=(40, 40), chunks=(40, 8), dtype="f8")
    columns[:] = np.load("costs.npy")
    ran = []
    for name, *words in shell_block(ROOT / "docs" / "command_line.md", "bigsap solve costs.npy"):
        assert name == "bigsap"
        if words[0] in LONG or "cuda" in words:
            assert (ROOT / "tests" / LONG.get(words[0], "client/test_cli_options.py")).is_file()
            continue
        assert cli.main(words) == 0, words
        ran.append(words[0])
    capsys.readouterr()
    assert ran == [*["solve"] * 5, "verify", "certify", "k-best", "rechunk", "info"]
    assert zarr.open_array("rows.zarr", mode="r").chunks[1] == 40
    assert np.array_equal(zarr.open_array("rows.zarr", mode="r")[:], columns[:])


def test_the_commands_of_the_service_run(prepared, live_server, monkeypatch, capsys):
    monkeypatch.setenv("BIGSAP_URL", live_server.url)
    monkeypatch.delenv("BIGSAP_KEY", raising=False)
    spec = {"type": "points", "x": {"npy": "x.npy"}, "y": {"npy": "y.npy"}}
    Path("spec.json").write_text(json.dumps(spec))
    job = None
    ran = []
    for name, *words in shell_block(ROOT / "docs" / "use.md", "bigsap submit spec.json"):
        assert name == "bigsap"
        if words[0] == "cancel":  # one that is not at its end
            code = "(sin(12.9898*i + 78.233*j + 0.001*i*j) * 43758.5453) % 1"
            slow = {"cost": {"type": "expression", "code": code}, "shape": [9000, 9000]}
            with live_server.client() as client:
                slow = client.post("/v1/jobs", json=slow).raise_for_status().json()
            words = ["cancel", *words[1:-1], slow["id"]]
        words = [job if word == "job_2f0e..." else word for word in words]
        assert cli.main(words) == 0, words
        out = capsys.readouterr().out
        job = job or re.search(r"job_\w+", out)[0]
        ran.append(words[0])
    assert ran == ["submit", "submit", "jobs", "jobs", "result", "cancel"]
    bigsap.Result.load("out.npz").verify(open_costs("spec.json"))
    live_server.finished(slow["id"])


def backed_up(words: list[str], data: Path, backup: Path) -> None:
    """Run a command of the operator's page on these folders, or do what it does."""
    folders = {"/srv/bigsap": str(data), "/backup": str(backup)}
    for name, folder in folders.items():
        words = [word.replace(name, folder) for word in words]
    if shutil.which(words[0]):
        subprocess.run(words, check=True, timeout=200)
    elif words[0] == "sqlite3":
        target = words[2].removeprefix(".backup ")
        with closing(sqlite3.connect(words[1])) as old, closing(sqlite3.connect(target)) as new:
            old.backup(new)
    else:
        assert words[:2] == ["rsync", "-a"]
        left_out = shutil.ignore_patterns(*(b for a, b in pairwise(words) if a == "--exclude"))
        shutil.copytree(words[-2], words[-1], ignore=left_out, dirs_exist_ok=True)


@pytest.mark.slow
def test_backup_and_restore_of_the_operators_page(start_server, tmp_path):
    server = start_server(tmp_path / "data")
    job = {"cost": {"type": "array", "values": [[4, 1, 3], [2, 0, 5], [3, 2, 2]]}}
    with server.client() as client:
        finished = client.post("/v1/jobs", json=job).raise_for_status().json()["id"]
        assert server.finished(finished)["state"] == "succeeded"
        before = client.get(f"/v1/jobs/{finished}/result").json()
    backup = tmp_path / "backup"
    backup.mkdir()
    wanted = shell_block(ROOT / "docs" / "operator.md", "sqlite3")
    assert [words[0] for words in wanted] == ["sqlite3", "rsync"]
    for words in wanted:  # while the service runs
        backed_up(words, tmp_path / "data", backup)
    server.kill()
    restored = start_server(backup)
    with restored.client() as client:
        assert client.get(f"/v1/jobs/{finished}").json()["state"] == "succeeded"
        assert client.get(f"/v1/jobs/{finished}/result").json() == before
        again = client.post("/v1/jobs", json=job).raise_for_status().json()["id"]
        assert restored.finished(again)["state"] == "succeeded"


def test_every_command_is_in_the_manual():
    parser = cli.build_parser()
    action = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    pages = ROOT / "docs" / "command_line.md", ROOT / "docs" / "use.md"
    text = "\n".join(page.read_text() for page in pages)
    for name in action.choices:
        assert re.search(rf"bigsap {name}\b|, {name}\b|{name},", text), name


# -- links and tables -----------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES + OTHERS, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"\w+://", target):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(there), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES + OTHERS, ids=lambda page: page.name)
def test_named_files_exist(page):
    """Paths in backticks that look like files of this repository; a dated note's tests may be gone."""
    roots = "bigsap|benchmarks|docs|docker|examples|server" + ("" if page.name[0].isdigit() else "|tests")
    for name in re.findall(rf"`((?:{roots})/[\w./-]+\.(?:py|md|sh|yaml|txt))`", page.read_text()):
        assert (ROOT / name).exists(), f"{page.name}: {name}"


def script(name: str):
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_compared_figures_are_measured_ones():
    """The README's comparison and losses, and those of the site, are what the log says."""
    module = script("figures")
    log = module.Log.read(module.LOG)
    for page in module.PAGES:
        text = page.read_text()
        assert module.written(text, log) == text, "run python docs/figures.py"
        assert "<!-- figures: los" in text, "losses are as plain as wins"


def test_settings_table_is_that_of_the_server():
    pytest.importorskip("fastapi", reason="extra server")
    module = script("settings_table")
    page = module.PAGE.read_text()
    assert module.written(page) == page, "run python docs/settings_table.py"
    assert "`BIGSAP_LIMITS__PAGE_SIZE`" in page


def test_metrics_are_those_of_the_server():
    pytest.importorskip("fastapi", reason="extra server")
    from bigsap_server.api.service_metrics import Metrics

    metrics = Metrics()
    metrics.watch(lambda: {"queued": 1}, lambda: {"idle": 1}, lambda: {"0": 1}, lambda: 0, ROOT)
    there = set(re.findall(r"^# TYPE (bigsap_\w+)", metrics.text().decode(), re.M))
    page = (ROOT / "docs" / "operator.md").read_text()
    named = set(re.findall(r"^\| `(bigsap_\w+)`", page, re.M))
    assert named == {name for name in there if not name.endswith("_created")}


# -- drawn and generated --------------------------------------------------------------


def python(*arguments: str, **more) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "MPLBACKEND": "Agg"},
        **more,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
def test_pictures_of_the_article_are_drawn(tmp_path):
    """Each is shown, and drawn from the code of the pages, which has its own sizes."""
    pytest.importorskip("matplotlib")
    python(str(ROOT / "docs" / "draw_article.py"), "--out", str(tmp_path), "--n", "320")
    drawn = {file.name for file in tmp_path.iterdir()}
    pages = (ROOT / "docs" / "how").glob("*.md")
    shown = {name for page in pages for name in re.findall(r"\]\(pictures/([^)]+)\)", page.read_text())}
    assert shown == drawn == {file.name for file in (ROOT / "docs/how/pictures").iterdir()}
    for file in tmp_path.iterdir():  # text has the page's colour, light or dark
        assert "prefers-color-scheme" in file.read_text()


def test_gaps_of_heuristics_are_those_of_the_log(tmp_path, monkeypatch):
    """The page's table is the log's; gaps are costs less proved bounds."""
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    module = script("draw_gaps")
    log = module.Log.read(module.LOG)
    page = module.PAGE.read_text()
    assert module.written(page, log) == page, "run python docs/draw_gaps.py"
    module.draw(tmp_path / "gaps.svg", log)
    drawn, kept = (tmp_path / "gaps.svg").read_text(), (module.PAGE.parent / "gaps.svg").read_text()
    assert drawn.count("<path") == kept.count("<path")
