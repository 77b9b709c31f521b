// Searches on lists from many free rows at once, a warp each, under prices and a matching that
// stand still; then those that do not touch each other take effect together (kernels_commit.cu).
//
// A search is that of list_search.py: Dijkstra over the lists, with events. bigsap_batch leaves
// what it found where its block has room; nothing is changed. Let A and B be two searches that
// found free columns and whose settled columns, the free one included, are disjoint. Then B, put
// into effect, lowers prices and changes pairs of its own columns only. The rows that A scanned
// are its root and the rows paired with its settled columns: their pairs, lists, thresholds and
// the prices of A's columns are what they were. Labels of B's columns, seen from A, rise, and A
// had settled none of them: what A settled, in which order, and where it ended is what A would
// find now. So any set of disjoint searches may take effect, in any order or at once, and what
// comes out is a state that searches one after the other would reach. With epsilon 0 that is what
// is asked for; phases before the last are content with less, see kernels_commit.cu.
//
// Which ones do is settled by claims: each search bids for its columns with its number of settled
// columns and its place in the batch, the smallest bid holds a column, and who holds all that it
// claims takes effect. That depends on what the searches found, never on which block was first.
//
// Comes after kernels_price.cu.

#define LANES 32
#define ALL ~0u
// Entries of a list that a lane has in hand at a time.
#define HELD 5
// Statuses of a search.
#define FOUND 0
#define ASKS 1
#define GREW 2
#define STUCK 3
#define WON 4
#define LOST 5
// Words of a search in `found`.
#define STATUS 0
#define N_SETTLED 1
#define SCANS 2
#define SINK 3
#define SINK_PARENT 4
#define STEPS 5
#define WORDS 8
// Values of a search in `ends`.
#define END_LABEL 0
#define END_BEST 1
#define END_COST 2
#define VALUES 4
#define NO_KEY ~0ULL
// Why a row is to be evaluated.
#define EXPECTED 1
#define REACHED 2

__device__ __forceinline__ u64 least_of_warp(u64 x) {
    #pragma unroll
    for (int step = LANES / 2; step; step >>= 1) {
        u64 other = __shfl_xor_sync(ALL, x, step);
        x = other < x ? other : x;
    }
    return x;
}

// A search from each root, by a block of one warp. Room of a block: `capacity` items (columns that
// have a label), `longest` settled ones. place_of (n_columns ints a block) need not be cleared: a
// place counts if the item there is of that column.
//
// items: key (label; INFINITE once settled), cost of the pair by which the label came, column, and
// parent, the settled column whose row that pair belongs to (-1: the root).
// events (longest + 1 a block): key at which the row of settled column e - 1 must be evaluated.
extern "C" __global__ void __launch_bounds__(LANES) bigsap_batch(
    const int* roots, const int* ids, const PRICE* costs, const i64* starts, const int* sizes,
    const PRICE* theta, const PRICE* v, const int* row_of_column, const PRICE* match_cost,
    int n_columns, PRICE postpone, int capacity, int longest, int* place_of,
    PRICE* item_keys, PRICE* item_costs, int* item_columns, int* item_parents,
    PRICE* settled_labels, PRICE* settled_costs, int* settled_columns, int* settled_parents,
    PRICE* events, int* found, PRICE* ends, int* requested
) {
    extern __shared__ u64 minima[];  // smallest key of every 32 items
    const int lane = threadIdx.x;
    const i64 block = blockIdx.x;
    place_of += block * n_columns;
    item_keys += block * capacity, item_costs += block * capacity;
    item_columns += block * capacity, item_parents += block * capacity;
    settled_labels += block * longest, settled_costs += block * longest;
    settled_columns += block * longest, settled_parents += block * longest;
    events += block * (longest + 1);
    found += block * WORDS, ends += block * VALUES;

    const int root = roots[block];
    int n_items = 0, n_settled = 0, scans = 0, status = FOUND;
    int row = root, parent = -1, sink = -1, sink_parent = -1;
    PRICE h = 0, label = 0, best = INFINITE, sink_cost = 0, first_event = INFINITE;
    while (true) {
        // -- scan the row at h
        scans++;
        const i64 start = starts[row];
        const int size = sizes[row];
        const PRICE limit = theta[row];
        bool full = false;
        for (int base = 0; base < size && !full; base += LANES * HELD) {
            int column[HELD];
            PRICE cost[HELD], reached[HELD];
            bool open[HELD];
            #pragma unroll
            for (int q = 0; q < HELD; q++) {
                const int e = base + q * LANES + lane;
                column[q] = e < size ? ids[start + e] : -1;
                cost[q] = e < size ? costs[start + e] : 0;
            }
            PRICE low = INFINITE, low_cost = 0;
            int low_column = -1;
            #pragma unroll
            for (int q = 0; q < HELD; q++) {
                reached[q] = INFINITE;
                open[q] = false;
                if (column[q] >= 0) {
                    reached[q] = h + (cost[q] - v[column[q]]);
                    open[q] = row_of_column[column[q]] < 0;
                    if (open[q] && reached[q] < low)
                        low = reached[q], low_cost = cost[q], low_column = column[q];
                }
            }
            if (__ballot_sync(ALL, low < best)) {
                const u64 mine = low_column < 0 ? NO_KEY : key_of(low);
                const u64 least = least_of_warp(mine);
                const int from = __ffs(__ballot_sync(ALL, mine == least)) - 1;
                best = __shfl_sync(ALL, low, from);
                sink = __shfl_sync(ALL, low_column, from);
                sink_cost = __shfl_sync(ALL, low_cost, from);
                sink_parent = parent;
            }
            #pragma unroll
            for (int q = 0; q < HELD; q++) {
                const bool wanted = column[q] >= 0 && !open[q] && reached[q] < best;
                if (!__ballot_sync(ALL, wanted)) continue;
                int place = -1;
                bool known = false;
                if (wanted) {
                    place = place_of[column[q]];
                    known = (u32)place < (u32)n_items && item_columns[place] == column[q];
                }
                const u32 fresh = __ballot_sync(ALL, wanted && !known);
                const int count = __popc(fresh);
                if (n_items + count > capacity) {
                    full = true;
                    break;
                }
                const int from = (n_items + LANES - 1) / LANES;
                const int to = (n_items + count + LANES - 1) / LANES;
                if (from + lane < to) minima[from + lane] = NO_KEY;
                __syncwarp();
                bool write = false;
                if (wanted) {
                    if (!known) {
                        place = n_items + __popc(fresh & ((1u << lane) - 1));
                        place_of[column[q]] = place;
                        item_columns[place] = column[q];
                        write = true;
                    } else {
                        const PRICE key = item_keys[place];
                        write = reached[q] < key && key < INFINITE;
                    }
                }
                if (write) {
                    item_keys[place] = reached[q];
                    item_costs[place] = cost[q];
                    item_parents[place] = parent;
                    atomicMin(&minima[place / LANES], key_of(reached[q]));
                }
                n_items += count;
                __syncwarp();
            }
        }
        PRICE event = INFINITE;
        if (limit < INFINITE && h + limit < best) {
            event = h + limit + postpone;
            event = event < best ? event : INFINITE;
        }
        if (lane == 0) events[n_settled] = event;
        first_event = event < first_event ? event : first_event;
        if (full) {
            status = GREW;
            break;
        }

        // -- the next column; at equal keys a free one, then a paired one, then an event
        const int n_groups = (n_items + LANES - 1) / LANES;
        u64 mine = NO_KEY;
        int group = 0;
        for (int q = lane; q < n_groups; q += LANES) {
            const u64 x = minima[q];
            if (x < mine) mine = x, group = q;
        }
        const u64 least = least_of_warp(mine);
        const PRICE key = least == NO_KEY ? INFINITE : value_of(least);
        if (key >= best && first_event >= best) {
            status = sink < 0 ? STUCK : FOUND;
            break;
        }
        if (first_event < key) {
            status = ASKS;
            break;
        }
        if (n_settled == longest) {
            status = GREW;
            break;
        }
        group = __shfl_sync(ALL, group, __ffs(__ballot_sync(ALL, mine == least)) - 1);
        const int item = group * LANES + lane;
        const u64 own = item < n_items && item_keys[item] < INFINITE ? key_of(item_keys[item])
                                                                    : NO_KEY;
        const int chosen = __ffs(__ballot_sync(ALL, own == least)) - 1;
        const u64 rest = least_of_warp(lane == chosen ? NO_KEY : own);
        int column = 0;
        if (lane == chosen) {
            column = item_columns[item];
            item_keys[item] = INFINITE;
            minima[group] = rest;
            settled_labels[n_settled] = key;
            settled_costs[n_settled] = item_costs[item];
            settled_columns[n_settled] = column;
            settled_parents[n_settled] = item_parents[item];
        }
        column = __shfl_sync(ALL, column, chosen);
        parent = n_settled++;
        // The running maximum: labels found late in phases with epsilon > 0 may lie below
        // settled ones, and no price may rise.
        label = parent == 0 || key > label ? key : label;
        row = row_of_column[column];
        h = label - (match_cost[row] - v[column]);
        __syncwarp();
    }
    if (n_settled == 0 || best > label) label = best;
    __syncwarp();
    if (status == ASKS) {
        // Rows are evaluated many at a time at little cost, and a search is begun anew after each
        // evaluation: so ask for all that this one may come to, not for what it came to only.
        for (int e = lane; e <= n_settled; e += LANES) {
            if (events[e] >= best) continue;
            const int asking = e ? row_of_column[settled_columns[e - 1]] : root;
            atomicMax(&requested[asking], events[e] == first_event ? REACHED : EXPECTED);
        }
    }
    if (lane == 0) {
        found[STATUS] = status;
        found[N_SETTLED] = n_settled;
        found[SCANS] = scans;
        found[SINK] = sink;
        found[SINK_PARENT] = sink_parent;
        found[STEPS] = scans;
        ends[END_LABEL] = label;
        ends[END_BEST] = best;
        ends[END_COST] = sink_cost;
    }
}
