// The certificate's pass on a device: row duals and assigned costs from given prices.
// Shares no code with the engine's kernels.

#if PRICE_IS_INT
typedef long long NUMBER;
#define WORST 0x7fffffffffffffffLL
#else
typedef double NUMBER;
#define WORST __longlong_as_double(0x7ff0000000000000LL)
#endif

// u[p] = min over j of (SIGN * c[i, j] - prices[j]) for row i = first + p; its assigned cost
// as it is; bad: how many costs are NaN or the infinity that does not mean forbidden.
extern "C" __global__ void __launch_bounds__(256) bigsap_proof(
    const i64* cost_words, int n_columns, int first, int n_rows, const NUMBER* prices,
    const int* matching, NUMBER* u, COST_T* matched, int* bad
) {
    __shared__ NUMBER least[256];
    const Costs costs = load_costs(cost_words);
    for (int p = blockIdx.x; p < n_rows; p += gridDim.x) {
        const Row row = open_row(costs, first + p);
        NUMBER low = WORST;
        int wrong = 0;
        #pragma unroll 4
        for (int j = threadIdx.x; j < n_columns; j += 256) {
            NUMBER c = SIGN * (NUMBER)cost_at(costs, row, j);
#if !PRICE_IS_INT
            wrong |= !(c > -WORST);
#endif
            NUMBER reduced = c - prices[j];
            if (reduced < low) low = reduced;
        }
        if (wrong) atomicAdd(bad + p, 1);
        least[threadIdx.x] = low;
        __syncthreads();
        for (int half = 128; half; half /= 2) {
            if (threadIdx.x < half && least[threadIdx.x + half] < least[threadIdx.x])
                least[threadIdx.x] = least[threadIdx.x + half];
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            u[p] = least[0];
            int j = matching ? matching[first + p] : -1;
            if (j >= 0) matched[p] = cost_at(costs, row, j);
        }
        __syncthreads();
    }
}
