// Tight pairs of rows, a warp each, and the costs of some columns; see bigsap/engine/lists/tight.py.
//
// Macros set by the host: ROOM, PER_BLOCK, BLOCK as there; kernels_rows.cu comes before.

#define WARP_ROWS (SIDE / 32)
#define ALL_LANES 0xffffffffu

// ids: the diagonal first, then columns from a pseudo-random one on, PER_BLOCK of a block at
// most. low: the smallest c - v of the row; above: no column outside the list is below it.
// size: -1 for a row with an invalid cost.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_tight(
    const i64* cost_words, int n_columns, const int* rows, int n_rows, const PRICE* v,
    PRICE lowest, PRICE highest, int* ids, int* size_out, PRICE* low_out, PRICE* above_out
) {
    const int p = blockIdx.x * WARP_ROWS + (int)threadIdx.x / 32, lane = threadIdx.x & 31;
    if (p >= n_rows) return;
    const Costs costs = load_costs(cost_words);
    const int i = rows[p];
    const Row row = open_row(costs, i);
    PRICE low = INFINITE, next = INFINITE;  // the smallest, and the smallest beyond it
    int ties = 0;                           // pairs of this lane at its smallest
    bool wrong = false;
    #pragma unroll 4
    for (int j = lane * WIDTH; j < n_columns; j += 32 * WIDTH) {
        COST_T c[WIDTH];
        cost_vector<WIDTH>(costs, row, j, c);
        #pragma unroll
        for (int k = 0; k < WIDTH; k++) {
            PRICE x = signed_cost(c[k]);
            wrong = wrong || !(x > lowest && x <= highest);
            PRICE g = x - v[j + k];
            PRICE larger = g > low ? g : low;
            next = g != low && larger < next ? larger : next;
            ties = g < low ? 1 : ties + (g == low ? 1 : 0);
            low = g < low ? g : low;
        }
    }
    const PRICE own = low;
    #pragma unroll
    for (int step = 16; step; step >>= 1) {
        PRICE other = __shfl_xor_sync(ALL_LANES, low, step);
        PRICE beyond = __shfl_xor_sync(ALL_LANES, next, step);
        PRICE larger = other > low ? other : low;
        next = beyond < next ? beyond : next;
        next = other != low && larger < next ? larger : next;
        low = other < low ? other : low;
    }
    ties = own == low ? ties : 0;
    #pragma unroll
    for (int step = 16; step; step >>= 1) ties += __shfl_xor_sync(ALL_LANES, ties, step);
    wrong = __ballot_sync(ALL_LANES, wrong) != 0;
    int size = 0;
    PRICE above = next;
    if (wrong || low >= INFINITE) {
        size = wrong ? -1 : 0;
        above = low;
    } else {
        int* mine = ids + (i64)p * ROOM;
        if (i < n_columns && signed_cost(cost_at(costs, row, i)) - v[i] == low) {
            if (lane == 0) mine[0] = i;
            size = 1;
        }
        const u64 spread = (u64)(i + 1) * 0x9E3779B97F4A7C15ULL;
        const int n_blocks = (n_columns + BLOCK - 1) / BLOCK, strips = BLOCK / 32;
        const int begin = (int)((spread >> 33) % (u64)n_blocks);
        const int first = (int)((spread >> 20) % (u64)strips);
        for (int turn = 0; turn < n_blocks && size < ties && size < ROOM; turn++) {
            int block = begin + turn;
            block -= block >= n_blocks ? n_blocks : 0;
            int room = ROOM - size < PER_BLOCK ? ROOM - size : PER_BLOCK;
            for (int s = 0; s < strips && room > 0 && size < ties; s++) {
                int j = block * BLOCK + (first + s & strips - 1) * 32 + lane;
                bool hit = j < n_columns && j != i
                    && signed_cost(cost_at(costs, row, j)) - v[j] == low;
                const u32 hits = __ballot_sync(ALL_LANES, hit);
                const int place = __popc(hits & ((1u << lane) - 1));
                if (hit && place < room) mine[size + place] = j;
                const int found = __popc(hits) < room ? __popc(hits) : room;
                size += found, room -= found;
            }
        }
        above = size == ties ? next : low;
    }
    if (lane == 0) size_out[p] = size, low_out[p] = low, above_out[p] = above;
}

// Costs of some columns to out (n_rows, count).
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_some_columns(
    const i64* cost_words, int n_rows, const int* columns, int count, COST_T* out
) {
    const Costs costs = load_costs(cost_words);
    const i64 all = (i64)n_rows * count;
    for (i64 k = (i64)blockIdx.x * SIDE + threadIdx.x; k < all; k += (i64)gridDim.x * SIDE)
        out[k] = cost_at(costs, open_row(costs, (int)(k / count)), columns[k % count]);
}
