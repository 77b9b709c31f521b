// The group of blocks that runs the dense kernels, and how what they know is exchanged.
//
// The texts kernels_price, kernels_group, kernels_post, kernels_agree, kernels_dense and kernels_start make
// one module. One group of GROUP blocks runs a kernel: a thread block cluster where the device has
// them (compute capability 9.0), else a cooperative grid. Thread t of the group owns COLS
// columns for the whole launch, and what a search knows of a column lives in the owner's
// registers: price, label, predecessor, matched row. Nothing of it is read or written by
// anybody else. What others need to know of a column travels in the record by which the
// group agrees on the smallest label: one exchange, one barrier a scanned row, none an
// augmentation.
//
// With DEVICES > 1 there is a group on each device, which owns a slab of the columns; then the
// groups' records are exchanged as well (kernels_post.cu).
//
// Macros set by the host (bigsap/engine/cuda/device_engine.py): THREADS, GROUP, COLS, WIDTH (costs in
// one load), PRICE_IS_INT, VIRTUAL, USE_CLUSTER, DEVICES; types and functions of the
// costs come from the text before this one: Costs, Row, COST_T, open_row, cost_at.

#if PRICE_IS_INT
__device__ __forceinline__ u64 bits_of(PRICE x) { return (u64)x; }
__device__ __forceinline__ PRICE of_bits(u64 bits) { return (PRICE)bits; }
#else
__device__ __forceinline__ u64 bits_of(PRICE x) { return (u64)__double_as_longlong(x); }
__device__ __forceinline__ PRICE of_bits(u64 bits) { return __longlong_as_double((i64)bits); }
#endif

__device__ __forceinline__ PRICE signed_cost(COST_T c) { return SIGN * (PRICE)c; }

#define FREE (-1)
#define NOBODY (-2)
#define NO_COLUMN 0xffffffffu
#define WARPS (THREADS / 32)
// Register arrays need compile-time subscripts; beyond 16 columns a thread they lie in
// local memory and the loops stay loops.
constexpr int UNROLL = COLS <= 16 ? COLS : 1;
#define WORDS ((COLS + 31) / 32)
#define WORD(e) (COLS <= 32 ? 0 : (e) >> 5)
#define HAS(mask, e) ((mask[WORD(e)] >> ((e) & 31)) & 1u)
#define SET(mask, e) (mask[WORD(e)] |= 1u << ((e) & 31))

// What the group is told of a column. key, low: the order; low is the column, with the top
// bit set unless it is free; columns are counted over all devices. owner: its row; pred: scan
// its label came from.
struct __align__(16) Record {
    u64 key;
    u32 low;
    int owner;
    u64 price;
    int pred;
    int flag;
};

// The correspondence of a group with those of the other devices, see kernels_post.cu.
#define LETTER 10
#if DEVICES > 1
struct Post {
    const u64* inbox;     // addresses of all inboxes
    const u32* letters;   // the last ones received, DEVICES * LETTER words in shared memory
    volatile i64* host;   // its flags
    i64 patience;         // clock cycles
    u64 entry;            // of the last agreement: the cost of the best column's own pair
    u32 sent;             // letters written; their number is their mark
    int me, first;        // this device; its first column
    bool lost;            // somebody did not answer
    bool here;            // the last agreement's column is one of ours
};
#define FIRST_COLUMN(g) ((g).post.first)
#define IS_LOST(g) ((g).post.lost)
#else
#define FIRST_COLUMN(g) 0
#define IS_LOST(g) false
#endif

struct Group {
    Record* slots;  // 2 * GROUP, shared memory, or device memory without clusters
    Record* warp;   // WARPS, shared
    int* sums;      // 2 * GROUP
    u32* barrier;   // without clusters: arrivals counted
    u32 passed;     // barriers passed
    u32 arrived;    // with clusters: the block's two arrival barriers, shared addresses
    u32 uses;       // exchanges made; slots and barriers alternate
    int turn;       // of the slots
    int sum_turn;
    int rank;
#if DEVICES > 1
    Post post;
#endif
};

__device__ __forceinline__ void min_of_warp(u64 key, u32 low, u64& best_key, u32& best_low) {
#if __CUDA_ARCH__ >= 800
    u32 high = (u32)(key >> 32), rest = (u32)key;
    u32 h = __reduce_min_sync(~0u, high);
    u32 r = __reduce_min_sync(~0u, high == h ? rest : ~0u);
    best_low = __reduce_min_sync(~0u, high == h && rest == r ? low : ~0u);
    best_key = ((u64)h << 32) | r;
#else
    best_key = key;
    best_low = low;
    for (int step = 16; step; step >>= 1) {
        u64 k = __shfl_xor_sync(~0u, best_key, step);
        u32 l = __shfl_xor_sync(~0u, best_low, step);
        if (k < best_key || (k == best_key && l < best_low)) {
            best_key = k;
            best_low = l;
        }
    }
#endif
}

#define NEVER_WAIT 0x40000000u

__device__ __forceinline__ void meet(Group& g) {
#if USE_CLUSTER
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    // All blocks are resident (cooperative launch), so spinning ends, unless the correspondence
    // with another device broke off: then the count is made so large that nobody waits.
    g.passed += 1;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        if (IS_LOST(g)) atomicOr(g.barrier, NEVER_WAIT);
        atomicAdd(g.barrier, 1u);
        while (*(volatile u32*)g.barrier < g.passed * GROUP) {}
        __threadfence();
    }
    __syncthreads();
#if DEVICES > 1
    if (*(volatile u32*)g.barrier >= NEVER_WAIT) g.post.lost = true;
#endif
#endif
}

// Records arrive by asynchronous stores that count their bytes on the receiver's barrier:
// one way through the cluster, where stores and a cluster barrier would take two.
__device__ __forceinline__ void put(Group& g, int block, int slot, const Record& r) {
    Record* place = g.slots + g.turn * GROUP + slot;
#if USE_CLUSTER
    u32 here = (u32)__cvta_generic_to_shared(place), there, gate;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(gate) : "r"(g.arrived + 8 * g.turn), "r"(block));
    u64 second = ((u64)(u32)r.owner << 32) | r.low;
    u64 fourth = ((u64)(u32)r.flag << 32) | (u32)r.pred;
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u64 [%0], {%1, %2}, [%3];"
        :: "r"(there), "l"(r.key), "l"(second), "r"(gate) : "memory");
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u64 [%0], {%1, %2}, [%3];"
        :: "r"(there + 16), "l"(r.price), "l"(fourth), "r"(gate) : "memory");
#else
    if (block == 0) *place = r;
#endif
}

// Wait for the records of everybody.
__device__ __forceinline__ void all_arrived(Group& g) {
#if USE_CLUSTER
    const u32 gate = g.arrived + 8 * g.turn, parity = (g.uses >> 1) & 1;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     :: "r"(gate), "r"((u32)(GROUP * sizeof(Record))) : "memory");
#if DEVICES > 1
    // A block that gave up waiting for another device sends nothing any more.
    i64 since = 0;
    u32 done = IS_LOST(g);
    while (!done) {
        asm volatile("{\n.reg .pred done;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, done;\n}"
                     : "=r"(done) : "r"(gate), "r"(parity) : "memory");
        if (done) break;
        const i64 now = clock64();
        if (!since) since = now;
        if (now - since > 2 * g.post.patience) g.post.lost = true, done = 1;
    }
#else
    asm volatile("{\n.reg .pred done;\n"
                 "again%=:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again%=;\n}"
                 :: "r"(gate), "r"(parity) : "memory");
#endif
#else
    meet(g);
#endif
}

__device__ __forceinline__ Record get(const Group& g, int slot) {
    const Record* place = g.slots + g.turn * GROUP + slot;
#if USE_CLUSTER
    return *place;
#else
    Record r;
    uint4 a = __ldcg((const uint4*)place), b = __ldcg((const uint4*)place + 1);
    r.key = ((u64)a.y << 32) | a.x;
    r.low = a.z;
    r.owner = (int)a.w;
    r.price = ((u64)b.y << 32) | b.x;
    r.pred = (int)b.z;
    r.flag = (int)b.w;
    return r;
#endif
}
