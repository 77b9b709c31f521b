// The Hungarian method with one clock (bigsap/engine/hungarian/forest.py) in one persistent launch.
//
// For whole numbers whose range fits 29 bits: times are 31 bits, and a claim is one 64-bit minimum
// of (time, row), which makes it independent of who comes first. Costs are read three times, by
// bigsap_row_ends, bigsap_column_least and bigsap_short_lists, and never written.
//
// Block 0 leads. What is short it does alone, with block barriers; for what is wide it names a
// command, and all blocks of the grid do their share between two grid barriers. What other
// blocks may have written is read past the first-level cache (__ldcg).
//
// Macros set by the host: KEEP (entries of a list, at most 32), SIDE, TEAM (threads), WIDE (items
// from which all blocks work), SIGN; types and functions of the costs come before.

#define ALL_LANES 0xffffffffu
#define NEVER 0x7fffffff
#define FAR (NEVER - 1)
#define NO_KEY 0xffffffffffffffffULL
#define CANDIDATES 1024

__device__ __forceinline__ i64 signed_cost(COST_T c) { return (i64)SIGN * (i64)c; }

// low: each row's smallest signed cost; ends: the smallest and the largest of all.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_row_ends(
    const i64* cost_words, int n_rows, int n_columns, i64* low_out, i64* ends
) {
    __shared__ i64 lows[SIDE], highs[SIDE];
    const Costs costs = load_costs(cost_words);
    const int t = threadIdx.x;
    for (int i = blockIdx.x; i < n_rows; i += gridDim.x) {
        const Row row = open_row(costs, i);
        i64 low = 0x7fffffffffffffffLL, high = -low;
        #pragma unroll 4
        for (int j = t * WIDTH; j < n_columns; j += SIDE * WIDTH) {
            COST_T c[WIDTH];
            cost_vector<WIDTH>(costs, row, j, c);
            #pragma unroll
            for (int k = 0; k < WIDTH; k++) {
                const i64 x = signed_cost(c[k]);
                low = x < low ? x : low;
                high = x > high ? x : high;
            }
        }
        lows[t] = low, highs[t] = high;
        __syncthreads();
        for (int step = SIDE / 2; step; step >>= 1) {
            if (t < step) {
                lows[t] = lows[t + step] < lows[t] ? lows[t + step] : lows[t];
                highs[t] = highs[t + step] > highs[t] ? highs[t + step] : highs[t];
            }
            __syncthreads();
        }
        if (t == 0) {
            low_out[i] = lows[0];
            atomicMin(ends, lows[0]);
            atomicMax(ends + 1, highs[0]);
        }
        __syncthreads();
    }
}

// v: lowered to the least of c - low over a strip of rows, a thread WIDTH columns.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_column_least(
    const i64* cost_words, int n_rows, int n_columns, int strip, const i64* low, int* v
) {
    const Costs costs = load_costs(cost_words);
    const int j = (blockIdx.x * SIDE + (int)threadIdx.x) * WIDTH;
    if (j >= n_columns) return;
    int least[WIDTH];
    #pragma unroll
    for (int k = 0; k < WIDTH; k++) least[k] = NEVER;
    const int first = blockIdx.y * strip, last = first + strip < n_rows ? first + strip : n_rows;
    #pragma unroll 4
    for (int i = first; i < last; i++) {
        COST_T c[WIDTH];
        cost_vector<WIDTH>(costs, open_row(costs, i), j, c);
        const i64 own = __ldg(low + i);
        #pragma unroll
        for (int k = 0; k < WIDTH; k++) {
            const int g = (int)(signed_cost(c[k]) - own);
            least[k] = g < least[k] ? g : least[k];
        }
    }
    #pragma unroll
    for (int k = 0; k < WIDTH; k++) atomicMin(v + j + k, least[k]);
}

// The KEEP columns of smallest c - v of a row, ascending, ties from a place on that the row's
// number decides; a block a row. costs: less the row's low. theta: no other column has c - low - v
// below it. u: the smallest c - low - v.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_short_lists(
    const i64* cost_words, int n_rows, int n_columns, const i64* low_of_row, const int* v,
    int* ids, int* list_costs, int* sizes, int* theta_out, int* u_out
) {
    __shared__ int least[SIDE];
    __shared__ u64 found[CANDIDATES];
    __shared__ int found_cost[CANDIDATES];
    __shared__ int bound, count, low;
    const Costs costs = load_costs(cost_words);
    const int t = threadIdx.x;
    for (int i = blockIdx.x; i < n_rows; i += gridDim.x) {
        const Row row = open_row(costs, i);
        const i64 own = low_of_row[i];
        int mine = NEVER;
        #pragma unroll 4
        for (int j = t * WIDTH; j < n_columns; j += SIDE * WIDTH) {
            COST_T c[WIDTH];
            cost_vector<WIDTH>(costs, row, j, c);
            #pragma unroll
            for (int k = 0; k < WIDTH; k++) {
                const int g = (int)(signed_cost(c[k]) - own) - v[j + k];
                mine = g < mine ? g : mine;
            }
        }
        least[t] = mine;
        if (t == 0) bound = FAR, count = 0;
        __syncthreads();
        int rank = 0;  // KEEP smallest minima are as many columns that are no larger
        for (int k = 0; k < SIDE; k++)
            rank += least[k] < mine || (least[k] == mine && k < t) ? 1 : 0;
        if (rank == KEEP - 1 && mine < FAR) bound = mine;
        if (rank == 0) low = mine;
        __syncthreads();
        int limit = bound;
        const u32 spread = (u32)((u64)(i + 1) * 0x9E3779B97F4A7C15ULL >> 33);
        const int offset = (int)(spread % (u32)n_columns);
        // Where ties are too many: as far down as there is room for all. Halves a range of int.
        int under = low - 1, over = limit;
        for (bool whole = true;; whole = false) {
            if (!whole) {
                if (over - under <= 1) {
                    limit = under;
                } else {
                    limit = under + (over - under) / 2;
                }
                if (t == 0) count = 0;
                __syncthreads();
            }
            if (limit < low) break;
            for (int j = t; j < n_columns; j += SIDE) {
                const int c = (int)(signed_cost(cost_at(costs, row, j)) - own);
                const int g = c - v[j];
                if (g > limit) continue;
                const int place = atomicAdd(&count, 1);
                if (place >= CANDIDATES) continue;
                const int turn = j >= offset ? j - offset : j - offset + n_columns;
                found[place] = (u64)(u32)(g - low) << 32 | (u32)turn;
                found_cost[place] = c;
            }
            __syncthreads();
            const int all = count;
            __syncthreads();
            if (all <= CANDIDATES && (whole || limit == under || over - under <= 1)) break;
            if (all <= CANDIDATES) under = limit;
            else over = limit;
        }
        const i64 begin = (i64)i * KEEP;
        if (limit >= low) {
            const int all = count, size = all < KEEP ? all : KEEP;
            for (int p = t; p < all; p += SIDE) {
                const u64 own_key = found[p];
                int before = 0;
                for (int k = 0; k < all; k++) before += found[k] < own_key ? 1 : 0;
                if (before < KEEP) {
                    const int turn = (int)(u32)own_key + offset;
                    ids[begin + before] = turn >= n_columns ? turn - n_columns : turn;
                    list_costs[begin + before] = found_cost[p];
                }
                if (before == KEEP) theta_out[i] = low + (int)(own_key >> 32);
            }
            if (t == 0) {
                sizes[i] = size;
                if (all <= KEEP) theta_out[i] = all == n_columns ? NEVER : limit + 1;
            }
        } else if (t < 32) {
            int size = 0;
            for (int first = 0; first < n_columns && size < KEEP; first += 32) {
                int j = first + t + offset;
                j -= j >= n_columns ? n_columns : 0;
                int c = 0;
                bool hit = first + t < n_columns;
                if (hit) {
                    c = (int)(signed_cost(cost_at(costs, row, j)) - own);
                    hit = c - v[j] == low;
                }
                const u32 hits = __ballot_sync(ALL_LANES, hit);
                const int place = size + __popc(hits & ((1u << t) - 1));
                if (hit && place < KEEP) ids[begin + place] = j, list_costs[begin + place] = c;
                size += __popc(hits);
            }
            if (t == 0) sizes[i] = size < KEEP ? size : KEEP, theta_out[i] = low;
        }
        if (t == 0) u_out[i] = low;
        __syncthreads();
    }
}

// Words of the forest.
#define N_ROWS 0
#define N_COLUMNS 1
#define N_TOUCHED 2
#define N_TIGHT 3
#define N_FRONTIER 4
#define N_NEXT 5
#define N_LEAVES 6
#define N_KEPT 7        // columns that stay, while trees are dismissed
#define N_WAITING 8     // rows that want a star
#define N_OFFERS 9
#define COMMAND 10
#define STEP 11
#define NOW 12
#define NEXT_TIME 13
#define FIRST_END 14
#define LEFT 15
#define TURN 16         // which of two buffers is the present one: frontier, columns
#define STAR_TURN 17
#define SINGLE 18
#define STAGES 19
#define PATHS 20
#define LEVELS 21
#define CLOCKS 22
#define EXPANSIONS 23
#define EVENTS 24
#define ROOTS 25
#define MARK 26
#define MARK_LEFT 27
#define WHY 28
#define BROKEN_PATH 29
#define BARRIER 64  // in a line of its own: all blocks but the first wait by reading it

// Steps, commands, and why a launch has ended.
#define PLANTED 1
#define EXPAND 2
#define TAKE 3
#define ADVANCE 4
#define OFFER 5
#define ACCEPT 6
#define PLANT 7
#define DISMISS 8
#define RESET 9
#define LEAST 10
#define COLLECT 11
#define UPROOT 12
#define LEAVE 13

#define DONE 0
#define YIELD 1
#define EVENT 2
#define INFEASIBLE 3
#define LIMIT 4
#define BROKEN 5
#define TOO_FAR 6

struct Trees {
    u64* key;
    int *words, *u, *since, *root, *leaf, *rows, *rows_other, *frontier, *frontier_other, *roots;
    int *column_of_row, *v, *at, *pred, *touched, *tight, *columns, *columns_other, *row_of_column;
    int *offer, *wish;
    const int *ids, *costs, *sizes, *theta;
    int n, m;
    u32 passed;
};

__device__ __forceinline__ int word(const Trees& f, int k) { return __ldcg(f.words + k); }
__device__ __forceinline__ int claim(const Trees& f, int k) { return atomicAdd(f.words + k, 1); }

__device__ __forceinline__ int* front(const Trees& f, int other) {
    return (word(f, TURN) ^ other) & 1 ? f.frontier_other : f.frontier;
}
__device__ __forceinline__ int* reached(const Trees& f, int other) {
    return (word(f, STAR_TURN) ^ other) & 1 ? f.columns_other : f.columns;
}
__device__ __forceinline__ int* living(const Trees& f, int other) {
    return (word(f, STAR_TURN) ^ other) & 1 ? f.rows_other : f.rows;
}

// All blocks are resident (cooperative launch), so waiting ends.
__device__ __forceinline__ void meet(Trees& f) {
    f.passed += 1;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd((u32*)f.words + BARRIER, 1u);
        while (*(volatile u32*)(f.words + BARRIER) < f.passed * gridDim.x) __nanosleep(40);
        __threadfence();
    }
    __syncthreads();
}

__device__ __forceinline__ void expand(const Trees& f, int item, int items) {
    const int lane = item & 31, now = word(f, NOW), count = word(f, N_FRONTIER);
    const int* frontier = front(f, 0);
    for (int p = item >> 5; p < count; p += items >> 5) {
        const int row = __ldcg(frontier + p);
        // Trees that have a free column grow no further: they are dismissed with this stage.
        if (__ldcg(f.leaf + __ldcg(f.root + row)) < f.m) continue;
        if (lane == 0) claim(f, EXPANSIONS);
        if (lane >= f.sizes[row]) continue;
        const int j = f.ids[(i64)row * KEEP + lane], c = f.costs[(i64)row * KEEP + lane];
        const u64 seen = __ldcg(f.key + j);
        i64 t = (i64)c - __ldcg(f.v + j) - __ldcg(f.u + row) + __ldcg(f.since + row);
        t = t < now ? now : t > FAR ? FAR : t;
        const u64 mine = (u64)t << 32 | (u32)row;
        if (mine >= seen) continue;
        const u64 old = atomicMin(f.key + j, mine);
        if (mine >= old) continue;
        if (old == NO_KEY) f.touched[claim(f, N_TOUCHED)] = j;
        if (t == now && (i64)(old >> 32) > now) f.tight[claim(f, N_TIGHT)] = j;
    }
}

__device__ __forceinline__ void take(const Trees& f, int item, int items) {
    const int now = word(f, NOW), count = word(f, N_TIGHT);
    int *next = front(f, 1), *columns = reached(f, 0), *rows = living(f, 0);
    for (int p = item; p < count; p += items) {
        const int j = __ldcg(f.tight + p);
        const int by = (int)(u32)__ldcg(f.key + j);
        f.pred[j] = by;
        f.key[j] = 0;  // no claim is smaller
        f.at[j] = now;
        columns[claim(f, N_COLUMNS)] = j;
        const int root = __ldcg(f.root + by), row = __ldcg(f.row_of_column + j);
        if (row < 0) {
            if (atomicMin(f.leaf + root, j) == f.m) f.roots[claim(f, N_LEAVES)] = root;
            continue;
        }
        f.root[row] = root;
        f.since[row] = now;
        rows[claim(f, N_ROWS)] = row;
        next[claim(f, N_NEXT)] = row;
    }
}

// Augment, and dismiss the trees of these paths; what lives is the next frontier.
__device__ __forceinline__ void dismiss(const Trees& f, int item, int items) {
    const int now = word(f, NOW), n_leaves = word(f, N_LEAVES), n_rows = word(f, N_ROWS);
    const int n_columns = word(f, N_COLUMNS), n_touched = word(f, N_TOUCHED);
    const int *columns = reached(f, 0), *rows = living(f, 0);
    int *columns_kept = reached(f, 1), *rows_kept = living(f, 1), *next = front(f, 1);
    for (int p = item; p < n_leaves; p += items) {
        const int root = __ldcg(f.roots + p);
        int j = __ldcg(f.leaf + root);
        for (int steps = 0;; steps++) {
            const int row = __ldcg(f.pred + j), before = __ldcg(f.column_of_row + row);
            f.column_of_row[row] = j;
            f.row_of_column[j] = row;
            if (row == root) break;
            j = before;
            if (steps > f.n || j < 0) {  // a path has no more rows than there are
                f.words[BROKEN_PATH] = 1;
                break;
            }
        }
    }
    for (int p = item; p < n_columns; p += items) {
        const int j = __ldcg(columns + p);
        if (__ldcg(f.leaf + __ldcg(f.root + __ldcg(f.pred + j))) < f.m) {
            f.v[j] = __ldcg(f.v + j) - (now - __ldcg(f.at + j));
            f.key[j] = NO_KEY;
        } else {
            columns_kept[claim(f, N_KEPT)] = j;
        }
    }
    for (int p = item; p < n_rows; p += items) {
        const int row = __ldcg(rows + p);
        if (__ldcg(f.leaf + __ldcg(f.root + row)) < f.m) {
            f.u[row] = __ldcg(f.u + row) + (now - __ldcg(f.since + row));
        } else {
            const int place = claim(f, N_NEXT);
            rows_kept[place] = row;
            next[place] = row;
        }
    }
    for (int p = item; p < n_touched; p += items) {
        const int j = __ldcg(f.touched + p);
        if (__ldcg(f.key + j) != 0) f.key[j] = NO_KEY;
    }
}

__device__ __forceinline__ void least_time(const Trees& f, int item, int items) {
    const int n_touched = word(f, N_TOUCHED), n_rows = word(f, N_ROWS);
    const int* rows = living(f, 0);
    int time = NEVER, end = NEVER;
    for (int p = item; p < n_touched; p += items) {
        const u64 key = __ldcg(f.key + __ldcg(f.touched + p));
        const int t = key ? (int)(key >> 32) : NEVER;
        time = t < time ? t : time;
    }
    for (int p = item; p < n_rows; p += items) {
        const int row = __ldcg(rows + p), theta = f.theta[row];
        if (theta == NEVER) continue;
        const i64 t = (i64)theta - __ldcg(f.u + row) + __ldcg(f.since + row);
        const int ends = t > FAR ? FAR : (int)t;
        end = ends < end ? ends : end;
    }
    #pragma unroll
    for (int step = 16; step; step >>= 1) {
        const int a = __shfl_xor_sync(ALL_LANES, time, step);
        const int b = __shfl_xor_sync(ALL_LANES, end, step);
        time = a < time ? a : time;
        end = b < end ? b : end;
    }
    if ((threadIdx.x & 31) == 0) {
        if (time < NEVER) atomicMin(f.words + NEXT_TIME, time);
        if (end < NEVER) atomicMin(f.words + FIRST_END, end);
    }
}

__device__ __forceinline__ void collect(const Trees& f, int item, int items) {
    const int now = word(f, NOW), n_touched = word(f, N_TOUCHED);
    for (int p = item; p < n_touched; p += items) {
        const int j = __ldcg(f.touched + p);
        const u64 key = __ldcg(f.key + j);
        if (key && (int)(key >> 32) <= now) f.tight[claim(f, N_TIGHT)] = j;
    }
}

// First stars, in rounds: rows offer themselves, columns take the smallest. See forest.star.
__device__ __forceinline__ void offer(const Trees& f, int item, int items) {
    const int lane = item & 31, count = word(f, N_WAITING), single = word(f, SINGLE);
    const int* waiting = living(f, 0);
    for (int p = item >> 5; p < count; p += items >> 5) {
        const int row = __ldcg(waiting + p), size = f.sizes[row];
        int j = -1;
        bool hit = false;
        if (lane < size) {
            j = f.ids[(i64)row * KEEP + lane];
            hit = f.costs[(i64)row * KEEP + lane] - __ldcg(f.v + j) == __ldcg(f.u + row)
                && __ldcg(f.row_of_column + j) < 0;
        }
        const u32 hits = __ballot_sync(ALL_LANES, hit);
        const int choice = __ffs(hits) - 1;  // zeros are sorted from the row's place on
        const bool offers = hits && (!single || __popc(hits) == 1);
        if (lane == 0) f.wish[row] = hits ? -1 : -2;
        __syncwarp();
        if (offers && lane == choice) {
            f.wish[row] = j;
            atomicMin(f.offer + j, row);
            claim(f, N_OFFERS);
        }
    }
}

__device__ __forceinline__ void accept(const Trees& f, int item, int items) {
    const int count = word(f, N_WAITING);
    const int* waiting = living(f, 0);
    int* still = living(f, 1);
    for (int p = item; p < count; p += items) {
        const int row = __ldcg(waiting + p), j = __ldcg(f.wish + row);
        if (j == -2) continue;  // no free zero is left, nor will one come
        if (j >= 0 && __ldcg(f.offer + j) == row) {
            f.column_of_row[row] = j;
            f.row_of_column[j] = row;
        } else {
            still[claim(f, N_NEXT)] = row;
        }
    }
}

__device__ __forceinline__ void plant(const Trees& f, int item, int items) {
    int *rows = living(f, 0), *frontier = front(f, 0);
    for (int row = item; row < f.n; row += items) {
        f.leaf[row] = f.m;
        f.since[row] = 0;
        if (__ldcg(f.column_of_row + row) >= 0) continue;
        f.root[row] = row;
        const int place = claim(f, N_ROWS);
        rows[place] = row;
        frontier[place] = row;
    }
}

__device__ __forceinline__ void uproot(const Trees& f, int item, int items) {
    const int now = word(f, NOW), n_rows = word(f, N_ROWS), n_columns = word(f, N_COLUMNS);
    const int *columns = reached(f, 0), *rows = living(f, 0);
    for (int p = item; p < n_columns; p += items) {
        const int j = __ldcg(columns + p);
        f.v[j] = __ldcg(f.v + j) - (now - __ldcg(f.at + j));
    }
    for (int p = item; p < n_rows; p += items) {
        const int row = __ldcg(rows + p);
        f.u[row] = __ldcg(f.u + row) + (now - __ldcg(f.since + row));
    }
}

__device__ __noinline__ void perform(const Trees& f, int command, int item, int items) {
    switch (command) {
        case EXPAND: expand(f, item, items); break;
        case TAKE: take(f, item, items); break;
        case DISMISS: dismiss(f, item, items); break;
        case RESET:
            for (int p = item; p < word(f, N_LEAVES); p += items) f.leaf[__ldcg(f.roots + p)] = f.m;
            break;
        case LEAST: least_time(f, item, items); break;
        case COLLECT: collect(f, item, items); break;
        case OFFER: offer(f, item, items); break;
        case ACCEPT: accept(f, item, items); break;
        case PLANT: plant(f, item, items); break;
        case UPROOT: uproot(f, item, items); break;
    }
}

// Block 0, all threads: a command, by all blocks if there are many items.
__device__ void order(Trees& f, int command, i64 count) {
    __syncthreads();
    if (count > WIDE && gridDim.x > 1) {
        if (threadIdx.x == 0) f.words[COMMAND] = command;
        meet(f);
        perform(f, command, threadIdx.x, gridDim.x * TEAM);
        meet(f);
    } else {
        perform(f, command, threadIdx.x, TEAM);
        __threadfence();
        __syncthreads();
    }
}

// Block 0: first stars. Every round but the last of its kind matches a row.
__device__ void first_stars(Trees& f) {
    for (;;) {
        const int count = word(f, N_WAITING);
        if (count == 0) return;
        order(f, OFFER, 32LL * count);
        const int offers = word(f, N_OFFERS), single = word(f, SINGLE);
        order(f, ACCEPT, count);
        const int left = word(f, N_NEXT);
        __syncthreads();
        if (threadIdx.x == 0) {
            f.words[N_WAITING] = left;
            f.words[N_NEXT] = f.words[N_OFFERS] = 0;
            f.words[STAR_TURN] ^= 1;
            f.words[SINGLE] = offers ? 1 : 0;
        }
        __threadfence();
        __syncthreads();
        if (!offers && !single) return;
    }
}

// Block 0: one step of forest.run_forest; false when the launch is to end, for the reason WHY.
__device__ bool one_step(Trees& f, int enough) {
    const bool leader = threadIdx.x == 0;
    const int step = word(f, STEP);
    __syncthreads();
    if (step == EXPAND) {
        const int left = word(f, LEFT), share = (word(f, MARK_LEFT) - left);
        const bool progress = (i64)share * 64 >= word(f, ROOTS);
        const bool hopeless = !progress && word(f, LEVELS) - word(f, MARK) > enough;
        __syncthreads();
        if (hopeless) {
            if (leader) f.words[WHY] = LIMIT;
            return false;
        }
        order(f, EXPAND, 32LL * word(f, N_FRONTIER));
        if (leader) {
            if (progress) f.words[MARK] = f.words[LEVELS], f.words[MARK_LEFT] = left;
            f.words[LEVELS] += 1;
            f.words[STEP] = word(f, N_TIGHT) || word(f, N_LEAVES) ? TAKE : ADVANCE;
        }
    } else if (step == TAKE) {
        order(f, TAKE, word(f, N_TIGHT));
        const int next = word(f, N_NEXT), leaves = word(f, N_LEAVES);
        __syncthreads();
        if (leader) {
            f.words[N_TIGHT] = 0;
            f.words[N_FRONTIER] = next;
            f.words[N_NEXT] = 0;
            f.words[TURN] ^= 1;
            f.words[STEP] = next ? EXPAND : ADVANCE;
        }
        __threadfence();
        __syncthreads();
        if (leaves && !next) {
            const int columns = word(f, N_COLUMNS), rows = word(f, N_ROWS);
            const int touched = word(f, N_TOUCHED);
            const int most = columns > touched ? columns : touched;
            order(f, DISMISS, most > rows ? most : rows);
            order(f, RESET, leaves);
            const int kept = word(f, N_KEPT), alive = word(f, N_NEXT);
            __syncthreads();
            if (leader) {
                f.words[STAGES] += 1;
                f.words[PATHS] += leaves;
                f.words[LEFT] -= leaves;
                f.words[N_COLUMNS] = kept;
                f.words[N_ROWS] = f.words[N_FRONTIER] = alive;
                f.words[N_KEPT] = f.words[N_NEXT] = f.words[N_TOUCHED] = f.words[N_LEAVES] = 0;
                f.words[TURN] ^= 1;
                f.words[STAR_TURN] ^= 1;
                f.words[STEP] = EXPAND;
                if (word(f, BROKEN_PATH)) f.words[WHY] = BROKEN;
            }
            __threadfence();
            __syncthreads();
            if (word(f, BROKEN_PATH)) return false;
        }
    } else {
        if (leader) f.words[NEXT_TIME] = f.words[FIRST_END] = NEVER;
        __threadfence();
        const int rows = word(f, N_ROWS), touched = word(f, N_TOUCHED);
        order(f, LEAST, rows > touched ? rows : touched);
        const int time = word(f, NEXT_TIME), end = word(f, FIRST_END), now = word(f, NOW);
        __syncthreads();
        const bool event = end <= now || end < time;
        const int least = time < end ? time : end;
        if (event || least >= FAR) {
            if (leader) f.words[WHY] = least == NEVER ? INFEASIBLE : least == FAR ? TOO_FAR : EVENT;
            return false;
        }
        if (leader) f.words[NOW] = time, f.words[CLOCKS] += 1;
        __threadfence();
        order(f, COLLECT, touched);
        if (leader) f.words[STEP] = TAKE;
    }
    __threadfence();
    __syncthreads();
    return true;
}

// Everything after the lists. room: int32, SPAN to each vector; key: u64 (n_columns,). cycles: the
// launch ends after so many; host[0]: the host's wish that it ends, looked at now and then.
extern "C" __global__ void __launch_bounds__(TEAM) bigsap_forest(
    int* words, int* room, u64* key, int span, int n_rows, int n_columns, const int* ids,
    const int* costs, const int* sizes, const int* theta, int* u, int* v, int* column_of_row,
    int* row_of_column, int enough, i64 cycles, const i64* host
) {
    Trees f;
    f.words = words, f.key = key, f.n = n_rows, f.m = n_columns, f.passed = 0;
    f.ids = ids, f.costs = costs, f.sizes = sizes, f.theta = theta, f.u = u, f.v = v;
    f.column_of_row = column_of_row, f.row_of_column = row_of_column;
    int* at = room;
    f.since = at, at += span;
    f.root = at, at += span;
    f.leaf = at, at += span;
    f.rows = at, at += span;
    f.rows_other = at, at += span;
    f.frontier = at, at += span;
    f.frontier_other = at, at += span;
    f.roots = at, at += span;
    f.at = at, at += span;
    f.pred = at, at += span;
    f.touched = at, at += span;
    f.tight = at, at += span;
    f.columns = at, at += span;
    f.columns_other = at, at += span;
    f.offer = at, at += span;
    f.wish = at, at += span;
    const int block = blockIdx.x;
    if (block > 0) {
        for (;;) {
            meet(f);
            const int command = word(f, COMMAND);
            if (command == LEAVE) return;
            perform(f, command, block * TEAM + threadIdx.x, gridDim.x * TEAM);
            meet(f);
        }
    }
    const i64 begun = clock64();
    i64 asked = begun;
    if (word(f, STEP) == 0) {
        first_stars(f);
        order(f, PLANT, n_rows);
        const int roots = word(f, N_ROWS);
        __syncthreads();
        if (threadIdx.x == 0) {
            f.words[N_FRONTIER] = f.words[LEFT] = f.words[ROOTS] = f.words[MARK_LEFT] = roots;
            f.words[STEP] = EXPAND;
        }
        __threadfence();
        __syncthreads();
    }
    __shared__ int stop;
    for (;;) {
        if (word(f, LEFT) == 0) {
            if (threadIdx.x == 0) f.words[WHY] = DONE;
            break;
        }
        if (threadIdx.x == 0) {
            const i64 now = clock64();
            stop = now - begun > cycles;
            if (now - asked > cycles / 200) {
                asked = now;
                stop = stop || *(volatile const i64*)host;
            }
        }
        __syncthreads();
        const bool leave = stop;
        __syncthreads();
        if (leave) {
            if (threadIdx.x == 0) f.words[WHY] = YIELD;
            break;
        }
        if (!one_step(f, enough)) break;
    }
    __threadfence();
    __syncthreads();
    if (word(f, WHY) != YIELD) {
        const int rows = word(f, N_ROWS), columns = word(f, N_COLUMNS);
        order(f, UPROOT, rows > columns ? rows : columns);
    }
    __syncthreads();
    if (gridDim.x > 1) {
        if (threadIdx.x == 0) f.words[COMMAND] = LEAVE;
        meet(f);
    }
}
