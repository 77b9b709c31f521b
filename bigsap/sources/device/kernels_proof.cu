// The certificate's pass on a device: row duals and assigned costs from given prices.
// Shares no code with the engine's kernels.

#if PRICE_IS_INT
typedef long long NUMBER;
#define WORST 0x7fffffffffffffffLL
#else
typedef double NUMBER;
#define WORST __longlong_as_double(0x7ff0000000000000LL)
#endif

// Rows of a block at a time: they share what it reads of the prices.
#define TOGETHER 4
#define SIDE 256

// u[p] = min over j of (SIGN * c[i, j] - prices[j]) for row i = first + p; its assigned cost
// as it is; bad: set where a cost is NaN or the infinity that does not mean forbidden.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_proof(
    const i64* cost_words, int n_columns, int first, int n_rows, const NUMBER* prices,
    const int* matching, NUMBER* u, COST_T* matched, int* bad
) {
    __shared__ NUMBER least[TOGETHER][SIDE];
    const Costs costs = load_costs(cost_words);
    const int t = threadIdx.x;
    for (int p = blockIdx.x * TOGETHER; p < n_rows; p += gridDim.x * TOGETHER) {
        Row row[TOGETHER];
        NUMBER low[TOGETHER];
        #pragma unroll
        for (int r = 0; r < TOGETHER; r++) {
            // Past the end the last row once more, of which nothing is written.
            row[r] = open_row(costs, first + (p + r < n_rows ? p + r : n_rows - 1));
            low[r] = WORST;
        }
        bool wrong = false;
        for (int j = t * WIDTH; j < n_columns; j += SIDE * WIDTH) {
            NUMBER price[WIDTH];
            #pragma unroll
            for (int k = 0; k < WIDTH; k++) price[k] = prices[j + k];
            #pragma unroll
            for (int r = 0; r < TOGETHER; r++) {
                COST_T given[WIDTH];
                cost_vector<WIDTH>(costs, row[r], j, given);
                #pragma unroll
                for (int k = 0; k < WIDTH; k++) {
                    const NUMBER c = SIGN * (NUMBER)given[k];
#if !PRICE_IS_INT
                    wrong = wrong || !(c > -WORST);
#endif
                    const NUMBER reduced = c - price[k];
                    if (reduced < low[r]) low[r] = reduced;
                }
            }
        }
        if (wrong) *bad = 1;
        #pragma unroll
        for (int r = 0; r < TOGETHER; r++) least[r][t] = low[r];
        __syncthreads();
        for (int half = SIDE / 2; half; half /= 2) {
            if (t < half)
                for (int r = 0; r < TOGETHER; r++)
                    if (least[r][t + half] < least[r][t]) least[r][t] = least[r][t + half];
            __syncthreads();
        }
        if (t < TOGETHER && p + t < n_rows) {
            u[p + t] = least[t][0];
            const int j = matching ? matching[first + p + t] : -1;
            if (j >= 0) matched[p + t] = cost_at(costs, open_row(costs, first + p + t), j);
        }
        __syncthreads();
    }
}
