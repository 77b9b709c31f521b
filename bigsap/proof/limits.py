"""Limits of an optimal result's gap, for the proofs of large and of small problems.

``Certificate.clear`` says how they are used. They decide what is true, not which way is taken.
"""

from __future__ import annotations

#: Limit of the gap, as a share of rows times the median margin.
CLEAR = 1e-12
#: A margin counts up to MARGIN times what costs usually differ by: larger ones are margins to a huge cost.
#: No rows are read for that where the margin is at most DOUBTFUL times a typical cost of a pair.
MARGIN, DOUBTFUL = 16.0, 2.0**10
#: And up to HUGE times the size that a quarter of the assigned costs do not exceed, unless that is 0: huge
#: columns may take half of the rows.
HUGE = MARGIN * DOUBTFUL
