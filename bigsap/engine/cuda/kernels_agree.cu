// One exchange of the group, or of all groups; joining it; the way out.

// The group agrees on the smallest (key, low). flag: what thread 0 of the group said with its record;
// of several groups the gravest. entry: with several devices, the cost of the pair that my column is in.
__device__ __forceinline__ Record agree(Group& g, Record mine, u64 entry, int& flag) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u64 key;
    u32 low;
    int said = __shfl_sync(~0u, mine.flag, 0);
    min_of_warp(mine.key, mine.low, key, low);
    int from = __ffs(__ballot_sync(~0u, mine.key == key && mine.low == low)) - 1;
    Record r;
    r.key = key;
    r.low = low;
    r.owner = __shfl_sync(~0u, mine.owner, from);
    r.price = __shfl_sync(~0u, mine.price, from);
    r.pred = __shfl_sync(~0u, mine.pred, from);
    r.flag = said;
    if (lane == 0) g.warp[warp] = r;
    __syncthreads();
    if (warp == 0) {
        u64 k = ~0ULL;
        u32 l = NO_COLUMN;
        if (lane < WARPS) {
            k = g.warp[lane].key;
            l = g.warp[lane].low;
        }
        min_of_warp(k, l, key, low);
        from = __ffs(__ballot_sync(~0u, k == key && l == low)) - 1;
        r = g.warp[from];
        r.flag = said;
        if (lane < GROUP) put(g, lane, g.rank, r);
    }
    all_arrived(g);
    u64 k = ~0ULL;
    u32 l = NO_COLUMN;
    int at = 0;
    #pragma unroll
    for (int slot = lane; slot < GROUP; slot += 32) {
        Record other = get(g, slot);
        if (other.key < k || (other.key == k && other.low < l)) k = other.key, l = other.low, at = slot;
    }
    min_of_warp(k, l, key, low);
    int winner = __ffs(__ballot_sync(~0u, k == key && l == low)) - 1;
    Record best = get(g, __shfl_sync(~0u, at, winner));
    flag = get(g, 0).flag;
    g.uses += 1;
    g.turn ^= 1;
#if DEVICES > 1
    // The warp that holds our best column writes the letter; the first of all without one.
    const int holder = __ffs(__ballot_sync(~0u, mine.key == best.key && mine.low == best.low)) - 1;
    const bool is_sender = best.low == NO_COLUMN ? g.rank == 0 && warp == 0 : holder >= 0;
    best.flag = flag;
    correspond(g.post, best, __shfl_sync(~0u, entry, holder < 0 ? 0 : holder), is_sender);
    weigh(g.post, best, flag);
#else
    (void)entry;
#endif
    return best;
}

// The sum of everybody's count.
__device__ int total_of(Group& g, int count) {
    __shared__ int block_total;
    __syncthreads();
    if (threadIdx.x == 0) block_total = 0;
    __syncthreads();
    atomicAdd(&block_total, count);
    __syncthreads();
    int* place = g.sums + g.sum_turn * GROUP + g.rank;
#if USE_CLUSTER
    if (threadIdx.x < GROUP) {
        u32 here = (u32)__cvta_generic_to_shared(place), there;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                     : "=r"(there) : "r"(here), "r"(threadIdx.x));
        asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(there), "r"(block_total) : "memory");
    }
#else
    if (threadIdx.x == 0) *(volatile int*)place = block_total;
#endif
    meet(g);
    int total = 0;
    for (int b = 0; b < GROUP; b++) total += *(volatile int*)(g.sums + g.sum_turn * GROUP + b);
    g.sum_turn ^= 1;
#if DEVICES > 1
    Record ours;
    ours.key = (u64)(u32)total;
    ours.low = NO_COLUMN;
    ours.owner = ours.pred = ours.flag = 0;
    ours.price = 0;
    correspond(g.post, ours, 0, g.rank == 0 && threadIdx.x < 32);
    if (!g.post.lost)
        for (int d = 0; d < DEVICES; d++)
            if (d != g.post.me) total += (int)g.post.letters[d * LETTER + L_KEY];
#endif
    return total;
}

// Column of the group's thread t in its place e: WIDTH neighbours a load.
__device__ __forceinline__ int column_of(int t, int e) {
    return (e / WIDTH) * (GROUP * THREADS * WIDTH) + t * WIDTH + e % WIDTH;
}

// The thread's own costs of one row; places without a column are left as they are.
__device__ __forceinline__ void fetch(
    const Costs& costs, const Row& row, int t, int n_columns, COST_T* c
) {
    #pragma unroll UNROLL
    for (int e = 0; e < COLS; e += WIDTH) {
        int j = column_of(t, e);
        if (j < n_columns) cost_vector<WIDTH>(costs, row, j, c + e);
    }
}

#if USE_CLUSTER
#define CLUSTERED __cluster_dims__(GROUP, 1, 1)
#else
#define CLUSTERED
#endif

__device__ __forceinline__ void join(
    Group& g, Record* slots, Record* warp, int* sums, u64* gates, u64* board, const u64* post,
    volatile i64* host
) {
    g.turn = g.sum_turn = 0;
    g.uses = 0;
    g.arrived = 0;
    g.rank = (int)blockIdx.x;
    g.warp = warp;
    g.passed = 0;
#if DEVICES > 1
    // What the host put there: this device, its first column, the patience, all inboxes.
    g.post.me = (int)post[0];
    g.post.first = (int)post[1];
    g.post.patience = (i64)post[2];
    g.post.inbox = post + 3;
    g.post.host = host;
    g.post.sent = 0;
    g.post.lost = false;
    g.post.here = true;
    g.post.entry = 0;
#else
    (void)post, (void)host;
#endif
#if USE_CLUSTER
    g.slots = slots;
    g.sums = sums;
    g.barrier = 0;
    g.arrived = (u32)__cvta_generic_to_shared(gates);
    if (threadIdx.x == 0) {
        for (int k = 0; k < 2; k++)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(g.arrived + 8 * k));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    meet(g);  // no block may write to another's shared memory before it runs
#else
    g.barrier = (u32*)board;
    g.sums = (int*)(board + 2);
    g.slots = (Record*)(board + 2 + 2 * GROUP);
#endif
}

// The beginning of every kernel of the group: its shared memory, the group, and this thread's place in it.
#define JOIN_GROUP \
    __shared__ Record slots[2 * GROUP]; \
    __shared__ Record warp_records[WARPS]; \
    __shared__ int sums[2 * GROUP]; \
    __shared__ u64 gates[2]; \
    Group g; \
    join(g, slots, warp_records, sums, gates, board, post, host); \
    const int first = FIRST_COLUMN(g); \
    const Costs costs = load_costs(cost_words); \
    const int t = g.rank * THREADS + (int)threadIdx.x;

// Flags in mapped host memory: the host's wish to stop; how far we are.
#define STOP_FLAG 0
#define AT_POSITION 1
#define AT_SCANS 2

struct Clock {
    i64 end, poll;
    int flag;
};

// Called by thread 0 of the group: reading host memory takes a microsecond or two, so
// the wish to stop is looked up about every millisecond.
__device__ __forceinline__ void look(
    Clock& clock, i64 poll_every, volatile i64* host, i64 position, i64 scans
) {
    i64 now = clock64();
    if (now < clock.poll) return;
    clock.poll = now + poll_every;
    host[AT_POSITION] = position;
    host[AT_SCANS] = scans;
    if (now >= clock.end) clock.flag = SLICE_OVER;
    if (host[STOP_FLAG]) clock.flag = STOP_NOW;
}

// Words and values that a launch leaves behind.
enum { W_POSITION, W_STATUS, W_SCANS, W_DROPS, W_SETTLED, W_SURPLUS, W_ROOT, W_VIRTUAL_SCANS };
enum { V_CAP, V_DROPS };
enum { S_DONE, S_YIELD, S_INFEASIBLE, S_STOPPED, S_LOST };
