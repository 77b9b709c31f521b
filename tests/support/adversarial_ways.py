"""Adversarial problems solved and judged: by ``solve`` and its kin, in every place."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import shutil
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from adversarial import Case, draw
from exact_judge import SMALL, Truth, judge
from exact_oracle import grid, nearest
from examples_of import RANDOM

#: The same problems in every run of ``make test``, others in ``make test-all``.
SEED = int(np.random.SeedSequence().entropy % 10**9) if RANDOM else 36

_MOST_WITHOUT_DUALS = 500

#: What a solve may end with in place of a result, besides what ``_refusal`` allows.
REFUSALS = (bigsap.OptionError,)


@dataclass
class Outcome:
    """What came of a problem. faults: each begun by its kind. refused: the error's name."""

    faults: list[str] = field(default_factory=list)
    imprecise: int = 0
    off: int = 0
    refused: str = ""
    results: int = 0


@dataclass
class Place:
    """Where problems are solved. options: of ``solve``. client: of a service."""

    options: dict[str, Any] = field(default_factory=dict)
    client: Any = None


def tried(case: Case, place: Place, folder: Path, ways: Any = None) -> Outcome:
    """Solve a problem and judge what comes. folder: for its files. ways: more than those of here."""
    found = Outcome()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ResourceWarning)
            _ignore_advice()
            (WAYS | (ways or {}))[case.way](case, place, folder, found)
    except Exception as error:  # noqa: BLE001  (each is a finding, or refused with reason)
        found.refused = _refusal(case, error)
        if not found.refused:
            found.faults.append(f"crash: {type(error).__name__}: {error} {_where(error)}")
    return found


def found_by(place: str, numbers: Iterable[int], folder: Path, where: Place, most: int = 2500) -> list[str]:
    """The faults of some problems, each with its name. most: rows of a problem."""
    faults = []
    for number in numbers:
        case = draw(SEED, number, place, folder, most)
        faults += [f"{case}: {fault}" for fault in tried(case, where, folder).faults]
    return faults


def _ignore_advice() -> None:
    from bigsap.sources.functions.speed import PerformanceWarning

    warnings.simplefilter("ignore", PerformanceWarning)
    warnings.filterwarnings("ignore", message="the zarr array .* is cut into")


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if f"{os.sep}bigsap" in f.filename and "tests" not in f.filename]
    at = (inside or list(frames))[-1]
    return f"({Path(at.filename).name}:{at.lineno})"


def _refusal(case: Case, error: Exception) -> str:
    """The name of an error that this problem may end with, or nothing."""
    name = type(error).__name__
    if isinstance(error, REFUSALS):
        return name
    if name in ("ServiceError", "JobFailedError") and "solve the transpose" in str(error):
        return name  # in place of OptionError
    served = name == "JobFailedError" and ("exact sums" in str(error) or "float64" in str(error))
    if isinstance(error, bigsap.OverflowRiskError) or served:
        # Sums that may leave the doubles, or the integers.
        finite = np.abs(case.matrix[np.isfinite(case.matrix)].astype(float))
        largest = float(finite.max()) if finite.size else 0.0
        largest = max(largest, _size(case.unassigned))
        if case.matrix.dtype.kind in "iu":
            mixed = case.unassigned is not None and largest >= 2**53
            return name if mixed or largest * sum(case.matrix.shape) > 2**55 else ""
        largest = max(largest, _size(case.options.get("warm_start")))
        return name if largest * (sum(case.matrix.shape) + 2) > 1e300 else ""
    return ""


def _size(numbers: Any) -> float:
    """The largest finite number of them."""
    if isinstance(numbers, tuple):
        numbers = numbers[0]
    if numbers is None:
        return 0.0
    found = np.abs(np.asarray(numbers, float))
    return float(np.where(np.isfinite(found), found, 0.0).max(initial=0.0))


def _asked(case: Case, place: Place) -> dict[str, Any]:
    found = {**case.options, **place.options, "maximize": case.maximize}
    if case.unassigned is not None:
        found["unassigned_cost"] = case.unassigned
    return found


def _judged(case: Case, truth: Truth, result: Any, found: Outcome) -> None:
    found.results += 1
    if case.ordinary is not None:
        truth, result, faults = case.ordinary(result)
        found.faults += faults
        if faults:
            return
    verdict = judge(
        truth,
        result,
        certified=case.options.get("certify", True) is not False,
        gap=case.options.get("gap", 0.0),
    )
    found.faults += verdict.faults
    found.imprecise += verdict.imprecise
    found.off += verdict.imprecise and not verdict.exact


def truth_of(case: Case) -> Truth:
    """The problem for the judge; what an ordinary one is made of has no optimum of its own."""
    small = SMALL if case.ordinary is None else 0
    return Truth(case.matrix, case.maximize, case.unassigned, small)


def _of_a_stopped_solve(case: Case) -> Truth:
    """The same; with large costs, from prices of a solve that is not stopped, which the judge checks.

    Exact shortest paths from a stopped solve's prices take the judge a quarter of an hour there.
    """
    truth = truth_of(case)
    if min(case.matrix.shape) > _MOST_WITHOUT_DUALS and case.unassigned is None:
        whole = bigsap.solve(case.matrix, maximize=case.maximize)
        if str(whole.status) == "optimal":
            truth.priced(whole.v, whole.v_low)
    return truth


def _verified(case: Case, truth: Truth, result: Any, found: Outcome) -> None:
    """``verify`` agrees, by bounds and by pairs; it refuses claims that are a little better."""
    if str(result.status) not in ("optimal", "imprecise", "gap_reached", "infeasible"):
        return
    proved = result.verify(case.cost, pairs=bool(case.rng.random() < 0.5))
    same = result
    if case.ordinary is not None:
        truth, same, faults = case.ordinary(result)
        if faults:
            return
    if result.bound is None or math.isinf(result.bound):
        return
    bound = truth.sign * grid(proved.bound)
    if not truth.below_optimum(bound):
        found.faults.append(f"false bound: {proved.bound!r} of verify")
    # By more than another code path's last bits.
    paid = truth.paid(same.col4row)
    assert not isinstance(paid, str)
    step = truth.sign * max(2.0**-44 * nearest(paid[1]), 2.0**-50 * abs(result.fun), 5e-324)
    worse = replace(_whole(result), fun=result.fun - step)
    bound = result.fun + step
    for claim, what in ((worse, "fun"), (replace(_whole(result), bound=bound, gap=0.0), "bound")):
        try:
            claim.verify(case.cost)
        except bigsap.CertificateError:
            continue
        found.faults.append(f"false verify: it agrees to another {what}")


def _whole(result: Any) -> Any:
    """With all its fields, so that it can be changed."""
    pickle.dumps(result)
    return result


def _solve(case: Case, place: Place, folder: Path, found: Outcome) -> None:
    truth = truth_of(case)
    result = bigsap.solve(case.cost, **_asked(case, place))
    _judged(case, truth, result, found)
    if case.options.get("certify", True) is not False and case.rng.random() < 0.2:
        _verified(case, truth, result, found)


def _scipy(case: Case, place: Place, folder: Path, found: Outcome) -> None:
    """``linear_sum_assignment``: integers whose sums may leave int64 are doubles to it.

    It gives no duals, and without them the judge takes minutes for larger matrices.
    """
    case = replace(case, matrix=case.matrix[:_MOST_WITHOUT_DUALS, :_MOST_WITHOUT_DUALS])
    truth = truth_of(case)
    try:
        rows, columns = bigsap.linear_sum_assignment(case.matrix, case.maximize)
    except bigsap.InfeasibleError:
        if truth.infeasible is False:
            found.faults.append("wrong status: infeasible, but it is not")
        return
    _assignment(case, truth, rows, columns, found)


def _assignment(case: Case, truth: Truth, rows: Any, columns: Any, found: Outcome) -> None:
    found.results += 1
    col4row = np.full(case.matrix.shape[0], -1, np.intp)
    col4row[rows] = columns
    paid = truth.paid(col4row)
    if isinstance(paid, str):
        found.faults.append(f"bad assignment: {paid}")
        return
    cost, size = paid[0] * truth.sign, paid[1]
    truth.assigned(paid[0])
    if not truth.below_optimum(cost - (size >> (50 if case.matrix.dtype.kind == "f" else 40))):
        off = nearest(cost - truth.settled())
        found.faults.append(f"wrong optimum: by {off:.3g}, of {nearest(size)!r}")


def _many(case: Case, place: Place, folder: Path, found: Outcome) -> None:
    others = [case.matrix, case.matrix[::-1], case.matrix.T, case.matrix[: 1 + len(case.matrix) // 2]]
    batch = [np.ascontiguousarray(m) for m in others]
    for matrix, result in zip(
        batch, bigsap.solve_many(batch, maximize=case.maximize, errors="return"), strict=True
    ):
        if isinstance(result, Exception):
            raise result
        _judged(case, Truth(matrix, case.maximize), result, found)


def _stopper(case: Case) -> Callable[[Any], None]:
    calls = itertools.count()
    last = int(case.rng.integers(0, 4))

    def callback(_: Any) -> None:
        if next(calls) >= last:
            raise StopIteration

    return callback


def _stopped(case: Case, place: Place, folder: Path, found: Outcome) -> None:
    truth = _of_a_stopped_solve(case)
    asked = _asked(case, place)
    way = case.rng.random()
    if way < 0.4:
        asked["time_limit"] = 10.0 ** case.rng.uniform(-6, -1)
    elif way < 0.8:
        asked.update(callback=_stopper(case), callback_rows=int(case.rng.integers(1, 50)))
    else:
        asked["cancel"] = threading.Event()
        asked["cancel"].set()
    result = bigsap.solve(case.cost, **asked)
    _judged(case, truth, result, found)
    if case.rng.random() < 0.5:
        _judged(case, truth, _through_file(result, folder), found)


def _resumed(case: Case, place: Place, folder: Path, found: Outcome) -> None:
    truth = _of_a_stopped_solve(case)
    asked = _asked(case, place)
    path = folder / "adversarial.ck"
    path.unlink(missing_ok=True)
    first = bigsap.solve(
        case.cost,
        **asked,
        checkpoint=path,
        callback=_stopper(case),
        callback_rows=int(case.rng.integers(1, 50)),
    )
    _judged(case, truth, first, found)
    if path.exists():
        for name in ("method", "variant", "epsilon", "start", "seed", "maximize"):
            asked.pop(name, None)
        _judged(case, truth, bigsap.resume(path, case.cost, **asked), found)


def _through_file(result: Any, folder: Path) -> Any:
    path = folder / "adversarial.npz"
    result.save(path)
    return bigsap.Result.load(path)


def _kept(case: Case, place: Place, folder: Path, found: Outcome) -> None:
    truth = truth_of(case)
    result = bigsap.solve(case.cost, **_asked(case, place))
    _judged(case, truth, result, found)
    again = _through_file(result, folder)
    _judged(case, truth, again, found)
    _verified(case, truth, again, found)
    warm = {k: v for k, v in _asked(case, place).items() if k != "warm_start"}
    if case.rng.random() < 0.5 and result.fun is not None:
        _judged(case, truth, bigsap.solve(case.cost, **warm, warm_start=again), found)


def _served(case: Case, place: Place, folder: Path, found: Outcome) -> None:
    """By the service: the same options, in its words."""
    asked = _asked(case, place)
    asked.pop("warm_start", None)
    if "certify" in asked:
        asked["certify"] = "pairs" if asked["certify"] == "pairs" else "bounds"
    if "unassigned_cost" in asked:
        prices = np.asarray(asked["unassigned_cost"])
        if not np.isfinite(prices).all():
            del asked["unassigned_cost"]
            case = replace(case, unassigned=None)
        else:
            asked["unassigned_cost"] = prices.tolist()
    truth = truth_of(case)
    cost = case.cost
    if case.source == "zarr":
        import zarr

        path = folder / "costs.zarr"
        shutil.rmtree(path, ignore_errors=True)
        zarr.save_array(path, case.matrix, config={"write_empty_chunks": True})
        cost = zarr.open_array(path, mode="r")
    job = place.client.submit(cost, options=asked, shape=case.matrix.shape, wait=300)
    _judged(case, truth, job.result(), found)


WAYS = {
    "solve": _solve,
    "scipy": _scipy,
    "many": _many,
    "stopped": _stopped,
    "resumed": _resumed,
    "kept": _kept,
    "served": _served,
}


# -- places ------------------------------------------------------------------------------------


@contextmanager
def simulated_device() -> Iterator[Place]:
    """Device kernels compiled for this machine, see ``tests/support/simulated``."""
    from bigsap.engine.cuda import shares
    from bigsap.sources.cuda import device_kernels
    from stand_in import few_threads

    folder = str(Path(__file__).parent / "simulated")
    before = shares.geometry, shares.PATIENCE_SECONDS
    sys.path.insert(0, folder)
    sys.modules.pop("cupy", None)
    device_kernels._compiled.cache_clear()
    shares.geometry, shares.PATIENCE_SECONDS = few_threads, 120.0
    try:
        yield Place({"device": "cuda"})
    finally:
        shares.geometry, shares.PATIENCE_SECONDS = before
        sys.path.remove(folder)
        sys.modules.pop("cupy", None)
        device_kernels._compiled.cache_clear()


@contextmanager
def local_cluster() -> Iterator[Place]:
    """Two workers of this machine."""
    import dask
    import distributed

    dask.config.set({"distributed.deploy.lost-worker-timeout": "3650 days"})
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            memory_limit=0,
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield Place({"cluster": client})


@contextmanager
def service(folder: Path) -> Iterator[Place]:
    """A server of one's own."""
    from bigsap.client import Client
    from live_server import LiveServer

    server = LiveServer(folder / "service")
    server.start()
    try:
        with Client(server.url) as client:
            yield Place(client=client)
    finally:
        server.stop()


@contextmanager
def place_named(name: str, folder: Path) -> Iterator[Place]:
    """host, device, cluster, service, card (a real device) or inputs, which are on the host."""
    if name in ("host", "inputs", "card"):
        yield Place({"device": "cuda"} if name == "card" else {})
        return
    made = {"device": simulated_device, "cluster": local_cluster}
    with service(folder) if name == "service" else made[name]() as place:
        yield place
