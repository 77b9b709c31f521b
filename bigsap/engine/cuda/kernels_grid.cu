// A barrier of the grid, for kernels in one persistent launch.

// All blocks are resident (cooperative launch), so waiting ends. What the block's threads have
// written before is seen by whoever passes: the barrier of the block, then the fence.
// arrived: counts all arrivals; passed: barriers that this thread has passed.
__device__ __forceinline__ void meet(u32* arrived, u32& passed) {
    passed += 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1u);
        while (*(volatile u32*)arrived < passed * gridDim.x) __nanosleep(20);
        __threadfence();
    }
    __syncthreads();
}
