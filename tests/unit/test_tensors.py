"""Arrays of other libraries: seen in place, answered in the same library."""

from __future__ import annotations

import os
import sys
import types
from decimal import Decimal

import numpy as np
import pytest

import bigsap
from bigsap.sources import as_source
from bigsap.sources.tensors import is_tensor, like, on_host


def strict():
    return pytest.importorskip("array_api_strict")


def torch():
    return pytest.importorskip("torch")


def jax():
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # else arrays lie on a GPU, where there is one
    return pytest.importorskip("jax.numpy")


def library(name):
    """A function that makes an array of a library, and the type of its arrays."""
    if name == "strict":
        xp = strict()
        return xp.asarray, type(xp.asarray(0))
    if name == "torch":
        return torch().as_tensor, torch().Tensor
    xp = jax()
    return xp.asarray, type(xp.asarray(0))


LIBRARIES = ["strict", "torch", "jax"]


def costs(shape, dtype="f4"):
    return np.random.default_rng(4).random(shape).astype(dtype)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (0, 3), (3, 0)])
def test_one_problem(name, shape):
    make, kind = library(name)
    given = costs(shape)
    for maximize in (False, True):
        found = bigsap.linear_sum_assignment(make(given), maximize)
        expected = bigsap.linear_sum_assignment(given, maximize)
        for ours, theirs in zip(found, expected, strict=True):
            assert isinstance(ours, kind)
            assert ours.device == make(given).device
            np.testing.assert_array_equal(np.asarray(ours), theirs)
    same = bigsap.solve(make(given))
    np.testing.assert_array_equal(same.col4row, bigsap.solve(given).col4row)
    assert type(same.col4row) is np.ndarray


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("listed", [False, True])
def test_a_batch(name, listed):
    make, kind = library(name)
    given, rows, prices = costs((7, 4, 6)), np.array([4, 3, 0, 1, 4, 2, 3]), costs((7, 4))
    tensors = [make(one) for one in given] if listed else make(given)
    options = {"rows": make(rows), "unassigned_cost": make(prices)}
    batch = bigsap.solve_many(tensors, **options)
    expected = bigsap.solve_many(given, rows=rows, unassigned_cost=prices)
    for field in ("col4row", "row4col", "fun", "bound", "gap", "success"):
        found = getattr(batch, field)
        assert isinstance(found, kind), field
        wanted = getattr(expected, field)
        # JAX without x64 rounds to float32.
        exact = np.asarray(found).dtype.itemsize == wanted.dtype.itemsize or wanted.dtype.kind != "f"
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=0 if exact else 1e-6)
    assert isinstance(batch.pairs(), kind)
    assert batch.status.tolist() == expected.status.tolist()
    np.testing.assert_array_equal(batch[3].col4row, expected[3].col4row)
    assert batch[3].fun == expected[3].fun


@pytest.mark.parametrize("name", LIBRARIES)
def test_errors_are_those_of_numpy(name):
    make, _ = library(name)
    bad = costs((3, 4))
    bad[1, 2] = np.nan
    with pytest.raises(bigsap.InvalidCostError) as caught:
        bigsap.linear_sum_assignment(make(bad))
    assert (caught.value.row, caught.value.column) == (1, 2)
    with pytest.raises(ValueError, match="expected a matrix"):
        bigsap.linear_sum_assignment(make(costs(3)))
    with pytest.raises(bigsap.InvalidCostError, match=r"^problem 1: "):
        bigsap.solve_many(make(np.stack([costs((3, 4)), bad])))
    with pytest.raises(bigsap.DtypeError, match="rows is not valid"):
        bigsap.solve_many(make(costs((2, 3, 4))), rows=make(np.ones(2)))


@pytest.mark.parametrize("name", LIBRARIES)
def test_there_is_no_copy(name):
    make, _ = library(name)
    tensor = make(costs((30, 40)))
    seen = on_host(tensor)
    assert seen.ctypes.data == on_host(tensor).ctypes.data
    assert as_source(tensor).resident().ctypes.data == seen.ctypes.data
    if name == "torch":
        assert seen.ctypes.data == tensor.data_ptr()
        rows, _ = bigsap.linear_sum_assignment(tensor)
        assert rows.dtype == torch().int64


def test_torch_in_all_forms():
    t = torch()
    plain = t.as_tensor(costs((6, 8)).round(2))
    wanted = bigsap.solve(plain.numpy()).col4row
    needs = plain.clone().requires_grad_()
    forms = {
        "gradient": needs,
        "computed": needs * 1,
        "parameter": t.nn.Parameter(plain.clone()),
        "column-major": plain.T.contiguous().T,
        "every second": t.stack((plain, plain), 2)[:, :, 1],
        "expanded": plain.unsqueeze(0).expand(2, 6, 8)[1],
    }
    for name, form in forms.items():
        _, columns = bigsap.linear_sum_assignment(form)
        np.testing.assert_array_equal(columns.numpy(), wanted, name)
        batch = bigsap.solve_many(t.stack((form, form)))
        np.testing.assert_array_equal(batch.col4row.numpy(), [wanted, wanted], name)
        assert not batch.fun.requires_grad
        np.testing.assert_array_equal(bigsap.solve(form).col4row, wanted)
    assert needs.requires_grad
    assert needs.grad is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "int8", "uint8", "bool"])
def test_number_types(dtype):
    t = torch()
    tensor = (50 * t.as_tensor(costs((3, 5, 6)))).to(getattr(t, dtype))
    plain = tensor.double().numpy()
    batch = bigsap.solve_many(tensor)
    for one, cost, result in zip(tensor, plain, batch, strict=True):
        expected = bigsap.solve(cost)
        assert result.fun == expected.fun == bigsap.solve(one).fun
        _, columns = bigsap.linear_sum_assignment(one)
        assert cost[range(5), columns.tolist()].sum() == expected.fun
    with pytest.raises((TypeError, bigsap.DtypeError)):
        bigsap.linear_sum_assignment(tensor[0].to(t.complex64))


def test_bfloat16_of_jax_and_read_only_memory():
    xp = jax()
    given = costs((5, 6))
    tensor = xp.asarray(given, xp.bfloat16)
    wanted = bigsap.solve(np.asarray(tensor).astype("f8"))
    assert bigsap.solve(tensor).fun == bigsap.solve_many(tensor[None])[0].fun == wanted.fun
    assert bigsap.points(tensor, tensor).shape == (5, 5)
    assert not on_host(xp.asarray(given)).flags.writeable


def test_sums_beyond_the_integers_of_jax():
    xp = jax()
    given = np.full((2, 3, 3), 2_000_000_000, np.int32)
    batch = bigsap.solve_many(xp.asarray(given))
    assert np.asarray(batch.fun).tolist() == np.asarray(batch.bound).tolist() == [6e9, 6e9]
    assert batch[0].fun == 6_000_000_000


def test_forms_of_torch_that_are_no_plain_matrix():
    t = torch()
    plain = t.as_tensor(costs((3, 3)))
    own = plain.as_subclass(type("Own", (t.Tensor,), {}))
    assert isinstance(bigsap.linear_sum_assignment(own)[1], t.Tensor)
    assert isinstance(bigsap.solve_many([own]).fun, t.Tensor)
    for form in (plain.to_sparse(), plain.to("meta")):
        refused(form)
    with pytest.raises(bigsap.DtypeError, match=r"bigsap\.sparse"):
        bigsap.solve(plain.to_sparse())


@pytest.mark.parametrize("name", LIBRARIES)
def test_points(name):
    make, _ = library(name)
    x, y = costs((2, 9, 3))
    expected = bigsap.solve(bigsap.points(x, y))
    found = bigsap.solve(bigsap.points(make(x), make(y)))
    assert found.fun == expected.fun
    np.testing.assert_array_equal(found.col4row, expected.col4row)
    if name == "torch":
        assert bigsap.solve(bigsap.points(make(x).requires_grad_(), make(y))).fun == expected.fun


# -- devices, which this machine may lack -------------------------------------------------------


class Device:
    """A device that is a context, as CuPy's."""

    entered = 0

    def __enter__(self):
        Device.entered += 1

    def __exit__(self, *error):
        pass


class OnDevice:
    """An array on a device that knows its way to the host."""

    device = Device()

    def __init__(self, array, kind=8):
        self.array, self.kind, self.shape = array, kind, array.shape
        self.copies = 0

    def __dlpack__(self, **options):
        raise BufferError("on a device")

    def __dlpack_device__(self):
        return self.kind, 0

    def __getitem__(self, where):
        return OnDevice(self.array[where], self.kind)

    def __array_namespace__(self):
        return types.SimpleNamespace(asarray=OnDevice)

    def get(self):
        self.copies += 1
        return self.array


def test_a_batch_on_a_device_is_copied_once_and_answered_there():
    tensor = OnDevice(costs((4, 3, 5)))
    entered = Device.entered
    batch = bigsap.solve_many(tensor, rows=OnDevice(np.array([3, 2, 1, 3])))
    assert tensor.copies == 1
    assert isinstance(batch.col4row, OnDevice)
    assert Device.entered == entered + 1
    wanted = bigsap.solve_many(tensor.array, rows=[3, 2, 1, 3])
    np.testing.assert_array_equal(batch.col4row.array, wanted.col4row)


def test_a_named_device_solves_each_problem_there(monkeypatch):
    asked = []

    def solve(cost, **options):
        asked.append((type(cost), options["device"]))
        return bigsap.solve(cost.array)

    monkeypatch.setattr(bigsap.batch, "solve", solve)
    tensor = OnDevice(costs((4, 3, 5)), 2)
    batch = bigsap.solve_many(tensor, device="cuda", columns=[5, 4, 3, 5])
    assert asked == 4 * [(OnDevice, "cuda")]
    assert tensor.copies == 0
    np.testing.assert_array_equal(batch[1].col4row, bigsap.solve(tensor.array[1, :, :4]).col4row)


def test_one_problem_on_a_cuda_device_is_solved_there(monkeypatch):
    asked = []
    result = bigsap.solve(costs((3, 5)))
    monkeypatch.setattr(bigsap.solve, "__wrapped__", None, raising=False)
    module = sys.modules["bigsap.solve"]
    monkeypatch.setattr(module, "solve", lambda cost, **options: asked.append(options) or result)
    tensor = OnDevice(costs((3, 5)), 2)
    _, columns = bigsap.linear_sum_assignment(tensor)
    assert asked == [{"maximize": False, "device": "cuda:0"}]
    assert tensor.copies == 0
    np.testing.assert_array_equal(columns.array, result.col_ind)
    other = OnDevice(costs((3, 5)), 8)  # not CUDA: no kernels, so the host solves a copy
    bigsap.linear_sum_assignment(other)
    assert other.copies == 1


def refused(tensor):
    """Check the errors about a tensor whose numbers its library does not give."""
    with pytest.raises(bigsap.DtypeError, match="cannot be seen as a numpy array"):
        bigsap.solve(tensor)
    with pytest.raises(bigsap.DtypeError, match="cannot be seen as a numpy array"):
        bigsap.points(tensor, tensor)
    with pytest.raises(TypeError, match="cannot be seen as a numpy array"):  # as scipy's function
        bigsap.linear_sum_assignment(tensor)
    with pytest.raises(bigsap.DtypeError, match=r"^problem 1: .*cannot be seen as a numpy array"):
        bigsap.solve_many([costs((3, 3)), tensor])
    batch = bigsap.solve_many([tensor, costs((3, 3))], errors="return")
    assert isinstance(batch[0], bigsap.DtypeError)
    assert batch[1].success


class Nowhere(OnDevice):
    """A tensor without memory."""

    def __dlpack_device__(self):
        raise ValueError("no memory")


def test_a_tensor_without_memory_is_refused():
    refused(Nowhere(costs((3, 3))))


class InMemory(OnDevice):
    """An array in host memory, of the given kind of DLPack."""

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("kind", [1, 3, 11])
def test_memory_pinned_for_a_device_is_read_in_place(kind):
    tensor = InMemory(costs((4, 5)), kind)
    assert as_source(tensor).resident().ctypes.data == tensor.array.ctypes.data
    assert bigsap.solve(tensor).fun == bigsap.solve(tensor.array).fun
    assert tensor.copies == 0


def test_what_can_be_read_by_dlpack_alone():
    def spoken(array):
        names = {
            "__dlpack__": lambda self, **options: array.__dlpack__(**options),
            "__dlpack_device__": lambda self: (1, 0),
        }
        return type("Spoken", (), names)()

    array = costs((4, 5))
    tensor = spoken(array)
    assert bigsap.solve(tensor).fun == bigsap.solve(array).fun
    _, columns = bigsap.linear_sum_assignment(tensor)
    assert columns.tolist() == bigsap.linear_sum_assignment(array)[1].tolist()
    assert bigsap.points(tensor, tensor).shape == (4, 4)
    assert bigsap.solve_many(spoken(array[None])).fun == bigsap.solve(array).fun


def test_vectors_that_numpy_sees_are_not_read_by_dlpack():
    class Vector:  # as pyarrow's: no shape, and DLPack of numbers without nulls only
        def __dlpack__(self, **options):
            raise TypeError("Can only use DLPack on primitive arrays.")

        def __dlpack_device__(self):
            raise AssertionError

        def __array__(self, dtype=None, copy=None):
            return np.array([Decimal("0.25"), True], object)

    assert bigsap.solve(np.ones((2, 2)), unassigned_cost=Vector()).fun == 1.25
    assert bigsap.solve(bigsap.expression("x[i]", (2, 2), x=Vector())).fun == 1.25
    assert bigsap.points(Vector(), Vector()).shape == (2, 2)


def test_a_function_that_returns_tensors_of_one_number():
    with pytest.raises(bigsap.DtypeError, match=r"costs are real numbers: return its item\(\)"):
        bigsap.solve(lambda i, j: InMemory(np.array(1.0)), shape=(3, 3))


def test_devices_without_kernels_are_named():
    with pytest.raises(bigsap.InputError, match="no kernels for"):
        bigsap.solve(OnDevice(costs((4, 5)), 8))


class WithGradient(OnDevice):
    """A tensor on a CUDA device that refuses its interfaces until it is detached."""

    requires_grad = True

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("requires grad")

    def detach(self):
        return OnDevice(self.array, self.kind)


def test_a_gradient_on_a_device_is_ignored(monkeypatch):
    seen = []
    placed = sys.modules["bigsap.sources.cuda.placed"]
    monkeypatch.setattr(placed, "device_array", lambda tensor: seen.append(tensor) or as_source(tensor.array))
    tensor = WithGradient(costs((3, 4)), 2)
    assert bigsap.solve(tensor).fun == bigsap.solve(tensor.array).fun
    assert [type(one) for one in seen] == [OnDevice]


def test_a_class_derived_from_one_of_torch_is_answered_by_torch(monkeypatch):
    base = type("Tensor", (OnDevice,), {"__module__": "torch"})
    monkeypatch.setattr(base, "to", lambda self, device: self, raising=False)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(from_numpy=base))
    own = type("Own", (base,), {"__module__": "users_code", "__array_namespace__": None})
    assert type(bigsap.linear_sum_assignment(own(costs((3, 4))))[1]) is base


class Narrow(OnDevice):
    """An array of a library without numbers of 64 bits."""

    def __init__(self, array, kind=1, device=None):
        super().__init__(array, kind)
        self.dtype = array.dtype

    def __array_namespace__(self):
        return types.SimpleNamespace(asarray=self.narrowed)

    def narrowed(self, array, device=None):
        if array.dtype == np.float64 and self.kind != 1:
            raise TypeError("no float64")
        small = {"f": np.float32, "i": np.int32, "b": np.bool_}
        return Narrow(array.astype(small[array.dtype.kind]))

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("kind", [1, 8])
def test_libraries_and_devices_without_numbers_of_64_bits(kind):
    batch = bigsap.solve_many(Narrow(costs((2, 3, 4)), kind))
    assert batch.fun.array.tolist() == [np.float32(one.fun) for one in batch]
    assert batch.col4row.array.dtype == np.int32
    large = bigsap.solve_many(Narrow(np.full((1, 3, 3), 2**30), kind))
    assert large.fun.array.tolist() == [3.0 * 2**30]
    assert large[0].fun == 3 * 2**30
    small = bigsap.solve_many(Narrow(np.full((1, 3, 3), 7), kind))
    assert (small.fun.array.dtype, small.fun.array.tolist()) == (np.int32, [21])


def test_what_is_no_tensor():
    for given in (
        np.ones((2, 2)),
        np.float64(1),
        [[1.0]],
        "x",
        None,
        bigsap.points(np.ones((2, 2)), np.ones((2, 2))),
    ):
        assert not is_tensor(given)
    unknown = type("Array", (), {"__dlpack__": None, "__dlpack_device__": None, "shape": ()})()
    assert is_tensor(unknown)
    assert type(like(unknown)(np.ones(2))) is np.ndarray
