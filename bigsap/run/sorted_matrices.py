"""Costs that sorting makes Monge: an answer without a search, accepted once it is proved."""

from __future__ import annotations

import time

from bigsap.errors import CertificateError, InvalidCostError
from bigsap.proof.certificate import Certificate
from bigsap.run.certify import prove_now
from bigsap.run.kept_rows import keep_rows
from bigsap.run.run import Run
from bigsap.strategies import Outcome
from bigsap.strategies.monge import sorted_start
from bigsap.strategies.placement import device_name


class SortedMatrices:
    """The strategy of ``strategies.monge``."""

    def fits(self, run: Run) -> bool:
        """Whether the costs are the host's, and neither a way nor prices were given."""
        return run.warm_start is None and not run.is_continued and not run.is_way_named

    def attempt(self, run: Run) -> Outcome | None:
        """None for costs that are not Monge; the counts and ``run.known`` keep what the pass found.

        Where no certificate is asked for, the pass still decides, and counts as the search's. A
        stop within it finds the answer at hand.
        """
        keep_rows(run)
        problem, options, solved = run.reading, run.options, run.short_way()
        if device_name(problem.source) != "cpu":
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
            pass  # the search meets the same costs, and says what is wrong with them
        finally:
            if not options.certify:
                pairs = run.certificate_pairs - before[1]
                solved.counts.pairs += pairs
                solved.counts.rows += pairs // problem.shape[1]
                run.seconds["search"] += run.seconds["certificate"] - before[0]
                run.seconds["certificate"], run.certificate_pairs = before
        within = certificate is not None and (
            certificate.optimal or (certificate.gap is not None and certificate.gap <= options.gap)
        )
        if not within:
            run.standing = None
            return None
        solved.first_prices = "sorted"
        run.proved = certificate
        return Outcome(start.column_of_row, start.v)
