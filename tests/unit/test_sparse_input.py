"""Sparse costs as they are given: formats, indices, missing values, files; bad ones are named."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.spatial
import zarr

import bigsap
from bigsap import policy
from bigsap.client.job_request import request_of
from bigsap.sources.sparse import stored as stored_costs
from bigsap.sources.sparse.sparse_costs import SparseCosts, from_csr, sparse, sparse_of_spec

FORMATS = ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")


@pytest.mark.parametrize("form", FORMATS)
def test_explicit_zeros_are_costs_in_every_format(form: str) -> None:
    places = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    given = scipy.sparse.coo_array((np.array([0.0, 5, 5, 0]), places), shape=(2, 2)).asformat(form)
    if form == "dok":  # scipy leaves zeros out of a new one
        given = scipy.sparse.dok_array((2, 2))
        given._dict.update({(0, 0): 0.0, (0, 1): 5.0, (1, 0): 5.0, (1, 1): 0.0})
    assert bigsap.solve(given).fun == 0.0
    assert sparse(given).entries().columns.size == 4


@pytest.mark.parametrize("form", [*FORMATS, "numpy"])
def test_a_matrix_whose_rows_are_matrices_is_no_batch(form: str) -> None:
    """The matrices of scipy and numpy yield their rows, each a matrix again, or cannot be indexed."""
    given: Any = scipy.sparse.coo_matrix(np.eye(3))
    given = given.todense() if form == "numpy" else given.asformat(form)
    with pytest.raises(bigsap.OptionError, match="for one problem call solve"):
        bigsap.solve_many(given)
    assert bigsap.solve_many([given]).fun.tolist() == [0.0 if form == "numpy" else 3.0]


def test_sparse_arrays_of_three_dimensions_are_a_batch() -> None:
    class Stack:  # as scipy's newest, whose length is an error
        shape, dtype, nnz = (2, 3, 3), np.dtype(np.float64), 6

        def tocsr(self) -> None:
            raise ValueError

        def __len__(self) -> int:
            raise TypeError("sparse array length is ambiguous")

        def __iter__(self) -> Any:
            return iter([scipy.sparse.coo_array(np.eye(3)), scipy.sparse.coo_array(2 * np.eye(3))])

    assert bigsap.solve_many(Stack()).fun.tolist() == [3.0, 6.0]
    assert bigsap.solve_many(Stack(), unassigned_cost=0.5).fun.tolist() == [1.5, 1.5]


@pytest.mark.parametrize("order", ["<", ">"])
def test_indices_of_any_byte_order(order: str) -> None:
    rows, columns, costs = (np.array([1, 0, 1, 0], f"{order}{kind}") for kind in ("i8", "i4", "f8"))
    columns[2:] = 0, 1
    found = sparse((rows, columns, costs), (2, 2)).entries()
    assert (found.columns.tolist(), found.costs.tolist()) == ([0, 1, 1, 0], [0, 0, 1, 1])
    listed = from_csr(found.start.astype(f"{order}i4"), found.columns.astype(f"{order}i4"), costs, (2, 2))
    assert listed.entries().columns.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("shape", [(3, 3), (3, 5), (5, 3), (0, 3), (3, 0)])
def test_stored_diagonals_are_listed_inside_the_shape(shape: tuple[int, int]) -> None:
    n, m = shape
    offsets = np.array([-7, -2, 0, 1, 4, 9])
    for width in (0, 2, 7):
        data = np.arange(6 * width).reshape(6, width)
        given = scipy.sparse.dia_array((data, offsets), shape=shape)
        start, columns, costs = sparse(given).entries()
        rows = np.repeat(np.arange(n), np.diff(start))
        found = dict(zip(zip(rows.tolist(), columns.tolist(), strict=True), costs.tolist(), strict=True))
        pairs = [
            (k, j, j - offset) for k, offset in enumerate(offsets.tolist()) for j in range(min(width, m))
        ]
        assert found == {(i, j): data[k, j] for k, j, i in pairs if 0 <= i < n}
        assert len(found) == given.nnz


@pytest.mark.parametrize("form", ["dense", "csr", "csc", "coo", "vectors"])
def test_long_doubles_beyond_float64_are_named(form: str) -> None:
    costs = np.array(["1", "-1e4000", "2"], "g")
    if np.isinf(costs[1]):
        return  # Long doubles are float64 here.
    given: Any = (np.array([0, 0, 1]), np.array([0, 1, 1]), costs)
    if form != "vectors":
        given = scipy.sparse.coo_array((costs, given[:2]), shape=(2, 2))
        given = given.toarray() if form == "dense" else given.asformat(form)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(bigsap.InvalidCostError, match=r"cost\[0, 1\] = -1e\+4000 cannot") as caught:
            bigsap.solve(sparse(given) if form == "vectors" else given)
    assert (caught.value.row, caught.value.column) == (0, 1)


@pytest.mark.parametrize(
    ("rows", "columns", "shape", "text"),
    [
        ([2**40], [0], None, r"at most 2147483646 rows or columns, got shape \(1099511627777, 1\)"),
        ([0], [2**31], None, r"at most .* \(1, 2147483649\)"),
        ([0], [2**32], None, "at most"),
        (np.array([2**63], np.uint64), [0], None, r"at most .* \(9223372036854775809, 1\)"),
        ([0], [0], (2**62, 1), "at most"),
        ([0], [0], (2, -2), "negative size"),
        ([0], [0], (2, 2.5), r"not \(n_rows, n_columns\)"),
        ([0], [2**32], (2, 2), r"\(0, 4294967296\) is outside the shape \(2, 2\)"),
        (np.array([2**63], np.uint64), [0], (2, 2), r"\(9223372036854775808, 0\) is outside"),
        ([0], np.array([2**64 - 1], np.uint64), (2, 2), r"\(0, 18446744073709551615\) is outside"),
        ([-1], [0], None, r"\(-1, 0\) is outside"),
        (np.array([200], np.uint8), [0], (300, 300), None),
    ],
)
def test_indices_and_sides_that_no_problem_has_are_named(
    rows: Any, columns: Any, shape: Any, text: Any
) -> None:
    if text is None:
        assert bigsap.sparse((rows, columns, [1.0]), shape=shape).entries().start[201] == 1
        return
    with pytest.raises(bigsap.ShapeError, match=text):
        bigsap.sparse((rows, columns, [1.0]), shape=shape)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_unsigned_indices_beyond_int64_are_named(form: str) -> None:
    given = scipy.sparse.csr_array(np.ones((3, 4))).asformat(form)
    given.indices = given.indices.astype(np.uint64)
    assert bigsap.solve(given).fun == 3
    given.indices[1] = 2**63
    pair = r"\(0, 9223372036854775808\)" if form == "csr" else r"\(9223372036854775808, 0\)"
    with pytest.raises(bigsap.ShapeError, match=pair):
        bigsap.solve(given)


@pytest.mark.parametrize(
    ("form", "shape"), [("csr", [2, -2]), ("csr", [2, 2**40]), ("csc", [2**40, 2]), ("coo", [2**62, 2])]
)
def test_shapes_of_files_that_no_problem_has_are_named(form: str, shape: list[int], tmp_path: Path) -> None:
    given = scipy.sparse.csr_array(np.ones((2, 2))).asformat(form)
    path = tmp_path / "graph.npz"
    scipy.sparse.save_npz(path, given)
    with np.load(path) as file:
        members = dict(file)
    np.savez(path, **{**members, "shape": np.array(shape)})
    with pytest.raises(bigsap.ShapeError, match=r"negative size|at most"):
        bigsap.solve(path)


@pytest.mark.parametrize("name", ["rows", "columns", "indices", "indptr"])
@pytest.mark.parametrize("hidden", ["mask", "list of masked", "None"])
def test_missing_indices_are_named(name: str, hidden: str) -> None:
    masked: Any = np.ma.array([0, 1, 2], mask=[False, True, False])
    if hidden != "mask":
        masked = list(masked) if hidden == "list of masked" else [0, None, 2]
    make: Any = {
        "rows": lambda: sparse((masked, [0, 1, 2], np.ones(3))),
        "columns": lambda: sparse(([0, 1, 2], masked, np.ones(3))),
        "indices": lambda: from_csr([0, 2, 3], masked, np.ones(3), (2, 3)),
        "indptr": lambda: from_csr(masked, [0, 1], np.ones(2), (2, 3)),
    }[name]
    with pytest.raises(bigsap.InputError, match=rf"{name}\[1\] is missing"):
        make()
    bare = np.ma.array([0, 1])
    assert bigsap.solve(sparse((bare, bare, [1.0, 2.0]))).fun == 3


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("form", [*FORMATS, "masked", "npz", "zarr"])
def test_pairs_of_missing_costs_can_be_forbidden(form: str, maximize: bool, tmp_path: Path) -> None:
    places, costs = (np.array([1, 0, 1, 0]), np.array([0, 1, 1, 0])), np.array([2.0, 3.0, np.nan, 1.0])
    given: Any = scipy.sparse.coo_array((costs, places), shape=(2, 2))
    if form in FORMATS:
        given = given.asformat(form)
    elif form == "masked":
        given = given.tocsr()
        given.data = np.ma.array([1, 3, 2, 9], mask=[False, False, False, True])
    elif form == "npz":
        scipy.sparse.save_npz(tmp_path / "graph.npz", given.tocsc())
        given = tmp_path / "graph.npz"
    else:
        group = zarr.open_group(tmp_path / "graph.zarr", mode="w")
        group.attrs["shape"] = [2, 2]
        for part in ("indptr", "indices", "data"):
            group.create_array(part, data=getattr(given.tocsr(), part))
        given = group
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[1, 1\] is (nan|missing)") as caught:
        bigsap.as_source(given)
    assert (caught.value.row, caught.value.column) == (1, 1)
    found = bigsap.as_source(given, missing="forbid")
    assert sorted(found.entries().columns.tolist()) == [0, 0, 1]
    assert found.entries().costs.dtype == (np.int64 if form == "masked" else np.float64)
    assert bigsap.solve(found, maximize=maximize).fun == 5
    assert bigsap.as_source(found, missing="forbid") is found


@pytest.mark.parametrize("costs", [[1, None, 2], np.ma.array([1.0, 5, 2], mask=[0, 1, 0])])
def test_a_missing_cost_is_named_by_its_pair(costs: Any) -> None:
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[2, 0\] is missing .* leave the pair out"):
        sparse(([0, 2, 1], [1, 0, 2], costs))
    graph = scipy.sparse.csr_array(np.ones((2, 2)))
    graph.data[:] = np.nan
    graph.indices[:] = 0
    with pytest.raises(bigsap.InvalidCostError, match="listed twice"):
        bigsap.as_source(graph, missing="forbid")


@pytest.mark.parametrize(
    "options", [{}, {"capacity": 2}, {"objective": "bottleneck"}, {"unassigned_cost": 1}]
)
@pytest.mark.parametrize(("name", "value"), [("cache", "x"), ("cache", -5), ("memory_limit", "x")])
def test_sizes_of_memory_are_checked_where_no_rows_are_kept(name: str, value: Any, options: Any) -> None:
    for cost in (scipy.sparse.csr_array([[1.0, 2], [3, 4]]), np.ones((2, 2))):
        with pytest.raises(bigsap.OptionError, match=name):
            bigsap.solve(cost, **{name: value}, **options)


BAD_SHAPES = [[2, 2.5], [2.7, 2], "22", ["a", "b"], [None, 2], [2], [2, 2, 2], 4, [[2, 2]], ["2", "2"]]


@pytest.mark.parametrize("shape", [*BAD_SHAPES, None, {"a": 1, "b": 2}])
def test_shapes_of_zarr_groups_are_two_whole_numbers(shape: Any, tmp_path: Path) -> None:
    given = scipy.sparse.csr_array(np.ones((2, 2)))
    group = zarr.open_group(tmp_path / "graph.zarr", mode="w")
    group.attrs["shape"] = shape
    for part in ("indptr", "indices", "data"):
        group.create_array(part, data=getattr(given, part))
    for cost in (group, tmp_path / "graph.zarr"):
        with pytest.raises(bigsap.StoreError, match=r"two (whole )?numbers"):
            bigsap.solve(cost)
    for good in ([2, 2], [2.0, 2]):
        group.attrs["shape"] = good
        assert bigsap.solve(group).fun == bigsap.solve(tmp_path / "graph.zarr").fun == 2
    for shape, text in (([2, -2], "negative size"), ([2**40, 2], "at most"), ([3, 2], "indptr has shape")):
        group.attrs["shape"] = shape
        for cost in (group, tmp_path / "graph.zarr"):
            with pytest.raises(bigsap.ShapeError, match=text):
                bigsap.solve(cost)


@pytest.mark.parametrize("shape", [s for s in BAD_SHAPES if s != [None, 2]])
def test_shapes_of_archives_are_two_whole_numbers(shape: Any, tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    scipy.sparse.save_npz(path, scipy.sparse.csr_array(np.ones((2, 2))))
    with np.load(path) as file:
        members = dict(file)
    np.savez(path, **{**members, "shape": np.array(shape)})
    with pytest.raises(bigsap.StoreError, match="two whole numbers"):
        bigsap.solve(path)


@pytest.mark.parametrize(
    ("start", "columns", "said"),
    [
        ([0, 2], [0, 1, 1], r"start has shape \(2,\), not \(3,\)"),
        ([0, 3, 2], [0, 1, 1], "start does not ascend"),
        ([0, 0.5, 3], [0, 1, 1], "start has dtype float64"),
        ([0, None, 3], [0, 1, 1], r"start\[1\] is missing"),
        ([0, 2, 3], [[0], [1], [1]], r"columns has shape \(3, 1\)"),
        ([0, 2, 3], [0, 0.5, 1], "columns has dtype float64"),
    ],
)
def test_a_spec_by_start_is_refused_by_its_own_names(start: Any, columns: Any, said: str) -> None:
    with pytest.raises(bigsap.InputError, match=said):
        sparse_of_spec(columns, [1.0, 2.0, 3.0], None, start, (2, 2))
    by_scipy = said.replace("start", "indptr").replace("columns", "indices")
    with pytest.raises(bigsap.InputError, match=by_scipy):
        from_csr(start, columns, [1.0, 2.0, 3.0], (2, 2))


@pytest.mark.parametrize("fault", ["a group", "not compressed bytes", "damaged metadata"])
def test_damaged_zarr_groups_are_named(fault: str, tmp_path: Path) -> None:
    folder = tmp_path / "graph.zarr"
    group = zarr.open_group(folder, mode="w")
    group.attrs["shape"] = [2, 2]
    given = scipy.sparse.csr_array(np.ones((2, 2)))
    for part in ("indptr", "indices", "data"):
        group.create_array(part, data=getattr(given, part))
    if fault == "a group":
        del group["data"]
        group.create_group("data")
    elif fault == "not compressed bytes":
        (folder / "data" / "c" / "0").write_bytes(b"no bytes of zstd")
    else:
        (folder / "data" / "zarr.json").write_text("{}")
    for cost in (group, folder):
        with pytest.raises(bigsap.StoreError, match="group"):
            bigsap.solve(cost)


def test_sparse_costs_go_to_a_service_as_their_entries() -> None:
    given = sparse(([1, 0, 0], [0, 1, 0], [3, 2, 1]))
    spec = request_of(given)["cost"]
    assert (spec["type"], spec["shape"]) == ("sparse", [2, 2])
    assert spec["start"].tolist() == [0, 2, 3]
    assert spec["columns"].tolist() == [1, 0, 0]
    assert spec["costs"].tolist() == [2, 1, 3]


def stored(n: int = 3000) -> scipy.sparse.csr_array:
    """A matrix whose arrays are large enough to be mapped, with a complete assignment."""
    rng = np.random.default_rng(15)
    columns = np.concatenate((np.arange(n), rng.integers(0, n, 5 * n)))
    rows = np.concatenate((rng.permutation(n), rng.integers(0, n, 5 * n)))
    return scipy.sparse.csr_array((rng.random(rows.size), (rows, columns)), shape=(n, n))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("compressed", [True, False])
def test_files_of_scipy_are_read_and_mapped(tmp_path: Any, form: str, compressed: bool) -> None:
    graph = stored()
    path = tmp_path / "graph.npz"
    scipy.sparse.save_npz(path, graph.asformat(form), compressed=compressed)
    source = bigsap.as_source(path)
    assert isinstance(source, SparseCosts)
    base: Any = source.entries().costs
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap) == (form == "csr" and not compressed)
    assert bigsap.solve(path).fun == bigsap.solve(graph).fun


def test_zarr_groups_are_read(tmp_path: Any) -> None:
    graph = stored(200)
    for name, form in (("rows.zarr", "csr"), ("columns.zarr", "csc")):
        group = zarr.open_group(tmp_path / name, mode="w")
        given = graph.asformat(form)
        group.attrs.update({"shape": [200, 200], "encoding-type": f"{form}_matrix"})
        for part in ("indptr", "indices", "data"):
            group.create_array(part, data=getattr(given, part))
        assert bigsap.solve(tmp_path / name).fun == bigsap.solve(graph).fun
    assert bigsap.solve(group).fun == bigsap.solve(graph).fun
    del group["data"]
    with pytest.raises(bigsap.StoreError, match="group without data"):
        bigsap.as_source(tmp_path / name)


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("kind", ["npz", "zarr"])
def test_large_compressed_costs_are_unpacked_into_a_file(
    kind: str, form: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "UNPACKED_IN_MEMORY", 0.0)
    monkeypatch.setattr(stored_costs, "_AT_ONCE", 1 << 10)
    graph = stored(200)
    given = graph.asformat(form)
    path = tmp_path / f"graph.{kind}"
    if kind == "npz":
        scipy.sparse.save_npz(path, given)
    else:
        group = zarr.open_group(path, mode="w")
        group.attrs.update({"shape": [200, 200], "encoding-type": f"{form}_matrix"})
        for part in ("indptr", "indices", "data"):
            group.create_array(part, data=getattr(given, part), chunks=(300,))
    unpacked = []
    into_file = stored_costs._into_file
    monkeypatch.setattr(
        stored_costs, "_into_file", lambda *of: unpacked.append(into_file(*of)) or unpacked[-1]
    )
    found = bigsap.solve(path)
    names = ("indptr", "indices", "data")
    for array, name in zip(unpacked[-3:], names, strict=True):
        assert isinstance(array, np.memmap)
        assert array.filename is None
        np.testing.assert_array_equal(array, getattr(given, name))
    assert found.fun == bigsap.solve(graph).fun


def test_sparse_names_what_opens_a_path(tmp_path: Any) -> None:
    path = tmp_path / "graph.npz"
    scipy.sparse.save_npz(path, scipy.sparse.eye_array(4, format="csr"))
    for given in (path, str(path)):
        with pytest.raises(bigsap.InputError, match="as_source opens a file"):
            bigsap.sparse(given)
        assert bigsap.solve(given).fun == 4
        assert request_of(given)["cost"]["type"] == "sparse"
    with pytest.raises(bigsap.InputError, match=r"\(rows, columns, costs\)$"):
        bigsap.sparse(set())


def test_damaged_archives_are_named(tmp_path: Any) -> None:
    path = tmp_path / "graph.npz"
    with pytest.raises(bigsap.StoreError, match="does not exist"):
        bigsap.as_source(path)
    np.savez(path, a=np.zeros(3))
    with pytest.raises(bigsap.StoreError, match=r"not of scipy.sparse.save_npz: it has \['a'\]"):
        bigsap.as_source(path)
    scipy.sparse.save_npz(path, scipy.sparse.eye_array(4, format="dia"))
    with pytest.raises(bigsap.StoreError, match="csr, csc or coo"):
        bigsap.as_source(path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(bigsap.StoreError, match="not a readable"):
        bigsap.as_source(path)


def test_a_mapped_array_ends_with_its_member(tmp_path: Any) -> None:
    """What its header promises beyond that are bytes of other members."""
    path, given = tmp_path / "graph.npz", stored(20_000)
    parts: dict[str, Any] = {"format": b"csr", "shape": np.array(given.shape), "more": np.arange(1 << 16)}
    parts = {name: getattr(given, name) for name in ("indptr", "indices", "data")} | parts
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            content = io.BytesIO()
            np.save(content, part)
            cut = content.getvalue()[: -8 if name == "data" else None]
            archive.writestr(f"{name}.npy", cut)
    with pytest.raises(bigsap.StoreError, match=r"data\.npy is cut off"):
        bigsap.as_source(path)


@pytest.mark.parametrize("name", ["shape", "format", "indices", "data"])
def test_mapped_python_objects_are_refused(name: str, tmp_path: Any) -> None:
    """Bytes of the file are no addresses: to look at one would end the process."""
    path, given = tmp_path / "graph.npz", stored()
    scipy.sparse.save_npz(path, given, compressed=False)
    shape = (20_000,) if name in ("indices", "data") else ()
    content = io.BytesIO()
    header = {"descr": "|O", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(content, header)
    with zipfile.ZipFile(path) as archive:
        members = {part: archive.read(part) for part in archive.namelist()}
    members[f"{name}.npy"] = content.getvalue() + b"\1" * 160_000
    with zipfile.ZipFile(path, "w") as archive:
        for part, whole in members.items():
            archive.writestr(part, whole)
    with pytest.raises(bigsap.StoreError, match="Python objects"):
        bigsap.as_source(path)


# -- what searches for neighbours return ----------------------------------------------------

X, Y = np.random.default_rng(5).random((2, 30, 2))


@pytest.mark.parametrize("form", ["dok_matrix", "coo_matrix", "dict", "ndarray"])
def test_distances_within_a_radius_in_every_form_of_scipy(form: str) -> None:
    x, y = (scipy.spatial.cKDTree(points) for points in (X, Y))
    found = sparse(x.sparse_distance_matrix(y, 0.9, output_type=form), (30, 30))
    assert found.shape == (30, 30)
    assert bigsap.solve(found).fun == bigsap.solve(bigsap.points(X, Y, "euclidean", max_distance=0.9)).fun


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("empty", [-1, 30])
def test_lists_of_neighbours(order: int, empty: int) -> None:
    """As scipy and scikit-learn return them, distances first, and pynndescent, indices first."""
    costs, columns = scipy.spatial.cKDTree(Y).query(X, 12, distance_upper_bound=0.4)
    assert np.isinf(costs).any()
    columns = np.where(np.isinf(costs), empty, columns)
    kept = np.isfinite(costs)
    rows = np.repeat(np.arange(30), 12).reshape(30, 12)[kept]
    wanted = sparse((rows, columns[kept], costs[kept]), (30, 30)).entries()
    for found in (sparse((columns, costs)[::order], (30, 30)), sparse([columns, costs][::order])):
        for one, other in zip(found.entries(), wanted, strict=True):
            np.testing.assert_array_equal(one, other)


def test_rows_whose_lists_are_empty_stay_rows() -> None:
    found = sparse((np.array([[1, 0], [2, -1], [-1, -1]]), np.array([[5.0, 4], [3, np.inf], [np.inf] * 2])))
    assert found.shape == (3, 3)
    assert found.entries().start.tolist() == [0, 2, 3, 3]
    assert bigsap.solve(found).status == "infeasible"
    hidden = np.ma.masked_equal([[5.0, 4], [3, 9], [9, 9]], 9)
    again = np.array([[1, 0], [2, 0], [0, 1]])
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[1, 0\] is missing"):
        sparse((again, hidden))
    with pytest.raises(bigsap.InvalidCostError, match=r"the pair \(0, 1\) is listed twice"):
        sparse(([[1, 1]], [[2, 3]]))
    assert sparse(([[1, 0]], [[2, 3]])).entries().columns.tolist() == [1, 0]  # integers: columns first
    assert sparse((np.array([[1, 0]], np.uint64), [[2.0, 3]])).shape == (1, 2)
    assert sparse((np.zeros((2, 0), int), np.zeros((2, 0)))).shape == (2, 0)


@pytest.mark.parametrize(
    ("given", "shape", "match"),
    [
        (([[0, 1]], [[1.0]]), None, r"shapes \(1, 2\) and \(1, 1\)"),
        (([0, 1], [1.0, 2.0]), None, r"\(rows, columns, costs\)"),
        (([[0.0, np.nan]], [[1.0, 2.0]]), None, "indices must be integers"),
        (([[0, 1]], [[1.0, 2.0]]), (2, 2), "lists of 1 row"),
        (([[0, -1]], [[1.0, 2.0]]), None, r"the pair \(0, -1\) is outside"),
        ({(0, 1): 2.0, "b": 3.0}, None, "dict is not sparse costs"),
        ({(0, 1): 2.0, (0, 7): 3.0}, (2, 2), r"the pair \(0, 7\) is outside"),
        (np.zeros(2, [("i", int), ("j", int)]), None, "ndarray is not sparse costs"),
    ],
)
def test_neighbours_that_are_none_are_named(given: Any, shape: Any, match: str) -> None:
    with pytest.raises(bigsap.InputError, match=match):
        sparse(given, shape)
