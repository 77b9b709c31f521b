// The passes over costs of the classical Hungarian method (bigsap/engine/hungarian/zeros.py), a
// block a row. The same operations as there, so that bits, slacks and duals are the host's.
//
// Macros set by the host: SIDE (threads), SIGN, PRICE_IS_INT; kernels_price.cu and kernels_least.cu
// come before.

#define ALL_LANES 0xffffffffu

// u: rows' smallest c - v, or none where it is infinite; bits: where they have it. width: words of
// 64 bits a row. bad: the smallest number of a row with an invalid cost.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_zeros(
    const i64* cost_words, int n_columns, int width, const int* rows, int n_rows, const PRICE* v,
    PRICE lowest, PRICE highest, PRICE none, PRICE* u, u32* bits, int* bad
) {
    const Costs costs = load_costs(cost_words);
    const int t = threadIdx.x;
    for (int p = blockIdx.x; p < n_rows; p += gridDim.x) {
        const Row row = open_row(costs, rows[p]);
        PRICE low = INFINITE;
        bool wrong = false;
        for (int j = t; j < n_columns; j += SIDE) {
            const PRICE x = signed_cost(cost_at(costs, row, j)), g = x - v[j];
            wrong = wrong || !(x > lowest && x <= highest);
            low = g < low ? g : low;
        }
        if (wrong) atomicMin(bad, rows[p]);
        u64 key = key_of(low);
        int anywhere = 0;
        least_of_block(key, anywhere);
        low = value_of(key);
        const bool some = low < INFINITE;
        if (t == 0) u[p] = some ? low : none;
        for (int j = t; j < 64 * width; j += SIDE) {
            const bool hit =
                some && j < n_columns && signed_cost(cost_at(costs, row, j)) - v[j] == low;
            const u32 word = __ballot_sync(ALL_LANES, hit);
            if ((t & 31) == 0) bits[(i64)p * 2 * width + j / 32] = word;
        }
    }
}

// least: lowered to the key of c - u, of rows that have a finite smallest cost u; a thread a column.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_columns_least(
    const i64* cost_words, int n_columns, int n_rows, int strip, const PRICE* u, u64* least
) {
    const Costs costs = load_costs(cost_words);
    const int j = blockIdx.x * SIDE + (int)threadIdx.x;
    if (j >= n_columns) return;
    const int first = blockIdx.y * strip, last = first + strip < n_rows ? first + strip : n_rows;
    PRICE low = INFINITE;
    for (int i = first; i < last; i++) {
        const PRICE own = u[i];
        if (!(own < INFINITE && own > -INFINITE)) continue;
        const PRICE g = signed_cost(cost_at(costs, open_row(costs, i), j)) - own;
        low = g < low ? g : low;
    }
    atomicMin(least + j, key_of(low));
}

// Least slack of rows over columns not reached, and its first column; n_columns for none.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_slacks(
    const i64* cost_words, int n_columns, const int* rows, int n_rows, const PRICE* v,
    const PRICE* u, const u32* reached, PRICE* low_out, int* arg_out
) {
    const Costs costs = load_costs(cost_words);
    const int t = threadIdx.x;
    for (int p = blockIdx.x; p < n_rows; p += gridDim.x) {
        const Row row = open_row(costs, rows[p]);
        const PRICE own = u[p];
        PRICE low = INFINITE;
        int arg = n_columns;
        for (int j = t; j < n_columns; j += SIDE) {
            const PRICE g = (signed_cost(cost_at(costs, row, j)) - v[j]) - own;
            if (g < low && !(reached[j / 32] >> (j & 31) & 1)) low = g, arg = j;
        }
        u64 key = key_of(low);
        least_of_block(key, arg);
        if (t == 0) low_out[p] = value_of(key), arg_out[p] = arg;
    }
}

// bits: columns not reached where rows have their least slack, as far as rounding lets it be seen.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_tight_bits(
    const i64* cost_words, int n_columns, int width, const int* rows, int n_rows, const PRICE* v,
    const PRICE* u, const PRICE* low, const u32* reached, u32* bits
) {
    const Costs costs = load_costs(cost_words);
    const int t = threadIdx.x;
    for (int p = blockIdx.x; p < n_rows; p += gridDim.x) {
        const Row row = open_row(costs, rows[p]);
        for (int j = t; j < 64 * width; j += SIDE) {
            const bool hit = j < n_columns
                && (signed_cost(cost_at(costs, row, j)) - v[j]) - u[p] <= low[p];
            const u32 word = __ballot_sync(ALL_LANES, hit);
            if ((t & 31) == 0) bits[(i64)p * 2 * width + j / 32] = word & ~reached[j / 32];
        }
    }
}
