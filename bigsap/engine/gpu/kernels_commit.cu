// What searches of a round found, put into effect: claims, paths, prices. Comes after
// kernels_batch.cu and kernels_flood.cu; why it may be done is said in the former.
//
// In a phase with epsilon > 0 only the columns of a search's path are claimed (`strict` is 0): a
// price falls by the most that one of the searches asks for. Prices never rise, and pairs stay
// one to one: all that such a phase owes the next. Searches that share a region but end in
// different free columns then take effect together.

// A search's bid: the shorter, the better, so that many fit side by side.
__device__ __forceinline__ u64 bid_of(const int* mine, int block) {
    return ((u64)(mine[N_SETTLED] + 1) << 32) | (u32)block;
}

// The columns that a search claims, one after the other for each lane: with `strict` all settled
// ones, in any order, else those of its path; the free one is among them.
struct Claimed {
    const int *columns, *parents;
    int at, sink, strict;
    __device__ Claimed(
        const int* mine, const int* settled_columns, const int* settled_parents, int strict
    ) : columns(settled_columns), parents(settled_parents), sink(mine[SINK]), strict(strict) {
        at = strict ? mine[N_SETTLED] - 1 - (int)threadIdx.x
           : threadIdx.x == 0 ? mine[SINK_PARENT] : -1;
    }
    __device__ int next() {
        if (sink >= 0) {
            const int j = sink;
            sink = -1;
            if (threadIdx.x == 0) return j;
        }
        if (at < 0) return -1;
        const int j = columns[at];
        at = strict ? at - LANES : parents[at];
        return j;
    }
};

// claims (n_columns): NO_KEY between batches; 0 while taken by a search that takes effect.
extern "C" __global__ void __launch_bounds__(LANES) bigsap_claim(
    const int* found, const int* settled_columns, const int* settled_parents, int longest,
    int strict, u64* claims
) {
    const i64 block = blockIdx.x;
    const int* mine = found + block * WORDS;
    if (mine[STATUS] != FOUND) return;
    const u64 bid = bid_of(mine, blockIdx.x);
    Claimed claimed(mine, settled_columns + block * longest, settled_parents + block * longest,
                    strict);
    for (int j = claimed.next(); j >= 0; j = claimed.next()) atomicMin(&claims[j], bid);
}

extern "C" __global__ void __launch_bounds__(LANES) bigsap_decide(
    int* found, const int* settled_columns, const int* settled_parents, int longest, int strict,
    u64* claims
) {
    const i64 block = blockIdx.x;
    int* mine = found + block * WORDS;
    if (mine[STATUS] != FOUND) return;
    const u64 bid = bid_of(mine, blockIdx.x);
    Claimed claimed(mine, settled_columns + block * longest, settled_parents + block * longest,
                    strict), again = claimed;
    bool holds = true;
    for (int j = claimed.next(); j >= 0; j = claimed.next()) holds = holds && claims[j] == bid;
    // Others see a column that is not theirs, before and after this.
    if (__ballot_sync(ALL, !holds)) return;
    for (int j = again.next(); j >= 0; j = again.next()) claims[j] = 0;
    if (threadIdx.x == 0) mine[STATUS] = WON;
}

// Who met a search that takes effect has lost; the others' claims are withdrawn, for another turn.
extern "C" __global__ void __launch_bounds__(LANES) bigsap_withdraw(
    int* found, const int* settled_columns, const int* settled_parents, int longest, int strict,
    u64* claims
) {
    const i64 block = blockIdx.x;
    int* mine = found + block * WORDS;
    if (mine[STATUS] != FOUND) return;
    Claimed claimed(mine, settled_columns + block * longest, settled_parents + block * longest,
                    strict);
    bool met = false;
    for (int j = claimed.next(); j >= 0; j = claimed.next()) {
        if (claims[j] == 0) met = true;
        else claims[j] = NO_KEY;
    }
    const bool lost = __ballot_sync(ALL, met) != 0;
    if (lost && threadIdx.x == 0) mine[STATUS] = LOST;
}

// falls (n_columns): by how much a column's price is to fall, the most of what the searches that
// won ask for; NO_FALL where nothing changes. As bits, which for numbers from 0 on are in order.
#define NO_FALL 0ULL
__device__ __forceinline__ u64 bits_of_fall(PRICE x) {
#if PRICE_IS_INT
    return (u64)x + 1;
#else
    return (u64)__double_as_longlong(x + 0.0) + 1;
#endif
}
__device__ __forceinline__ PRICE fall_of_bits(u64 bits) {
#if PRICE_IS_INT
    return (PRICE)(bits - 1);
#else
    return __longlong_as_double((i64)(bits - 1));
#endif
}

// Flip the path of each search that won, and say how far the settled columns' prices fall.
extern "C" __global__ void __launch_bounds__(LANES) bigsap_flip(
    const int* roots, const int* found, const PRICE* ends, const int* settled_columns,
    const PRICE* settled_labels, const PRICE* settled_costs, const int* settled_parents,
    int longest, PRICE blocked, u64* claims, u64* falls, PRICE* open_price,
    int* column_of_row, int* row_of_column, PRICE* match_cost
) {
    const i64 block = blockIdx.x;
    const int* mine = found + block * WORDS;
    if (mine[STATUS] != WON) return;
    settled_columns += block * longest, settled_labels += block * longest;
    settled_costs += block * longest, settled_parents += block * longest;
    const PRICE* end = ends + block * VALUES;
    const PRICE label = end[END_LABEL];
    const int lane = threadIdx.x, count = mine[N_SETTLED], sink = mine[SINK];
    for (int s = lane; s < count; s += LANES) {
        const int j = settled_columns[s];
        // A label that settled late may lie above the last one: its price stays, but for epsilon.
        const PRICE fall = label - settled_labels[s];
        atomicMax(&falls[j], bits_of_fall(fall > 0 ? fall : 0));
        claims[j] = NO_KEY;
    }
    if (lane != 0) return;
    atomicMax(&falls[sink], bits_of_fall(label - end[END_BEST]));
    open_price[sink] = blocked;
    claims[sink] = NO_KEY;
    int column = sink, parent = mine[SINK_PARENT];
    PRICE cost = end[END_COST];
    while (true) {
        // The pair that the parent's row leaves is looked up before it is overwritten.
        const int row = parent < 0 ? roots[block] : row_of_column[settled_columns[parent]];
        column_of_row[row] = column;
        row_of_column[column] = row;
        match_cost[row] = cost;
        if (parent < 0) break;
        column = settled_columns[parent];
        cost = settled_costs[parent];
        parent = settled_parents[parent];
    }
}

// Let the prices fall. sums, counts: of the falls of the columns of each block.
#define SIDE 256
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_lower(
    int n_columns, PRICE epsilon, u64* falls, PRICE* v, PRICE* sums, int* counts
) {
    __shared__ PRICE parts[SIDE];
    const int j = blockIdx.x * SIDE + threadIdx.x;
    PRICE fall = 0;
    bool moved = false;
    if (j < n_columns && falls[j] != NO_FALL) {
        moved = true;
        fall = fall_of_bits(falls[j]);
        falls[j] = NO_FALL;
        v[j] -= fall + epsilon;
    }
    parts[threadIdx.x] = fall;
    const int count = __syncthreads_count(moved);
    for (int step = SIDE / 2; step; step >>= 1) {
        if (threadIdx.x < step) parts[threadIdx.x] += parts[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = parts[0], counts[blockIdx.x] = count;
}

// Rows whose threshold no longer lies above the best of their list.
extern "C" __global__ void __launch_bounds__(LANES) bigsap_stale(
    int n_rows, const int* ids, const PRICE* costs, const i64* starts, const int* sizes,
    const PRICE* theta, const PRICE* v, int* stale
) {
    for (int row = blockIdx.x; row < n_rows; row += gridDim.x) {
        PRICE low = INFINITE;
        for (int e = threadIdx.x; e < sizes[row]; e += LANES) {
            const PRICE g = costs[starts[row] + e] - v[ids[starts[row] + e]];
            low = g < low ? g : low;
        }
        const bool fresh = __ballot_sync(ALL, low < theta[row]) != 0;
        if (threadIdx.x == 0) stale[row] = !fresh;
    }
}
