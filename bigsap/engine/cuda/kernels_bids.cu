// Rounds of the forward auction (bigsap/engine/rows/bidding.py), a block a bid, in one launch.
//
// Macros set by the host: SIDE (threads), SIGN, PRICE_IS_INT; kernels_price.cu, kernels_least.cu
// and kernels_grid.cu come before.

// ends: keys of the smallest and the largest signed cost that is allowed; the first 0 where one is
// invalid.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_range(
    const i64* cost_words, int n_rows, int n_columns, u64* ends
) {
    const Costs costs = load_costs(cost_words);
    u64 low = ~0ULL, high = 0;
    for (int i = blockIdx.x; i < n_rows; i += gridDim.x) {
        const Row row = open_row(costs, i);
        for (int j = threadIdx.x; j < n_columns; j += SIDE) {
            const PRICE x = signed_cost(cost_at(costs, row, j));
            const u64 key = x > -INFINITE ? key_of(x) : 0;
            low = key < low ? key : low;
            high = key > high && x < INFINITE ? key : high;
        }
    }
    atomicMin(ends, low);
    atomicMax(ends + 1, high);
}

// Words: rows free now and in the next round, which half of free_rows they are in, bids made, why
// the launch has ended.
enum { COUNT, NEXT, TURN, BIDS, STOP, BARRIER = 16 };
enum { GO_ON, LIMIT, YIELD };

// free_rows: 2 n_rows; least: ~0, winner: n_rows, both for every column. cycles: the launch ends
// after so many; host[0]: the host's wish that it ends.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_bids(
    const i64* cost_words, int n_rows, int n_columns, PRICE* v, PRICE spread, PRICE epsilon,
    PRICE floor, i64 most, i64* words, int* free_rows, int* wish, PRICE* offer, u64* least,
    int* winner, int* row_of_column, i64 cycles, const i64* host
) {
    const Costs costs = load_costs(cost_words);
    const int t = threadIdx.x, item = blockIdx.x * SIDE + t, items = gridDim.x * SIDE;
    const i64 begun = clock64();
    u32 *arrived = (u32*)(words + BARRIER), passed = 0;
    for (;;) {
        const int count = (int)__ldcg(words + COUNT), turn = (int)__ldcg(words + TURN);
        if (count == 0 || __ldcg(words + STOP) != GO_ON) return;
        const int* bidders = free_rows + (i64)turn * n_rows;
        int* next = free_rows + (i64)(1 - turn) * n_rows;
        for (int p = blockIdx.x; p < count; p += gridDim.x) {
            const int i = __ldcg(bidders + p);
            const Row row = open_row(costs, i);
            PRICE best = INFINITE, second = INFINITE;
            int own = n_columns, anywhere = 0;
            for (int j = t; j < n_columns; j += SIDE) {
                const PRICE g = signed_cost(cost_at(costs, row, j)) - __ldcg(v + j);
                if (!(g < second)) continue;
                if (g < best) second = best, best = g, own = j;
                else second = g;
            }
            int j = own;
            u64 first_key = key_of(best);
            least_of_block(first_key, j);
            u64 second_key = key_of(j == own ? second : best);
            least_of_block(second_key, anywhere);
            if (t > 0) continue;
            wish[i] = j;
            if (j == n_columns) continue;
            best = value_of(first_key), second = value_of(second_key);
            offer[i] = __ldcg(v + j) - ((second < INFINITE ? second - best : spread) + epsilon);
            if (offer[i] < floor) words[STOP] = LIMIT;
            atomicMin(least + j, key_of(offer[i]));
        }
        meet(arrived, passed);
        if (__ldcg(words + STOP) != GO_ON) return;
        for (int p = item; p < count; p += items) {
            const int i = __ldcg(bidders + p), j = __ldcg(wish + i);
            if (j == n_columns) continue;
            if (key_of(__ldcg(offer + i)) == __ldcg(least + j)) atomicMin(winner + j, i);
        }
        meet(arrived, passed);
        for (int p = item; p < count; p += items) {
            const int i = __ldcg(bidders + p), j = __ldcg(wish + i);
            if (j == n_columns) continue;
            atomicAdd((u64*)words + BIDS, 1ULL);
            int loser = i;
            if (__ldcg(winner + j) == i) {
                winner[j] = n_rows, least[j] = ~0ULL;  // whoever else has bid for it still loses
                v[j] = __ldcg(offer + i);
                loser = __ldcg(row_of_column + j);
                row_of_column[j] = i;
            }
            if (loser >= 0) next[atomicAdd((u64*)words + NEXT, 1ULL)] = loser;
        }
        meet(arrived, passed);
        if (item == 0) {
            const i64 left = __ldcg(words + NEXT), over = clock64() - begun > cycles;
            if (left && __ldcg(words + BIDS) >= most) words[STOP] = LIMIT;
            else if (over || *(volatile const i64*)host) words[STOP] = YIELD;
            words[COUNT] = left, words[NEXT] = 0, words[TURN] = 1 - turn;
        }
        meet(arrived, passed);
    }
}
