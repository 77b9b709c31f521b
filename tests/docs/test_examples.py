"""Every example, at small size, run as a user runs it.

Each main line holds what the example is about; what is checked here is that claim.
"""

from __future__ import annotations

import io
import re
import runpy
import shutil
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import bigsap
from gate import HANG_S, SUPPORT, Gated

pytest.importorskip("fastapi", reason="extra server")


EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: object) -> str:
    """stdout of an example that is run in this process, ended well and complained of nothing."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", [str(EXAMPLES / name), *map(str, arguments)])
        runpy.run_path(sys.argv[0], run_name="__main__")
    assert err.getvalue() == ""
    return out.getvalue()


def run_alone(name: str, *arguments: object, timeout: float = HANG_S, log: str = "") -> str:
    """``run`` in a process of its own, for examples whose subject are processes or their end.

    log: the logger of a library, whose entries are no complaint.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # An entry begins with its time; more lines, as of a traceback, follow.
    entries = re.split(r"^(?=\d{4}-\d\d-\d\d )", done.stderr, flags=re.MULTILINE)
    said = [entry for entry in entries if entry and not (log and f" - {log} - " in entry)]
    assert said == []
    return done.stdout


def number(pattern: str, text: str) -> float:
    found = re.search(pattern.replace("#", r"([\d,.e+-]*\d)"), text)
    assert found, f"{pattern} in {text}"
    return float(found.group(1).replace(",", ""))


def test_lambda():
    out = run("lambda_cost.py", "--n", 300)
    assert "n = 300, optimal" in out
    assert number("gap #", out) < 1e-9
    assert "verified with another function" in out


@pytest.mark.slow
def test_cluster():
    pytest.importorskip("distributed", reason="extra cluster")
    pytest.importorskip("zarr", reason="extra zarr")
    # A worker that is just telling that it is well when its cluster ends complains.
    log = "distributed.worker"
    out = run_alone("cluster.py", "--n", 120, "--micro", 5, "--workers", 1, 2, log=log)
    assert out.count("the same bits") == 4
    assert out.count("2 workers") == 2
    assert "120 rows evaluated" in out
    assert not re.search(r"\b0\.\d+ times", out)  # so small a problem takes longer: it says so


def test_asyncio():
    assert "n = 300, optimal" in run("in_asyncio.py", "--n", 300)


#: An example whose points are read up to a row that waits at the gate named first.
GATED = f"""
import runpy, sys
sys.path.insert(0, {str(SUPPORT)!r})
import bigsap
from gate import Gate, Gated
real, gate = bigsap.points, Gate(sys.argv.pop(1))
bigsap.points = lambda *given: Gated(real(*given), gate, 100)
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_asyncio_and_a_deadline(gate, monkeypatch):
    real = bigsap.points
    monkeypatch.setattr(bigsap, "points", lambda *given: Gated(real(*given), gate, 100))
    assert "n = 200, cancelled" in run("in_asyncio.py", "--n", 200, "--seconds", 0.3)


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_asyncio_and_an_interrupt(gate):
    command = ["-W", "error", "-c", GATED, gate.folder, EXAMPLES / "in_asyncio.py", "--n", 200]
    with subprocess.Popen([sys.executable, *map(str, command)], stdout=subprocess.PIPE, text=True) as process:
        try:
            gate.wait_for_readers()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=HANG_S)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "Ctrl-C" in out
    assert "n = 200, cancelled" in out


def test_points():
    out = run("points_100k.py", "--n", 2000)
    assert "n = 2,000, optimal" in out
    cost, bound = number("cost #", out), number("bound #", out)
    assert cost == pytest.approx(bound, rel=1e-8)
    assert number("# of the matrix computed", out) < 3


def test_balanced_clusters():
    out = run("balanced_clusters.py", "--n", 600, "--k", 7)
    assert "7 clusters of" in out
    assert out.count("optimal") >= 2
    assert number("to # points", out) == 86


def test_zarr_larger_than_memory(tmp_path):
    store = tmp_path / "costs.zarr"
    out = run("zarr_larger_than_memory.py", "--n", 400, "--store", store)
    assert "optimal" in out
    assert number("cache # MiB", out) < number("store # MiB", out)
    assert number("gap #", out) < 1e-6
    assert (store / "zarr.json").is_file()


def test_memmap(tmp_path):
    out = run("memmap.py", "--n", 300, "--file", tmp_path / "c.npy")
    assert "optimal" in out
    assert "gap 0," in out
    assert (tmp_path / "c.npy").stat().st_size > 4 * 300**2


def test_digits():
    out = run("digits.py", "--n", 250)
    assert "optimal" in out
    assert number("# matched with the same digit", out.replace("%", "")) > 75
    assert number("would use # of", out.replace("%", "")) < 90


def test_cells(tmp_path):
    given = ("--n", 1500, "--checkpoint", tmp_path / "cells")
    out = run("cells_250k.py", *given)
    assert "n = 1,500, 3 dimensions, optimal" in out
    assert number("# matched within", out.replace("%", "")) > 40
    again = run("cells_250k.py", *given)  # continued, from the end
    assert again.split(", gap")[0] == out.split(", gap")[0]


def test_colour_transfer(tmp_path):
    from PIL import Image

    out = run("colour_transfer.py", "--pixels", 600, "--out", tmp_path / "painted.png")
    assert "600 pixels, optimal" in out
    with Image.open(tmp_path / "painted.png") as painted:
        assert painted.size == (30, 20)
        painted.save(tmp_path / "again.png")
    # A picture painted with its own pixels is itself.
    files = (tmp_path / "again.png", tmp_path / "again.png")
    out = run("colour_transfer.py", *files, "--pixels", 600, "--out", tmp_path / "same.png")
    assert "cost 0," in out
    with Image.open(tmp_path / "same.png") as same, Image.open(files[0]) as first:
        assert same.tobytes() == first.tobytes()


def test_expression():
    out = run("expression.py")
    assert "optimal: " in out
    assert "column 11: unknown array 'rom'" in out


def test_tracking_gate():
    out = run("tracking_gate.py")
    gated, thresholded = (float(c) for c in re.findall(r"cost ([\d.]+)", out))
    assert gated < thresholded
    assert number("costs less than #", out) == pytest.approx(gated, abs=1e-6)
    assert re.search(r"costs less than \d+\.\d{10,}", out)  # rounded up it would not be proved


def test_tracking_video():
    out = run("tracking_video.py", "--ships", 300, "--frames", 6)
    assert "all optimal" in out
    warm = number("rows scanned: # from the frame before", out)
    cold = number(r"# from nothing", out)
    assert warm < cold / 2
    assert number("# of the pairs are the same ship", out.replace("%", "")) > 60


@pytest.mark.slow
def test_walkthrough(tmp_path):
    from PIL import Image

    out = run("walkthrough.py", "--n", 200, "--out", tmp_path)
    assert number("figure 1: # rows scanned plainly", out) > number("plainly, # in", out)
    ratios = [float(r) for r in re.findall(r"mean distance / epsilon = ([\d.]+)", out)]
    assert len(ratios) == 12
    assert all(0.05 < ratio < 20 for ratio in ratios)
    for name in ("figure1.png", "figure3.png", "solve.png"):
        with Image.open(tmp_path / name) as picture:
            assert len(picture.convert("L").getcolors()) > 50, "an empty picture"


@pytest.mark.slow
def test_service_client():
    out = run_alone("service_client.py", "--n", 250)
    states = re.findall(r"^job_\w+ is (\w+)$", out, re.M)
    assert states == ["queued", "starting", "running", "succeeded"]
    assert "n = 250, optimal" in out
    assert "verified here, 62,500 pairs" in out


def test_service_curl(live_server):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    done = subprocess.run(
        [EXAMPLES / "service_curl.sh", live_server.url],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert re.search(r"^dry run: about [\d.]+ seconds, \d+ bytes$", done.stdout, re.M)
    assert re.search(r"^ +1 event: end$", done.stdout, re.M)
    assert re.search(r"^optimal: cost [\d.]+, bound [\d.]+, gap \S+$", done.stdout, re.M)
    assert re.search(r"row,col4row\s+0,\d+\s+1,\d+\s+2,\d+\s*$", done.stdout)
