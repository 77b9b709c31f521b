"""Missing values never become costs: an error that names row and column, or forbidden pairs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap import InvalidCostError, OptionError, as_source
from pairwise import each

# What lies under the mask, and every marker below, would be taken at once if it were a cost.
COSTS = np.array([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, 2.0, 2.0]])
LOST = np.zeros((3, 3), np.bool_)
LOST[1, 2] = True
UNDER = np.where(LOST, -100.0, COSTS)
MASKED = np.ma.MaskedArray(UNDER, LOST)
WITH_NAN = np.where(LOST, np.nan, COSTS)
BEST, BEST_PAIRS = 5.0, [1, 0, 2]
MOST, MOST_PAIRS = 7.0, [2, 0, 1]  # maximised: 3 + 2 + 2


def same(result, fun=BEST, pairs=BEST_PAIRS):
    assert (result.status, result.fun, result.col4row.tolist()) == ("optimal", fun, pairs)


def refused(cost, row=1, column=2, **options):
    with pytest.raises(InvalidCostError) as error:
        bigsap.solve(cost, **options)
    assert (error.value.row, error.value.column) == (row, column), error.value
    return str(error.value)


class Slices:
    """An object whose slices are masked arrays, as netCDF4's variables."""

    def __init__(self, array):
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, where):
        return self._array[where]


def dask_array():
    return pytest.importorskip("dask.array").from_array(MASKED, chunks=2, asarray=False)


def frame(kind):
    return pytest.importorskip("pandas").DataFrame(WITH_NAN).astype(kind)


def frame_of_objects():
    frame = pytest.importorskip("pandas").DataFrame(COSTS).astype(object)
    frame.iloc[1, 2] = None
    return frame


def polars(decimal):
    pl = pytest.importorskip("polars")
    found = pl.DataFrame(with_none(), orient="row")
    return found.cast(pl.Decimal(9, 2)) if decimal else found


def with_none():
    return np.where(LOST, None, COSTS).tolist()


def table():
    pa = pytest.importorskip("pyarrow")
    columns = zip(COSTS.T.tolist(), LOST.T.tolist(), strict=True)
    return pa.table({str(k): pa.array(c, mask=np.array(m)) for k, (c, m) in enumerate(columns)})


GIVEN = {
    "masked array": lambda: MASKED,
    "masked integers": lambda: MASKED.astype(np.int64),
    "slices": lambda: Slices(MASKED),
    "slices of integers": lambda: Slices(MASKED.astype(np.int64)),
    "masked rows": lambda: list(MASKED),
    "a tuple of masked rows": lambda: tuple(MASKED),
    "rows of which one is masked": lambda: [UNDER[0], MASKED[1], UNDER[2].tolist()],
    "masked items": lambda: [list(row) for row in MASKED],
    "None": lambda: with_none(),
    "dask": dask_array,
    "pandas Int64": lambda: frame("Int64"),
    "pandas Float64": lambda: frame("Float64"),
    "pandas objects": frame_of_objects,
    "polars": lambda: polars(False),
    "polars Decimal": lambda: polars(True),
    "pyarrow": table,
    "NaN": lambda: WITH_NAN,
}


@pytest.mark.some(6)
@pytest.mark.parametrize("name", GIVEN)
def test_costs(name):
    cost = GIVEN[name]()
    refused(cost)
    same(bigsap.solve(as_source(cost, missing="forbid")))
    most = as_source(cost, missing="forbid", maximize=True)
    same(bigsap.solve(most, maximize=True), MOST, MOST_PAIRS)
    with pytest.raises(InvalidCostError) as error:
        bigsap.solve_many([COSTS, cost])
    assert (error.value.row, error.value.column) == (1, 2)


# scipy takes no bare slices, raises what pandas does, and warns of masked items itself.
SCIPYS = [name for name in GIVEN if not name.startswith(("slices", "pandas", "masked items"))]


@pytest.mark.parametrize("name", SCIPYS)
def test_linear_sum_assignment(name):
    with pytest.raises(ValueError, match="matrix contains invalid numeric entries"):
        bigsap.linear_sum_assignment(GIVEN[name]())


def test_masks_that_hide_nothing():
    for cost in (np.ma.MaskedArray(COSTS), Slices(np.ma.MaskedArray(COSTS)), list(COSTS)):
        fun = bigsap.solve(cost).fun
        assert fun == BEST


# -- functions -------------------------------------------------------------------------


def rows_of(rows, out):
    out[...] = MASKED[rows]


def an_item_each(rows, out):
    for k, row in enumerate(rows):
        for j in range(3):
            out[k, j] = MASKED[row, j]


def a_list(rows, out):
    out[:] = [MASKED[row] for row in rows]


def a_view(rows, out):
    out.T[...] = MASKED[rows].T


def copied_where(rows, out):
    out[...] = UNDER[rows]
    np.copyto(out, MASKED[rows], where=np.array([False, False, True]))


def added_in_place(rows, out):
    out[...] = 0
    out += MASKED[rows]


def multiplied(rows, out):
    np.matmul(np.ma.MaskedArray(np.eye(len(rows))), MASKED[rows], out=out)


def flat(rows, out):
    out.flat[:] = MASKED[rows]


def flat_whole(rows, out):
    out.flat = MASKED[rows]


def put(rows, out):
    out.put(np.arange(out.size), MASKED[rows])


def numpys_put(rows, out):
    np.put(out, np.arange(out.size), MASKED[rows])


def numpys_putmask(rows, out):
    np.putmask(out, np.ones(out.shape, np.bool_), MASKED[rows])


def along_axis(rows, out):
    ids = np.broadcast_to(np.arange(3), out.shape)
    np.put_along_axis(out, ids, MASKED[rows], axis=1)


BLOCKS = [
    rows_of,
    an_item_each,
    a_list,
    a_view,
    copied_where,
    added_in_place,
    multiplied,
    flat,
    flat_whole,
    put,
    numpys_put,
    numpys_putmask,
    along_axis,
]


@pytest.mark.parametrize("function", BLOCKS)
def test_blocks(function, monkeypatch):
    said = refused(bigsap.from_function(function, (3, 3), kind="block"))
    assert f"{function.__name__} wrote a masked value" in said
    # And without what is masked, the same calls write what they should.
    monkeypatch.setitem(globals(), "MASKED", np.ma.MaskedArray(COSTS))
    monkeypatch.setitem(globals(), "UNDER", COSTS)
    same(bigsap.solve(bigsap.from_function(function, (3, 3), kind="block")))


def test_flat_is_numpys():
    def block(rows, out):
        items = out.flat
        items[:] = COSTS[rows]
        assert (len(items), next(items), items.index) == (out.size, COSTS[rows[0], 0], 1)
        assert items[2] == COSTS[rows[0], 2]
        assert list(out.flat) == COSTS[rows].ravel().tolist()

    same(bigsap.solve(bigsap.from_function(block, (3, 3), kind="block")))


class Own:
    """A source of a user's own, whose ``read`` writes masked values."""

    shape, dtype = (3, 3), np.dtype(np.float64)

    def read(self, rows, columns, out):
        out[...] = MASKED[rows, columns]


def test_a_source_of_ones_own():
    assert "Own.read wrote a masked value" in refused(Own())


RETURNED = {
    "row": lambda i: MASKED[i],
    "a row as a list": lambda i: list(MASKED[i]),
    "part": lambda i, start, stop: MASKED[i, start:stop],
    "value": lambda i, j: MASKED[i, j],
}


@pytest.mark.parametrize("name", RETURNED)
def test_functions(name):
    kind = "row" if "row" in name else name
    assert "missing" in refused(bigsap.from_function(RETURNED[name], (3, 3), kind=kind))


def test_a_captured_array_of_a_function_that_would_be_compiled():
    numbers = np.ma.MaskedArray(np.arange(300.0), np.arange(300) == 7)

    def cost(i, j):
        return numbers[i] * numbers[j]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bigsap.sources.functions.speed.PerformanceWarning)
        refused(cost, 0, 7, shape=(300, 300))


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x,), lambda x: [x]])
def test_arguments_of_functions(wrap):
    with pytest.raises(InvalidCostError, match=r"args\[0\] is an array with masked values.*\[1, 2"):
        bigsap.solve(lambda i, j, a: 1.0, shape=(3, 3), args=(wrap(MASKED),))


# -- everything else that is given -----------------------------------------------------

VECTOR = np.ma.MaskedArray([1.0, 2.0, 3.0], [False, True, False])
INPUTS = {
    "x": lambda: bigsap.points(MASKED, COSTS),
    "y": lambda: bigsap.points(COSTS, list(MASKED)),
    "a": lambda: bigsap.lowrank(MASKED, COSTS),
    "row_terms": lambda: bigsap.lowrank(COSTS, COSTS, row_terms=VECTOR),
    "p": lambda: bigsap.expression("p[i, 0] + p[j, 1]", (3, 3), p=MASKED),
    "q": lambda: bigsap.expression("q[i] + j", (3, 3), q=[1, None, 2]),
    "r": lambda: bigsap.expression("r * i + j", (3, 3), r=np.ma.masked),
    "values": lambda: bigsap.table(MASKED, [0, 1, 2], [0, 1, 2]),
    "unassigned_cost": lambda: bigsap.solve(COSTS, unassigned_cost=VECTOR),
    "unassigned_cost of": lambda: bigsap.solve(COSTS, unassigned_cost=np.ma.masked),
    "unassigned_cost of row 1": lambda: bigsap.solve(COSTS, unassigned_cost=[1.0, None, 2.0]),
}


@pytest.mark.parametrize("name", INPUTS)
def test_other_inputs(name):
    with pytest.raises(InvalidCostError, match="missing") as error:
        INPUTS[name]()
    assert str(error.value).startswith(name)


@pytest.mark.parametrize("start", [VECTOR, list(VECTOR), [1.0, None, 2.0], (VECTOR, [0, 1, 2])])
def test_warm_starts(start):
    with pytest.raises(OptionError, match=r"warm_start needs .* masked, None or NA at \[1\]"):
        bigsap.solve(COSTS, warm_start=start)


def test_certificates():
    columns = np.ma.MaskedArray([1, 0, 2], [False, True, False])
    for given in ((columns, np.zeros(3)), (np.array([1, 0, 2]), VECTOR)):
        with pytest.raises(InvalidCostError, match=r"\[1\] is missing"):
            bigsap.certify(as_source(COSTS), *given)
    with pytest.raises(InvalidCostError, match=r"\[1\] is missing"):
        bigsap.certify(as_source(COSTS), [1, 0, 2], np.zeros(3), VECTOR)


# -- attributes of stored arrays -------------------------------------------------------

#: How costs are stored: dtype, attributes, the marker of what is missing.
STORED = {
    "packed": ("i2", {"scale_factor": 0.5, "add_offset": -3.0, "_FillValue": -999}),
    "packed without markers": ("i2", {"scale_factor": 0.5}),
    "marked integers": ("i4", {"_FillValue": -999}),
    "marked floats": ("f8", {"missing_value": -999.0}),
    "marked single floats": ("f4", {"_FillValue": np.float32(-1e20)}),
    "a range": ("f8", {"valid_range": [-1.0, 10.0]}),
    "a minimum": ("i8", {"valid_min": 0}),
}


def stored(name, *, whole):
    """What is stored, its attributes, and whether something is missing."""
    dtype, attributes = STORED[name]
    numbers = (COSTS - attributes.get("add_offset", 0)) / attributes.get("scale_factor", 1)
    if not whole:
        marker = attributes.get("_FillValue", attributes.get("missing_value", -999))
        numbers = np.where(LOST, marker, numbers)
    return numbers.astype(dtype), attributes


#: Files of the test at hand. Two libraries bring an HDF5 of their own: neither may close a file when Python
#: happens to collect it, while the other writes.
opened: list = []


@pytest.fixture(autouse=True)
def files():
    yield
    while opened:
        opened.pop().close()


def in_hdf5(tmp_path, array, attributes):
    h5py = pytest.importorskip("h5py")
    opened.append(h5py.File(tmp_path / "costs.h5", "w"))
    dataset = opened[-1].create_dataset("c", data=array)
    dataset.attrs.update(attributes)
    return dataset


def in_zarr(tmp_path, array, attributes):
    zarr = pytest.importorskip("zarr")
    plain = {key: np.asarray(value).tolist() for key, value in attributes.items()}
    zarr.create_array(str(tmp_path / "costs.zarr"), data=array, attributes=plain)
    return zarr.open_array(str(tmp_path / "costs.zarr"), mode="r")


def in_xarray(tmp_path, array, attributes):
    return pytest.importorskip("xarray").DataArray(array, attrs=attributes)


def in_netcdf(tmp_path, array, attributes, *, masks=True, scales=True):
    netcdf = pytest.importorskip("netCDF4")
    rest = dict(attributes)
    file = netcdf.Dataset(tmp_path / "costs.nc", "w")
    opened.append(file)
    file.createDimension("i", 3)
    file.createDimension("j", 3)
    fill = {"fill_value": rest.pop("_FillValue")} if "_FillValue" in rest else {}
    made = file.createVariable("c", array.dtype, ("i", "j"), **fill)
    made.setncatts(rest)
    made.set_auto_maskandscale(False)
    made[...] = array
    made.set_auto_mask(masks)
    made.set_auto_scale(scales)
    return made


def netcdf_that_is_raw(*given):
    return in_netcdf(*given, masks=False, scales=False)


def netcdf_that_masks(*given):
    return in_netcdf(*given, scales=False)


STORES = [in_hdf5, in_zarr, in_xarray, in_netcdf, netcdf_that_is_raw, netcdf_that_masks]


@each(store=STORES, name=list(STORED))
def test_stored_costs(name, store, tmp_path):
    (tmp_path / "whole").mkdir()
    whole = store(tmp_path / "whole", *stored(name, whole=True))
    same(bigsap.solve(whole))
    assert bigsap.linear_sum_assignment(whole)[1].tolist() == BEST_PAIRS
    if name == "packed without markers":
        return
    cost = store(tmp_path, *stored(name, whole=False))
    refused(cost)
    same(bigsap.solve(as_source(cost, missing="forbid")))
    most = as_source(cost, missing="forbid", maximize=True)
    same(bigsap.solve(most, maximize=True), MOST, MOST_PAIRS)
    with pytest.raises(InvalidCostError):
        bigsap.linear_sum_assignment(cost)


TERMS = "c[i, 0] * q[j, 0] + c[i, 1] * q[j, 1] + c[i, 2] * q[j, 2]"


@each(store=STORES, name=list(STORED))
def test_stored_inputs(name, store, tmp_path):
    """Points, products, arrays of expressions and all else that numbers are taken from."""
    (tmp_path / "whole").mkdir()
    whole = store(tmp_path / "whole", *stored(name, whole=True))
    product = np.eye(3)
    same(bigsap.solve(bigsap.lowrank(whole, product)))
    same(bigsap.solve(bigsap.expression(TERMS, (3, 3), c=whole, q=product)))
    expected = bigsap.solve(bigsap.points(COSTS, product))
    assert bigsap.solve(bigsap.points(whole, product)).fun == expected.fun
    if name == "packed without markers":
        return
    cost = store(tmp_path, *stored(name, whole=False))
    for make in (
        lambda: bigsap.points(cost, product),
        lambda: bigsap.lowrank(cost, product),
        lambda: bigsap.expression(TERMS, (3, 3), c=cost, q=product),
        lambda: bigsap.table(cost, [0, 1, 2], [0, 1, 2]),
    ):
        with pytest.raises(InvalidCostError, match=r"\[1, 2\] is missing"):
            make()


def test_stored_prices(tmp_path):
    prices = in_xarray(tmp_path, np.array([8, 6, -1], np.int16), {"scale_factor": 0.5})
    assert bigsap.solve(COSTS, unassigned_cost=prices).fun == -0.5 + 1 + 2
    marked = in_xarray(tmp_path, np.array([8, 6, -1], np.int16), {"_FillValue": -1})
    with pytest.raises(InvalidCostError, match="row 2 is missing"):
        bigsap.solve(COSTS, unassigned_cost=marked)


def test_netcdf_that_scales_but_does_not_mask(tmp_path):
    cost = in_netcdf(tmp_path, *stored("packed", whole=False), masks=False)
    with pytest.raises(bigsap.StoreError, match=r"set_auto_mask\(True\)"):
        bigsap.solve(cost)


@pytest.mark.parametrize("dtype", ["i2", "i4", "i8", "u2", "u4", "u8", "f4", "f8"])
def test_what_netcdf_never_wrote(dtype, tmp_path):
    netcdf, h5py = pytest.importorskip("netCDF4"), pytest.importorskip("h5py")
    with netcdf.Dataset(tmp_path / "costs.nc", "w") as file:
        file.createDimension("i", 3)
        file.createDimension("j", 3)
        made = file.createVariable("c", dtype, ("i", "j"))
        made[0, :], made[2, :] = COSTS[0], COSTS[2]
    with h5py.File(tmp_path / "costs.nc") as file:
        refused(file["c"], 1, 0)
    with netcdf.Dataset(tmp_path / "costs.nc") as file:
        refused(file["c"], 1, 0)
        file.set_auto_maskandscale(False)
        refused(file["c"], 1, 0)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["i2", "f8"])
def test_what_xarray_writes(zarr_format, dtype, tmp_path):
    xarray, zarr = pytest.importorskip("xarray"), pytest.importorskip("zarr")
    coding = {"dtype": dtype, "scale_factor": 0.5, "add_offset": 10.0, "_FillValue": -999}
    dataset = xarray.Dataset({"c": (("i", "j"), WITH_NAN)})
    place = str(tmp_path / "costs.zarr")
    dataset.to_zarr(place, encoding={"c": coding}, zarr_format=zarr_format, consolidated=False)
    for cost in (place + "/c", zarr.open_array(place + "/c", mode="r")):
        refused(cost)
        same(bigsap.solve(as_source(cost, missing="forbid")))


def test_attributes_that_are_not_understood():
    cost = in_xarray(None, COSTS, {"scale_factor": "half"})
    with pytest.raises(bigsap.StoreError, match="scale_factor = 'half'"):
        bigsap.solve(cost)
    cost = in_xarray(None, COSTS.astype("i2"), {"_Unsigned": "true"})
    with pytest.raises(bigsap.DtypeError, match="_Unsigned"):
        bigsap.solve(cost)


@pytest.mark.parametrize("store", [in_hdf5, in_netcdf])
def test_closed_files(store, tmp_path):
    cost = store(tmp_path, COSTS, {})
    opened.pop().close()
    for use in (bigsap.solve, bigsap.linear_sum_assignment, lambda c: bigsap.points(c, COSTS)):
        with pytest.raises(bigsap.SourceError, match="is its file closed"):
            use(cost)


class Frame:
    """What this needs of a data frame."""

    columns, dtypes = ("id", "x"), ("str", "float64")

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.array([["p1", 0.5], ["p2", 1.5]], object)


class Table(Frame):
    """As of pyarrow: ``columns`` are arrays."""

    column_names, columns = ("id", "x"), (np.zeros(2), np.ones(2))


@pytest.mark.parametrize("frame", [Frame(), Table()])
def test_a_column_that_holds_no_numbers_is_named(frame: Frame) -> None:
    with pytest.raises(bigsap.DtypeError, match="column 'id' of x holds a str; give the columns of real"):
        bigsap.points(frame, np.zeros((2, 2)))


WIDE = {
    "costs": bigsap.solve,
    "a batch": lambda frame: bigsap.solve_many([frame]),
    "scipy's function": bigsap.linear_sum_assignment,
    "prices": lambda frame: bigsap.solve(np.eye(2), unassigned_cost=frame["a"]),
    "prices of a batch": lambda frame: bigsap.solve_many([np.eye(2)], unassigned_cost=[frame["a"]]),
    "capacity": lambda frame: bigsap.solve(np.eye(2), capacity=frame["a"]),
    "a start": lambda frame: bigsap.solve(np.eye(2), warm_start=frame["a"]),
    "an assignment": lambda frame: bigsap.certify(np.eye(2), frame["a"]),
}


@pytest.mark.some(4)
@pytest.mark.parametrize("name", WIDE)
def test_integers_of_128_bits_are_an_error_of_this_library(name: str) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": [1, 2], "b": [3, 5]}, schema={"a": pl.Int128, "b": pl.Int128})
    with pytest.raises(bigsap.InputError, match="cannot be seen as a numpy array"):
        WIDE[name](frame)


MIXED = {
    "list": list,
    "tuples": lambda rows: tuple(map(tuple, rows)),
    "numpy's numbers": lambda rows: [[np.int64(rows[0][0]), np.float64(rows[0][1])], rows[1]],
    "columns": lambda rows: [np.array([row[k] for row in rows]) for k in (0, 1)],
    "pandas": lambda rows: pytest.importorskip("pandas").DataFrame(rows),
    "polars": lambda rows: pytest.importorskip("polars").DataFrame(rows, orient="row", strict=False),
    "pyarrow": lambda rows: pytest.importorskip("pyarrow").table(
        {str(k): [row[k] for row in rows] for k in (0, 1)}
    ),
    "pyarrow, one name twice": lambda rows: pytest.importorskip("pyarrow").table(
        [[row[k] for row in rows] for k in (0, 1)], names=["a", "a"]
    ),
    "pandas with a repeated name": lambda rows: pytest.importorskip("pandas").concat(
        [pytest.importorskip("pandas").Series([row[k] for row in rows], name="a") for k in (0, 1)], axis=1
    ),
    "pandas' columns": lambda rows: [
        pytest.importorskip("pandas").Series([row[k] for row in rows]) for k in (0, 1)
    ],
}


@pytest.mark.parametrize("kind", MIXED)
def test_integers_among_fractions_that_would_round_them_are_refused(kind: str) -> None:
    given = MIXED[kind]([[2**53 + 1, 0.5], [3, 1.5]])
    for use in (
        lambda: bigsap.solve(given),
        lambda: bigsap.points(given, given),
        lambda: list(bigsap.solve_many([given])),
    ):
        with pytest.raises(InvalidCostError, match=f"holds {2**53 + 1}, which float64 would round"):
            use()
    assert bigsap.solve(MIXED[kind]([[2**53 + 2, 0.5], [3, 1e300]])).fun == 3.5


@pytest.mark.parametrize("columns", [2, ["a", "b"], np.zeros((2, 2)), lambda: None])
def test_columns_of_what_is_no_data_frame_mean_nothing(columns: Any) -> None:
    class Grid:
        def __init__(self, costs: Any) -> None:
            self.costs, self.columns = costs, columns

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array(self.costs, dtype)

    assert bigsap.solve(Grid([[1e300, 0.5], [3.0, 1e300]])).fun == 3.5
    with pytest.raises(bigsap.DtypeError, match=r"holds a str at \[1, 1\]"):
        bigsap.solve(Grid([[1, 2], [None, "x"]]))


def test_integers_of_both_signs_that_no_integer_type_holds_are_refused() -> None:
    with pytest.raises(InvalidCostError, match=f"holds {2**64 - 1}, which float64 would round"):
        bigsap.solve([[2**64 - 1, -1], [0, 0]])
    with pytest.raises(InvalidCostError, match="unassigned_cost holds"):
        bigsap.solve(np.ones((2, 2)), unassigned_cost=[2**53 + 1, np.inf])
