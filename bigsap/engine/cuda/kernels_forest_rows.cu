// The readings of the costs for the Hungarian method on a device: their unit, the rows' ends, the
// columns' first prices, the rows' lists. kernels_forest.cu grows trees on these.
//
// Costs become whole numbers of a unit: their own where they are integers, else SHIFT is
// such that all are multiples of 2**-SHIFT. Costs are never written.
//
// Macros set by the host: KEEP (entries of a list, at most 32), SIDE (threads), REAL, SHIFT, SIGN;
// types and functions of the costs come before.

#define ALL_LANES 0xffffffffu
#define RANGE (1u << 29)  // of costs that all below is made for
#define NEVER 0x7fffffff
#define FAR (NEVER - 1)
#define CANDIDATES 1024

#if REAL
// Exact: a product with a power of two is, and the host has seen that it is whole.
__device__ __forceinline__ i64 signed_cost(COST_T c) {
    return (i64)SIGN * (i64)((double)c * __longlong_as_double((i64)(1023 + SHIFT) << 52));
}
#else
__device__ __forceinline__ i64 signed_cost(COST_T c) { return (i64)SIGN * (i64)c; }
#endif

// Of real costs. ends[0]: the exponent of the lowest bit set in any cost; ends[1]: one beyond that of the highest,
// or NO_NUMBER where a cost is infinite or no number.
#define NO_NUMBER 5000
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_unit(
    const i64* cost_words, int n_rows, int n_columns, int* ends
) {
    const Costs costs = load_costs(cost_words);
    int low = NO_NUMBER, high = -NO_NUMBER;
    for (int i = blockIdx.x; i < n_rows; i += gridDim.x) {
        const Row row = open_row(costs, i);
        #pragma unroll 4
        for (int j = threadIdx.x; j < n_columns; j += SIDE) {
            const u64 bits = (u64)__double_as_longlong((double)cost_at(costs, row, j));
            const int power = (int)(bits >> 52) & 0x7ff;
            u64 digits = bits & 0xfffffffffffffULL;
            if (power) digits |= 1ULL << 52;
            if (!digits) continue;
            const int first = (power ? power : 1) - 1075;
            const int lowest = first + __ffsll((i64)digits) - 1;
            const int highest = power == 0x7ff ? NO_NUMBER : first + 53;
            low = lowest < low ? lowest : low;
            high = highest > high ? highest : high;
        }
    }
    atomicMin(ends, low);
    atomicMax(ends + 1, high);
}

// Also begins v: prices that bigsap_column_least lowers, or 0 where they are final.
// low: each row's smallest signed cost; ends: the smallest and the largest of all.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_row_ends(
    const i64* cost_words, int n_rows, int n_columns, i64* low_out, i64* ends, int first_price,
    int* v
) {
    __shared__ i64 lows[SIDE], highs[SIDE];
    const Costs costs = load_costs(cost_words);
    const int t = threadIdx.x;
    for (int j = blockIdx.x * SIDE + t; j < n_columns; j += gridDim.x * SIDE) v[j] = first_price;
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

// Whether costs of these ends are too far apart: the host asks when all launches are on their way.
__device__ __forceinline__ bool too_far(const i64* ends) {
    return (u64)ends[1] - (u64)ends[0] >= RANGE;
}

// v: lowered to the least of c - low over a strip of rows, a thread WIDTH columns.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_column_least(
    const i64* cost_words, int n_rows, int n_columns, const i64* ends, int strip, const i64* low,
    int* v
) {
    if (too_far(ends)) return;
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
// below it. u: the smallest c - low - v. first_row: the number of the first of these rows.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_short_lists(
    const i64* cost_words, int n_rows, int n_columns, const i64* ends, int first_row,
    const i64* low_of_row, const int* v, int* ids, int* list_costs, int* sizes, int* theta_out,
    int* u_out
) {
    __shared__ int least[SIDE];
    __shared__ u64 found[CANDIDATES];
    __shared__ int found_cost[CANDIDATES];
    __shared__ int bound, count, low;
    if (too_far(ends)) return;
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
        const u32 spread = (u32)((u64)(first_row + i + 1) * 0x9E3779B97F4A7C15ULL >> 33);
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
