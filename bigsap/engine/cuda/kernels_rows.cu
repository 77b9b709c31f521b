// Whatever can be done for many rows at once: surveys and first prices here, evaluations in
// kernels_lists.cu.
//
// Macros set by the host: SPAN, ROWS (rows a block goes through together),
// WITH_FREE; the costs' text and kernels_price.cu come before.

#define SIDE 256

__device__ __forceinline__ PRICE signed_cost(COST_T c) { return SIGN * (PRICE)c; }

// Order-preserving bits of a float; its zeros are one.
__device__ __forceinline__ u32 bits_of(float x) {
    u32 bits = __float_as_uint(x + 0.0f);
    return bits ^ ((bits >> 31) ? ~0u : 0x80000000u);
}

// low: smallest c - v of each row. second: its second smallest, or, with probe, the signed
// cost at the column named there. bad: the first row that holds an invalid cost.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_survey(
    const i64* cost_words, int n_columns, const int* rows, int n_rows, const PRICE* v,
    const int* probe, PRICE lowest, PRICE highest, int judge, PRICE* low_out, PRICE* second_out,
    int* bad
) {
    __shared__ PRICE lows[SIDE], seconds[SIDE];
    const Costs costs = load_costs(cost_words);
    for (int p = blockIdx.x; p < n_rows; p += gridDim.x) {
        const int i = rows[p];
        const Row row = open_row(costs, i);
        PRICE low = INFINITE, second = INFINITE;
        bool wrong = false;
        #pragma unroll 4
        for (int j = threadIdx.x * WIDTH; j < n_columns; j += SIDE * WIDTH) {
            COST_T c[WIDTH];
            cost_vector<WIDTH>(costs, row, j, c);
            #pragma unroll
            for (int k = 0; k < WIDTH; k++) {
                PRICE x = signed_cost(c[k]);
                wrong = wrong || !(x > lowest && x <= highest);
                PRICE g = x - v[j + k];
                PRICE larger = g > low ? g : low;
                second = larger < second ? larger : second;
                low = g < low ? g : low;
            }
        }
        if (judge && wrong) atomicMin(bad, i);
        lows[threadIdx.x] = low;
        seconds[threadIdx.x] = second;
        __syncthreads();
        for (int step = SIDE / 2; step; step >>= 1) {
            if (threadIdx.x < step) {
                PRICE a = lows[threadIdx.x], b = lows[threadIdx.x + step];
                PRICE s = seconds[threadIdx.x], z = seconds[threadIdx.x + step];
                PRICE larger = a < b ? b : a;
                s = s < z ? s : z;
                lows[threadIdx.x] = a < b ? a : b;
                seconds[threadIdx.x] = s < larger ? s : larger;
            }
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            low_out[p] = lows[0];
            PRICE s = seconds[0];
            if (probe) {
                int j = probe[i];
                s = j >= 0 && j < n_columns ? signed_cost(cost_at(costs, row, j)) : INFINITE;
            }
            second_out[p] = s;
        }
        __syncthreads();
    }
}

// Smallest and second smallest c - low of each column, over one strip of rows a block row;
// rows without a finite low do not count. Strips are merged by bigsap_merge.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_columns(
    const i64* cost_words, int n_rows, int n_columns, const PRICE* low, int strip,
    PRICE* least_out, PRICE* second_out
) {
    const Costs costs = load_costs(cost_words);
    const int j = blockIdx.x * SIDE + threadIdx.x;
    if (j >= n_columns) return;
    const int first = blockIdx.y * strip;
    const int last = first + strip < n_rows ? first + strip : n_rows;
    PRICE least = INFINITE, second = INFINITE;
    #pragma unroll 8
    for (int i = first; i < last; i++) {
        PRICE base = low[i];
        PRICE g = signed_cost(cost_at(costs, open_row(costs, i), j)) - base;
        g = base < INFINITE ? g : INFINITE;
        PRICE larger = g > least ? g : least;
        second = larger < second ? larger : second;
        least = g < least ? g : least;
    }
    least_out[(i64)blockIdx.y * n_columns + j] = least;
    second_out[(i64)blockIdx.y * n_columns + j] = second;
}

extern "C" __global__ void __launch_bounds__(SIDE) bigsap_merge(
    int n_strips, int n_columns, const PRICE* leasts, const PRICE* seconds, PRICE* least_out,
    PRICE* second_out
) {
    const int j = blockIdx.x * SIDE + threadIdx.x;
    if (j >= n_columns) return;
    PRICE least = INFINITE, second = INFINITE;
    for (int s = 0; s < n_strips; s++) {
        PRICE a = leasts[(i64)s * n_columns + j], b = seconds[(i64)s * n_columns + j];
        PRICE larger = a > least ? a : least;
        second = larger < second ? larger : second;
        second = b < second ? b : second;
        least = a < least ? a : least;
    }
    least_out[j] = least;
    second_out[j] = second;
}

// Costs of some rows to slots of a row cache: those of row rows[p] to out[slots[p], :].
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_keep(
    const i64* cost_words, const int* rows, const int* slots, int n_rows, int n_columns,
    COST_T* out
) {
    const Costs costs = load_costs(cost_words);
    for (int p = blockIdx.y; p < n_rows; p += gridDim.y) {
        const Row row = open_row(costs, rows[p]);
        COST_T* slot = out + (i64)slots[p] * n_columns;
        for (int j = blockIdx.x * SIDE + threadIdx.x; j < n_columns; j += gridDim.x * SIDE)
            slot[j] = cost_at(costs, row, j);
    }
}

// v[j] = min over rows of (c - u): the smallest of a strip, merged by bigsap_merge.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_transform(
    const i64* cost_words, const int* rows, int n_rows, int n_columns, const PRICE* u, int strip,
    PRICE* least_out
) {
    const Costs costs = load_costs(cost_words);
    const int j = blockIdx.x * SIDE + threadIdx.x;
    if (j >= n_columns) return;
    const int first = blockIdx.y * strip;
    const int last = first + strip < n_rows ? first + strip : n_rows;
    PRICE least = INFINITE;
    #pragma unroll 8
    for (int p = first; p < last; p++) {
        PRICE g = signed_cost(cost_at(costs, open_row(costs, rows[p]), j)) - u[p];
        least = g < least ? g : least;
    }
    least_out[(i64)blockIdx.y * n_columns + j] = least;
}
