// Evaluations of many rows, for their lists. Comes after kernels_rows.cu and its macros.
//
// An evaluation takes two kernels. bigsap_tiles goes through all pairs of a batch of rows
// and keeps the smallest c - v of every *group* of SPAN columns, which one thread sees
// (256 columns apart, so that loads are coalesced and near columns lie in different
// groups). bigsap_select, a block a row, finds a number below which k + 1 group minima lie,
// opens only the groups that reach below it, and sorts what it finds there.

// Group minima of a batch: lows (n_rows, n_groups), rounded down to float. Group
// chunk * SIDE + thread holds the columns chunk * SIDE * SPAN + s * SIDE + thread.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_tiles(
    const i64* cost_words, int n_columns, const int* rows, int n_rows, const PRICE* reference,
    const PRICE* v, const PRICE* open_price, int n_groups, float* lows, PRICE* free_low,
    int* free_column
) {
    const Costs costs = load_costs(cost_words);
    const int chunk = blockIdx.x, first = blockIdx.y * ROWS;
    Row row[ROWS];
    PRICE base[ROWS], low[ROWS];
#if WITH_FREE
    PRICE best[ROWS];
    int place[ROWS];
#endif
    #pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int p = first + r < n_rows ? first + r : n_rows - 1;
        row[r] = open_row(costs, rows[p]);
        base[r] = reference[p];
        low[r] = INFINITE;
#if WITH_FREE
        best[r] = INFINITE;
        place[r] = -1;
#endif
    }
    const int start = chunk * SIDE * SPAN + threadIdx.x;
    #pragma unroll 2
    for (int s = 0; s < SPAN; s++) {
        const int j = start + s * SIDE;
        if (j >= n_columns) break;
        const PRICE price = v[j];
#if WITH_FREE
        const PRICE offered = open_price[j];
#endif
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            PRICE x = signed_cost(cost_at(costs, row[r], j)) - base[r];
            PRICE g = x - price;
            low[r] = g < low[r] ? g : low[r];
#if WITH_FREE
            PRICE f = x - offered;
            if (f < best[r]) best[r] = f, place[r] = j;
#endif
        }
    }
    #pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (first + r < n_rows)
            lows[(i64)(first + r) * n_groups + chunk * SIDE + threadIdx.x] = rounded_down(low[r]);
    }
#if WITH_FREE
    // The smallest over the block, the first column of equals.
    __shared__ u64 keys[SIDE];
    __shared__ int places[SIDE];
    for (int r = 0; r < ROWS; r++) {
        __syncthreads();
        keys[threadIdx.x] = place[r] < 0 ? ~0ULL : key_of(best[r]);
        places[threadIdx.x] = place[r];
        __syncthreads();
        for (int step = SIDE / 2; step; step >>= 1) {
            if (threadIdx.x < step) {
                u64 a = keys[threadIdx.x], b = keys[threadIdx.x + step];
                int x = places[threadIdx.x], y = places[threadIdx.x + step];
                if (b < a || (b == a && y < x)) {
                    keys[threadIdx.x] = b;
                    places[threadIdx.x] = y;
                }
            }
            __syncthreads();
        }
        if (threadIdx.x == 0 && first + r < n_rows) {
            i64 at = (i64)(first + r) * gridDim.x + chunk;
            free_low[at] = keys[0] == ~0ULL ? INFINITE : value_of(keys[0]);
            free_column[at] = places[0];
        }
    }
#endif
}

#if HALF_INNER
typedef float INNER;
#else
typedef double INNER;
#endif

// A number that is at most the signed cost. a, b: squared norms, or terms of the row and column. PHI:
// 0 squared distance, 1 distance, 2 half of the squared distance, 3 a + b - 2 product. gamma, lost: of the
// error, see products.py.
__device__ __forceinline__ PRICE bound_of_cost(
    double a, double b, double product, double gamma, double lost
) {
    const double sum = a + b, squared = sum - 2.0 * product;
    const double error = gamma * sum + lost;
    double bound = SIGN > 0 ? squared - error : squared + error;
#if PHI != 3
    bound = bound > 0.0 ? bound : 0.0;
#endif
#if PHI == 1
    bound = __dsqrt_rn(bound) * (SIGN > 0 ? 1.0 - 0x1p-50 : 1.0 + 0x1p-50);
#elif PHI == 2
    bound *= 0.5;
#endif
    return SIGN * (PRICE)bound;
}

#define ROOM 2048
#define HALF (ROOM / 2)
// Odd, so that multiplying scrambles ids one to one; and its inverse.
#define SCRAMBLE 0x9E3779B1u
#define UNSCRAMBLE 0x0E8B2F51u

struct Candidates {
    u64 key[ROOM];
    u32 id[ROOM];  // scrambled: ties at the boundary fall pseudo-randomly
    int count;
};

__device__ __forceinline__ void sort_candidates(Candidates& c) {
    int size = 32;
    while (size < c.count) size <<= 1;
    for (int k = c.count + threadIdx.x; k < size; k += SIDE) c.key[k] = ~0ULL, c.id[k] = ~0u;
    __syncthreads();
    for (int width = 2; width <= size; width <<= 1) {
        for (int step = width >> 1; step; step >>= 1) {
            for (int p = threadIdx.x; p < size / 2; p += SIDE) {
                int a = 2 * p - (p & (step - 1)), b = a + step;
                bool up = (a & width) == 0;
                u64 x = c.key[a], y = c.key[b];
                u32 i = c.id[a], j = c.id[b];
                bool later = x > y || (x == y && i > j);
                if (later == up) {
                    c.key[a] = y, c.key[b] = x;
                    c.id[a] = j, c.id[b] = i;
                }
            }
            __syncthreads();
        }
    }
}

__device__ __forceinline__ void add_candidate(Candidates& c, PRICE tau, int j, u32 salt, u64 cap) {
    if (!(tau < INFINITE)) return;
    const u64 key = key_of(tau);
    if (key > cap) return;
    const int at = atomicAdd(&c.count, 1);
    c.key[at] = key;
    c.id[at] = (u32)j * SCRAMBLE + salt;
}

// Keep the wanted smallest candidates, all with keys up to the cap.
__device__ __forceinline__ void keep_best(Candidates& c, int wanted, u64& cap) {
    sort_candidates(c);
    if (c.key[wanted - 1] < cap) cap = c.key[wanted - 1];
    __syncthreads();
    if (threadIdx.x == 0) c.count = wanted;
    __syncthreads();
}

// The lists of a batch: of row p at p * k of ids and costs, at most k entries; size, theta, how many costs
// were computed for it.
// lows is read only. slack: null, or how far each row's bounds may lie below its costs
// (bigsap_product_tiles); free_low are bounds then, free_column is not used, and products, norms
// and gamma are those of that kernel. names: the rows' own ids, on which ties rest, wherever their
// costs lie at the moment.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_select(
    const i64* cost_words, int n_columns, const int* rows, const int* names, int n_rows,
    const PRICE* reference,
    const PRICE* v, const PRICE* open_price, int n_groups, const float* lows, const PRICE* slack,
    const INNER* products, const double* row_norms, const double* column_norms, double gamma,
    double lost, int n_chunks, const PRICE* free_low, const int* free_column, int k, u32 seed, int* ids, PRICE* list_costs,
    int* sizes, PRICE* thetas, u64* n_opened
) {
    extern __shared__ u32 group_bits[];  // n_groups, then a list of opened groups
    __shared__ Candidates found;
    __shared__ u32 histogram[256];
    __shared__ u32 prefix, below;
    __shared__ int n_list, enough;
    __shared__ int waiting[ROOM], n_waiting;  // columns whose bounds do not exclude them
    int* list = (int*)(group_bits + n_groups);
    const Costs costs = load_costs(cost_words);
    const int p = blockIdx.x, i = rows[p];
    const Row row = open_row(costs, i);
    const PRICE base = reference[p];
    const double norm = slack ? row_norms[i] : 0.0;
    const INNER* inner = products + (slack ? (i64)p * n_columns : 0);
    const int wanted = k + 1;
    for (int g = threadIdx.x; g < n_groups; g += SIDE)
        group_bits[g] = bits_of(lows[(i64)p * n_groups + g]);
    if (threadIdx.x == 0) {
        prefix = below = 0;
        enough = 0;
        found.count = 0;
        n_list = n_waiting = 0;
    }
    __syncthreads();
    // The wanted-th smallest group minimum, digit by digit, until the last digit's groups
    // are not many more than wanted.
    u32 limit = ~0u;
    const u32 infinite = bits_of(__int_as_float(0x7f800000));
    if (n_groups >= wanted) {
        for (int shift = 24; shift >= 0; shift -= 8) {
            histogram[threadIdx.x] = 0;
            __syncthreads();
            const u32 mask = shift == 24 ? 0u : ~0u << (shift + 8);
            for (int g = threadIdx.x; g < n_groups; g += SIDE) {
                u32 bits = group_bits[g];
                if ((bits & mask) == prefix) atomicAdd(&histogram[(bits >> shift) & 255], 1u);
            }
            __syncthreads();
            if (threadIdx.x < 32) {
                // Each lane sums eight digits; lanes are summed by the warp.
                u32 mine = 0;
                for (int d = 0; d < 8; d++) mine += histogram[threadIdx.x * 8 + d];
                u32 upto = mine;
                for (int step = 1; step < 32; step <<= 1) {
                    u32 other = __shfl_up_sync(~0u, upto, step);
                    if (threadIdx.x >= step) upto += other;
                }
                u32 before = below + upto - mine;
                bool here = before < (u32)wanted && before + mine >= (u32)wanted;
                if (here) {
                    for (int d = 0; d < 8; d++) {
                        u32 count = histogram[threadIdx.x * 8 + d];
                        if (before + count >= (u32)wanted) {
                            prefix |= (threadIdx.x * 8 + d) << shift;
                            below = before;
                            enough = before + count <= (u32)wanted + 32;
                            break;
                        }
                        before += count;
                    }
                }
            }
            __syncthreads();
            limit = prefix | (shift ? ~0u >> (32 - shift) : 0u);
            bool stop = enough;
            __syncthreads();
            if (stop) break;
        }
        // Minima were rounded down: the true ones lie below the next float.
        if (limit < infinite) limit += 1;
#if !PRICE_IS_INT
        // So many true minima lie below the limit and the slack.
        if (slack && limit < infinite) {
            u32 bits = limit ^ ((limit >> 31) ? 0x80000000u : ~0u);
            limit = bits_of(-__double2float_rd(-((PRICE)__uint_as_float(bits) + slack[p])));
        }
#endif
    }
    // The cap in prices: the float whose bits are limit.
    u64 cap = ~0ULL;
    if (limit < infinite) {
        u32 bits = limit ^ ((limit >> 31) ? 0x80000000u : ~0u);
#if PRICE_IS_INT
        // A float beyond the range of labels is no bound.
        float bound = __uint_as_float(bits);
        if (bound < 1.0e18f && bound > -1.0e18f) cap = key_of((PRICE)__float2ll_ru(bound));
#else
        cap = key_of((PRICE)__uint_as_float(bits));
#endif
    }
    const u32 salt = (u32)names[p] * 0x85EBCA6Bu + seed;
    int next_group = 0;
    u64 opened = 0;
    while (next_group < n_groups) {
        // Fill the list of groups to open.
        __syncthreads();
        if (threadIdx.x == 0) n_list = 0;
        __syncthreads();
        while (next_group < n_groups && n_list <= 1024 - SIDE) {
            int g = next_group + threadIdx.x;
            __syncthreads();
            if (g < n_groups && group_bits[g] <= limit && group_bits[g] < infinite)
                list[atomicAdd(&n_list, 1)] = g;
            next_group += SIDE;
            __syncthreads();
        }
        const int total = n_list * SPAN;
        if (!slack) opened += total;
        for (int from = 0; from < total; from += HALF) {
            #pragma unroll
            for (int q = 0; q < HALF / SIDE; q++) {
                int e = from + q * SIDE + threadIdx.x;
                if (e >= total) break;
                int g = list[e / SPAN];
                int j = (g / SIDE) * (SIDE * SPAN) + (e % SPAN) * SIDE + g % SIDE;
                if (j >= n_columns) continue;
                if (slack) {
                    const PRICE bound = bound_of_cost(norm, column_norms[j], inner[j], gamma, lost) - base;
                    if (bits_of(rounded_down(bound - v[j])) <= limit) waiting[atomicAdd(&n_waiting, 1)] = j;
                } else {
                    add_candidate(found, signed_cost(cost_at(costs, row, j)) - base - v[j], j, salt, cap);
                }
            }
            __syncthreads();
            // All read the counts before anybody adds to them again.
            const int n = n_waiting;
            const bool full = found.count > HALF;
            __syncthreads();
            if (full) keep_best(found, wanted, cap);
            if (n <= HALF && from + HALF < total) continue;
            // A cost takes many times longer than its bound: those that remain are computed by whole warps.
            opened += n;
            for (int first = 0; first < n; first += SIDE) {
                const int e = first + threadIdx.x;
                if (e < n) {
                    const int j = waiting[e];
                    add_candidate(found, signed_cost(cost_at(costs, row, j)) - base - v[j], j, salt, cap);
                }
                __syncthreads();
                const bool filled = found.count > HALF;
                __syncthreads();
                if (filled) keep_best(found, wanted, cap);
            }
            if (threadIdx.x == 0) n_waiting = 0;
            __syncthreads();
        }
    }
    sort_candidates(found);
    const int count = found.count < k ? found.count : k;
    PRICE theta = found.count > k ? value_of(found.key[k]) : INFINITE;
    int last = -1;  // column that takes the last place instead of its owner
#if WITH_FREE
    PRICE best = INFINITE;
    int column = -1;
    for (int chunk = 0; chunk < n_chunks; chunk++) {
        PRICE f = free_low[(i64)p * n_chunks + chunk];
        if (f < best) best = f, column = slack ? -1 : free_column[(i64)p * n_chunks + chunk];
    }
    if (slack && best < INFINITE) {
        // Which is the best: by the costs themselves, where the bounds leave it open.
        __shared__ u64 free_key;
        __shared__ int free_at;
        const PRICE reach = best + slack[p];
        PRICE mine = INFINITE;
        int at = n_columns;
        for (int chunk = 0; chunk < n_chunks; chunk++) {
            if (free_low[(i64)p * n_chunks + chunk] > reach) continue;
            for (int s = 0; s < SPAN; s++) {
                const int j = chunk * SIDE * SPAN + s * SIDE + threadIdx.x;
                if (j >= n_columns) break;
                const PRICE bound = bound_of_cost(norm, column_norms[j], inner[j], gamma, lost) - base;
                if (bound - open_price[j] > reach) continue;
                const PRICE f = signed_cost(cost_at(costs, row, j)) - base - open_price[j];
                if (f < mine) mine = f, at = j;
            }
        }
        if (threadIdx.x == 0) free_key = ~0ULL, free_at = n_columns;
        __syncthreads();
        if (mine < INFINITE) atomicMin((unsigned long long*)&free_key, key_of(mine));
        __syncthreads();
        if (mine < INFINITE && key_of(mine) == free_key) atomicMin(&free_at, at);
        __syncthreads();
        column = free_at < n_columns ? free_at : -1;
    }
    if (column >= 0 && count > 0) {
        __shared__ int listed;
        if (threadIdx.x == 0) listed = 0;
        __syncthreads();
        for (int e = threadIdx.x; e < count; e += SIDE)
            if ((found.id[e] - salt) * UNSCRAMBLE == (u32)column) listed = 1;
        __syncthreads();
        if (!listed) {
            last = column;
            PRICE worst = value_of(found.key[count - 1]);
            theta = worst < theta ? worst : theta;
        }
    }
#endif
    for (int e = threadIdx.x; e < count; e += SIDE) {
        int j = (int)((found.id[e] - salt) * UNSCRAMBLE);
        if (e == count - 1 && last >= 0) j = last;
        ids[(i64)p * k + e] = j;
        list_costs[(i64)p * k + e] = signed_cost(cost_at(costs, row, j)) - base;
    }
    if (threadIdx.x == 0) {
        sizes[p] = count;
        thetas[p] = theta;
        n_opened[p] = opened;
    }
}
