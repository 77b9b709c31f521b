// The certificate's pass over points of many coordinates: inner products exclude most pairs, the costs'
// own code computes the others. Shares no code with the engine's kernels. Results are those of bigsap_proof.
// Comes after kernels_minimum.cu; prices are floats.

// Threads of a row.
#define SIDE 1024

// The cost of a squared distance. PHI: 0 itself, 1 its root, 2 half of it; 3: no distance, but the cost
// itself, whose error includes its rounding. widen: for rounding.
__device__ __forceinline__ double cost_of_square(double square, double widen) {
#if PHI == 3
    return square;
#else
    square = square > 0.0 ? square : 0.0;
#if PHI == 1
    square = __dsqrt_rn(square);
#elif PHI == 2
    square *= 0.5;
#endif
    return square * widen;
#endif
}

// A number not above the signed cost. sums: a + b, squared norms or terms. error: of sums - 2 product.
__device__ __forceinline__ double not_above(double sums, double product, double error) {
    const double square = sums - 2.0 * product;
    return SIGN > 0 ? cost_of_square(square - error, 1.0 - 0x1p-50)
                    : -cost_of_square(square + error, 1.0 + 0x1p-50);
}

// A number not below it.
__device__ __forceinline__ double not_below(double sums, double product, double error) {
    const double square = sums - 2.0 * product;
    return SIGN > 0 ? cost_of_square(square + error, 1.0 + 0x1p-50)
                    : -cost_of_square(square - error, 1.0 - 0x1p-50);
}

// Like bigsap_proof for row first + blockIdx.x, whose inner products with all columns are at
// products + blockIdx.x * n_columns. row_norms, column_norms: squared norms, or terms. gamma, lost: bound the
// error of a + b - 2 product, relative to a + b and absolute. u, rest, matched: of all rows. computed: how
// many costs each row took.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_product_proof(
    const i64* cost_words, const double* products, int n_columns, int first, const double* row_norms,
    const double* column_norms, double gamma, double lost, const double* prices, const int* matching,
    double* u, double* rest, double* matched, int* computed
) {
    __shared__ double least[SIDE], below[SIDE];
    __shared__ int taken;
    const Costs costs = load_costs(cost_words);
    const int t = threadIdx.x, i = first + blockIdx.x;
    const double* mine = products + (i64)blockIdx.x * n_columns;
    const double a = row_norms[i];
    double top = WORST;
    #pragma unroll 4
    for (int j = t; j < n_columns; j += SIDE) {
        const double sums = a + column_norms[j];
        const double high = not_below(sums, mine[j], gamma * sums + lost) - prices[j];
        const double rounded = high + 0x1p-50 * fabs(high);
        top = rounded < top ? rounded : top;
    }
    least[t] = top;
    if (t == 0) taken = 0;
    __syncthreads();
    for (int half = SIDE / 2; half; half /= 2) {
        if (t < half && least[t + half] < least[t]) least[t] = least[t + half];
        __syncthreads();
    }
    top = least[0];
    __syncthreads();
    const Row row = open_row(costs, i);
    NUMBER low = WORST, less = 0.0;
    int count = 0;
    #pragma unroll 4
    for (int j = t; j < n_columns; j += SIDE) {
        const double sums = a + column_norms[j];
        const double bound = not_above(sums, mine[j], gamma * sums + lost) - prices[j];
        if (bound - 0x1p-50 * fabs(bound) > top) continue;
        count++;
        const double c = SIGN * cost_at(costs, row, j);
        const double reduced = c - prices[j];
        if (reduced <= low) take(rounding(c, prices[j], reduced), reduced, low, less);
    }
    least[t] = low;
    below[t] = less;
    if (count) atomicAdd(&taken, count);
    __syncthreads();
    for (int half = SIDE / 2; half; half /= 2) {
        if (t < half) take(below[t + half], least[t + half], least[t], below[t]);
        __syncthreads();
    }
    if (t == 0) {
        u[i] = least[0];
        rest[i] = below[0];
        const int j = matching ? matching[i] : -1;
        matched[i] = j >= 0 ? cost_at(costs, row, j) : 0.0;
        computed[i] = taken;
    }
}
