"""Wrong lines that the tests must notice: ``python tests/support/mutations.py [NUMBER ...]``.

Each mutation is one line of the engine, the cache, the certificate, the service or of what keeps
kernels, made wrong in a copy of the tree, and the tests that shall fail for it: those of ``make
test``, nothing that is slow. They must pass before. What survives is listed, and the exit status
is 1. ``make test-all`` runs it; it takes half an hour.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 600


@dataclass(frozen=True)
class Mutation:
    """``old``, once in ``file``, becomes ``new``; ``tests`` are pytest's arguments."""

    file: str
    old: str
    new: str
    tests: str


_CERTIFICATE = "bigsap/proof/certificate.py"
_CONCLUSION = "bigsap/proof/conclusion.py"
_ROWS = "bigsap/row_cache.py"
_START = "tests/unit/test_warm_start.py"
MUTATIONS = [
    # The certificate and what verifies a result.
    Mutation(
        _CERTIFICATE,
        "if n_rows - n_allowed <= left_over:",
        "if n_rows - n_allowed < left_over:",
        "tests/unit/test_certificate.py",
    ),
    Mutation(
        _CERTIFICATE,
        "seen = (block != forbidden).any(axis=0)",
        "seen = (block != forbidden).all(axis=0)",
        "tests/unit/test_certificate.py",
    ),
    Mutation(
        _CONCLUSION,
        "bound = _ceiling(total) if integer else down(total)",
        "bound = _ceiling(total) if integer else up(total)",
        "tests/unit/test_certificate.py",
    ),
    Mutation(
        _CONCLUSION, "-s) for s in shift if s]", "s) for s in shift if s]", "tests/unit/test_certificate.py"
    ),
    Mutation(_CERTIFICATE, "if counts.max() > 1:", "if counts.max() > 2:", "tests/unit/test_certificate.py"),
    Mutation(
        _CONCLUSION,
        "u, prices = np.minimum(u - threshold, 0), prices + threshold",
        "u, prices = np.minimum(u - threshold, 0), prices - threshold",
        "tests/unit/test_certificate.py",
    ),
    Mutation(
        _CONCLUSION,
        "optimal = gap <= SHARE * size",
        "optimal = True",
        "tests/unit/test_certificate.py tests/unit/test_verification.py",
    ),
    Mutation(
        "bigsap/proof/verify.py",
        "if sign * (result.bound - certificate.bound) > tolerance:",
        "if sign * (result.bound - certificate.bound) > 1e9 + tolerance:",
        "tests/unit/test_verification.py",
    ),
    Mutation(
        "bigsap/proof/verify.py",
        "return SHARE * certificate.size",
        "return 1e12 * SHARE * certificate.size",
        "tests/unit/test_verification.py",
    ),
    Mutation(
        "bigsap/proof/verify.py",
        "np.where(np.isfinite(a) & np.isfinite(b), more, ~(a <= b))",
        "np.where(np.isfinite(a) & np.isfinite(b), a < -np.inf, ~(a <= b))",
        "tests/unit/test_verification.py",
    ),
    Mutation(
        "bigsap/proof/unassigned.py",
        "found.matched[rows] = gated.prices[rows].astype(",
        "found.matched[rows] = 0 * gated.prices[rows].astype(",
        "tests/unit/test_gating.py",
    ),
    # The row cache.
    Mutation(
        _ROWS,
        "(ca == cb and t.tick[a] < t.tick[b])",
        "(ca == cb and t.tick[a] > t.tick[b])",
        "tests/unit/test_rows.py",
    ),
    Mutation(
        _ROWS,
        "if t.head[PROTECTED_SIZE] < t.head[PROTECTED_LIMIT]:",
        "if t.head[PROTECTED_SIZE] <= t.head[PROTECTED_LIMIT]:",
        "tests/unit/test_rows.py",
    ),
    Mutation(
        _ROWS,
        "            _link_oldest(t, slot, 0)",
        "            _link_newest(t, slot, 0)",
        "tests/unit/test_rows.py",
    ),
    Mutation(
        _ROWS,
        "return t.head[OLDEST] if policy == SLRU",
        "return t.head[NEWEST] if policy == SLRU",
        "tests/unit/test_rows.py",
    ),
    # The engine and its methods.
    Mutation(
        "bigsap/strategies/whole_rows.py",
        "_SHRINK, _ENOUGH = 5, 0.7",
        "_SHRINK, _ENOUGH = 4, 0.7",
        "tests/unit/test_counters.py",
    ),
    Mutation(
        "bigsap/strategies/whole_rows.py",
        "if not first and drops > _ENOUGH",
        "if drops > _ENOUGH",
        "tests/unit/test_counters.py",
    ),
    Mutation(
        "bigsap/strategies/list_sizes.py",
        "terms.kind in _CLOSE and",
        "terms.kind and",
        "tests/unit/test_lists.py -k short_where",
    ),
    Mutation(
        "bigsap/strategies/list_phases.py",
        "min(course.epsilon / _DIVIDE, ",
        "min(course.epsilon / 3, ",
        "tests/unit/test_counters.py",
    ),
    Mutation(
        "bigsap/strategies/start/warm.py",
        "here[rows] = excess <= allowed(",
        "here[rows] = excess + 1e9 <= allowed(",
        _START,
    ),
    Mutation(
        "bigsap/engine/lists/first_matching.py",
        "best - low <= excess[row]:",
        "best - low <= infinity:",
        _START,
    ),
    Mutation(
        "bigsap/engine/core/incumbent.py",
        "if self.bound is None or bound > self.bound:\n"
        "            self.bound = bound\n            if self.active:\n"
        "                if n == m:",
        "if self.bound is None or bound < self.bound:\n"
        "            self.bound = bound\n            if self.active:\n"
        "                if n == m:",
        "tests/unit/test_control.py -k best_bound",
    ),
    Mutation(
        "bigsap/engine/core/selection.py",
        "count += 1 if values[j] <= x else 0",
        "count += 1 if values[j] < x else 0",
        "tests/unit/test_selection.py",
    ),
    Mutation(
        "bigsap/engine/lists/reading.py",
        "        lanes[0] = min(lanes[0], x)",
        "        lanes[0] = max(lanes[0], x)",
        "tests/unit/test_reading.py",
    ),
    Mutation(
        "bigsap/engine/lists/reading.py",
        "        free[k % LANES] = min(",
        "        free[k % LANES] = max(",
        "tests/unit/test_reading.py",
    ),
    Mutation(
        "bigsap/engine/lists/layout.py",
        "while k < stop and costs[k] - v[ids[k]] != low:",
        "while k < stop and costs[k] - v[ids[k]] == low:",
        "tests/unit/test_lists.py -k greedy",
    ),
    Mutation(
        "bigsap/engine/lists/layout.py",
        "if near[row] >= 0 and taken[near[row]] == 0:",
        "if near[row] >= 0:",
        "tests/unit/test_lists.py -k greedy",
    ),
    Mutation(
        "bigsap/engine/lists/layout.py",
        "range(n * thread // n_threads,",
        "range(1 + n * thread // n_threads,",
        "tests/unit/test_lists.py -k greedy",
    ),
    Mutation(
        "bigsap/engine/lists/bounds.py",
        "range(thread, offset.size, n_threads)",
        "range(thread, n_blocks, n_threads)",
        "tests/unit/test_lists.py -k majorants",
    ),
    Mutation(
        "bigsap/engine/small/proof.py",
        "two_sum(matched[i], -prices[j] if j >= 0 else 0.0)",
        "two_sum(matched[i], prices[j] if j >= 0 else 0.0)",
        "tests/unit/test_small.py",
    ),
    Mutation(
        "bigsap/engine/lists/masked_columns.py",
        "if 2 * n_known < size:",
        "if 2 * n_known > size:",
        "tests/unit/test_hiding.py",
    ),
    Mutation(
        "bigsap/engine/trees/grow.py",
        "            v[j] -= now - f.entered[j]",
        "            v[j] -= 0 * (now - f.entered[j])",
        "tests/unit/test_hungarian.py -k every_slice",
    ),
    Mutation(
        "bigsap/engine/trees/grow.py",
        "f.ends[row] = (theta - u) + since if theta < infinity else infinity",
        "f.ends[row] = infinity",
        "tests/unit/test_hungarian.py -k short_lists",
    ),
    Mutation(
        "bigsap/engine/trees/grow.py",
        "        if f.leaf[f.root[f.pred[j]]] < n_columns:",
        "        if f.leaf[f.root[f.pred[j]]] < 0:",
        "tests/unit/test_hungarian.py -k every_slice",
    ),
    Mutation(
        "bigsap/engine/trees/first_pairs.py",
        "if row_of_column[j] < 0 and lists.costs[k] - v[j] == low[row]:",
        "if lists.costs[k] - v[j] == low[row]:",
        "tests/unit/test_hungarian.py -k hard_instances",
    ),
    Mutation(
        "bigsap/engine/small/search.py",
        "                t.v[j] -= second - first",
        "                t.v[j] += second - first",
        "tests/unit/test_small.py",
    ),
    Mutation(
        "bigsap/engine/core/pair_costs.py",
        "    return problem.sign * total",
        "    return total",
        "tests/unit/test_control.py -k stopped_anywhere",
    ),
    Mutation(
        "bigsap/engine/core/virtual.py",
        "    dear = matched[above[matched] > slop]",
        "    dear = matched[above[matched] < slop]",
        _START,
    ),
    # The proof by bounds.
    Mutation(
        "bigsap/proof/descent.py",
        "    offset = t.offset[node]",
        "    offset = -t.offset[node]",
        "tests/unit/test_proof_bounds.py -k its_box",
    ),
    Mutation(
        "bigsap/proof/minima.py",
        "        if any(a[0] != b[row] for",
        "        if any(a[0] == np.inf for",
        "tests/unit/test_proof_bounds.py -k 'said_of_them or would_show'",
    ),
    # What keeps kernels.
    Mutation(
        "bigsap/compile/kernel_files.py",
        "or hashlib.sha256(data[head:]).digest() != data[len(_MARK) : head]",
        "or len(data) < head",
        "tests/unit/test_native.py -k damaged",
    ),
    Mutation(
        "bigsap/compile/digest.py",
        "{found.digest if found else ''}",
        "",
        "tests/unit/test_native.py -k content_decides",
    ),
    Mutation(
        "bigsap/compile/cpu_levels.py",
        "if not has.issuperset(needed):",
        "if not has:",
        "tests/unit/test_native.py -k levels",
    ),
    # Workers elsewhere.
    Mutation(
        "bigsap/sources/cluster/row_blocks.py",
        "        new = positions[~np.isin(keepers, numbers)]",
        "        new = positions[np.isin(keepers, numbers)]",
        "tests/cluster/test_cluster.py -k kept_is_its",
    ),
    Mutation(
        "bigsap/sources/cluster/costs.py",
        "            self.show(wanted, found.__setitem__)",
        "            raise",
        "tests/cluster/test_cluster.py -k nobody_asked",
    ),
    Mutation(
        "bigsap/sources/cluster/on_worker.py",
        "            if sent is None or values is None or have != before:",
        "            if sent is None or values is None:",
        "tests/cluster/test_cluster.py -k declines",
    ),
    Mutation(
        "bigsap/engine/lists/on_workers.py",
        "    fresh = store.lists.theta[wave.rows] == -store.infinity",
        "    fresh = np.ones(wave.rows.size, bool)",
        "tests/cluster/test_cluster_beside.py -k 'same_bits and more'",
    ),
    Mutation(
        "server/bigsap_server/jobs/lending.py",
        "if address in ours}",
        "if address}",
        "tests/service/test_spread.py -k a_number_of",
    ),
    Mutation(
        "bigsap/engine/lists/on_workers.py",
        "        elif not np.array_equal(values, self.shared.values):",
        "        elif not np.array_equal(values[: v.size], self.shared.values[: v.size]):",
        "tests/cluster/test_cluster.py -k changed_prices",
    ),
    # The service.
    Mutation(
        "server/bigsap_server/costs/build.py",
        'name: self.array(name) if holds == "array" else spec.get(name)',
        'name: self.array(name) if holds == "text" else spec.get(name)',
        "tests/service/test_build.py",
    ),
    Mutation(
        "server/bigsap_server/auth.py",
        'if self.scopes.isdisjoint({*scopes, "admin"}):',
        "if not self.scopes:",
        "tests/service/test_auth.py",
    ),
    Mutation(
        "server/bigsap_server/auth.py",
        "if self._tokens >= 1:",
        "if self._tokens >= -9:",
        "tests/service/test_auth.py",
    ),
    Mutation(
        "server/bigsap_server/costs/stores.py",
        "if not file.is_file() or file.is_symlink():",
        "if not file.is_file():",
        "tests/service/test_stores.py",
    ),
    Mutation(
        "server/bigsap_server/jobs/sql.py",
        "owner, priority DESC, number LIMIT 1)",
        "owner, priority DESC, number DESC LIMIT 1)",
        "tests/service/test_operations.py",
    ),
    Mutation(
        "server/bigsap_server/jobs/control.py",
        "        if job_id in known:",
        "        if job_id not in known:",
        "tests/service/test_jobs.py",
    ),
    Mutation(
        "server/bigsap_server/uploads/blocks.py",
        "self._over = True",
        "self._over = False",
        "tests/service/test_arrays_api.py tests/service/test_arrays_api.py",
    ),
    Mutation(
        "server/bigsap_server/api/negotiation.py",
        'return "*" in tags or tag in tags',
        "return bool(tags)",
        "tests/service/test_jobs_api.py tests/service/test_parts.py",
    ),
    # Devices, simulated.
    Mutation(
        "bigsap/engine/cuda/kernels_forest_rows.cu",
        "(u64)(first_row + i + 1)",
        "(u64)(i + 1)",
        "tests/device/test_hungarian_simulated.py -k rows_on_several",
    ),
    Mutation(
        "bigsap/engine/cuda/kernels_classical.cu",
        "if (g < low && !is_reached(f, j)) low",
        "if (g < low) low",
        "tests/device/test_hungarian_simulated.py -k classical_is",
    ),
    Mutation(
        "bigsap/engine/cuda/kernels_classical.cu",
        "while (__ballot_sync(ALL_LANES, bits != 0))",
        "if (__ballot_sync(ALL_LANES, bits != 0))",
        "tests/device/test_hungarian_simulated.py -k classical_is",
    ),
    Mutation(
        "bigsap/engine/cuda/kernels_classical.cu",
        "if (gone) *bits",
        "if (!gone) *bits",
        "tests/device/test_hungarian_simulated.py -k classical_is",
    ),
    Mutation(
        "bigsap/engine/rows/bidding.py",
        "if lower or (offer == a.offer[other] and row < other):",
        "if lower:",
        "tests/unit/test_auction.py",
    ),
    Mutation(
        "bigsap/engine/rows/row_engine.py",
        "        if not other or searching:",
        "        if not other:",
        "tests/unit/test_team.py -k changes_all_the_time",
    ),
    # Rows that may stay unassigned.
    Mutation(
        "bigsap/engine/lists/private_columns.py",
        "best, sink, sink_row = h + p.own[row], PRIVATE, row",
        "best, sink, sink_row = h + p.own[row], PRIVATE, root",
        "tests/unit/test_sparse_gate.py",
    ),
    Mutation(
        "bigsap/engine/lists/private_columns.py",
        "v[f.settled[k]] -= label - f.settled_dist[k]",
        "v[f.settled[k]] -= label - best",
        "tests/unit/test_sparse_gate.py",
    ),
    Mutation(
        "bigsap/engine/lists/below_price.py",
        "if bound[block] >= edge:",
        "if bound[block] >= 0.5 * edge:",
        "tests/unit/test_sparse_gate.py",
    ),
    Mutation(
        "bigsap/proof/minima.py",
        "high[free] = np.minimum(high[free], cap - prices.high.max())",
        "high[free] = np.minimum(high[free], cap - prices.high.min())",
        "tests/unit/test_sparse_gate.py tests/unit/test_gating.py",
    ),
    Mutation(
        "bigsap/proof/unassigned.py",
        "np.isfinite(costs) & (costs >= cap",
        "np.isfinite(costs) & (costs > cap",
        "tests/unit/test_gating.py -k just_its_price",
    ),
    # Drawn at random from the lines that changed in November 2026.
    *(
        Mutation(file, old, new, tests)
        for file, old, new, tests in (
            (
                "bigsap/engine/capacity/columns.py",
                "c.limit[j, k] = min(c.limit[j, k], rise)",
                "c.limit[j, k] = max(c.limit[j, k], rise)",
                "tests/unit/test_capacity_lists.py",
            ),
            (
                "bigsap/engine/capacity/columns.py",
                "least = y if y < least else least",
                "least = y if y > least else least",
                "tests/unit/test_capacities.py",
            ),
            (
                "bigsap/engine/small/search.py",
                "if cap < first:",
                "if cap > first:",
                "tests/unit/test_small_gated.py",
            ),
            (
                "bigsap/engine/small/search.py",
                "if first == np.inf:\n            t.column_of_row[count] = row",
                "if first < np.inf:\n            t.column_of_row[count] = row",
                "tests/unit/test_few_points.py",
            ),
            (
                "bigsap/engine/small/proof.py",
                "if prices[j] > 0.0:",
                "if prices[j] > 1e9:",
                "tests/unit/test_small.py tests/unit/test_few_points.py",
            ),
            (
                "bigsap/engine/k_best/enumerate.py",
                "if not _before(g, nodes, queue, w, c, k):",
                "if _before(g, nodes, queue, w, c, k):",
                "tests/unit/test_k_best.py",
            ),
            (
                "bigsap/engine/k_best/numbers.py",
                "return a - b + (low >> BITS), low & MASK",
                "return a - b, low & MASK",
                "tests/unit/test_k_best.py",
            ),
            (
                "bigsap/engine/k_best/ties.py",
                "if w.owner[j] == KEPT:",
                "if w.owner[j] != KEPT:",
                "tests/unit/test_k_best.py",
            ),
            (
                "bigsap/strategies/k_best_lists.py",
                "return units - self.base",
                "return units",
                "tests/unit/test_k_best.py",
            ),
            (
                "bigsap/sources/repeated.py",
                "if given.size and int(given.min()) < 0:",
                "if given.size and int(given.min()) < -9:",
                "tests/unit/test_capacities.py tests/unit/test_open_places.py",
            ),
            (
                "bigsap/sources/packing.py",
                "found |= stored == value",
                "found &= stored == value",
                "tests/unit/test_missing.py",
            ),
            (
                "bigsap/sources/packed.py",
                'if packing.scaled or (forbid and dtype.kind != "f"):',
                "if packing.scaled:",
                "tests/unit/test_missing.py",
            ),
            (
                "bigsap/proof/weights.py",
                "if not open_columns.size:",
                "if open_columns.size:",
                "tests/unit/test_certificate_parts.py",
            ),
            (
                "bigsap/strategies/placement.py",
                "different = 1 + (least[:, 1:] > least[:, :-1]).sum(axis=1)",
                "different = 1 + (least[:, 1:] >= least[:, :-1]).sum(axis=1)",
                "tests/unit/test_hungarian.py tests/unit/test_families.py",
            ),
            (
                "bigsap/proof/descent.py",
                "if under > c.limit:",
                "if under < c.limit:",
                "tests/unit/test_near_pairs.py",
            ),
            (
                "bigsap/proof/descent.py",
                "if cost <= limit and cost < np.inf:",
                "if cost < limit:",
                "tests/unit/test_bottleneck.py",
            ),
            (
                "bigsap/proof/verify.py",
                "least = least + error",
                "least = least - error",
                "tests/unit/test_verification.py",
            ),
            (
                "bigsap/proof/bottleneck.py",
                "better = (entries.costs > threshold) if maximize else (entries.costs < threshold)",
                "better = (entries.costs > threshold) if maximize else (entries.costs < threshold / 2)",
                "tests/unit/test_bottleneck.py",
            ),
            (
                "bigsap/proof/row_minima.py",
                "excess = smallest - first",
                "excess = first - smallest",
                "tests/unit/test_certificate.py tests/unit/test_wide_scales.py",
            ),
            (
                "bigsap/engine/rows/sweep.py",
                "low = min(low, report.low)",
                "low = max(low, report.low)",
                "tests/unit/test_counters.py",
            ),
            (
                "bigsap/strategies/sparse.py",
                "course.limit, course.looked = self.scans + _LONGER * look, False",
                "course.limit, course.looked = self.scans - 1, False",
                "tests/unit/test_sparse.py",
            ),
            (
                "bigsap/engine/sparse/ordering.py",
                "if stop - first > wide:",
                "if stop - first > 99 * wide:",
                "tests/unit/test_sparse_order.py",
            ),
            (
                "bigsap/engine/lists/product_selection.py",
                "listed = listed or c.ids[j] == free_id",
                "listed = c.ids[j] == free_id",
                "tests/unit/test_products.py tests/unit/test_lists.py",
            ),
            (
                "bigsap/engine/lists/product_selection.py",
                "equal += 1 if tau[j] == x else 0",
                "equal += 2 if tau[j] == x else 0",
                "tests/unit/test_products.py",
            ),
            (
                "bigsap/engine/lists/product_selection.py",
                "theta = min(theta, c.tau[worst])",
                "theta = max(theta, c.tau[worst])",
                "tests/unit/test_products.py",
            ),
            (
                "bigsap/run/warm_start.py",
                "if isinstance(value, tuple) and len(value) == 2 and np.ndim(value[0]) == 1:",
                "if isinstance(value, tuple) and len(value) == 3 and np.ndim(value[0]) == 1:",
                "tests/unit/test_warm_start.py",
            ),
            (
                "bigsap/run/interrupted.py",
                "return signed < np.inf, signed",
                "return signed <= np.inf, signed",
                "tests/unit/test_control.py tests/unit/test_square.py",
            ),
            (
                "bigsap/engine/bottleneck/matching.py",
                "if p.place[i] >= p.stop[i]:",
                "if p.place[i] >= p.start[i + 1]:",
                "tests/unit/test_bottleneck.py",
            ),
            (
                "server/bigsap_server/api/middleware.py",
                "place = self._root + target.path",
                "place = target.path",
                "tests/service/test_proxies.py",
            ),
            (
                "server/bigsap_server/costs/stores.py",
                'if found.get("node_type") != "array":',
                'if found.get("node_type") == "array":',
                "tests/service/test_stores.py",
            ),
        )
    ),
]


def copied(folder: Path) -> None:
    """The tree's files, and the kernels that are compiled already."""
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    kernels = (ROOT / "bigsap" / "__pycache__").glob("*.kernel")
    for name in [*tracked, *(str(file.relative_to(ROOT)) for file in kernels)]:
        if name and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)


def misplaced(mutations: Iterable[Mutation]) -> list[str]:
    """What cannot be made wrong: the line is not in its file, or more than once."""
    found = []
    for mutation in mutations:
        times = (ROOT / mutation.file).read_text().count(mutation.old)
        if times != 1:
            found.append(f"{mutation.file} has {times} times: {mutation.old.strip()}")
    return found


def path_of(folder: Path) -> str:
    """Python's path that puts the copy before what is installed."""
    return os.pathsep.join([str(folder), str(folder / "server")])


def imported(folder: Path) -> list[Path]:
    """Where the packages that are made wrong come from when ``folder`` is tested."""
    code = "import bigsap, bigsap_server as s; print(bigsap.__file__, s.__file__, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": path_of(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [Path(line) for line in done.stdout.splitlines()]


def failing(tests: str, folder: Path) -> bool:
    """Whether tests of ``folder`` fail; too long a time is a failure."""
    environment = {**os.environ, "PYTHONPATH": path_of(folder)}
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-x",
                "--no-header",
                "-p",
                "no:cacheprovider",
                "-m",
                "not slow",
                *shlex.split(tests),
            ],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    if done.returncode > 1:
        raise SystemExit(f"pytest {tests} ended with {done.returncode}")
    return done.returncode == 1


def killed(mutation: Mutation, folder: Path) -> bool:
    """Whether the tests named fail in ``folder`` with the line made wrong."""
    file = folder / mutation.file
    text = file.read_text()
    file.write_text(text.replace(mutation.old, mutation.new))
    try:
        return failing(mutation.tests, folder)
    finally:
        file.write_text(text)


def main() -> int:
    numbers = [int(number) for number in sys.argv[1:]] or list(range(len(MUTATIONS)))
    chosen = [MUTATIONS[number] for number in numbers]
    for line in misplaced(chosen):
        print(line)
    if misplaced(chosen):
        print("nothing was run: these lines have changed, and so must their mutations")
        return 1
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="bigsap-mutations-") as name:
        folder = Path(name)
        copied(folder)
        for file in imported(folder):
            if folder.resolve() not in file.resolve().parents:
                raise SystemExit(f"{file} is imported, not its copy in {folder}")
        for tests in dict.fromkeys(mutation.tests for mutation in chosen):
            if failing(tests, folder):
                raise SystemExit(f"{tests}: they fail as it is")
        print("the tests pass as it is", flush=True)
        for number, mutation in zip(numbers, chosen, strict=True):
            dead = killed(mutation, folder)
            survivors += not dead
            said = "killed  " if dead else "SURVIVED"
            line = mutation.new.strip().split("\n")[0]
            print(f"{said} {number:2} {mutation.file}: {line}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutations killed")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
