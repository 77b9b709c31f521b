// The classical Hungarian method (bigsap/engine/trees/zeros.py, strategies/baselines/classical.py) in one
// persistent launch.
//
// The host's operations. Stars, claims, leaves and slacks are minima, so that zeros, trees, duals
// and counts are the host's whoever comes first.
//
// Block 0 leads. What is short it does alone, with the words in its shared memory and its threads
// meeting at block barriers; for what is wide it names a command, and all blocks do their share
// between two barriers of the grid, with the words in device memory. Whatever changes is read past
// the first-level cache, which does not see what other blocks write. Costs are gone through by
// a block a row.
//
// Macros set by the host: TEAM (threads), WIDE (items from which all blocks work), SIGN,
// PRICE_IS_INT; kernels_price.cu, kernels_least.cu and kernels_grid.cu come before.

#define ALL_LANES 0xffffffffu

// Words. N_NEXT: items of a list that is being made.
#define N_ROWS 0
#define N_FRONTIER 1
#define N_NEXT 2
#define N_FOUND 3
#define N_REACHED 4
#define N_LEAVES 5
#define N_STALE 6
#define N_WAITING 7     // rows that want a star
#define EXPANDED 8      // rows of this level
#define COMMAND 9
#define STEP 10         // the next command
#define ITEMS 11        // of it
#define TURN 12         // which of two lists is the present one
#define BAD_ROW 13      // the smallest row with an invalid cost; n for none
#define BROKEN_PATH 14
#define WHY 15
#define PLANTED 16      // whether stars are made
#define N_WORDS 17
#define BARRIER 64      // in a line of its own: all blocks but the first wait by reading it

// Counts, which the leading thread keeps.
#define ROOTS 0
#define STAGES 1
#define PATHS 2
#define LEVELS 3
#define CLOCK_STEPS 4
#define EXPANSIONS 5
#define PASSES 6        // rows gone through for their least slack
#define TIGHT_ROWS 7    // and for new zeros

#define ZEROS 1
#define OFFER 2
#define ACCEPT 3
#define CLEAR 4
#define PLANT 5
#define EXPAND 6
#define TAKE 7
#define FLIP 8
#define STALE 9
#define SLACKS 10
#define LEAST 11
#define COLLECT 12
#define TIGHT 13
#define UPDATE 14
#define LEAVE 15

// Why a launch has ended; BETWEEN: two stages.
#define DONE 0
#define YIELD 1
#define INFEASIBLE 3
#define BROKEN 5
#define BETWEEN 7
#define BAD 8

struct Method {
    int* words;
    i64* counts;
    u64* least;  // the key of the least slack of all
    u32 *bits, *reached;
    PRICE *u, *v, *low;
    int *arg, *root, *leaf, *rows, *list, *other, *roots, *stale, *inside;
    int *pred, *claim, *columns, *found, *column_of_row, *row_of_column;
    int n, m, width;  // words of 32 bits a row, an even number
    PRICE lowest, highest;
    u32 passed;
};

// A thread's share of a command: item, item + items, ...; words: the leader's own while it is alone.
struct Share {
    int* words;
    int item, items;
    bool alone;
};

__shared__ int own_words[N_WORDS];
__shared__ int stop;

template <class T> __device__ __forceinline__ T load(const T* place) { return __ldcg(place); }

__device__ __forceinline__ int word(const Share& s, int k) {
    return s.alone ? s.words[k] : __ldcg(s.words + k);
}

// A place of the list that word k counts, for the lanes that want one; a warp comes as a whole.
__device__ __forceinline__ int place_in(const Share& s, int k, bool wants) {
    const u32 lanes = __ballot_sync(ALL_LANES, wants);
    if (lanes == 0) return 0;
    const int lane = threadIdx.x & 31;
    int first = 0;
    if (lane == 0) first = atomicAdd(s.words + k, __popc(lanes));
    return __shfl_sync(ALL_LANES, first, 0) + __popc(lanes & ((1u << lane) - 1));
}

__device__ __forceinline__ int* front(const Method& f, const Share& s, int other) {
    return (word(s, TURN) ^ other) & 1 ? f.other : f.list;
}

// Loads of a thread that wait for nothing in between.
#define AT_ONCE 4

// Calls use(j, signed cost, price) for the columns of a row that are this thread's.
template <class Use>
__device__ __forceinline__ void each_pair(
    const Method& f, const Costs& costs, const Row& row, Use use
) {
    for (int first = threadIdx.x; first < f.m; first += AT_ONCE * TEAM) {
        PRICE x[AT_ONCE], price[AT_ONCE];
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int j = first + k * TEAM;
            x[k] = j < f.m ? signed_cost(cost_at(costs, row, j)) : 0;
            price[k] = j < f.m ? load(f.v + j) : 0;
        }
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (first + k * TEAM < f.m) use(first + k * TEAM, x[k], price[k]);
    }
}

// Rows' duals and zeros; judges their costs.
__device__ void zeros(const Method& f, const Share& s, const Costs& costs) {
    const int t = threadIdx.x;
    for (int i = s.item / TEAM; i < f.n; i += s.items / TEAM) {
        const Row row = open_row(costs, i);
        PRICE low = INFINITE;
        bool wrong = false;
        each_pair(f, costs, row, [&](int, PRICE x, PRICE price) {
            const PRICE g = x - price;
            wrong = wrong || !(x > f.lowest && x <= f.highest);
            low = g < low ? g : low;
        });
        if (wrong) atomicMin(s.words + BAD_ROW, i);
        u64 key = key_of(low);
        int anywhere = 0;
        least_of_block(key, anywhere);
        low = value_of(key);
        const bool some = low < INFINITE;
        if (t == 0) f.u[i] = some ? low : 0;
        for (int j = t; j < 32 * f.width; j += TEAM) {
            const bool hit = some && j < f.m
                && signed_cost(cost_at(costs, row, j)) - load(f.v + j) == low;
            const u32 hits = __ballot_sync(ALL_LANES, hit);
            if ((t & 31) == 0) f.bits[(i64)i * f.width + j / 32] = hits;
        }
    }
}

// First stars: see zeros.star_bits. A warp a row; a lane looks for a free zero in 64 columns.
__device__ void offer(const Method& f, const Share& s) {
    const int lane = s.item & 31, count = word(s, N_WAITING), pairs = f.width / 2;
    const int* waiting = front(f, s, 0);
    for (int p = s.item >> 5; p < count; p += s.items >> 5) {
        const int row = load(waiting + p);
        const u64* mine = (const u64*)(f.bits + (i64)row * f.width);
        const u64 spread = (u64)(row + 1) * 0x9E3779B97F4A7C15ULL;
        const int begin = (int)((spread >> 33) % (u64)pairs);
        int choice = -1;
        for (int first = 0; first < pairs && choice < 0; first += 32) {
            int free = -1;
            if (first + lane < pairs) {
                int at = begin + first + lane;
                at -= at >= pairs ? pairs : 0;
                for (u64 bits = load(mine + at); bits && free < 0; bits &= bits - 1) {
                    const int j = 64 * at + __ffsll((long long)bits) - 1;
                    if (load(f.row_of_column + j) < 0) free = j;
                }
            }
            const u32 hits = __ballot_sync(ALL_LANES, free >= 0);
            const int found = __shfl_sync(ALL_LANES, free, hits ? __ffs(hits) - 1 : 0);
            if (hits) choice = found;
        }
        if (lane == 0) {
            f.root[row] = choice;
            if (choice >= 0) atomicMin(f.claim + choice, row);
        }
    }
}

__device__ void accept(const Method& f, const Share& s) {
    const int count = word(s, N_WAITING);
    const int* waiting = front(f, s, 0);
    int* still = front(f, s, 1);
    for (int from = s.item & ~31; from < count; from += s.items) {
        const int p = from + (s.item & 31);
        const int row = p < count ? load(waiting + p) : 0;
        const int j = p < count ? load(f.root + row) : -1;
        bool waits = false;  // without a choice no zero is free, nor will one be
        if (j >= 0) {
            waits = load(f.claim + j) != row;
            if (!waits) f.column_of_row[row] = j, f.row_of_column[j] = row;
        }
        const int place = place_in(s, N_NEXT, waits);
        if (waits) still[place] = row;
    }
}

__device__ void clear(const Method& f, const Share& s) {
    const int* waiting = front(f, s, 0);
    for (int p = s.item; p < word(s, N_WAITING); p += s.items) {
        const int j = load(f.root + load(waiting + p));
        if (j >= 0) f.claim[j] = f.n;
    }
}

__device__ void plant(const Method& f, const Share& s) {
    int* frontier = front(f, s, 0);
    for (int from = s.item & ~31; from < f.n; from += s.items) {
        const int row = from + (s.item & 31);
        const bool is_root = row < f.n && load(f.column_of_row + row) < 0;
        if (row < f.n) f.inside[row] = is_root ? 1 : 0;
        const int place = place_in(s, N_ROWS, is_root);
        if (is_root) f.root[row] = f.rows[place] = frontier[place] = row, f.arg[row] = -1;
    }
    for (int k = s.item; k < f.width; k += s.items) f.reached[k] = 0;
}

// A warp a row; a lane looks through 32 columns, several times.
#define WORDS_AT_ONCE 8
__device__ void expand(const Method& f, const Share& s) {
    const int lane = s.item & 31, count = word(s, N_FRONTIER);
    const int* frontier = front(f, s, 0);
    int expanded = 0;
    for (int p = s.item >> 5; p < count; p += s.items >> 5) {
        const int row = load(frontier + p);
        if (load(f.leaf + load(f.root + row)) < f.m) continue;  // this tree is to flip
        expanded += 1;
        for (int first = lane; first < f.width + lane; first += 32 * WORDS_AT_ONCE) {
            u32 words[WORDS_AT_ONCE];
            #pragma unroll
            for (int k = 0; k < WORDS_AT_ONCE; k++) {
                const int at = first + 32 * k;
                words[k] = 0;
                if (at < f.width)
                    words[k] = load(f.bits + (i64)row * f.width + at) & ~load(f.reached + at);
            }
            #pragma unroll
            for (int k = 0; k < WORDS_AT_ONCE; k++) {
                u32 bits = words[k];
                while (__ballot_sync(ALL_LANES, bits != 0)) {
                    int j = 0;
                    bool is_new = false;
                    if (bits) {
                        j = 32 * (first + 32 * k) + __ffs(bits) - 1;
                        bits &= bits - 1;
                        is_new = atomicMin(f.claim + j, row) == f.n;
                    }
                    const int place = place_in(s, N_FOUND, is_new);
                    if (is_new) f.found[place] = j;
                }
            }
        }
    }
    if (lane == 0 && expanded) atomicAdd(s.words + EXPANDED, expanded);
}

__device__ void take(const Method& f, const Share& s) {
    const int count = word(s, N_FOUND), n_rows = word(s, N_ROWS), n_reached = word(s, N_REACHED);
    int* next = front(f, s, 1);
    for (int from = s.item & ~31; from < count; from += s.items) {
        const int p = from + (s.item & 31);
        int row = -1, root = -1;
        bool first_leaf = false;
        if (p < count) {
            const int j = load(f.found + p), by = load(f.claim + j);
            row = load(f.row_of_column + j), root = load(f.root + by);
            f.pred[j] = by;
            f.claim[j] = f.n;
            atomicOr(f.reached + j / 32, 1u << (j & 31));
            f.columns[n_reached + p] = j;
            first_leaf = row < 0 && atomicMin(f.leaf + root, j) == f.m;
        }
        const int leaf = place_in(s, N_LEAVES, first_leaf);
        if (first_leaf) f.roots[leaf] = root;
        const int place = place_in(s, N_NEXT, row >= 0);
        if (row >= 0) {
            f.root[row] = root;
            f.inside[row] = 1;
            f.arg[row] = -1;
            f.rows[n_rows + place] = next[place] = row;
        }
    }
}

__device__ void flip(const Method& f, const Share& s) {
    for (int p = s.item; p < word(s, N_LEAVES); p += s.items) {
        const int root = load(f.roots + p);
        int j = load(f.leaf + root);
        f.leaf[root] = f.m;
        for (int steps = 0;; steps++) {
            const int row = load(f.pred + j), before = load(f.column_of_row + row);
            f.column_of_row[row] = j;
            f.row_of_column[j] = row;
            if (row == root) break;
            j = before;
            if (steps > f.n || j < 0) {  // a path has no more rows than there are
                s.words[BROKEN_PATH] = 1;
                break;
            }
        }
    }
}

__device__ __forceinline__ bool is_reached(const Method& f, int j) {
    return load(f.reached + j / 32) >> (j & 31) & 1;
}

// Rows of the forest whose least slack is to be found: new ones, and those whose column was reached.
__device__ void find_stale(const Method& f, const Share& s) {
    const int count = word(s, N_ROWS);
    for (int from = s.item & ~31; from < count; from += s.items) {
        const int p = from + (s.item & 31);
        const int row = p < count ? load(f.rows + p) : 0, j = p < count ? load(f.arg + row) : f.m;
        const bool stale = j < 0 || (j < f.m && is_reached(f, j));
        const int place = place_in(s, N_STALE, stale);
        if (stale) f.stale[place] = row;
    }
}

// Least slack of these rows over columns not reached, and its first column; m for none.
__device__ void slacks(const Method& f, const Share& s, const Costs& costs) {
    const int t = threadIdx.x, count = word(s, N_STALE);
    for (int p = s.item / TEAM; p < count; p += s.items / TEAM) {
        const int i = load(f.stale + p);
        const Row row = open_row(costs, i);
        const PRICE own = load(f.u + i);
        PRICE low = INFINITE;
        int arg = f.m;
        each_pair(f, costs, row, [&](int j, PRICE x, PRICE price) {
            const PRICE g = (x - price) - own;
            if (g < low && !is_reached(f, j)) low = g, arg = j;
        });
        u64 key = key_of(low);
        least_of_block(key, arg);
        if (t == 0) f.low[i] = value_of(key), f.arg[i] = arg;
    }
}

__device__ void find_least(const Method& f, const Share& s) {
    const int count = word(s, N_ROWS);
    u64 key = key_of(INFINITE);
    for (int p = s.item; p < count; p += s.items) {
        const u64 mine = key_of(load(f.low + load(f.rows + p)));
        key = mine < key ? mine : key;
    }
    #pragma unroll
    for (int step = 16; step; step >>= 1) {
        const u64 other = __shfl_xor_sync(ALL_LANES, key, step);
        key = other < key ? other : key;
    }
    if ((threadIdx.x & 31) == 0) atomicMin(f.least, key);
}

__device__ void collect(const Method& f, const Share& s) {
    const int count = word(s, N_ROWS);
    const PRICE least = value_of(load(f.least));
    int* frontier = front(f, s, 0);
    for (int from = s.item & ~31; from < count; from += s.items) {
        const int p = from + (s.item & 31);
        const int row = p < count ? load(f.rows + p) : 0;
        const bool tight = p < count && load(f.low + row) == least;
        const int place = place_in(s, N_NEXT, tight);
        if (tight) frontier[place] = row;
    }
}

// New zeros of the frontier: columns not reached where rows have their least slack, as far as
// rounding lets it be seen, and where it was found. Rows outside the forest lose their zeros in
// reached columns, whose prices fall.
__device__ void find_tight(const Method& f, const Share& s, const Costs& costs) {
    const int t = threadIdx.x, count = word(s, N_FRONTIER);
    const int* frontier = front(f, s, 0);
    for (int p = s.item / TEAM; p < count; p += s.items / TEAM) {
        const int i = load(frontier + p), arg = load(f.arg + i);
        const Row row = open_row(costs, i);
        const PRICE own = load(f.u + i), low = load(f.low + i);
        for (int j = t; j < 32 * f.width; j += TEAM) {
            const bool hit = j < f.m
                && (j == arg
                    || (signed_cost(cost_at(costs, row, j)) - load(f.v + j)) - own <= low);
            const u32 hits = __ballot_sync(ALL_LANES, hit);
            u32* bits = f.bits + (i64)i * f.width + j / 32;
            if ((t & 31) == 0 && hits) *bits = load(bits) | (hits & ~load(f.reached + j / 32));
        }
    }
    const int lane = s.item & 31;
    for (int row = s.item >> 5; row < f.n; row += s.items >> 5) {
        if (load(f.inside + row)) continue;
        for (int k = lane; k < f.width; k += 32) {
            const u32 gone = load(f.reached + k);
            u32* bits = f.bits + (i64)row * f.width + k;
            if (gone) *bits = load(bits) & ~gone;
        }
    }
}

__device__ void update(const Method& f, const Share& s) {
    const PRICE least = value_of(load(f.least));
    const PRICE theta = least > 0 ? least : 0;  // rounding may make it negative: prices never rise
    for (int p = s.item; p < word(s, N_ROWS); p += s.items) {
        const int row = load(f.rows + p);
        f.u[row] = load(f.u + row) + theta;
        f.low[row] = load(f.low + row) - theta;
    }
    for (int p = s.item; p < word(s, N_REACHED); p += s.items) {
        const int j = load(f.columns + p);
        f.v[j] = load(f.v + j) - theta;
    }
}

__device__ void perform(const Method& f, const Share& s, const Costs& costs, int command) {
    switch (command) {
        case ZEROS: zeros(f, s, costs); break;
        case OFFER: offer(f, s); break;
        case ACCEPT: accept(f, s); break;
        case CLEAR: clear(f, s); break;
        case PLANT: plant(f, s); break;
        case EXPAND: expand(f, s); break;
        case TAKE: take(f, s); break;
        case FLIP: flip(f, s); break;
        case STALE: find_stale(f, s); break;
        case SLACKS: slacks(f, s, costs); break;
        case LEAST: find_least(f, s); break;
        case COLLECT: collect(f, s); break;
        case TIGHT: find_tight(f, s, costs); break;
        case UPDATE: update(f, s); break;
    }
}

// What follows is by one thread of block 0, on the words in its shared memory.
__device__ __forceinline__ void go_to(int command, i64 items) {
    own_words[STEP] = command;
    own_words[ITEMS] = items < WIDE ? (int)items : WIDE;
}

__device__ __forceinline__ i64 larger(i64 a, i64 b) { return a > b ? a : b; }

__device__ __forceinline__ void finish(int why) {
    own_words[WHY] = why;
    go_to(LEAVE, 0);
}

__device__ __forceinline__ void grow(const Method& f, int n_frontier) {
    own_words[N_FRONTIER] = n_frontier;
    own_words[N_NEXT] = own_words[N_FOUND] = own_words[EXPANDED] = 0;
    go_to(EXPAND, n_frontier * larger(32, f.width));
}

__device__ __forceinline__ void sow(const Method& f) {
    own_words[N_ROWS] = own_words[N_REACHED] = own_words[N_LEAVES] = 0;
    go_to(PLANT, larger(f.n, f.width));
}

// The command after this one. Every round of stars but the last matches a row; a level reaches a
// column, or is the last before leaves or a dual update, which makes a zero in a column not
// reached; every stage matches a row.
__device__ __noinline__ void decide(const Method& f, int command) {
    i64* counts = f.counts;
    if (command == ZEROS) {
        own_words[N_WAITING] = f.n;
        own_words[N_NEXT] = 0;
        if (own_words[BAD_ROW] < f.n) finish(BAD);
        else go_to(OFFER, 32LL * f.n);
    } else if (command == OFFER) {
        go_to(ACCEPT, own_words[N_WAITING]);
    } else if (command == ACCEPT) {
        go_to(CLEAR, own_words[N_WAITING]);
    } else if (command == CLEAR) {
        const int waiting = own_words[N_NEXT];
        own_words[N_WAITING] = waiting;
        own_words[N_NEXT] = 0;
        own_words[TURN] ^= 1;
        if (waiting) go_to(OFFER, 32LL * waiting);
        else sow(f);
    } else if (command == PLANT) {
        const int roots = own_words[N_ROWS];
        if (!own_words[PLANTED]) counts[ROOTS] = roots;
        own_words[PLANTED] = 1;
        if (roots) grow(f, roots);
        else finish(DONE);
    } else if (command == EXPAND) {
        counts[LEVELS] += 1;
        counts[EXPANSIONS] += own_words[EXPANDED];
        go_to(TAKE, own_words[N_FOUND]);
    } else if (command == TAKE) {
        const int next = own_words[N_NEXT];
        own_words[N_ROWS] += next;
        own_words[N_REACHED] += own_words[N_FOUND];
        own_words[TURN] ^= 1;
        own_words[N_STALE] = 0;
        if (next) grow(f, next);
        else if (own_words[N_LEAVES]) go_to(FLIP, own_words[N_LEAVES]);
        else go_to(STALE, own_words[N_ROWS]);
    } else if (command == FLIP) {
        counts[STAGES] += 1;
        counts[PATHS] += own_words[N_LEAVES];
        if (own_words[BROKEN_PATH]) finish(BROKEN);
        else sow(f);
    } else if (command == STALE) {
        counts[PASSES] += own_words[N_STALE];
        go_to(SLACKS, (i64)TEAM * own_words[N_STALE]);
    } else if (command == SLACKS) {
        *f.least = key_of(INFINITE);
        go_to(LEAST, own_words[N_ROWS]);
    } else if (command == LEAST) {
        own_words[N_NEXT] = 0;
        if (value_of(load(f.least)) < INFINITE) go_to(COLLECT, own_words[N_ROWS]);
        else finish(INFEASIBLE);
    } else if (command == COLLECT) {
        own_words[N_FRONTIER] = own_words[N_NEXT];
        counts[TIGHT_ROWS] += own_words[N_NEXT];
        go_to(TIGHT, larger((i64)TEAM * own_words[N_FRONTIER], 32LL * f.n));
    } else if (command == TIGHT) {
        go_to(UPDATE, larger(own_words[N_ROWS], own_words[N_REACHED]));
    } else {
        counts[CLOCK_STEPS] += 1;
        grow(f, own_words[N_FRONTIER]);
    }
}

// Goes on from the words. room: int32, SPAN to each vector; bits: n_rows * width; prices: u, low
// (n_rows,), v (n_columns,). cycles: the launch ends after so many, and between two stages after
// half of them; host[0]: the host's wish that it ends, looked at now and then. Every launch does one
// command at least, so that it gets on.
extern "C" __global__ void __launch_bounds__(TEAM) bigsap_classical(
    const i64* cost_words, int* words, i64* counts, u64* least, int* room, int span, int n_rows,
    int n_columns, int width, u32* bits, u32* reached, PRICE* u, PRICE* low, PRICE* v,
    int* column_of_row, int* row_of_column, PRICE lowest, PRICE highest, i64 cycles,
    const i64* host
) {
    const Costs costs = load_costs(cost_words);
    Method f;
    f.words = words, f.counts = counts, f.least = least, f.bits = bits, f.reached = reached;
    f.u = u, f.v = v, f.low = low, f.n = n_rows, f.m = n_columns, f.width = width;
    f.lowest = lowest, f.highest = highest, f.passed = 0;
    f.column_of_row = column_of_row, f.row_of_column = row_of_column;
    int* at = room;
    f.leaf = at, at += span;
    f.claim = at, at += span;
    f.list = at, at += span;
    f.other = at, at += span;
    f.rows = at, at += span;
    f.arg = at, at += span;
    f.root = at, at += span;
    f.roots = at, at += span;
    f.stale = at, at += span;
    f.inside = at, at += span;
    f.pred = at, at += span;
    f.columns = at, at += span;
    f.found = at, at += span;
    const bool leads = blockIdx.x == 0;
    const int t = threadIdx.x;
    const i64 between = cycles / 200, ends = clock64() + cycles;
    i64 ask = clock64() + between;
    if (leads && t < N_WORDS) own_words[t] = words[t];
    if (leads && t == 0) stop = 0;
    __syncthreads();
    for (;;) {
        int command = own_words[STEP];
        bool together = !leads;
        if (leads) {
            if (stop) command = LEAVE;
            together = gridDim.x > 1 && (command == LEAVE || own_words[ITEMS] >= WIDE);
            if (together && t < N_WORDS) words[t] = t == COMMAND ? command : own_words[t];
        }
        if (together) {
            meet((u32*)words + BARRIER, f.passed);
            if (!leads) command = load(words + COMMAND);
        }
        if (command == LEAVE) break;
        const Share share = together
            ? Share{words, (int)blockIdx.x * TEAM + t, (int)gridDim.x * TEAM, false}
            : Share{own_words, t, TEAM, true};
        perform(f, share, costs, command);
        if (together) {
            meet((u32*)words + BARRIER, f.passed);
            if (leads && t < N_WORDS) own_words[t] = load(words + t);
        }
        __syncthreads();
        if (leads && t == 0) {
            decide(f, command);
            const i64 now = clock64();
            const bool apart = own_words[STEP] == PLANT && 2 * (ends - now) < cycles;
            bool late = now > ends;
            if (now > ask) {
                ask = now + between;
                late = late || *(volatile const i64*)host;
            }
            stop = (late || apart) && own_words[STEP] != LEAVE;
            if (stop) own_words[WHY] = own_words[STEP] == PLANT ? BETWEEN : YIELD;
        }
        __syncthreads();
    }
    if (leads && gridDim.x == 1 && t < N_WORDS) words[t] = own_words[t];
}
