"""Tensors of torch and JAX on a GPU: solved where they lie, answered there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsap


class Torch:
    def __init__(self) -> None:
        self.xp = pytest.importorskip("torch")

    def make(self, values: Any) -> Any:
        return self.xp.as_tensor(values, device="cuda")

    def on_device(self, tensor: Any) -> bool:
        return isinstance(tensor, self.xp.Tensor) and tensor.is_cuda

    def host(self, tensor: Any) -> Any:
        return tensor.cpu().numpy()


class Jax:
    def __init__(self) -> None:
        self.xp = pytest.importorskip("jax")
        if self.xp.default_backend() != "gpu":
            pytest.skip("JAX has no GPU here")

    def make(self, values: Any) -> Any:
        return self.xp.numpy.asarray(values)

    def on_device(self, tensor: Any) -> bool:
        return isinstance(tensor, self.xp.Array) and {d.platform for d in tensor.devices()} == {"gpu"}

    def host(self, tensor: Any) -> Any:
        return np.asarray(tensor)


@pytest.fixture(params=[Torch, Jax])
def library(request: pytest.FixtureRequest) -> Any:
    return request.param()


def costs(*shape: int) -> Any:
    return np.random.default_rng(5).random(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(5, 7), (300, 300), (260, 200)])
@pytest.mark.parametrize("maximize", [False, True])
def test_one_problem(library: Any, shape: tuple[int, int], maximize: bool) -> None:
    given = costs(*shape)
    found = bigsap.linear_sum_assignment(library.make(given), maximize)
    rows, columns = bigsap.linear_sum_assignment(given, maximize)
    assert all(library.on_device(part) for part in found)
    total = given[library.host(found[0]), library.host(found[1])].astype(float).sum()
    assert total == pytest.approx(given[rows, columns].astype(float).sum(), rel=1e-12)


def test_solve_takes_costs_in_place_and_results_are_of_numpy(library: Any) -> None:
    given = costs(300, 300)
    found = bigsap.solve(library.make(given), device="cuda")
    assert type(found.col4row) is np.ndarray
    assert (found.fun, found.status) == (bigsap.solve(given).fun, "optimal")
    found.verify(given)


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_batch_is_answered_on_the_device(library: Any, device: str) -> None:
    given, sizes = costs(6, 20, 30), np.array([20, 3, 0, 7, 19, 20])
    batch = bigsap.solve_many(library.make(given), rows=library.make(sizes), device=device)
    expected = bigsap.solve_many(given, rows=sizes)
    assert library.on_device(batch.col4row)
    assert library.on_device(batch.fun)
    np.testing.assert_array_equal(library.host(batch.col4row), expected.col4row)
    np.testing.assert_allclose(library.host(batch.fun), expected.fun, rtol=1e-6)


def test_points(library: Any) -> None:
    x, y = costs(2, 400, 3)
    expected = bigsap.solve(bigsap.points(x, y))
    found = bigsap.solve(bigsap.points(library.make(x), library.make(y)))
    assert found.fun == expected.fun


def test_work_of_another_stream_is_waited_for() -> None:
    torch = Torch().xp
    base = torch.as_tensor(costs(2000, 2000), device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        made = base
        for _ in range(60):  # still under way when the solve is called
            made = (made @ base).remainder(1.0)
        rows, columns = bigsap.linear_sum_assignment(made)
    torch.cuda.synchronize()
    total = made[rows, columns].double().sum().item()
    assert total == pytest.approx(bigsap.solve(made.cpu().numpy()).fun, rel=1e-12)


@pytest.mark.parametrize(("maximize", "gated"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("shape", [(40, 30, 90), (300, 60, 20), (20, 512, 512)])
def test_small_problems_are_solved_and_answered_in_place(
    library: Any, shape: tuple[int, int, int], maximize: bool, gated: bool
) -> None:
    given = costs(*shape)
    options: dict[str, Any] = {"maximize": maximize, "unassigned_cost": 0.02 if gated else None}
    batch = bigsap.solve_many(library.make(given), device="cuda", **options)
    expected = bigsap.solve_many(given, **options)
    assert library.on_device(batch.col4row)
    assert library.on_device(batch.row4col)
    np.testing.assert_array_equal(library.host(batch.col4row), expected.col4row)
    np.testing.assert_array_equal(library.host(batch.row4col), expected.row4col)
    assert [one.fun for one in batch] == [one.fun for one in expected]
    assert batch[3].stats["device"] == "cuda:0"
    batch[3].verify(given[3])


def test_tables_of_torch_are_not_copied() -> None:
    torch = Torch().xp
    batch = bigsap.solve_many(torch.as_tensor(costs(5, 20, 30), device="cuda"), device="cuda")
    assert batch.col4row.dtype == torch.int64
    there = batch._answers.found.column_of_row
    assert batch.col4row.data_ptr() == there.data.ptr


def test_a_batch_waits_for_the_work_of_another_stream() -> None:
    torch = Torch().xp
    base = torch.as_tensor(costs(8, 700, 700), device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        made = base
        for _ in range(200):  # still under way when the batch is solved
            made = (made @ base).remainder(1.0)
        columns = bigsap.solve_many(made, device="cuda").col4row
        chosen = made.gather(2, columns[:, :, None]).double().sum((1, 2))
    torch.cuda.synchronize()
    expected = bigsap.solve_many(made.cpu().numpy()).fun
    assert chosen.tolist() == pytest.approx(expected, rel=1e-12)


class _OnlyDlpack:
    """Batch in device memory that says neither its number type nor what library it is of."""

    def __init__(self, array: Any) -> None:
        self._array, self.shape = array, array.shape

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __getitem__(self, place: Any) -> Any:
        return _OnlyDlpack(self._array[place])


def test_a_batch_that_has_nothing_but_dlpack() -> None:
    cupy = pytest.importorskip("cupy")
    given = costs(4, 20, 30)
    batch = bigsap.solve_many(_OnlyDlpack(cupy.asarray(given)), device="cuda")
    np.testing.assert_array_equal(cupy.asnumpy(batch.col4row), bigsap.solve_many(given).col4row)


def test_bfloat16_is_read_as_float32() -> None:
    torch = Torch().xp
    given = torch.as_tensor(costs(3, 12, 12), device="cuda").bfloat16()
    batch = bigsap.solve_many(given, device="cuda")
    assert batch.col4row.is_cuda
    assert batch.fun.tolist() == bigsap.solve_many(given.float().cpu().numpy()).fun.tolist()
