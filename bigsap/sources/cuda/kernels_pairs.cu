// Single costs of pairs named by the host.

// out[p] = the cost of row rows[p] at column columns[p].
extern "C" __global__ void __launch_bounds__(256) bigsap_pairs(
    const i64* cost_words, const int* rows, const int* columns, int n_pairs, COST_T* out
) {
    const Costs costs = load_costs(cost_words);
    for (i64 p = blockIdx.x * 256 + threadIdx.x; p < n_pairs; p += (i64)gridDim.x * 256)
        out[p] = cost_at(costs, open_row(costs, rows[p]), columns[p]);
}
