"""The thresholds by which a solve chooses between methods, each with its reason.

They are grouped by decision, and used as ``policy.NAME``. Parameters of a method itself stay in its
module: sizes of blocks and slices, tolerances of arithmetic, factors of epsilon. Modules of kernels
do not import this one, so that a change here does not recompile them.
"""

from __future__ import annotations

# -- outliers ---------------------------------------------------------------------------

#: Among OUTLIERS_AMONG or more numbers, a few (at most one in FEW_OUTLIERS) are outliers if they
#: are OUTLYING times as large, or as far apart, as the others.
OUTLIERS_AMONG = 200
FEW_OUTLIERS = 20
OUTLYING = 1e3
#: A point is outlying if it is FAR_POINT times as far from the middle as nine of ten points are
#: apart. At most MOST_FAR_POINTS rows, or columns, are outlying.
FAR_POINT = 100.0
MOST_FAR_POINTS = 64

# -- shapes -----------------------------------------------------------------------------

#: If one side is SKINNY times as long as the other, rows hardly compete for columns: neither first
#: prices nor phases are needed.
SKINNY = 2
#: The same ratio on lists with more rows than columns.
TALL_ON_LISTS = 4

# -- small arrays and batches -----------------------------------------------------------

#: Costs of the largest array that the dense kernel takes: 8 MiB as float64.
MOST_SMALL_COSTS = 1 << 20
#: The same if rows may stay unassigned. In larger arrays many clipped costs tie, and searches of
#: the pairs below their row's price are faster.
MOST_SMALL_GATED_COSTS = 1 << 17
#: Least number of a batch's costs that one call from Python solves.
BATCH_COSTS_PER_CALL = 1 << 16
#: Most costs of a batch that are prepared together: copies of them may take as much memory.
BATCH_COSTS_AT_ONCE = 1 << 24
#: Problems taken from an iterable ahead of the oldest unfinished one, for each thread: enough to
#: keep the threads busy, few enough to keep a generator's arrays out of memory.
BATCH_AHEAD = 4

# -- threads ----------------------------------------------------------------------------

#: With fewer columns a thread, one thread alone is faster: a barrier costs as much as about a
#: thousand pairs.
COLUMNS_PER_THREAD = 2048
#: Rows that may stay unassigned: with fewer pairs to read, waking the thread team does not pay.
TEAM_PAIRS = 1 << 20

# -- functions --------------------------------------------------------------------------

#: Matrices with fewer pairs are not worth the fraction of a second that compiling takes.
COMPILED_PAIRS = 1 << 14

# -- device or host ---------------------------------------------------------------------

#: ``device="auto"``: fewer rows or columns stay on the CPU (tests/bench/GPU.md).
DEVICE_ROWS = 4096

# -- the method -------------------------------------------------------------------------

#: Least rows (and columns) for a start that reads some costs first: tight pairs, and the sample
#: that chooses first prices.
TIGHT_PAIRS_ROWS = FIRST_PRICES_ROWS = 1500
#: With fewer rows or columns lists save nothing over scanning whole rows.
FEW_ROWS = 700
#: The same for matrices in memory, square or not: lists took longer than whole rows in the median
#: of random families (docs/decisions/2026-11-23-families.md). Lists of square ones try tight
#: pairs first.
FEW_ROWS_SQUARE, FEW_ROWS_RECTANGULAR = TIGHT_PAIRS_ROWS, 1400
#: Least rows for lists if there is no room for whole rows, which would be evaluated again and again.
LEAST_ROWS_ON_LISTS = 64

# Rows of the sample of costs that chooses the method, their columns, and columns of a smaller sample.
METHOD_SAMPLE, METHOD_SAMPLE_COLUMNS, METHOD_GLANCE_COLUMNS = 16, 1 << 16, 1 << 10
#: Trees: in most rows, at most DIFFERENT_COSTS of the SMALLEST_COSTS smallest costs are different.
#: Of i.i.d. whole numbers up to n/2, n, 2n, 10n there are 14, 20, 25, 30 different ones among 32.
SMALLEST_COSTS, DIFFERENT_COSTS = 32, 31
#: Trees on a device take whole numbers whose range is at most this multiple of the number of
#: columns. I.i.d. up to 100 n took 1/2.4 of the time of lists on an H100, up to 1,000 n 1/1.3, up
#: to 10,000 n as much.
SHORT_RANGE_PER_COLUMN = 300
#: Trees on a device also take other whole numbers with at least this number of columns for each
#: value. Of 200 values at n = 2,048 to 8,192 trees took 3.3 to 4.7 ms, lists 6.6 to 20.
COLUMNS_PER_VALUE = 8
#: Lists on a device take whole numbers of at most this number of values a column.
VALUES_PER_COLUMN = 4
#: Lists on a device also take unrelated rows, if there are fewer than this: hardly a row is
#: evaluated twice, and a scan of a list takes half as long as one on the device.
UNRELATED_ROWS = 20_000
#: Rows are unrelated if the mean size of their correlations is below this / sqrt(m). It is 0.8 /
#: sqrt(m) for unrelated costs.
UNRELATED_CORRELATION = 2.0
#: Unrelated rows are not given to lists if there are between 1.2 and 2 times as many columns as
#: rows: whole rows would be scanned on the CPU too.
SOMEWHAT_WIDE = (1.2, 2.0)
#: Least rows for which lists beat a device's whole rows, if the source gives bounds.
MANY_ROWS = 50_000
#: Least rows of square matrices on a device that begin on lists, see ``placement.lists_on_trial``.
TRIED_ROWS = 4096
#: Trees on a device have failed if they leave more than this share of their roots: common for
#: distances and products, rare for unrelated costs.
TREES_IN_VAIN = 0.5

# -- rows that are kept -----------------------------------------------------------------

#: Smaller problems are fast in any case: nothing is timed, nothing sent to workers.
QUICK_PAIRS = 1 << 16
#: Number of pairs of a row that are timed.
TIMED_PAIRS = 4096
#: The first sample is one in TIMED_FIRST_SHARE of these pairs; timing takes about TIMING_SECONDS at
#: most.
TIMED_FIRST_SHARE, TIMING_SECONDS = 64, 0.05
#: Compiled costs that take this time a pair are cached: some fifty times a memory access, so that
#: timing errors do not decide between similar costs.
DEAR_SECONDS = 5e-8
#: Compiled costs of at most this total size are always cached: small problems have no levels, and
#: without levels lists would compute the costs three to eight times.
KEPT_BYTES = 64 << 20

# -- workers beside kernels -------------------------------------------------------------

#: Bytes a second that arrive from all workers together: an assumption.
WORKERS_BYTES_A_SECOND = 5e8
#: Rows that take less time here are not sent to workers, nor rows of which workers would save less
#: than a fifth of the time.
WORKERS_LEAST_SECONDS = 1.0
WORKERS_WORTH = 0.8
#: Fixed time of handing a wave to workers.
WORKERS_WAVE_SECONDS = 0.1
#: Rows that are read here to estimate the time of all rows.
WORKERS_TIMED_ROWS = 3
#: Matrices in memory that are part of the costs, such as the mask of a function's costs, are sent
#: along up to this size in bytes.
MOST_SENT = 256 << 20

# -- kernels compiled ahead -------------------------------------------------------------

#: Least rows and columns for compiling the kernels of levels ahead: coarse levels end in a matrix,
#: which is solved by whole rows.
AHEAD_WITH_LEVELS = 4096

# -- costs that sorting makes Monge -----------------------------------------------------

#: Rows and columns of the two samples: most costs without the property fail in the first.
MONGE_SAMPLES = (6, 16)
#: Least number of distinct values in the larger sample: costs of few values have better starts.
MONGE_DISTINCT = 4
#: Pairs of each row that are compared with the prices before all pairs are.
MONGE_CHECKS = 4

# -- rows that may stay unassigned ------------------------------------------------------

#: Rows sampled first.
OPTIONAL_SAMPLE = 64
#: Most pairs below its price a row may have: one in OPTIONAL_SHARE of its pairs, but not more than
#: OPTIONAL_MANY nor less than OPTIONAL_FEW. With more, epsilon phases on the clipped problem are
#: faster.
OPTIONAL_SHARE, OPTIONAL_FEW, OPTIONAL_MANY = 8, 16, 1024
#: The collection of pairs ends at this multiple of the number that the sample predicted.
OPTIONAL_SURPRISE = 4
#: The search ends when its lists have had this multiple of all pairs as entries: it has then taken
#: longer than a reading of the costs, and the method that follows takes some readings.
OPTIONAL_PATIENCE = 4
#: Rounds for the pairs of a warm start; after that the search starts afresh.
OPTIONAL_WARM_ROUNDS = 64

# -- tight pairs ------------------------------------------------------------------------

#: The first pass takes this multiple of sqrt(n) rows, from all over the matrix. If rows prefer
#: random columns, some two of them already compete.
TIGHT_FIRST = 2
#: Number of rows whose costs make the second guess.
TIGHT_SAMPLE = 16
#: A guess is wrong if more than one in TIGHT_LONELY columns is likely to have no tight pair.
TIGHT_LONELY = 64
#: One in TIGHT_LEFT rows, or TIGHT_FEW, may be left to the search; with more, other first prices
#: are better.
TIGHT_LEFT, TIGHT_FEW = 200, 8

# -- first prices: none, the estimator's or those of levels -----------------------------

#: Rows of the sample that decides whether levels pay. Its longer side is at most LONGEST_SAMPLE
#: times the intended length of the shorter one.
SAMPLE_ROWS = 512
LONGEST_SAMPLE = 4
#: Rows and columns of the first and second trial of the estimator, which may solve a small sample
#: by chance; and the number of rows that only Python delivers, for which two sweeps may solve all.
ESTIMATOR_TRIED, ESTIMATOR_TRIED_AGAIN = 256, 512
ESTIMATOR_TRIED_BY_PYTHON = 32
#: Costs whose nugget in the trial is above NUGGET_UNRELATED are not read further, unless the nugget
#: falls below NUGGET_STEADY of its value with twice the rows. PLACING_ROWS rows, and columns, give
#: the order of the others.
NUGGET_UNRELATED, NUGGET_STEADY = 0.9, 0.95
PLACING_ROWS = 8
#: Largest share of rows whose cheapest pair may be on the diagonal.
DIAGONAL_SHARE = 0.1
#: Costs pile up near a row's smallest cost if, for most of every PILE_APART-th row, the second of
#: PILE_RANKS is PILED_UP times as far from it as the first: 4 times for uniform costs, 12 for their
#: squares, 37 for third powers, from which on the estimator's prices pay.
PILE_APART, PILE_RANKS, PILED_UP = 4, (4, 16), 25
#: Levels pay without a further test if the nugget is at most NUGGET_SMOOTH, or falls below
#: NUGGET_FALLING of its value with twice the sample. Above NUGGET_ROUGH they pay only if the
#: columns' means differ, see MEANS_SHARE.
NUGGET_SMOOTH, NUGGET_FALLING, NUGGET_ROUGH = 0.03, 0.67, 0.75
#: The share of the optimum's dual value that prices of a quarter of the problem must recover.
GAIN = 0.5
#: A half of the sample recovers up to 0.4 less than all of it, or 0.2 more.
DOUBTFUL_GAIN = (0.0, 0.8)
#: If the columns' means have more than this share of the variance, prices are needed for any
#: nugget.
MEANS_SHARE = 0.05
#: Prices are hardly needed with more than WIDE times as many columns as rows, if the rows' cheapest
#: columns are different in at least DIFFERENT_PICKS of the number that chance would give.
WIDE, DIFFERENT_PICKS = 1.15, 0.83
#: With more forbidden pairs than this share, samples have no solutions to use.
FORBIDDEN_SHARE = 0.75

# -- levels -----------------------------------------------------------------------------

#: Levels of at most so many rows or columns are solved densely, without levels below them.
COARSEST_LEVEL = 2500
#: Levels have at least so many rows and columns.
LEAST_LEVEL = 8
#: With this number of coordinates or more, many columns lie at the edge, and levels begin at higher
#: prices.
RAISED_COORDINATES = 3
#: Least rows for which scans on a device repay the levels, which the host solves.
LEVELS_ON_DEVICE_ROWS = 8192
#: The share of the time so far that bounds reported by levels may take. Levels take a quarter of a
#: solve, or less.
LEVEL_BOUNDS_SHARE = 0.2

# -- warm starts ------------------------------------------------------------------------

#: With more loose rows than this share of all, epsilon phases from the old prices scan fewer rows
#: than plain searches from them (measured on geometric, disjoint, rank 2).
LOOSE_SHARE = 0.1
#: The same where only prices are given: greedy picks at optimal prices leave some 0.22.
LOOSE_SHARE_OF_PICKS = 0.3

# -- how rows are evaluated -------------------------------------------------------------

#: With at most this number of coordinates boxes always bound well enough; with more a probe
#: decides.
FEW_COORDINATES = 6
#: Problems with fewer rows or columns are not worth the probe.
PROBE_ROWS = 2000
#: Rows probed, and rows whose costs order the columns.
PROBED_ROWS, PROBE_LANDMARKS = 32, 4
#: Bounds are dropped when they leave more than this share of the pairs open.
OPEN_SHARE = 0.6
#: Minima of more blocks, for each entry of a row's list, take more than twice its memory.
MOST_MINIMA_PER_ENTRY = 6
#: Minima pay if at most NEIGHBOURS_SHARE of the blocks may hold the k best of a row. For blocks of
#: columns from all over the row it is SCATTERED_SHARE, since such a block costs several times one
#: of neighbours; and the share must be smaller by the factor SCATTERED_GAIN to repay that.
NEIGHBOURS_SHARE, SCATTERED_SHARE, SCATTERED_GAIN = 0.5, 0.2, 0.7

# -- how long lists are -----------------------------------------------------------------

#: Entries of a list at first; more with many rows, whose searches go further; and the number of
#: rows that counts as many.
LIST_SIZE, LONG_LIST_SIZE, LONG_LIST_ROWS = 128, 160, 10_000
#: The same if bounds make an evaluation cheap: shorter lists are evaluated more often, but take
#: less memory and are scanned faster.
CLOSE_LIST_SIZE, LONG_CLOSE_LIST_SIZE, LONG_CLOSE_LIST_ROWS = 48, 64, 100_000
#: Not if more than this share of the columns repeats others: short lists of ties are soon used up,
#: and searches pass through all ties.
REPEATED_SHARE = 0.125
#: Least entries, however little memory there is: shorter lists are soon used up.
LEAST_LIST_SIZE = 16
#: For trees: of random whole numbers hardly a list ends before the solve does. The second is for
#: little memory.
TREE_LIST_SIZE, LEAST_TREE_LIST_SIZE = 32, 8

# -- when lists are given up for whole rows ---------------------------------------------

#: Lists are given up once evaluations have read this multiple of all pairs, if they still take
#: longer than scans of whole rows would. Most problems need one to three.
EXHAUSTED = 2
#: The same if lists were requested, or if whole rows would have to be evaluated first.
EXHAUSTED_LATE = 8
#: Added to these multiples for rectangles, where whole rows would take three times as long to scan.
EXHAUSTED_MORE = 1
#: Time of an evaluation in scans of a whole row: from 3 to 9 on random families; for rectangles
#: scans take three times as long.
EVALUATION_SCANS, EVALUATION_SCANS_RECTANGULAR = 6, 2
#: At this multiple of that number of pairs lists are given up in any case: the number of scans is
#: not a fair measure then, since lists need many more of them.
EXHAUSTED_ANYWAY, EXHAUSTED_ANYWAY_RECTANGULAR = 2.5, 1.3
#: Lists narrower than this number of first epsilons are exhausted within a phase or two. In wide
#: problems rows hardly compete, and narrower lists suffice.
NARROW, NARROW_RECTANGULAR = 3.0, 1.5
#: Rows of the sample that tests this before all others are evaluated.
NARROW_SAMPLE = 64
#: Lists on trial whose upper quartile of widths is this multiple of the lower one are given up: for
#: evenly distributed points it is 1.2 to 1.4, for clusters and normal points 1.6 to 3.
UNEVEN = 1.45

# -- when another method goes on --------------------------------------------------------

#: Trees: if work of this multiple of the entries of all lists passes without a sixty-fourth of the
#: first roots being matched, searches from single rows go on.
TREE_PATIENCE = 24
#: The same for levels on a device, a few microseconds each.
TREE_LEVELS_ON_DEVICE = 1 << 15
#: Trees with little memory, where lists end at nearly each step: evaluations a row after which
#: searches go on.
TREE_EVALUATIONS = 16
#: Whole rows: a last phase that has scanned this number of rows a row, and more than all phases
#: before it, is replaced by finer ones: with heavy-tailed costs the phases end too soon.
LAST_PHASE_SCANS = 60
#: Auction: bids a row in one phase after which searches take the rest.
AUCTION_BIDS = 1000

# -- a sufficient gap ------------------------------------------------------------------

#: For ``gap``, a whole pass is tried once epsilon times the rows is at most this multiple of
#: ``gap``: a phase's matching is usually much closer to optimal than an epsilon a row.
PROMISING_GAPS = 8

# -- the certificate --------------------------------------------------------------------

#: With fewer rows, or pairs, the pass ends before kernels are loaded and a tree is built.
PROOF_BOUNDS_ROWS = 4096
PROOF_BOUNDS_PAIRS = 3 << 24
#: The certificate stops using bounds once they have cost one in PROOF_BOUNDS_SHARE of its pairs,
PROOF_BOUNDS_SHARE = 4
#: or the pairs of this number of rows before anything else.
PROOF_BOUNDS_PROBED = 256
#: Seconds that a row and a column take by bounds, tree included: two to three times the measured
#: time; and the least such factor.
PROOF_BOUNDS_ROW_SECONDS, PROOF_BOUNDS_GENEROUS = 5e-6, 2.0
#: ``certify=False``: if the summed rounding of the duals may reach this share of the pairs' costs,
#: rounding may have decided which pairs those are, and the certificate is made.
DANGEROUS_ROUNDING = 1e-12

# -- refinement -------------------------------------------------------------------------

#: A gap that is a larger share of the costs' sizes is not due to rounding.
ROUNDING_GAP = 1e-9
#: Near pairs are searched if the gap is at most this multiple of the median row's margin.
NEAR_MARGINS = 4.0
#: A square residual problem of a rectangle has at most this multiple of its pairs.
MOST_SQUARED = 64
#: Residual costs of at most this size are computed once, as a matrix, without a ``memory_limit``.
RESIDUAL_BYTES = 1 << 30

# -- the answer of a stopped solve ------------------------------------------------------

#: At most this number of open rows get a search each.
FEW_OPEN_ROWS = 256
#: At most this number of pairs, if they are cheap, are read even after the grace period.
FEW_LATE_PAIRS = 1024
