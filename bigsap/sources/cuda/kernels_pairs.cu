// Costs that the host asks for: of single pairs, of rows.

// out[p] = the cost of row rows[p] at column columns[p].
extern "C" __global__ void __launch_bounds__(256) bigsap_pairs(
    const i64* cost_words, const int* rows, const int* columns, int n_pairs, COST_T* out
) {
    const Costs costs = load_costs(cost_words);
    for (i64 p = blockIdx.x * 256 + threadIdx.x; p < n_pairs; p += (i64)gridDim.x * 256)
        out[p] = cost_at(costs, open_row(costs, rows[p]), columns[p]);
}

// Costs of some rows, columns first .. first + width, to out (n_rows, width).
extern "C" __global__ void __launch_bounds__(256) bigsap_gather(
    const i64* cost_words, const int* rows, int n_rows, int first, int width, COST_T* out
) {
    const Costs costs = load_costs(cost_words);
    for (int p = blockIdx.y; p < n_rows; p += gridDim.y) {
        const Row row = open_row(costs, rows[p]);
        for (int k = blockIdx.x * 256 + threadIdx.x; k < width; k += gridDim.x * 256)
            out[(i64)p * width + k] = cost_at(costs, row, first + k);
    }
}
