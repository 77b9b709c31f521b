// First prices: what the smallest c - u of every column is, u the smallest cost of every row (the
// same numbers as bigsap/engine/trees/reduction.py).
//
// Macros set by the host: SIDE (threads), SIGN, PRICE_IS_INT; kernels_price.cu and kernels_least.cu
// come before.

// u: the smallest costs of rows first, first + 1, ...; a block a row.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_rows_least(
    const i64* cost_words, int n_columns, int first, int n_rows, PRICE* u
) {
    const Costs costs = load_costs(cost_words);
    for (int p = blockIdx.x; p < n_rows; p += gridDim.x) {
        const Row row = open_row(costs, first + p);
        PRICE low = INFINITE;
        for (int j = threadIdx.x; j < n_columns; j += SIDE) {
            const PRICE x = signed_cost(cost_at(costs, row, j));
            low = x < low ? x : low;
        }
        u64 key = key_of(low);
        int anywhere = 0;
        least_of_block(key, anywhere);
        if (threadIdx.x == 0) u[first + p] = value_of(key);
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

// The prices of these keys; 0 where none is below infinity.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_prices(
    int n_columns, PRICE infinity, const u64* least, PRICE* v
) {
    const int j = blockIdx.x * SIDE + (int)threadIdx.x;
    if (j >= n_columns) return;
    const PRICE low = value_of(least[j]);
    v[j] = low < infinity ? low : 0;
}
