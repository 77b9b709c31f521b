// Rounds of the forward auction (bigsap/engine/dense/bidding.py), a block a bid, in one launch.
//
// Macros set by the host: SIDE (threads), SIGN, PRICE_IS_INT; kernels_price.cu comes before.

__device__ __forceinline__ PRICE signed_cost(COST_T c) { return SIGN * (PRICE)c; }

// ends: keys of the smallest and the largest signed cost that is allowed; bad: the smallest
// number of a row with an invalid one.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_range(
    const i64* cost_words, int n_rows, int n_columns, u64* ends, int* bad
) {
    const Costs costs = load_costs(cost_words);
    u64 low = ~0ULL, high = 0;
    for (int i = blockIdx.x; i < n_rows; i += gridDim.x) {
        const Row row = open_row(costs, i);
        for (int j = threadIdx.x; j < n_columns; j += SIDE) {
            const PRICE x = signed_cost(cost_at(costs, row, j));
            if (!(x > -INFINITE)) atomicMin(bad, i);
            if (!(x < INFINITE)) continue;
            const u64 key = key_of(x);
            low = key < low ? key : low;
            high = key > high ? key : high;
        }
    }
    atomicMin(ends, low);
    atomicMax(ends + 1, high);
}

// Words: rows free now and in the next round, which buffer is the present one, why it ended.
#define COUNT 0
#define NEXT 1
#define TURN 2
#define STOP 3
#define BARRIER 16
#define GO_ON 0
#define LIMIT 1
#define YIELD 2

// All blocks are resident (cooperative launch), so waiting ends.
__device__ __forceinline__ void meet(int* words, u32& passed) {
    passed += 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd((u32*)words + BARRIER, 1u);
        while (*(volatile u32*)(words + BARRIER) < passed * gridDim.x) __nanosleep(20);
        __threadfence();
    }
    __syncthreads();
}

// free: two buffers of n_rows; least: ~0, winner: n_rows, both for every column; bids[0]: made.
// cycles: the launch ends after so many; host[0]: the host's wish that it ends.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_bids(
    const i64* cost_words, int n_rows, int n_columns, PRICE spread, PRICE epsilon, PRICE floor,
    i64 most, int* words, int* free_rows, int* wish, PRICE* offer, u64* least, int* winner,
    int* column_of_row, int* row_of_column, PRICE* v, u64* bids, i64 cycles, const i64* host
) {
    __shared__ PRICE bests[SIDE], seconds[SIDE];
    __shared__ int choices[SIDE];
    const Costs costs = load_costs(cost_words);
    const int t = threadIdx.x, item = blockIdx.x * SIDE + t, items = gridDim.x * SIDE;
    const i64 begun = clock64();
    u32 passed = 0;
    for (;;) {
        const int count = __ldcg(words + COUNT), turn = __ldcg(words + TURN);
        if (count == 0 || __ldcg(words + STOP) != GO_ON) return;
        const int* bidders = free_rows + (i64)turn * n_rows;
        int* next = free_rows + (i64)(1 - turn) * n_rows;
        for (int p = blockIdx.x; p < count; p += gridDim.x) {
            const int i = __ldcg(bidders + p);
            const Row row = open_row(costs, i);
            PRICE best = INFINITE, second = INFINITE;
            int choice = -1;
            for (int j = t; j < n_columns; j += SIDE) {
                const PRICE g = signed_cost(cost_at(costs, row, j)) - __ldcg(v + j);
                if (!(g < second)) continue;
                if (g < best) second = best, best = g, choice = j;
                else second = g;
            }
            bests[t] = best, seconds[t] = second, choices[t] = choice;
            __syncthreads();
            for (int step = SIDE / 2; step; step >>= 1) {
                if (t < step && choices[t + step] >= 0) {
                    const PRICE b = bests[t + step], s = seconds[t + step];
                    const int c = choices[t + step];
                    if (choices[t] < 0 || b < bests[t] || (b == bests[t] && c < choices[t])) {
                        seconds[t] = s < bests[t] ? s : bests[t];
                        bests[t] = b, choices[t] = c;
                    } else if (b < seconds[t]) {
                        seconds[t] = b;
                    }
                }
                __syncthreads();
            }
            if (t == 0) {
                const int j = choices[0];
                wish[i] = j;
                if (j >= 0) {
                    const PRICE more = seconds[0] < INFINITE ? seconds[0] - bests[0] : spread;
                    offer[i] = __ldcg(v + j) - (more + epsilon);
                    atomicMin(least + j, key_of(offer[i]));
                }
            }
            __syncthreads();
        }
        meet(words, passed);
        for (int p = item; p < count; p += items) {
            const int i = __ldcg(bidders + p), j = __ldcg(wish + i);
            if (j >= 0 && key_of(__ldcg(offer + i)) == __ldcg(least + j)) atomicMin(winner + j, i);
        }
        meet(words, passed);
        for (int p = item; p < count; p += items) {
            const int i = __ldcg(bidders + p), j = __ldcg(wish + i);
            if (j < 0) continue;
            atomicAdd(bids, 1ULL);
            int loser = i;
            if (__ldcg(winner + j) == i) {
                winner[j] = n_rows, least[j] = ~0ULL;  // whoever else has bid for it still loses
                v[j] = __ldcg(offer + i);
                if (v[j] < floor) words[STOP] = LIMIT;
                loser = __ldcg(row_of_column + j);
                row_of_column[j] = i;
                column_of_row[i] = j;
                if (loser >= 0) column_of_row[loser] = -1;
            }
            if (loser >= 0) next[atomicAdd(words + NEXT, 1)] = loser;
        }
        meet(words, passed);
        if (item == 0) {
            if (__ldcg(words + STOP) == GO_ON) {
                if (words[NEXT] && (i64)__ldcg(bids) >= most) words[STOP] = LIMIT;
                else if (clock64() - begun > cycles || *(volatile const i64*)host) words[STOP] = YIELD;
            }
            words[COUNT] = __ldcg(words + NEXT), words[NEXT] = 0, words[TURN] = 1 - turn;
        }
        meet(words, passed);
    }
}
