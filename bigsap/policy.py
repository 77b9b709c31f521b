"""The thresholds by which a solve takes one way and not another, each with its reason.

Grouped by what is decided. A module says ``policy.NAME`` where it decides. What says how a way
goes stays with that way: sizes of blocks and slices, tolerances of arithmetic, epsilon's factors.
Modules of kernels do not import this one, so that a change here compiles none of them again.
"""

from __future__ import annotations

# -- outliers ---------------------------------------------------------------------------

#: Of so many numbers or more, a few (at most one of FEW_OUTLIERS) are outliers when they are so
#: many times as large, or as far apart, as the others.
OUTLIERS_AMONG = 200
FEW_OUTLIERS = 20
OUTLYING = 1e3
#: A point is outlying so many times as far from the middle as nine of ten are apart; and at most
#: so many rows, or columns, are.
FAR_POINT = 100.0
MOST_FAR_POINTS = 64

# -- shapes -----------------------------------------------------------------------------

#: With a side so many times as long as the other, rows hardly compete for columns: first prices
#: are not needed, nor phases.
SKINNY = 2
#: The same on lists with more rows than columns.
TALL_ON_LISTS = 4

# -- small arrays and batches -----------------------------------------------------------

#: Costs of the largest array that the dense kernel takes: 8 MiB as float64.
MOST_SMALL_COSTS = 1 << 20
#: The same where rows may stay unassigned. Beyond, searches of the pairs that are worth it
#: are faster, since many clipped costs tie.
MOST_SMALL_GATED_COSTS = 1 << 17
#: Of a batch, so many costs are solved by one call from Python, at least.
BATCH_COSTS_PER_CALL = 1 << 16
#: So many are looked at together, which is what copies of them may take.
BATCH_COSTS_AT_ONCE = 1 << 24
#: Problems taken from an iterable ahead of the oldest unfinished one, for each thread: enough to
#: keep the threads busy, few enough to keep a generator's arrays out of memory.
BATCH_AHEAD = 4

# -- threads ----------------------------------------------------------------------------

#: Fewer columns a thread are scanned faster by one thread alone: a barrier costs as much as
#: about a thousand pairs.
COLUMNS_PER_THREAD = 2048
#: Fewer pairs of rows that may stay unassigned are not worth waking the team for.
TEAM_PAIRS = 1 << 20

# -- functions --------------------------------------------------------------------------

#: Matrices with fewer pairs are not worth the fraction of a second that compiling takes.
COMPILED_PAIRS = 1 << 14

# -- device or host ---------------------------------------------------------------------

#: ``device="auto"``: fewer rows or columns stay on the CPU (tests/bench/GPU.md).
DEVICE_ROWS = 4096

# -- the method -------------------------------------------------------------------------

#: From so many rows (and columns) on a start that looks at the costs first is worth it: by tight
#: pairs, and by the sample that chooses first prices.
TIGHT_PAIRS_ROWS = FIRST_PRICES_ROWS = 1500
#: With fewer rows or columns lists save nothing over scanning whole rows.
FEW_ROWS = 700
#: The same for matrices in memory, square or not: lists took longer than whole rows in the median
#: of random families (docs/decisions/2026-11-23-families.md). Lists of square ones try tight
#: pairs first.
FEW_ROWS_SQUARE, FEW_ROWS_RECTANGULAR = TIGHT_PAIRS_ROWS, 1400
#: Unless rows are evaluated again and again otherwise, for want of room: from so many rows on.
LEAST_ROWS_ON_LISTS = 64

# Rows whose costs tell about all, and columns of them; a glance is at fewer.
METHOD_SAMPLE, METHOD_SAMPLE_COLUMNS, METHOD_GLANCE_COLUMNS = 16, 1 << 16, 1 << 10
#: Trees: of so many smallest costs of a row at most so many are different, in most rows. Of i.i.d.
#: whole numbers up to n/2, n, 2n, 10n there are 14, 20, 25, 30 different ones among 32.
SMALLEST_COSTS, DIFFERENT_COSTS = 32, 31
#: Trees on a device: whole numbers of at most such a range, in columns. I.i.d. up to 100 n took
#: 1/2.4 of the time of lists on an H100, up to 1,000 n 1/1.3, up to 10,000 n as much.
SHORT_RANGE_PER_COLUMN = 300
#: The same whatever the costs are: so many columns for each value. Of 200 values at n = 2,048 to
#: 8,192 trees took 3.3 to 4.7 ms, lists 6.6 to 20.
COLUMNS_PER_VALUE = 8
#: Lists on a device: whole numbers of at most so many values a column.
VALUES_PER_COLUMN = 4
#: So are rows that have nothing to do with one another, if fewer than this: hardly a row is
#: evaluated twice, and a scan of a list takes half as long as one on the device.
UNRELATED_ROWS = 20_000
#: Rows of m unrelated costs correlate by 0.8 / sqrt(m) on average; so are those below this.
UNRELATED_CORRELATION = 2.0
#: But not of so many times as many columns as rows: whole rows are scanned on the CPU too.
SOMEWHAT_WIDE = (1.2, 2.0)
#: From so many rows on lists beat a device's whole rows where the source gives bounds.
MANY_ROWS = 50_000
#: Square matrices of so many rows on a device are begun on lists, see
#: ``placement.lists_on_trial``.
TRIED_ROWS = 4096
#: Trees on a device were in vain if they leave more than this share of their roots: so it is with
#: distances and products, hardly with unrelated costs.
TREES_IN_VAIN = 0.5

# -- rows that are kept -----------------------------------------------------------------

#: Smaller problems are quick either way: nothing is timed, nothing handed to workers.
QUICK_PAIRS = 1 << 16
#: Pairs of a row that tell how long pairs take.
TIMED_PAIRS = 4096
#: The share of them to begin with, and seconds that may be spent on it, about.
TIMED_FIRST_SHARE, TIMING_SECONDS = 64, 0.05
#: Compiled costs that take so many seconds a pair are kept: some fifty times what a look into
#: memory does, so that no clock decides about what is near.
DEAR_SECONDS = 5e-8
#: Compiled costs of so many bytes in all are kept whatever they take: without levels, which small
#: problems have none of, lists would compute them three to eight times.
KEPT_BYTES = 64 << 20

# -- workers beside kernels -------------------------------------------------------------

#: Bytes a second that come from all workers together: an assumption.
WORKERS_BYTES_A_SECOND = 5e8
#: Rows that take less time here are not worth their way; nor is a gain of less than a fifth.
WORKERS_LEAST_SECONDS = 1.0
WORKERS_WORTH = 0.8
#: What handing them over takes in any case.
WORKERS_WAVE_SECONDS = 0.1
#: Rows that are read here to tell how long all take.
WORKERS_TIMED_ROWS = 3
#: Matrices in memory that are part of the costs, such as the mask of a function's, are sent along
#: up to so many bytes.
MOST_SENT = 256 << 20

# -- kernels compiled ahead -------------------------------------------------------------

#: Coarse levels end in a matrix, which is solved by whole rows, from so many rows on.
AHEAD_WITH_LEVELS = 4096

# -- costs that sorting makes Monge -----------------------------------------------------

#: Rows and columns of the two samples: most other costs fail in the first.
MONGE_SAMPLES = (6, 16)
#: Numbers that must be told apart in the larger one: costs of few values have better starts.
MONGE_DISTINCT = 4
#: Pairs a row that are compared with the prices before all are.
MONGE_CHECKS = 4

# -- rows that may stay unassigned ------------------------------------------------------

#: Rows sampled first.
OPTIONAL_SAMPLE = 64
#: With more pairs below their price than one of so many of a row, or than OPTIONAL_MANY, epsilon
#: phases on the clipped problem take less; so few are never too many.
OPTIONAL_SHARE, OPTIONAL_FEW, OPTIONAL_MANY = 8, 16, 1024
#: So many times the pairs that the sample foretold end the collection,
OPTIONAL_SURPRISE = 4
#: and so many times all pairs, as entries of lists, the search: it has then taken longer than a
#: reading of the costs, and what follows takes some readings.
OPTIONAL_PATIENCE = 4
#: Rounds for the pairs of a warm start; after more of them the search begins from nothing.
OPTIONAL_WARM_ROUNDS = 64

# -- tight pairs ------------------------------------------------------------------------

#: The first rows of a pass are so many times sqrt(n), from all over the matrix. Of rows that
#: like random columns, some two then compete already.
TIGHT_FIRST = 2
#: Rows whose costs make the second guess.
TIGHT_SAMPLE = 16
#: A guess is wrong when more than one of so many columns is likely to have no tight pair.
TIGHT_LONELY = 64
#: One of so many rows may be left to the search, or a few; with more, other first prices are
#: better.
TIGHT_LEFT, TIGHT_FEW = 200, 8

# -- first prices: none, the estimator's or those of levels -----------------------------

#: Rows of the sample that tells whether levels pay. It has at most so many times as many rows, or
#: columns, as its shorter side should.
SAMPLE_ROWS = 512
LONGEST_SAMPLE = 4
#: Rows and columns on which the estimator is tried, and tried again: it may end few of them by
#: chance. The same of fewer rows that only Python delivers, where two sweeps may solve all.
ESTIMATOR_TRIED, ESTIMATOR_TRIED_AGAIN = 256, 512
ESTIMATOR_TRIED_BY_PYTHON = 32
#: Nuggets of the trial from which on nothing else is read, unless they fall by more than
#: NUGGET_STEADY with twice the rows; and rows, and columns, that place the others.
NUGGET_UNRELATED, NUGGET_STEADY = 0.9, 0.95
PLACING_ROWS = 8
#: Of how many rows the cheapest pair may be on the diagonal, as a share.
DIAGONAL_SHARE = 0.1
#: Of every fourth row two ranks, and how many times as far from the smallest cost the second is
#: where costs pile up: 4 times for uniform ones, 12 for their squares, 37 for third powers, from
#: which on the estimator's prices are worth what they take.
PILE_APART, PILE_RANKS, PILED_UP = 4, (4, 16), 25
#: Nuggets of at most NUGGET_SMOOTH, and those that fall by NUGGET_FALLING with twice the sample,
#: need no further proof; from NUGGET_ROUGH on there is none.
NUGGET_SMOOTH, NUGGET_FALLING, NUGGET_ROUGH = 0.03, 0.67, 0.75
#: The share of the optimum's dual value that prices of a quarter must recover.
GAIN = 0.5
#: A half of the sample recovers up to 0.4 less than all of it, or 0.2 more.
DOUBTFUL_GAIN = (0.0, 0.8)
#: Columns whose means have more than this share of the variance need prices, whatever is left.
MEANS_SHARE = 0.05
#: From so many times as many columns as rows on, and so many different columns among the rows'
#: picks, as a share of what chance would give, prices are hardly needed.
WIDE, DIFFERENT_PICKS = 1.15, 0.83
#: With more forbidden pairs than this share, samples have no solutions to learn from.
FORBIDDEN_SHARE = 0.75

# -- levels -----------------------------------------------------------------------------

#: Levels of at most so many rows or columns are solved densely, and have none below them.
COARSEST_LEVEL = 2500
#: Fewer rows or columns are no problem worth solving.
LEAST_LEVEL = 8
#: From so many coordinates on many columns lie at the edge, and levels begin at higher prices.
RAISED_COORDINATES = 3
#: From so many rows on a device's scans from levels repay the levels, which the host solves.
LEVELS_ON_DEVICE_ROWS = 8192
#: The share of the time so far that bounds told by levels may take. Levels take a quarter of a
#: solve, or less.
LEVEL_BOUNDS_SHARE = 0.2

# -- warm starts ------------------------------------------------------------------------

#: With more loose rows than this share of all, epsilon phases from the old prices scan fewer rows
#: than plain searches from them (measured on geometric, disjoint, rank 2).
LOOSE_SHARE = 0.1
#: The same where only prices are given: greedy picks at optimal prices leave some 0.22.
LOOSE_SHARE_OF_PICKS = 0.3

# -- how rows are evaluated -------------------------------------------------------------

#: Of up to so many coordinates boxes always bound well enough; of more a probe decides.
FEW_COORDINATES = 6
#: Problems with fewer rows or columns are not worth the probe.
PROBE_ROWS = 2000
#: Rows probed, and rows whose costs place the columns.
PROBED_ROWS, PROBE_LANDMARKS = 32, 4
#: Bounds are dropped when they leave more than this share of the pairs open.
OPEN_SHARE = 0.6
#: Minima of more blocks, for each entry of a row's list, take more than twice its memory.
MOST_MINIMA_PER_ENTRY = 6
#: Shares of the blocks that may hold the k best of a row for minima to pay: a block of columns
#: from all over the row costs several times one of neighbours. And how much smaller the share must
#: be to repay that.
NEIGHBOURS_SHARE, SCATTERED_SHARE, SCATTERED_GAIN = 0.5, 0.2, 0.7

# -- how long lists are -----------------------------------------------------------------

#: Entries a list starts with; with many rows, whose searches go further, some more; and from how
#: many rows on.
LIST_SIZE, LONG_LIST_SIZE, LONG_LIST_ROWS = 128, 160, 10_000
#: The same where bounds make an evaluation cheap: shorter lists are evaluated more often, but scans
#: of them take less, and so does memory.
CLOSE_LIST_SIZE, LONG_CLOSE_LIST_SIZE, LONG_CLOSE_LIST_ROWS = 48, 64, 100_000
#: Unless more than this share of the columns repeats others: short lists of ties are used up all
#: the time, and searches pass through all that ties.
REPEATED_SHARE = 0.125
#: However little memory there is: shorter lists are used up all the time.
LEAST_LIST_SIZE = 16
#: For trees: of random whole numbers hardly a list ends before the solve does. And with little
#: memory.
TREE_LIST_SIZE, LEAST_TREE_LIST_SIZE = 32, 8

# -- when lists are given up for whole rows ---------------------------------------------

#: Once evaluations have taken so many times all pairs, if they still take longer than scans of
#: whole rows would. Most problems take one to three.
EXHAUSTED = 2
#: The same where lists were asked for, or where whole rows have to be evaluated first.
EXHAUSTED_LATE = 8
#: So many times more of rectangles, where whole rows would take three times as long to scan.
EXHAUSTED_MORE = 1
#: An evaluation takes about as long as so many scans of a whole row: from 3 to 9 on random
#: families; of a rectangle scans take three times as long.
EVALUATION_SCANS, EVALUATION_SCANS_RECTANGULAR = 6, 2
#: Beyond so many times those pairs scans say little: those of lists are many more, then.
EXHAUSTED_ANYWAY, EXHAUSTED_ANYWAY_RECTANGULAR = 2.5, 1.3
#: Lists that reach fewer first epsilons are exhausted within a phase or two; those of wide
#: problems, whose rows hardly compete, reach further with as many.
NARROW, NARROW_RECTANGULAR = 3.0, 1.5
#: Rows that tell so before all others are evaluated.
NARROW_SAMPLE = 64
#: On trial: lists of points that lie as densely everywhere reach 1.2 to 1.4 times as far in the
#: upper quartile as in the lower one, those of clusters and normal points 1.6 to 3 times.
UNEVEN = 1.45

# -- when another way goes on -----------------------------------------------------------

#: Trees: work without a sixty-fourth of the first roots being matched after which searches from
#: one row after the other go on: so many times the entries of all lists.
TREE_PATIENCE = 24
#: The same for levels on a device, a few microseconds each.
TREE_LEVELS_ON_DEVICE = 1 << 15
#: Evaluations a row after which they go on where memory is short: lists end at nearly each step.
TREE_EVALUATIONS = 16
#: Whole rows: a last phase that has scanned so many rows a row, and more than all phases before
#: it, is left for finer ones: of heavy-tailed costs the phases end too soon.
LAST_PHASE_SCANS = 60
#: An auction: bids a row in one phase after which the rest is left to searches.
AUCTION_BIDS = 1000

# -- a gap that is enough ---------------------------------------------------------------

#: A whole pass is worth trying for ``gap`` once epsilon times the rows is so many gaps: a phase's
#: matching is usually much closer to optimal than an epsilon a row.
PROMISING_GAPS = 8

# -- the certificate --------------------------------------------------------------------

#: With fewer rows, or pairs, the pass is over before kernels are loaded and a tree stands.
PROOF_BOUNDS_ROWS = 4096
PROOF_BOUNDS_PAIRS = 3 << 24
#: Bounds are given up for the pass when they have cost one of so many of its pairs,
PROOF_BOUNDS_SHARE = 4
#: or of so many rows' pairs, before anything else.
PROOF_BOUNDS_PROBED = 256
#: Seconds that a row and a column take by bounds, tree included: two to three times as long as
#: measured; and at least so many times.
PROOF_BOUNDS_ROW_SECONDS, PROOF_BOUNDS_GENEROUS = 5e-6, 2.0
#: ``certify=False``: where the rounding of the duals, added up, may reach this share of the pairs'
#: costs, it may have decided which pairs those are. Then the proof is made.
DANGEROUS_ROUNDING = 1e-12

# -- refinement -------------------------------------------------------------------------

#: A gap that is a larger share of the costs' sizes is not a matter of rounding.
ROUNDING_GAP = 1e-9
#: Near pairs are looked for where the gap is at most so many times what the median row wins by.
NEAR_MARGINS = 4.0
#: A square residual problem of a rectangle has at most so many times its pairs.
MOST_SQUARED = 64
#: Residual costs of so many bytes are computed once, as a matrix, without a ``memory_limit``.
RESIDUAL_BYTES = 1 << 30

# -- the answer of a stopped solve ------------------------------------------------------

#: So few open rows are worth a search each.
FEW_OPEN_ROWS = 256
#: So few pairs, cheap ones, are read even when the grace is over.
FEW_LATE_PAIRS = 1024
