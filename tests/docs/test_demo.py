"""The demo's pictures, and a small demo from end to end."""

from __future__ import annotations

import importlib.util
import re
import socket
import sys

import numpy as np
import pytest

import bigsap
from bigsap.cli import demo_command as demo
from bigsap.cli import photographs as pictures
from bigsap.client import local_service
from bigsap.errors import BigsapError


def test_missing_packages_name_the_extra(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ImportError, match=r"pip install \"bigsap\[demo\]\""):
            pictures.photograph("china.jpg")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"pip install \"bigsap\[demo\]\""):
        pictures.photograph("china.jpg")


@pytest.mark.slow
def test_small_demo_from_end_to_end(tmp_path, capsys):
    from PIL import Image
    from scipy.optimize import linear_sum_assignment

    out = tmp_path / "new" / "folder"
    result = demo.run(pixels=150, out=out, threads=1, cache="64KiB")

    printed = capsys.readouterr().out
    assert "15 x 10 = 150 pixels each" in printed
    url = re.search(r"service started at (http://127\.0\.0\.1:\d+)", printed).group(1)
    for line in (r"uploaded the point sets: arr_\w+ and arr_\w+", r"submitted job_\w+"):
        assert re.search(line, printed)
    assert "verified here: 22,500 pairs" in printed
    with pytest.raises(OSError, match="refused"):  # the service is stopped
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 5)
    for label in ("n ", "cost ", "bound ", "gap ", "rows evaluated", "cache hit rate", "seconds"):
        assert f"\n{label}" in printed
    assert "peak resident" in printed
    assert str(out / "recoloured.png") in printed
    assert str(out / "result.npz") in printed

    small = [pictures.reduced(pictures.photograph(name), 15, 10) for name in ("china.jpg", "flower.jpg")]
    x, y = (pictures.features(image, 1.0) for image in small)
    cost = ((x[:, None] - y[None]) ** 2).sum(axis=2)
    rows, columns = linear_sum_assignment(cost)
    assert result.fun == pytest.approx(cost[rows, columns].sum(), rel=1e-12)
    assert result.gap <= 1e-9 * result.fun
    assert result.stats["cache_misses"] > 150  # the cache is smaller than the matrix

    saved = bigsap.Result.load(out / "result.npz")
    np.testing.assert_array_equal(saved.col4row, result.col4row)
    with Image.open(out / "recoloured.png") as picture:
        assert picture.format == "PNG"
        assert picture.size == (3 * 15 * 3 + 2 * 8, 10 * 3)
        shown = np.asarray(picture)[1::3, -15 * 3 + 1 :: 3]
    np.testing.assert_array_equal(shown, pictures.recoloured(*small, result.col4row))


def test_missing_server_packages_name_the_extra(tmp_path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "distributed" else real(name)
    )
    with pytest.raises(ImportError, match=r"needs distributed: pip install \"bigsap\[server\]\""):
        local_service.LocalService(tmp_path)


def test_service_that_does_not_start_says_why(tmp_path):
    (tmp_path / "data").write_text("a file where a folder should be")
    with (
        pytest.raises(BigsapError, match=r"did not start: .*data"),
        local_service.LocalService(tmp_path / "data"),
    ):
        raise AssertionError("must not start")
