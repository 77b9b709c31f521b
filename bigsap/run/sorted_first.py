"""Costs that sorting makes Monge: the answer that needs no search, put to the proof."""

from __future__ import annotations

import time
from collections.abc import Callable

from bigsap.errors import CertificateError, InvalidCostError
from bigsap.proof.certificate import Certificate
from bigsap.run.call import SolveCall
from bigsap.sources.base import Array
from bigsap.strategies import Outcome
from bigsap.strategies.list_run import Solved
from bigsap.strategies.monge import sorted_start
from bigsap.strategies.placement import device_name


def sorted_outcome(
    call: SolveCall, solved: Solved, prove: Callable[[Array, Array], Certificate]
) -> Outcome | None:
    """The answer of ``methods.monge`` once ``prove``, a pass over all pairs, bears it out.

    None for costs that are not Monge: then nothing has changed but the counts, and what the
    pass taught ``engine.core.known``. Where no certificate is asked for, the pass still decides,
    and counts as the search's. A stop within it finds the answer at hand.
    """
    problem, options = call.reading, call.options
    if device_name(problem.source) != "cpu":
        return None
    clock = time.perf_counter()
    start = sorted_start(problem, call.arithmetic.price, options.seed, solved.counts, call.monitor.tick)
    call.seconds["start"] += time.perf_counter() - clock
    if start is None:
        return None
    call.standing = start.column_of_row, start.v
    before = call.seconds["certificate"], call.certificate_pairs
    certificate = None
    try:
        certificate = prove(start.column_of_row, start.v)
    except (CertificateError, InvalidCostError):
        pass  # the search meets the same costs, and says what is wrong with them
    finally:
        if not options.certify:
            pairs = call.certificate_pairs - before[1]
            solved.counts.pairs += pairs
            solved.counts.rows += pairs // problem.shape[1]
            call.seconds["search"] += call.seconds["certificate"] - before[0]
            call.seconds["certificate"], call.certificate_pairs = before
    within = certificate is not None and (
        certificate.optimal or (certificate.gap is not None and certificate.gap <= options.gap)
    )
    if not within:
        call.standing = None
        return None
    solved.first_prices = "sorted"
    call.proved = certificate
    return Outcome(start.column_of_row, start.v)
