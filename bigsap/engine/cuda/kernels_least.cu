// What blocks that go through a row each have in common.
//
// Macros set by the host: SIDE (threads), SIGN; kernels_price.cu comes before.

__device__ __forceinline__ PRICE signed_cost(COST_T c) { return SIGN * (PRICE)c; }

// The smallest (key, column) of the block's threads, for all of them.
__device__ __forceinline__ void least_of_block(u64& key, int& column) {
    __shared__ u64 keys[SIDE];
    __shared__ int columns[SIDE];
    const int t = threadIdx.x;
    keys[t] = key, columns[t] = column;
    __syncthreads();
    for (int step = SIDE / 2; step; step >>= 1) {
        if (t < step) {
            const u64 other = keys[t + step];
            if (other < keys[t] || (other == keys[t] && columns[t + step] < columns[t]))
                keys[t] = other, columns[t] = columns[t + step];
        }
        __syncthreads();
    }
    key = keys[0], column = columns[0];
    __syncthreads();
}
