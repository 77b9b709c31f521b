"""Strategy for costs that sorting makes Monge: an answer without a search, accepted once proved."""

from __future__ import annotations

import time

from bigsap import policy
from bigsap.errors import CertificateError, InvalidCostError
from bigsap.proof.certificate import Certificate
from bigsap.run.certify import prove_now
from bigsap.run.kept_rows import keep_rows
from bigsap.run.run import Run
from bigsap.sources.cuda.placed import ComputedOnDevice
from bigsap.strategies import Outcome
from bigsap.strategies.monge import sorted_start
from bigsap.strategies.placement import device_name
from bigsap.strategies.work import Work


class SortedMatrices:
    """Strategy of ``strategies.monge``."""

    def expects(self, run: Run) -> Work | None:
        """Return None if a strategy or prices were given. Without a certificate the proof is work."""
        if run.warm_start is not None or run.is_continued or run.is_way_named:
            return None
        n, m = run.problem.shape
        return Work(n * min(m, policy.MONGE_CHECKS) + (0 if run.options.certify else n * m), 0)

    def attempt(self, run: Run) -> Outcome | None:
        """Solve, or return None for costs that are not Monge.

        Counts and ``run.known`` keep what the pass found. Without a certificate the pass still decides,
        and counts as search. A stop during the pass can use the assignment.
        """
        keep_rows(run)
        problem, options, solved = run.reading, run.options, run.short_way()
        # Of costs that a device computes, the host computes the few pairs; the proof is the device's.
        if device_name(problem.source) != "cpu" and not isinstance(problem.source, ComputedOnDevice):
            return None
        clock = time.perf_counter()
        start = sorted_start(problem, run.arithmetic.price, options.seed, solved.counts, run.monitor.tick)
        run.seconds["start"] += time.perf_counter() - clock
        if start is None:
            return None
        run.standing = start.column_of_row, start.v
        before = run.seconds["certificate"], run.certificate_pairs
        certificate: Certificate | None = None
        try:
            certificate = prove_now(run, start.column_of_row, start.v)
        except (CertificateError, InvalidCostError):
            pass  # the search meets the same costs and reports the error
        finally:
            if not options.certify:
                pairs = run.certificate_pairs - before[1]
                solved.counts.pairs += pairs
                solved.counts.rows += pairs // problem.shape[1]
                run.seconds["search"] += run.seconds["certificate"] - before[0]
                run.seconds["certificate"], run.certificate_pairs = before
        within = certificate is not None and (
            (certificate.optimal and certificate.clear)
            or (certificate.gap is not None and certificate.gap <= options.gap)
        )
        if not within:
            run.standing = None
            return None
        solved.first_prices = "sorted"
        run.proved = certificate
        return Outcome(start.column_of_row, start.v)
