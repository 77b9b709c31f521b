"""Thresholds by which a solve chooses its strategies, each with its reason.

Grouped by decision. A module refers to ``policy.NAME`` where it decides. Parameters of the methods
themselves stay in their modules: sizes of blocks and slices, tolerances of arithmetic, epsilon's
factors. Kernel modules do not import this one, so that a change here recompiles no kernel.
"""

from __future__ import annotations

# -- outliers ---------------------------------------------------------------------------

#: Among at least OUTLIERS_AMONG numbers, a few (at most one of FEW_OUTLIERS) are outliers when they are
#: larger, or farther apart, than the others by this factor. With 200 in place of 20, matrices of 40 to 150
#: rows were refined, and took up to 6 times as long (docs/lab/2026-11-27-outliers-in-matrices.md).
OUTLIERS_AMONG = 20
FEW_OUTLIERS = 20
OUTLYING = 1e3
#: A row is forced if what it costs beyond its best column is so many times that of most rows. Costs between
#: tight clusters reach 10^4 times those within, products i * j more.
FORCED = 1e5
#: The same of how far its list reaches.
FORCED_REACH = 1e4
#: A point is outlying if its distance from the middle exceeds the extent of nine tenths of the points by
#: this factor; and at most this many rows, or columns, are outlying.
FAR_POINT = 100.0
MOST_FAR_POINTS = 64
#: A matrix is solved transposed if a few columns are away from the others by so many times their range, from
#: which on rounding asks for a refinement. Some rows tell; and the largest matrix that is copied. What a far
#: line would be without its size some other lines tell.
FAR_COLUMN, FAR_SAMPLE, FAR_COPY_BYTES, FAR_ALIKE = 1e4, 3, 1 << 30, 16
#: In a small matrix the minimum of a row, or column, is huge from so many times the median of all on.
HUGE_MINIMUM = 2.0**16

# -- shapes -----------------------------------------------------------------------------

#: With a ratio of sides of at least this, rows hardly compete for columns: first prices and phases are not
#: needed.
SKINNY = 2
#: The same for lists with more rows than columns.
TALL_ON_LISTS = 4

#: Share of the memory up to which compressed sparse costs are unpacked there, not into a file.
UNPACKED_IN_MEMORY = 0.25

# -- small arrays and batches -----------------------------------------------------------

#: Most costs of an array for the dense kernel: 8 MiB as float64.
MOST_SMALL_COSTS = 1 << 20
#: The same where rows hardly compete: 128 MiB, of which the kernel makes three passes.
MOST_EASY_COSTS = 1 << 24
#: Rows hardly compete if, of sqrt(n) EASY_ROWS rows, one of EASY_SHARE at most wants another's column. Of
#: twenty classes with 1,200 to 3,000 rows that is one ("identity is optimal", 0 to 1 of 231); the next
#: is small clusters, 14 to 20 of 100. Rows that choose any column get EASY_ROWS**2 / 2 that another wants.
#: EASY_FIRST of these rows are looked at first.
EASY_ROWS, EASY_SHARE, EASY_FIRST = 4, 100, 16
#: Most costs that a call of ``linear_sum_assignment`` copies before it looks at anything else: 32 KiB.
MOST_COPIED_COSTS = 1 << 12
#: Most costs of points or low rank that are all computed for it. With 512 points in the plane that takes a
#: fifth of the time of lists, with 1,024 still less.
MOST_SMALL_COMPUTED = 1 << 20
#: The same, times their coordinates: some 10 ms, during which no limit is looked at.
MOST_SMALL_PRODUCTS = 1 << 26
#: The same where rows may stay unassigned. Beyond this, searches on the pairs below the price are faster,
#: since many clipped costs tie.
MOST_SMALL_GATED_COSTS = 1 << 17
#: Fewest costs of a batch that one call from Python solves.
BATCH_COSTS_PER_CALL = 1 << 18
#: Most costs converted together, which bounds the memory of their copies.
BATCH_COSTS_AT_ONCE = 1 << 24
#: On a device: rounds of bids of all free rows at once, before rows are searched for one by one.
BATCH_DEVICE_ROUNDS = 32
#: Most columns for which a block there has its fewest threads.
BATCH_DEVICE_FEW_COLUMNS = 128
#: Pairs that searches of one problem read on a device; harder ones are left to the general method.
BATCH_DEVICE_PAIRS = 1 << 25
#: Problems taken from an iterable ahead of the oldest unfinished one, for each thread: enough to
#: keep the threads busy, few enough to keep a generator's arrays out of memory.
BATCH_AHEAD = 4

# -- capacities -------------------------------------------------------------------------

#: Columns up to which searches lead from column to column: their work, and the lists, grow with the square.
MOST_CONTRACTED = 2000
#: Fewest rows a column for that, and the share of the columns' number that they must reach: with fewer,
#: copies of the columns are as fast, and do not depend so much on how far rows are from the columns.
LEAST_ROWS_A_COLUMN = 6
ROWS_A_COLUMN_SHARE = 0.1
#: Fewest costs: smaller problems take a few milliseconds either way, without kernels of their own.
LEAST_CONTRACTED_COSTS = 1 << 10
#: Costs from which a team makes the passes over rows.
CONTRACTED_TEAM_COSTS = 1 << 21
#: Bytes of lists for each pair of columns.
CONTRACTED_PAIR_BYTES = 224

# -- threads ----------------------------------------------------------------------------

#: With fewer columns per thread, one thread alone scans faster: a barrier costs as much as about a thousand
#: pairs.
COLUMNS_PER_THREAD = 2048
#: Rows that may stay unassigned: with fewer pairs, waking the team does not pay.
TEAM_PAIRS = 1 << 20

# -- functions --------------------------------------------------------------------------

#: Fewest pairs for which compiling a function pays; compilation takes a fraction of a second.
COMPILED_PAIRS = 1 << 14

# -- device or host ---------------------------------------------------------------------

#: ``device="auto"``: with fewer rows or columns the CPU is used (tests/bench/GPU.md).
DEVICE_ROWS = 4096
#: A device that is named: where both sides are shorter, the shorter and the longer one, the host searches a
#: matrix in its memory. Of whole rows an H200 scanned 1.1 to 3 times as long as its host; of 59 random
#: matrices that it does by lists and trees all took 3.8 s there and 3.7 here, nine more than 1.2 times, one
#: 4.4 times. Rows that are longer take a host's scan more time, and a device's hardly any.
DEVICE_SHORT = (4096, 8192)

# -- the method -------------------------------------------------------------------------

#: Fewest rows (and columns) for a start that first examines the costs: by tight pairs, and by the sample
#: that chooses first prices.
TIGHT_PAIRS_ROWS = FIRST_PRICES_ROWS = 1500
#: With fewer rows or columns, lists save nothing over scanning whole rows.
FEW_ROWS = 700
#: The same for matrices in memory, square or not: lists took longer than whole rows in the median of random
#: families (docs/lab/2026-11-23-families.md). Square matrices on lists try tight pairs first.
FEW_ROWS_SQUARE, FEW_ROWS_RECTANGULAR = TIGHT_PAIRS_ROWS, 1400
#: Exception: fewest rows for lists where a lack of memory would otherwise cause rows to be evaluated
#: repeatedly.
LEAST_ROWS_ON_LISTS = 64

# Rows of the sample of costs, its columns, and the columns of a smaller sample.
METHOD_SAMPLE, METHOD_SAMPLE_COLUMNS, METHOD_GLANCE_COLUMNS = 16, 1 << 16, 1 << 10
#: Trees: among the SMALLEST_COSTS smallest costs of a row, at most DIFFERENT_COSTS are different, in most
#: rows. For i.i.d. whole numbers up to n/2, n, 2n, 10n, 14, 20, 25, 30 of 32 are different.
SMALLEST_COSTS, DIFFERENT_COSTS = 32, 31
#: Trees on a device: largest range of whole-number costs, as a multiple of the columns. I.i.d. up to 100 n
#: took 1/2.4 of the time of lists on an H100, up to 1,000 n 1/1.3, up to 10,000 n as much.
SHORT_RANGE_PER_COLUMN = 300
#: Trees on a device whatever the costs are: fewest columns per distinct value. With 200 values at n = 2,048
#: to 8,192 trees took 3.3 to 4.7 ms, lists 6.6 to 20.
COLUMNS_PER_VALUE = 8
#: Lists on a device: largest range of whole-number costs, as a multiple of the columns.
VALUES_PER_COLUMN = 4
#: Most unrelated rows for lists with costs on a device: hardly a row is evaluated twice, and a scan of a
#: list takes half as long as a device's scan of a row.
UNRELATED_ROWS = 20_000
#: Rows of m unrelated costs correlate by 0.8 / sqrt(m) on average. Rows count as unrelated below this
#: factor over sqrt(m).
UNRELATED_CORRELATION = 2.0
#: Exception: for these ratios of columns to rows, whole rows are scanned, as on the CPU.
SOMEWHAT_WIDE = (1.2, 2.0)
#: Fewest rows for which lists beat a device's whole rows, where the source gives bounds.
MANY_ROWS = 50_000
#: Fewest rows of a square matrix on a device for a trial of lists, see
#: ``strategies.placement.lists_on_trial``.
TRIED_ROWS = 4096
#: Trees on a device have failed if they leave more than this share of their roots, as with distances and
#: products but hardly with unrelated costs.
TREES_IN_VAIN = 0.5

# -- rows that are kept -----------------------------------------------------------------

#: Compiled costs of this many nominal nanoseconds a pair are kept: some forty times a look-up in memory.
#: Minkowski distances in the plane have as many.
SLOW_NS = 40.0
#: Compiled costs of at most this many bytes in all are kept whatever they take: small problems have no
#: levels, and without levels lists would compute each cost three to eight times.
KEPT_BYTES = 64 << 20

# -- nominal prices of a pair -----------------------------------------------------------

# Nanoseconds on one thread, an order of magnitude: the same on every machine and every day, so that what they
# decide is, too. A compiled function that is no formula has none: it may hold a loop.

#: An array, and a table by classes, which looks up two classes first.
ARRAY_NS, TABLE_NS = 0.3, 0.6
#: To begin a pair of points or of low rank; then for each coordinate, by metric, and for each of the rank.
#: A power takes as long as a function of angles.
BEGUN_NS, COORDINATE_NS, RANK_NS = 0.2, 0.25, 0.15
METRIC_NS = {"minkowski": 20.0, "haversine": 20.0, "cosine": 0.5}
#: To begin a formula, for each of its operations, and for each that calls the mathematical library.
FORMULA_NS, OPERATION_NS, LIBRARY_NS = 2.0, 0.5, 20.0

# -- workers beside kernels -------------------------------------------------------------

#: Smaller problems are fast in any case: nothing is sent to workers.
QUICK_PAIRS = 1 << 16

#: Bytes a second received from all workers together: an assumption.
WORKERS_BYTES_A_SECOND = 5e8
#: Rows that take less time here are not sent to workers, nor are they for a gain of less than a fifth.
WORKERS_LEAST_SECONDS = 1.0
WORKERS_WORTH = 0.8
#: Fixed time in seconds to hand rows over.
WORKERS_WAVE_SECONDS = 0.1
#: Rows read here to estimate the time of all, and pairs of each where a part of a row can be read.
WORKERS_TIMED_ROWS, WORKERS_TIMED_PAIRS = 3, 4096
#: Most bytes of matrices in memory, part of the costs such as a function's mask, that are sent along.
MOST_SENT = 256 << 20

# -- costs that are Monge after sorting -------------------------------------------------

#: Rows and columns of the two samples: most other costs are rejected by the first.
MONGE_SAMPLES = (6, 16)
#: Fewest distinct numbers in the larger sample: costs of few values have better starts.
MONGE_DISTINCT = 4
#: Pairs per row compared with the prices before all pairs are.
MONGE_CHECKS = 4

# -- rows that may stay unassigned ------------------------------------------------------

#: Rows of the first sample.
OPTIONAL_SAMPLE = 64
#: With more pairs of a row below their price than m / OPTIONAL_SHARE, or than OPTIONAL_MANY, epsilon phases
#: on the clipped problem are faster. OPTIONAL_FEW pairs are always accepted.
OPTIONAL_SHARE, OPTIONAL_FEW, OPTIONAL_MANY = 8, 16, 1024
#: The same as OPTIONAL_MANY, for pairs of points within a limit, where bounds exclude most others: whole
#: points then read some tens of pairs a row more, and search shorter lists. Measured in space at 20,000 rows.
NEAR_MANY = 128
#: Rows from which a ceiling of the costs is looked for, in so many sampled rows; and pairs between two looks
#: at the clock.
CEILING_ROWS, CEILING_SAMPLE, CEILING_PAIRS = 256, 16, 1 << 22
#: Rows, and columns of each, at which a formula is looked at instead.
CEILING_PLACES = 64
#: The collection ends at this multiple of the pairs predicted by the sample.
OPTIONAL_SURPRISE = 4
#: The search ends at this multiple of all pairs, counted in entries of lists: it has then taken longer than
#: reading the costs, and the alternative takes a few readings.
OPTIONAL_PATIENCE = 4
#: Most rounds for the pairs of a warm start; after them the search starts anew.
OPTIONAL_WARM_ROUNDS = 64

# -- tight pairs ------------------------------------------------------------------------

#: The first rows of a pass, as a multiple of sqrt(n), from all parts of the matrix. If rows prefer random
#: columns, some two of these compete already.
TIGHT_FIRST = 2
#: Rows whose costs give the second guess.
TIGHT_SAMPLE = 16
#: A guess is wrong when more than n / TIGHT_LONELY columns are likely to have no tight pair; with whole
#: numbers, where trees follow that need no more than a pass, n / TIGHT_LONELY_WHOLE.
TIGHT_LONELY, TIGHT_LONELY_WHOLE = 8, 64
#: At most n / TIGHT_LEFT rows, or TIGHT_FEW, may be left to the search; with more, other first prices are
#: better. Of point sets moved little, windows of series, and sets that share most points, at 3,000 and 7,000
#: rows, 20 and 8 took a fourth of the time of 200 and 64 in the best case, 1.3 times in the worst.
TIGHT_LEFT, TIGHT_FEW = 20, 8

# -- first prices: none, the estimator's or those of levels -----------------------------

#: Rows of the sample that shows whether levels pay. Its longer side is at most LONGEST_SAMPLE times the
#: intended length of its shorter side.
SAMPLE_ROWS = 512
LONGEST_SAMPLE = 4
#: Rows and columns of the first and second trial of the estimator, which may solve a few of them by chance;
#: also the limits for problems whose rows only Python evaluates, where two sweeps may solve all.
ESTIMATOR_TRIED, ESTIMATOR_TRIED_AGAIN = 256, 512
ESTIMATOR_TRIED_BY_PYTHON = 32
#: If the trial's nugget exceeds NUGGET_UNRELATED, nothing else is read, unless it falls below NUGGET_STEADY
#: times its value with twice the rows; and the number of landmark rows, and columns, that order the others.
NUGGET_UNRELATED, NUGGET_STEADY = 0.9, 0.95
PLACING_ROWS = 8
#: Largest share of rows whose cheapest pair may be on the diagonal.
DIAGONAL_SHARE = 0.1
#: Every PILE_APART-th row gives two ranks. Costs pile up where the ratio of their distances from the
#: smallest cost is large: 4 for uniform costs, 12 for their squares, 37 for third powers. From PILED_UP on,
#: the estimator's prices are worth their time.
PILE_APART, PILE_RANKS, PILED_UP = 4, (4, 16), 25
#: Nuggets of at most NUGGET_SMOOTH, and those that fall by NUGGET_FALLING with twice the sample, show that
#: levels pay; from NUGGET_ROUGH on levels do not pay.
NUGGET_SMOOTH, NUGGET_FALLING, NUGGET_ROUGH = 0.03, 0.67, 0.75
#: Share of the optimum's dual value that a quarter's prices must recover.
GAIN = 0.5
#: Half of the sample recovers up to 0.4 less than all of it, or 0.2 more.
DOUBTFUL_GAIN = (0.0, 0.8)
#: Levels pay, too, if prices differ over long distances by SPREAD times what the costs of a row's nearest
#: SPREAD_RANK columns differ: the medians of SPREAD_GROUPS groups of neighbours in two samples, and
#: SPREAD_ROWS rows, tell. Asked from SPREAD_SAMPLES samples on. In mixtures of 3 to 6 dimensions levels take
#: a quarter to two thirds of the time (docs/lab/2026-11-27-prices-that-spread.md).
SPREAD, SPREAD_GROUPS, SPREAD_RANK, SPREAD_ROWS, SPREAD_SAMPLES = 0.25, 16, 16, 32, 32
#: Prices are needed if the columns' means have more than this share of the variance, whatever is left.
MEANS_SHARE = 0.05
#: Prices are hardly needed if the ratio of columns to rows is at least WIDE and the rows' picks contain at
#: least this share of the different columns expected by chance.
WIDE, DIFFERENT_PICKS = 1.15, 0.83
#: With more forbidden pairs than this share, samples have no solutions to use.
FORBIDDEN_SHARE = 0.75

# -- levels -----------------------------------------------------------------------------

#: Levels of at most this many rows or columns are solved densely and have no level below them.
COARSEST_LEVEL = 2500
#: Problems with fewer rows or columns are not solved.
LEAST_LEVEL = 8
#: From this number of coordinates on, many columns lie at the edge, and levels begin at higher prices.
RAISED_COORDINATES = 3
#: From this many rows on, a device's scans from levels repay the levels, which the host solves.
LEVELS_ON_DEVICE_ROWS = 8192
#: Share of the elapsed time that bounds from levels may take. Levels take a quarter of a solve, or less.
LEVEL_BOUNDS_SHARE = 0.2

# -- warm starts ------------------------------------------------------------------------

#: With more loose rows than this share of all, epsilon phases from the old prices scan fewer rows
#: than plain searches from them (measured on geometric, disjoint, rank 2).
LOOSE_SHARE = 0.1
#: The same where only prices are given: greedy picks at optimal prices leave some 0.22.
LOOSE_SHARE_OF_PICKS = 0.3

# -- how rows are evaluated -------------------------------------------------------------

#: With up to this many coordinates bounds of boxes are always good enough; with more, a probe decides.
FEW_COORDINATES = 6
#: With fewer rows or columns a probe does not pay.
PROBE_ROWS = 2000
#: Rows probed, and landmark rows that order the columns.
PROBED_ROWS, PROBE_LANDMARKS = 32, 4
#: Bounds are dropped when they leave more than this share of the pairs open.
OPEN_SHARE = 0.6
#: With more block minima per list entry than this, minima take more than twice the lists' memory.
MOST_MINIMA_PER_ENTRY = 6
#: Largest shares of the blocks that may hold the k best of a row for minima to pay, with blocks of
#: neighbouring columns and of scattered ones: a scattered block costs several times as much. And how much
#: smaller the scattered share must be to repay that.
NEIGHBOURS_SHARE, SCATTERED_SHARE, SCATTERED_GAIN = 0.5, 0.2, 0.7

#: Most coordinates with which boxes of points bound costs.
BOX_COORDINATES = 16
#: Columns of that many coordinates up to which their box bounds each row on its own, before any work: fewer
#: lie closer together, and the bound of a row takes a small share of the row's costs.
FLOOR_COLUMNS = 1000
#: Most coordinates by which rows and columns are ordered.
ORDERED_COORDINATES = 16
#: Matrix products evaluate rows of at least this many columns and coordinates.
PRODUCT_COLUMNS, PRODUCT_COORDINATES = 256, 8
#: Rows of float32 points or factors that are sooner filled together: all columns are widened for them. Of
#: 20,000 in 256-D, 2 to 8 rows took as long together as 16 one by one.
SINGLE_ROWS = 16
#: float32 vectors under cosine are kept as unit vectors in float64 up to so many numbers a side, 512 MiB.
UNIT_VECTORS = 1 << 26
#: From so many coordinates on, a device makes lists by products of float16: a row of 80,000 columns in 2,048
#: dimensions takes it 0.5 us in place of 5.7, in 768 0.1 of 1.4. In 50 there is little to gain.
DEVICE_HALF_COORDINATES = 128
#: Unless so large a share of the costs of a wave is left to compute, which is counted.
DEVICE_HALF_LEFT = 1 / 64
#: Besides so many costs, many times a list, which a row may always take; and judged only once one in so many
#: rows was evaluated: a few hard rows say nothing of the others.
DEVICE_HALF_COSTS, DEVICE_HALF_ROWS = 4096, 16
#: A device's proof excludes pairs by matrix products from so many terms (rows, columns, coordinates) on: what
#: it takes some hundredths of a second to add one by one.
PRODUCT_PROOF_TERMS = 1 << 36
#: Unless they leave a larger share of the first batch's costs to compute, which is counted: one by one, a
#: cost takes several times as long as in the pass over all pairs.
PRODUCT_PROOF_LEFT = 1 / 16

# -- how long lists are -----------------------------------------------------------------

#: Initial entries of a list; with many rows, whose searches go further, some more; and that number of rows.
LIST_SIZE, LONG_LIST_SIZE, LONG_LIST_ROWS = 128, 160, 10_000
#: The same for square matrices in memory, whose rows are cheap to evaluate. Of lists of 48 to 128 entries,
#: 64 took the least time at 2,000 to 8,000 rows: random costs 0.75 to 0.85 of that with 128. Some
#: rectangles took four times as many scans with 64.
MATRIX_LIST_SIZE, LONG_MATRIX_LIST_SIZE = 64, 96
#: The same for points of many dimensions. The first also for any number of rows that are kept: 20,000 in 50-D
#: took 3.7 and 4.1 s on one thread with 160 and 256 entries. Multiplied anew, 30,000 took 5.1, 5.4, 6.1 and
#: 8.6 s with 160, 256, 400 and 938, 20,000 in 256-D 10.9, 10.3, 9.5 and 11.1 with 160, 256, 400 and 626.
MANY_LIST_SIZE, LONG_MANY_LIST_SIZE = 160, 256
#: The same where a device evaluates many rows at a time.
DEVICE_MANY_LIST_SIZE = 64
#: From so many coordinates on, a device makes all exact rows for the host, where its memory holds them.
DEVICE_KEPT_COORDINATES = 128
#: Only up to so many bytes: a host's thread reads a longer row in no less time than a device makes its list.
#: 20,000 rows in 512-D took 3.9 s kept and 6.3 on lists, 50,000 in 768-D 23 and 15 (one H200, one run).
DEVICE_KEPT_BYTES = 8 << 30
#: From so many such rows on, stale ones are evaluated within phases: 10,000 in 50-D take a tenth more time
#: with that, 20,000 as long or, where searches go far, half.
REFRESHED_ROWS = 16_000
#: After so many scans a row: 20,000 in 768-D within 1 GiB took 57 s of search with two, 18 with one. In
#: another run, with one, a half and a quarter: 17.3, 16.4 and 17.5 s, in 128-D 4.7, 4.2 and 4.9, and 30,000
#: in 50-D 3.6, 3.8 and 4.8.
REFRESH_SCANS = 0.5
#: The same for many coordinates on a device (``DEVICE_KEPT_COORDINATES``), where a row alone takes as long
#: as a hundred together. With a quarter, a tenth and a twenty-fifth, 80,000 in 2,048-D asked for 17,400,
#: 8,700 and 11,600 rows alone and took 60, 49 and 46 scans a row; the second search was the shortest.
DEVICE_REFRESH_SCANS = 0.1
#: Events of such lists are postponed by at most so many times what most lists reach beyond their best entry.
#: They reach a few epsilons only: prices of a row whose threshold was passed far away would be wrong by more
#: than later phases mend in few scans. With 3 in place of 6, more rows are asked for one by one.
REACHES = 6.0
#: The same where bounds make an evaluation cheap: shorter lists are evaluated more often, but scans of them
#: take less, and so does memory.
CLOSE_LIST_SIZE, LONG_CLOSE_LIST_SIZE, LONG_CLOSE_LIST_ROWS = 48, 64, 100_000
#: Exception: more than this share of the columns repeats others. Short lists of ties run out all the time,
#: and searches pass through all ties.
REPEATED_SHARE = 0.125
#: Minimum with little memory: shorter lists run out all the time.
LEAST_LIST_SIZE = 16
#: For trees: with random whole numbers hardly any list runs out before the solve ends. And the minimum with
#: little memory.
TREE_LIST_SIZE, LEAST_TREE_LIST_SIZE = 32, 8

# -- expected work ----------------------------------------------------------------------

#: At EXPECTED_ROWS rows a search scans SCANS rows for each row; the number grows with this power of the rows:
#: points in the plane took 24 to 28 at 4,000 rows, 57 to 64 at 1,024,000; 256 coordinates 66 at 10,000.
EXPECTED_ROWS, SCANS, SCANS_POWER = 4000, 25.0, 0.16
#: The same for SKINNY problems, whose rows hardly compete.
SKINNY_SCANS = 2.0
#: Evaluations of a row into a list, where rows are computed anew: 1.1 to 2.5 of matrices at 4,000 rows; of
#: points in 50 dimensions 3.8 at 30,000, 4.3 to 5.6 at 100,000, 7.4 at 1,000,000.
EVALUATIONS, EVALUATIONS_POWER = 1.5, 0.3
#: Share of the pairs that bounds leave: of points in the plane 0.14 to 0.21 at 16,000, 0.004 to 0.009 at
#: 1,024,000; of great circles 0.15 at 30,000.
BOUNDED_PAIRS, BOUNDED_POWER = 0.5, -0.8
#: Trees read a matrix once, or twice where their lists end.
TREE_PAIRS = 2.0
#: Columns that take many rows each: 2.7 to 3 of the pairs, a search for every tenth row.
CONTRACTED_PAIRS, CONTRACTED_SCANS = 2.7, 0.1

# -- when lists are abandoned for whole rows --------------------------------------------

#: Lists are abandoned once evaluations have taken this multiple of all pairs, if they still take longer
#: than scans of whole rows would. Most problems take one to three.
EXHAUSTED = 2
#: The same where lists were requested, or where whole rows have to be evaluated first.
EXHAUSTED_LATE = 8
#: Added to the multiple for rectangles, where whole rows would take three times as long to scan.
EXHAUSTED_MORE = 1
#: An evaluation takes about as long as this many scans of a whole row: from 3 to 9 on random families; for
#: a rectangle scans take three times as long.
EVALUATION_SCANS, EVALUATION_SCANS_RECTANGULAR = 6, 2
#: Beyond this multiple of those pairs the count of scans is ignored: lists then need many more scans.
EXHAUSTED_ANYWAY, EXHAUSTED_ANYWAY_RECTANGULAR = 2.5, 1.3
#: Lists whose reach is fewer first epsilons than this are exhausted within a phase or two; lists of wide
#: problems, whose rows hardly compete, last longer with the same reach.
NARROW, NARROW_RECTANGULAR = 3.0, 1.5
#: Rows sampled for this before all others are evaluated.
NARROW_SAMPLE = 64
#: On trial: for points of even density, the reach of lists in the upper quartile is 1.2 to 1.4 times that
#: in the lower one; for clusters and normal points 1.6 to 3 times.
UNEVEN = 1.45

# -- when another method takes over -----------------------------------------------------

#: Trees: work, as a multiple of the entries of all lists, without a sixty-fourth of the first roots being
#: matched, after which row-by-row searches take over.
TREE_PATIENCE = 24
#: The same for levels on a device, a few microseconds each.
TREE_LEVELS_ON_DEVICE = 1 << 15
#: Evaluations per row after which searches take over. Lists end at nearly each step where memory is short,
#: and where one cost is far larger than the others: prices then fall by a list's reach at a time.
TREE_EVALUATIONS = 16
#: Whole rows: a last phase that has scanned this many rows per row, and more than all phases before it, is
#: replaced by finer phases: with heavy-tailed costs the phases end too soon.
LAST_PHASE_SCANS = 60
#: Auction: bids per row in one phase after which searches solve the rest.
AUCTION_BIDS = 1000
#: The same where epsilon ignores a few huge costs: rows that compete for one column too few would bid until
#: prices reach these. Other rows make some 8 bids a phase.
AUCTION_BIDS_FAR = 32

# -- a sufficient gap -------------------------------------------------------------------

#: A whole pass for ``gap`` is tried once epsilon times the rows is at most this many gaps: a phase's
#: matching is usually much closer to optimal than an epsilon per row.
PROMISING_GAPS = 8

# -- the certificate --------------------------------------------------------------------

#: With fewer rows, or pairs, the pass ends before kernels are loaded and a tree is built.
PROOF_BOUNDS_ROWS = 1024
PROOF_BOUNDS_PAIRS = 1 << 24
#: Bounds are abandoned for the pass when their cost exceeds its pairs divided by this,
PROOF_BOUNDS_SHARE = 4
#: or, at the start, the pairs of this many probed rows divided by it.
PROOF_BOUNDS_PROBED = 256
#: Matrix products prove from this many pairs on, and are abandoned for the pass when they leave more than
#: the pairs divided by this: a single pair takes as long as some dozens of the pass.
PROOF_PRODUCT_PAIRS, PROOF_PRODUCT_SHARE = 1 << 20, 64
#: Seconds per row and column of a proof by bounds, tree included: two to three times the
#: measured time; and the least value of that factor.
PROOF_BOUNDS_ROW_SECONDS, PROOF_BOUNDS_GENEROUS = 5e-6, 2.0
#: ``certify=False``: if the accumulated rounding of the duals may reach this share of the pairs' costs, it
#: may have decided the assignment. Then the proof is made.
DANGEROUS_ROUNDING = 1e-12
#: The same for integers that are read as floats: if it may reach this, since their optimum is exact.
DANGEROUS_WHOLE = 2.0**-6

# -- refinement -------------------------------------------------------------------------

#: A gap that is a larger share of the costs' sizes is not due to rounding.
ROUNDING_GAP = 1e-9
#: Near pairs are collected if the gap is at most this multiple of the median row's margin.
NEAR_MARGINS = 4.0
#: Largest ratio of the pairs of a square residual problem to those of the rectangle.
MOST_SQUARED = 64
#: Residual costs of at most this many bytes are computed once, as a matrix, without a ``memory_limit``.
RESIDUAL_BYTES = 1 << 30

# -- the answer of a stopped solve ------------------------------------------------------

#: Most open rows that get a search each.
FEW_OPEN_ROWS = 256
#: Most pairs, cheap ones, that are read even when the grace period is over.
FEW_LATE_PAIRS = 1024

#: Rows of sparse costs from which entries are copied into an order that keeps common columns near each
#: other, if the copy takes at most this share of the memory. With fewer rows the vectors of a search fit
#: a core's own cache in any order: no work is saved, only waiting, so rows decide and not predicted scans.
SPARSE_ORDERED_ROWS, SPARSE_ORDERED_SHARE = 1 << 15, 8
#: Copies of columns and listed pairs beyond which capacities of sparse costs count no more than can be used.
LISTED_COPIES = 1 << 24
#: Columns, and neighbouring rows, looked at before such an order is computed; and pairs of rows of these
#: columns. Half of them must have another column in common: neighbours have nearly all, random graphs none.
ORDER_SAMPLE, ORDER_SAMPLE_PAIRS = 64, 1024
#: Share of the rows in one layer of the breadth-first search at which it is given up: every row then is near
#: every other. Layers of neighbours have a few per cent, of random graphs half.
ORDER_WIDEST_SHARE = 8

#: Rows from which a bottleneck's pairs of points are listed by boxes: with fewer, all pairs take less time.
BOTTLENECK_BOUNDED_ROWS = 4096
#: Bytes of vectors up to which products of few rows have copies of them: the rows' scaled vectors, and the
#: columns' in tiles. With larger ones the copies would be most of a solve's memory.
PRODUCT_COPY_BYTES = 256 << 20
