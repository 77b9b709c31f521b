// A CUDA device as the simulation runs it: one thread of the host a block, in which the block's
// threads take turns. Barriers and warp operations are where turns change hands. A thread begins
// on its own stack by ucontext; from then on setjmp does it, which makes no system call.
// C headers only: every text of a test run goes through the compiler.
#undef _FORTIFY_SOURCE  // its longjmp refuses to go to another stack
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

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
    jmp_buf context;
    bool over;
    Place thread;
};
struct Warp { int waiting; unsigned generation; uint64_t said[2][32]; };
struct Block {
    Fiber* fibers;
    int size;
    jmp_buf scheduler;
    int current, waiting, line, sum, last_sum;
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
    if (!_setjmp(now->fibers[now->current].context)) _longjmp(now->scheduler, 1);
}
// Lines of two barriers at which threads of one block have waited for each other.
extern "C" { int diverged[2]; }
static int syncthreads_count(int mine, int line) {
    unsigned generation = now->generation;
    if (now->waiting == 0) now->line = line;
    if (now->line != line) diverged[0] = now->line, diverged[1] = line;
    now->sum += mine;
    if (++now->waiting == now->size) {
        now->waiting = 0, now->last_sum = now->sum, now->sum = 0, now->generation++;
    }
    while (now->generation == generation) give_way();
    return now->last_sum;
}
#define __syncthreads() syncthreads_count(0, __LINE__)
#define __syncthreads_count(p) syncthreads_count((p) ? 1 : 0, __LINE__)
#define __syncthreads_or(p) (syncthreads_count((p) ? 1 : 0, __LINE__) > 0)

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
static int __ffsll(long long x) { return __builtin_ffsll(x); }
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
// What is waited for may need the processor that waits: blocks are threads, maybe more than cores.
static void __nanosleep(unsigned) {
    static thread_local unsigned calls;
    if (++calls % 16) sched_yield();
    else usleep(20);
    give_way();
}
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
static double __dadd_ru(double a, double b) {
    volatile double sum = a + b, part = sum - a;
    volatile double left_off = (a - (sum - part)) + (b - part);
    return left_off > 0 ? nextafter(sum, INFINITY) : sum;
}
static double __dsub_ru(double a, double b) { return __dadd_ru(a, -b); }
static double __dadd_rn(double a, double b) { return a + b; }
static double __dsub_rn(double a, double b) { return a - b; }
static double __dmul_rn(double a, double b) { return a * b; }
static double __ddiv_rn(double a, double b) { return a / b; }

static __attribute__((noinline)) void start_fiber() {
    give_way();
    for (;;) {  // block after block
        now->body(now->args);
        now->fibers[now->current].over = true;
        give_way();
    }
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
static __attribute__((noinline)) void resume(Fiber& fiber) {
    if (!_setjmp(now->scheduler)) _longjmp(fiber.context, 1);
}
static __attribute__((noinline)) void begin(ucontext_t* context) {
    if (!_setjmp(now->scheduler)) setcontext(context);
}
struct Run {
    void (*body)(void**);
    void** args;
    unsigned first, blocks;  // of the grid's
    Place grid;
    int threads;
    pthread_t thread;
};
// Blocks one after the other, by the same threads; what they share is not cleared in between.
static void* run_blocks(void* given) {
    Run& run = *(Run*)given;
    int threads = run.threads, warps = (threads + 31) / 32;
    Block block = {};
    now = &block;
    block.body = run.body, block.args = run.args, block.grid = run.grid, block.size = threads;
    block.fibers = (Fiber*)calloc(threads, sizeof(Fiber));
    block.warps = (Warp*)calloc(warps, sizeof(Warp));
    char* room = new_room(threads);
    ucontext_t context;
    getcontext(&context);
    for (int k = 0; k < threads; k++) {
        context.uc_stack.ss_sp = room + guard_size + stack_size * k;
        context.uc_stack.ss_size = stack_size;
        context.uc_link = 0;
        makecontext(&context, start_fiber, 0);
        block.current = k;
        begin(&context);
    }
    for (unsigned b = run.first; b < run.first + run.blocks; b++) {
        block.block = {b % run.grid.x, b / run.grid.x, 0};
        block.waiting = block.sum = 0;
        memset(block.warps, 0, warps * sizeof(Warp));
        for (int k = 0; k < threads; k++) {
            block.fibers[k].over = false;
            block.fibers[k].thread = {(unsigned)k, 0, 0};
        }
        for (int left = threads; left;) {
            left = 0;
            for (int k = 0; k < threads; k++) {
                if (block.fibers[k].over) continue;
                left++;
                block.current = k;
                resume(block.fibers[k]);
            }
        }
    }
    free_room(room, threads);
    free(block.fibers), free(block.warps);
    now = 0;
    return 0;
}
// together: all blocks of the grid run at once, each in a thread of its own.
static void run_grid(void (*body)(void**), void** args, unsigned x, unsigned y, int threads, int together) {
    unsigned blocks = x * y, n = together ? blocks : 1, each = blocks / n;
    Run* runs = (Run*)calloc(n, sizeof(Run));
    for (unsigned k = 0; k < n; k++) {
        runs[k] = {body, args, k * each, each, {x, y, 1}, threads, 0};
        if (pthread_create(&runs[k].thread, 0, run_blocks, &runs[k])) abort();
    }
    for (unsigned k = 0; k < n; k++) pthread_join(runs[k].thread, 0);
    free(runs);
}
