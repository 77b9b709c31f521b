"""Result: its fields, its files and its picture."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import math
import os
import zipfile

import numpy as np
import pytest

from bigsap.errors import StoreError
from bigsap.result import Result, Status
from solved import PHASES, cost_of, solved

SHAPES = [(6, 6), (4, 7), (7, 4), (1, 1), (1, 3)]
every_problem = pytest.mark.parametrize(
    ("kind", "shape", "maximize"),
    [(k, s, x) for k in ("real", "integer") for s in SHAPES for x in (False, True)],
)


@every_problem
def test_fields_tell_one_story(kind, shape, maximize):
    cost = cost_of(kind, shape)
    n, m = shape
    res = solved(cost, maximize)
    assert res.shape == shape
    assert res.row_ind.dtype == res.col_ind.dtype == res.col4row.dtype == np.intp
    assert res.row4col.dtype == res.violator.dtype == np.intp
    assert len(res.row_ind) == min(n, m)
    assert (np.diff(res.row_ind) > 0).all()
    np.testing.assert_array_equal(res.col4row[res.row_ind], res.col_ind)
    np.testing.assert_array_equal(res.row4col[res.col_ind], res.row_ind)
    assert (res.col4row == -1).sum() == n - min(n, m)
    assert (res.row4col == -1).sum() == m - min(n, m)
    np.testing.assert_array_equal(res.pairs(), np.stack([res.row_ind, res.col_ind], axis=1))
    assert res.pairs().dtype == np.intp
    assert res.fun == pytest.approx(cost[res.row_ind, res.col_ind].sum())
    assert isinstance(res.fun, float if kind == "real" else int)
    # The duals in the user's sense.
    sign = -1 if maximize else 1
    reduced = sign * (cost - res.u[:, None] - res.v[None, :])
    assert reduced.min() >= -1e-12
    np.testing.assert_allclose(reduced[res.row_ind, res.col_ind], 0, atol=1e-12)
    assert (res.u[res.col4row == -1] == 0).all()
    assert (res.v[res.row4col == -1] == 0).all()
    assert res.u.sum() + res.v.sum() == pytest.approx(res.bound)
    assert res.gap == pytest.approx(abs(res.fun - res.bound), abs=4 * np.spacing(float(abs(res.fun))))
    assert res.success
    assert res.status == "optimal" == Status.OPTIMAL
    assert str(res.status) == "optimal"
    assert res.nit == 3
    assert res.verify(cost).optimal


def test_reads_like_a_mapping():
    res = solved(cost_of("real"))
    names = res.keys()
    assert names[:10] == [
        "row_ind",
        "col_ind",
        "fun",
        "u",
        "v",
        "bound",
        "gap",
        "status",
        "success",
        "message",
    ]
    assert {"nit", "stats", "col4row", "row4col", "violator", "maximize", "shape"} <= set(names)
    assert dict(res).keys() == set(names)
    assert res["fun"] is res.fun
    assert "fun" in res
    assert "verify" not in res
    for wrong in ("verify", "x", 0):
        with pytest.raises(KeyError):
            res[wrong]
    with pytest.raises(dataclasses.FrozenInstanceError):
        res.fun = 0.0


def test_repr_is_short_and_says_what_matters():
    text = repr(solved(cost_of("integer", (4, 7)), maximize=True))
    assert len(text) < 160
    for part in ("optimal", "4 x 7", "maximize", "fun=", "bound=", "gap=0"):
        assert part in text


def test_without_assignment():
    res = Result.from_assignment(None, shape=(2, 3), status=Status.TIME_LIMIT, bound=4.0, message="stopped")
    assert (res.fun, res.bound, res.gap, res.success) == (None, 4.0, None, False)
    assert res.pairs().shape == (0, 2)
    assert res.message == "stopped"
    assert np.isnan(res.u).all()
    assert "stopped" not in repr(res)
    assert Result.from_assignment(None, shape=(1, 1), status=Status.CANCELLED).message


def test_without_certificate_the_signs_are_the_users():
    res = Result.from_assignment(
        [0, 1],
        [-1.0, 0.0],
        u=[-2.0, -3.0],
        fun=6.0,
        bound=6.0,
        shape=(2, 2),
        status=Status.OPTIMAL,
        maximize=True,
    )
    np.testing.assert_array_equal(res.u, [2, 3])
    np.testing.assert_array_equal(res.v, [1, 0])
    assert not np.signbit(res.v).any()
    assert 0 <= res.gap < 1e-15
    res.verify([[3.0, 1.0], [1.0, 3.0]])


# --- files --------------------------------------------------------------------------


def same(a, b):
    for name in a.keys():  # noqa: SIM118 - a Result, not a dict
        x, y = a[name], b[name]
        if isinstance(x, np.ndarray):
            np.testing.assert_array_equal(x, y, strict=True)
        else:
            assert x == y
            assert type(x) is type(y)


@every_problem
def test_save_and_load(kind, shape, maximize, tmp_path):
    res = solved(cost_of(kind, shape), maximize)
    path = tmp_path / "result.npz"
    res.save(path)
    back = Result.load(str(path))
    same(res, back)
    back.verify(cost_of(kind, shape))
    assert [p.name for p in tmp_path.iterdir()] == ["result.npz"]


def test_save_and_load_of_odd_values(tmp_path):
    path = tmp_path / "ünlich"
    big = Result.from_assignment(
        [0], [0], u=[0], fun=2**70 + 1, bound=2**70, shape=(1, 1), status=Status.GAP_REACHED
    )
    none = Result.from_assignment(
        None, shape=(0, 3), status=Status.INFEASIBLE, violator=[2, 1], bound=np.inf, message="ß"
    )
    for res in (big, none):
        res.save(path)
        same(res, Result.load(path))


def test_stats_of_numpy_are_saved_as_numbers(tmp_path):
    res = solved(cost_of("real"), a=np.int64(3), b=np.float32(0.5), c=np.arange(2), d=(1, 2), e=np.True_)
    res.save(tmp_path / "r.npz")
    stats = Result.load(tmp_path / "r.npz").stats
    assert [stats[k] for k in "abcde"] == [3, 0.5, [0, 1], [1, 2], True]
    assert stats["phases"] == PHASES


def test_save_is_all_or_nothing(tmp_path, monkeypatch):
    res = solved(cost_of("real"))
    path = tmp_path / "r.npz"
    res.save(path)
    before = path.read_bytes()

    def fails(file, **parts):
        file.write(b"half a file")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fails)
    with pytest.raises(OSError, match="disk full"):
        res.save(path)
    monkeypatch.undo()
    monkeypatch.setattr(os, "replace", lambda a, b: fails(io.BytesIO()))
    with pytest.raises(OSError, match="disk full"):
        solved(cost_of("integer")).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["r.npz"]
    with pytest.raises(FileNotFoundError):
        res.save(tmp_path / "no" / "folder.npz")


def parts_of(path):
    with np.load(path) as parts:
        return dict(parts)


def rewrite(path, **changes):
    parts = {k: v for k, v in (parts_of(path) | changes).items() if v is not None}
    np.savez(path, **parts)


def meta_with(path, **changes):
    meta = json.loads(bytes(parts_of(path)["meta"][()]))
    return np.array(json.dumps(meta | changes).encode())


def npy_of(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def with_member(path, name, content):
    parts = parts_of(path)
    del parts[name]
    np.savez(path, **parts)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{name}.npy", content)


def header_of(length):
    file = io.BytesIO()
    form = {"descr": "<f8", "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, form)
    return file.getvalue()


DAMAGE = {
    "empty": lambda p: p.write_bytes(b""),
    "half": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
    "flipped bytes": lambda p: p.write_bytes(p.read_bytes().replace(b"col4row", b"col4raw")),
    "damaged data": lambda p: p.write_bytes(p.read_bytes().replace(b"optimal", b"OPTIMAL")),
    "npy": lambda p: p.write_bytes(npy_of(np.eye(3))),
    "text meta": lambda p: rewrite(p, meta=np.array("{}")),
    "other npz": lambda p: np.savez(p, x=np.eye(3)),
    "pickled": lambda p: rewrite(p, u=np.array([{}], dtype=object)),
    "pickled meta": lambda p: rewrite(p, meta=np.array({}, dtype=object)),
    "foreign meta": lambda p: rewrite(p, meta=np.array(b'{"format": "x", "version": 1}')),
    "newer": lambda p: rewrite(p, meta=meta_with(p, version=2)),
    "status": lambda p: rewrite(p, meta=meta_with(p, status="fine")),
    "shape": lambda p: rewrite(p, meta=meta_with(p, shape=[5, 6])),
    "fun": lambda p: rewrite(p, meta=meta_with(p, fun="7")),
    "short dual": lambda p: rewrite(p, v=np.zeros(5)),
    "column": lambda p: rewrite(p, col4row=np.array([0, 1, 2, 3, 4, 6])),
    "missing": lambda p: rewrite(p, violator=None),
    "no array": lambda p: with_member(p, "u", b"hello"),
    "beyond the memory": lambda p: with_member(p, "v", header_of(2**58)),
    "table of rows": lambda p: rewrite(p, violator=np.zeros((2, 2), int)),
    "wide floats": lambda p: rewrite(p, u=np.zeros(6, np.longdouble)),
    "narrow integers": lambda p: rewrite(p, u=np.zeros(6, np.int8)),
    "no stats": lambda p: rewrite(p, meta=meta_with(p, stats=[])),
    "bottleneck": lambda p: rewrite(p, meta=meta_with(p, stats={"bottleneck": "7"})),
    "bound": lambda p: rewrite(p, meta=meta_with(p, bound=math.nan)),
    "gap": lambda p: rewrite(p, meta=meta_with(p, gap=10**400)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_and_foreign_files(damage, tmp_path):
    path = tmp_path / "r.npz"
    solved(cost_of("real")).save(path)
    DAMAGE[damage](path)
    with pytest.raises(StoreError, match=r"r\.npz: (not a|damaged) BigSAP result"):
        Result.load(path)


def test_no_advice_to_unpickle(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("no result")
    with pytest.raises(StoreError, match=r"notes\.txt: not a BigSAP result file: it is no \.npz file$"):
        Result.load(path)


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        Result.load(tmp_path / "none.npz")
    with pytest.raises(IsADirectoryError):
        Result.load(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="links and pipes as on POSIX")
def test_a_link_is_followed_and_a_pipe_is_not_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.npz").symlink_to(tmp_path / "folder" / "r.npz")
    result = solved(cost_of("real"))
    result.save(tmp_path / "link.npz")
    assert (tmp_path / "link.npz").is_symlink()
    assert Result.load(tmp_path / "folder" / "r.npz").fun == result.fun
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is a device, pipe or socket: name a file") as caught:
        result.save(tmp_path / "pipe")
    assert caught.value.filename == str(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
    assert len(list(tmp_path.iterdir())) == 3


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(*_args, **_parts):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*r\.npz'$"):
        solved(cost_of("real")).save(tmp_path / "r.npz")
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    with pytest.raises(IsADirectoryError, match=f"directory: '{tmp_path}'$"):
        solved(cost_of("real")).save(tmp_path)
