// The certificate's pass on a device: row duals and assigned costs from given prices.
// Shares no code with the engine's kernels. Comes after kernels_minimum.cu.

// Rows of a block at a time: they share what it reads of the prices.
#define TOGETHER 4
#define SIDE 256

// u[p] = min over j of (SIGN * c[i, j] - prices[j]) for row i = first + p; of floats the least
// rounded difference and, in rest[p], the least of what rounding took from such differences, so
// that the sum of both is the exact minimum. Its assigned cost as it is. bad: set where a cost is
// NaN or the infinity that does not mean forbidden, or an integer that a double does not hold.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_proof(
    const i64* cost_words, int n_columns, int first, int n_rows, const NUMBER* prices,
    const int* matching, NUMBER* u, NUMBER* rest, COST_T* matched, int* bad
) {
    __shared__ NUMBER least[TOGETHER][SIDE], below[TOGETHER][SIDE];
    const Costs costs = load_costs(cost_words);
    const int t = threadIdx.x;
    for (int p = blockIdx.x * TOGETHER; p < n_rows; p += gridDim.x * TOGETHER) {
        Row row[TOGETHER];
        NUMBER low[TOGETHER], less[TOGETHER];
        #pragma unroll
        for (int r = 0; r < TOGETHER; r++) {
            // Past the end the last row once more, of which nothing is written.
            row[r] = open_row(costs, first + (p + r < n_rows ? p + r : n_rows - 1));
            low[r] = WORST;
            less[r] = 0;
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
                    // Integers that a double does not hold.
                    wrong = wrong || ((COST_T)0.5 != 0.5 && fabs(c) > 9007199254740992.0);
#endif
                    const NUMBER reduced = c - price[k];
#if PRICE_IS_INT
                    if (reduced < low[r]) low[r] = reduced;
#else
                    if (reduced <= low[r]) take(rounding(c, price[k], reduced), reduced, low[r], less[r]);
#endif
                }
            }
        }
        if (wrong) *bad = 1;
        #pragma unroll
        for (int r = 0; r < TOGETHER; r++) {
            least[r][t] = low[r];
            below[r][t] = less[r];
        }
        __syncthreads();
        for (int half = SIDE / 2; half; half /= 2) {
            if (t < half)
                for (int r = 0; r < TOGETHER; r++)
                    take(below[r][t + half], least[r][t + half], least[r][t], below[r][t]);
            __syncthreads();
        }
        if (t < TOGETHER && p + t < n_rows) {
            u[p + t] = least[t][0];
#if !PRICE_IS_INT
            rest[p + t] = below[t][0];
#endif
            const int j = matching ? matching[first + p + t] : -1;
            if (j >= 0) matched[p + t] = cost_at(costs, open_row(costs, first + p + t), j);
        }
        __syncthreads();
    }
}
