// A CUDA device as the simulation runs it: one thread of the host a block, in which the block's
// threads take turns (ucontext). Barriers and warp operations are where turns change hands.
// C headers only: every text of a test run goes through the compiler.
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ static inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static thread_local
#define __CUDA_ARCH__ 700

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct Place { unsigned x, y, z; };

struct Fiber {
    ucontext_t context;
    bool over;
    Place thread;
};
struct Warp { int waiting; unsigned generation; uint64_t said[2][32]; };
struct Block {
    Fiber* fibers;
    int size;
    ucontext_t scheduler;
    int current, waiting, sum, last_sum;
    unsigned generation;
    Warp* warps;
    Place block, grid;
    void (*body)(void**);
    void** args;
};
static thread_local Block* now;
#define threadIdx (now->fibers[now->current].thread)
#define blockIdx (now->block)
#define gridDim (now->grid)

static void give_way() {
    Fiber& mine = now->fibers[now->current];
    swapcontext(&mine.context, &now->scheduler);
}
static int syncthreads_count(int mine) {
    unsigned generation = now->generation;
    now->sum += mine;
    if (++now->waiting == now->size) {
        now->waiting = 0, now->last_sum = now->sum, now->sum = 0, now->generation++;
    }
    while (now->generation == generation) give_way();
    return now->last_sum;
}
#define __syncthreads() syncthreads_count(0)
#define __syncthreads_count(p) syncthreads_count((p) ? 1 : 0)
#define __syncthreads_or(p) (syncthreads_count((p) ? 1 : 0) > 0)

// What all lanes of the warp say, once all have said it.
static const uint64_t* warp_says(uint64_t mine) {
    unsigned t = threadIdx.x;
    Warp& warp = now->warps[t / 32];
    unsigned generation = warp.generation;
    warp.said[generation & 1][t & 31] = mine;
    int size = now->size < 32 ? now->size : 32;
    if (++warp.waiting == size) warp.waiting = 0, warp.generation++;
    while (warp.generation == generation) give_way();
    return warp.said[generation & 1];
}
template <class T> static uint64_t packed(T x) { uint64_t b = 0; memcpy(&b, &x, sizeof x); return b; }
template <class T> static T unpacked(uint64_t b) { T x; memcpy(&x, &b, sizeof x); return x; }
template <class T> static T __shfl_sync(unsigned, T x, int from) {
    return unpacked<T>(warp_says(packed(x))[from & 31]);
}
template <class T> static T __shfl_xor_sync(unsigned, T x, int step) {
    int lane = threadIdx.x & 31;
    return unpacked<T>(warp_says(packed(x))[lane ^ step]);
}
template <class T> static T __shfl_up_sync(unsigned, T x, int step) {
    int lane = threadIdx.x & 31;
    return unpacked<T>(warp_says(packed(x))[lane >= step ? lane - step : lane]);
}
static unsigned __ballot_sync(unsigned, bool x) {
    const uint64_t* said = warp_says(x);
    unsigned bits = 0;
    for (int k = 0; k < 32; k++) bits |= (said[k] ? 1u : 0u) << k;
    return bits;
}
static int __ffs(unsigned x) { return __builtin_ffs(x); }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static void __syncwarp() { warp_says(0); }
template <class T, class U> static T atomicAdd(T* p, U x) { return __atomic_fetch_add(p, (T)x, __ATOMIC_SEQ_CST); }
template <class T, class U> static T atomicOr(T* p, U x) { return __atomic_fetch_or(p, (T)x, __ATOMIC_SEQ_CST); }
template <class T> static T atomicMin(T* p, T x) {
    T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    while (x < old && !__atomic_compare_exchange_n(p, &old, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
    return old;
}
template <class T> static T atomicMax(T* p, T x) {
    T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    while (x > old && !__atomic_compare_exchange_n(p, &old, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
    return old;
}
// Blocks that use it run one after the other.
template <class T> static T atomicExch(T* p, T x) {
    T old = *p;
    *p = x;
    return old;
}
static void __nanosleep(unsigned) { give_way(); }
static void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static int64_t clock64() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
template <class T> static T __ldg(const T* p) { return *p; }
template <class T> static T __ldcg(const T* p) { return *p; }
static double __longlong_as_double(long long b) { return unpacked<double>(b); }
static long long __double_as_longlong(double x) { return packed(x); }
static float __int_as_float(int b) { return unpacked<float>((unsigned)b); }
static float __uint_as_float(unsigned b) { return unpacked<float>(b); }
static unsigned __float_as_uint(float x) { return (unsigned)packed(x); }
static float __double2float_rd(double x) {
    float y = (float)x;
    return (double)y > x ? nextafterf(y, -INFINITY) : y;
}
static float __ll2float_rd(long long x) {
    float y = (float)x;
    return (long double)y > (long double)x ? nextafterf(y, -INFINITY) : y;
}
static long long __float2ll_ru(float x) { return (long long)ceilf(x); }
static double __dsqrt_rn(double x) { return sqrt(x); }
static double __dadd_rn(double a, double b) { return a + b; }
static double __dsub_rn(double a, double b) { return a - b; }
static double __dmul_rn(double a, double b) { return a * b; }
static double __ddiv_rn(double a, double b) { return a / b; }

static void start_fiber() {
    now->body(now->args);
    now->fibers[now->current].over = true;
    give_way();
}
// Stacks of a block's threads, between two pages that nobody may touch.
static const size_t stack_size = 128 << 10, guard_size = 64 << 10;
static char* new_room(int threads) {
    size_t all = stack_size * threads + 2 * guard_size;
    char* room = (char*)mmap(0, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) abort();
    if (mprotect(room + guard_size, stack_size * threads, PROT_READ | PROT_WRITE)) abort();
    return room;
}
static void free_room(char* room, int threads) { munmap(room, stack_size * threads + 2 * guard_size); }
static void run_block(
    void (*body)(void**), void** args, Place where, Place grid, int threads, char* room
) {
    Block block = {};
    now = &block;
    block.body = body, block.args = args, block.block = where, block.grid = grid;
    block.size = threads;
    block.fibers = (Fiber*)calloc(threads, sizeof(Fiber));
    block.warps = (Warp*)calloc((threads + 31) / 32, sizeof(Warp));
    char* stacks = room + guard_size;
    for (int k = 0; k < threads; k++) {
        Fiber& f = block.fibers[k];
        f.over = false, f.thread = {(unsigned)k, 0, 0};
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = stacks + stack_size * k;
        f.context.uc_stack.ss_size = stack_size;
        f.context.uc_link = 0;
        makecontext(&f.context, start_fiber, 0);
    }
    for (int left = threads; left;) {
        left = 0;
        for (int k = 0; k < threads; k++) {
            if (block.fibers[k].over) continue;
            left++;
            block.current = k;
            swapcontext(&block.scheduler, &block.fibers[k].context);
        }
    }
    free(block.fibers), free(block.warps);
    now = 0;
}
struct Run {
    void (*body)(void**);
    void** args;
    Place where, grid;
    int threads;
    char* room;
    pthread_t thread;
};
static void* run_one(void* given) {
    Run& run = *(Run*)given;
    run_block(run.body, run.args, run.where, run.grid, run.threads, run.room);
    return 0;
}
// together: all blocks of the grid run at once, each in a thread of its own.
static void run_grid(void (*body)(void**), void** args, unsigned x, unsigned y, int threads, int together) {
    Run* runs = (Run*)calloc((size_t)x * y, sizeof(Run));
    unsigned n = 0;
    // One after the other they use the same stacks.
    char* room = together ? 0 : new_room(threads);
    for (unsigned b = 0; b < y; b++)
        for (unsigned a = 0; a < x; a++, n++) {
            char* mine = together ? new_room(threads) : room;
            runs[n] = {body, args, {a, b, 0}, {x, y, 1}, threads, mine, 0};
            if (pthread_create(&runs[n].thread, 0, run_one, &runs[n])) abort();
            if (!together) pthread_join(runs[n].thread, 0);
        }
    for (unsigned k = 0; together && k < n; k++) {
        pthread_join(runs[k].thread, 0);
        free_room(runs[k].room, threads);
    }
    if (room) free_room(room, threads);
    free(runs);
}
