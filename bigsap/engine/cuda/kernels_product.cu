// Lower bounds of costs that are functions of inner products. Comes after kernels_lists.cu.
//
// The inner products of a batch come from cuBLAS, whose rounding is not that of the costs' code:
// gamma bounds the relative difference (products.py), so that bigsap_select finds the same lists
// from these bounds, which lie up to its `slack` below the costs.

// Like bigsap_tiles, from inner products (n_rows, n_columns), one row a block; all results are
// lower bounds.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_product_tiles(
    const INNER* products, int n_columns, const int* rows, int n_rows, const double* row_norms,
    const double* column_norms, double gamma, double lost, const PRICE* reference, const PRICE* v,
    const PRICE* open_price, int n_groups, float* lows, PRICE* free_low
) {
    const int chunk = blockIdx.x, p = blockIdx.y;
    const double a = row_norms[rows[p]];
    const PRICE base = reference[p];
    const INNER* mine = products + (i64)p * n_columns;
    PRICE low = INFINITE;
#if WITH_FREE
    PRICE best = INFINITE;
#endif
    const int start = chunk * SIDE * SPAN + threadIdx.x;
    #pragma unroll 4
    for (int s = 0; s < SPAN; s++) {
        const int j = start + s * SIDE;
        if (j >= n_columns) break;
        const PRICE x = bound_of_cost(a, column_norms[j], mine[j], gamma, lost) - base;
        const PRICE g = x - v[j];
        low = g < low ? g : low;
#if WITH_FREE
        const PRICE f = x - open_price[j];
        best = f < best ? f : best;
#endif
    }
    lows[(i64)p * n_groups + chunk * SIDE + threadIdx.x] = rounded_down(low);
#if WITH_FREE
    __shared__ PRICE least[SIDE];
    least[threadIdx.x] = best;
    __syncthreads();
    for (int step = SIDE / 2; step; step >>= 1) {
        if (threadIdx.x < step && least[threadIdx.x + step] < least[threadIdx.x])
            least[threadIdx.x] = least[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) free_low[(i64)p * gridDim.x + chunk] = least[0];
#endif
}
