// Rows of costs of many coordinates.

#define TILE_ROWS 16
#define TILE_DEPTH 8
#define TILE_WIDTH 512
#if DIVISORS
#define TILE_POINT double
#else
#define TILE_POINT POINT
#endif

// As bigsap_gather (kernels_pairs.cu), for costs that are sums over d coordinates. A block makes
// TILE_ROWS rows of TILE_WIDTH columns, so that a coordinate is loaded once for many pairs. A sum adds its
// terms in the same order as cost_at, so the bits are the same.
extern "C" __global__ void __launch_bounds__(256) bigsap_gather_tiles(
    const i64* cost_words, const int* rows, int n_rows, int d, int first, int width, COST_T* out
) {
    __shared__ double x[TILE_DEPTH][TILE_ROWS];
    __shared__ TILE_POINT y[TILE_WIDTH][TILE_DEPTH + 1];  // neighbours in different banks
    const Costs costs = load_costs(cost_words);
    const int p = blockIdx.x * TILE_ROWS, left = blockIdx.y * TILE_WIDTH, t = threadIdx.x;
    const int j = left + t;
    double total[TILE_ROWS][2];
    #pragma unroll
    for (int r = 0; r < TILE_ROWS; r++) total[r][0] = total[r][1] = 0.0;
    for (int from = 0; from < d; from += TILE_DEPTH) {
        const int depth = d - from < TILE_DEPTH ? d - from : TILE_DEPTH;
        __syncthreads();
        for (int e = t; e < TILE_ROWS * TILE_DEPTH; e += 256) {
            const int r = e / TILE_DEPTH, k = e % TILE_DEPTH;
            const int q = p + r < n_rows ? p + r : n_rows - 1;
            if (k < depth) x[k][r] = X_AT(rows[q], from + k);
        }
        for (int e = t; e < TILE_WIDTH * TILE_DEPTH; e += 256) {
            // Neighbouring threads read neighbours in memory.
            const int column = BY_POINT ? e / TILE_DEPTH : e % TILE_WIDTH;
            const int k = BY_POINT ? e % TILE_DEPTH : e / TILE_WIDTH;
            // Columns beyond the end repeat the last one, as rows do.
            const int c = left + column, q = first + (c < width ? c : width - 1);
            if (k < depth) y[column][k] = Y_AT(q, from + k);
        }
        __syncthreads();
        for (int k = 0; k < depth; k++) {
            const double a = y[t][k], b = y[t + 256][k];
            #pragma unroll
            for (int r = 0; r < TILE_ROWS; r++) {
                total[r][0] = with_term(costs, total[r][0], x[k][r], a, from + k);
                total[r][1] = with_term(costs, total[r][1], x[k][r], b, from + k);
            }
        }
    }
    #pragma unroll
    for (int r = 0; r < TILE_ROWS; r++) {
        if (p + r >= n_rows) break;
        const int i = rows[p + r], c = first + j;
        COST_T* made = out + (i64)(p + r) * width + j;
        if (j < width) made[0] = cost_of(costs, total[r][0], i, c);
        if (j + 256 < width) made[256] = cost_of(costs, total[r][1], i, c + 256);
    }
}
