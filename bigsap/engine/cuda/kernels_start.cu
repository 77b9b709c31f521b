// What the start of the dense method asks of a group: greedy picks, prices undercut.

// Greedy picks in the order given: the cheapest c - v among columns not yet taken (the
// first of equals). pick: column or -1; pick_cost: its signed cost, infinite without one.
extern "C" __global__ void CLUSTERED __launch_bounds__(THREADS, 1) bigsap_picks(
    const i64* cost_words, int n_columns, const int* order, int n_order, const PRICE* prices,
    int* pick, PRICE* pick_cost, int* taken_out, i64* words, i64 slice, i64 poll_every,
    volatile i64* host, u64* board, const u64* post
) {
    JOIN_GROUP
    PRICE v[COLS];
    u32 taken[WORDS], outside[WORDS];
    #pragma unroll
    for (int w = 0; w < WORDS; w++) taken[w] = 0, outside[w] = 0;
    #pragma unroll UNROLL
    for (int e = 0; e < COLS; e++) {
        int j = column_of(t, e);
        v[e] = 0;
        if (j >= n_columns) {
            SET(outside, e);
            SET(taken, e);
            continue;
        }
        v[e] = prices[j];
        if (taken_out[j]) SET(taken, e);
    }
    Clock clock = {clock64() + slice, clock64() + poll_every, GO_ON};
    int position = (int)words[W_POSITION], status = S_DONE, flag = GO_ON;
    COST_T c[COLS], ahead[COLS];
    int row = position < n_order ? order[position] : 0;
    fetch(costs, open_row(costs, row), t, n_columns, c);
    while (position < n_order) {
        if (flag != GO_ON) {
            status = flag == GONE ? S_LOST : flag == STOP_NOW ? S_STOPPED : S_YIELD;
            break;
        }
        int next = position + 1 < n_order ? order[position + 1] : row;
        fetch(costs, open_row(costs, next), t, n_columns, ahead);
        PRICE best = INFINITE, best_cost = 0;
        u32 best_low = NO_COLUMN;
        int best_e = 0;
        #pragma unroll UNROLL
        for (int e = 0; e < COLS; e++) {
            PRICE x = signed_cost(c[e]), h = x - v[e];
            if (!HAS(taken, e) && h < best) {
                best = h, best_low = (u32)(first + column_of(t, e)), best_e = e, best_cost = x;
            }
        }
        Record mine;
        mine.key = best_low == NO_COLUMN ? ~0ULL : key_of(best);
        mine.low = best_low;
        mine.owner = mine.pred = 0;
        mine.price = 0;
        mine.flag = GO_ON;
        if (t == 0) {
            look(clock, poll_every, host, position, 0);
            mine.flag = clock.flag;
        }
        Record r = agree(g, mine, 0, flag);
        if (flag == GONE) continue;
        if (r.low == NO_COLUMN) {
            if (t == 0) pick[row] = -1, pick_cost[row] = INFINITE;
        } else if (mine.low == r.low) {
            SET(taken, best_e);
            pick[row] = (int)r.low;
            pick_cost[row] = best_cost;
        }
        #pragma unroll UNROLL
        for (int e = 0; e < COLS; e++) c[e] = ahead[e];
        row = next;
        position += 1;
    }
    #pragma unroll UNROLL
    for (int e = 0; e < COLS; e++) {
        int j = column_of(t, e);
        if (j < n_columns) taken_out[j] = (int)HAS(taken, e);
    }
    if (t == 0) {
        words[W_POSITION] = position;
        words[W_STATUS] = status;
    }
    meet(g);
}

// Backwards through the picks: no column picked earlier may undercut a later pick.
// order: already reversed, the rank of its entry p is n_order - 1 - p.
extern "C" __global__ void CLUSTERED __launch_bounds__(THREADS, 1) bigsap_undercut(
    const i64* cost_words, int n_columns, const int* order, int n_order, const int* pick,
    const int* rank_of_column, PRICE* prices, i64* words, i64 slice, i64 poll_every,
    volatile i64* host, u64* board, const u64* post
) {
    JOIN_GROUP
    PRICE v[COLS];
    int rank_of[COLS];
    #pragma unroll UNROLL
    for (int e = 0; e < COLS; e++) {
        int j = column_of(t, e);
        v[e] = 0, rank_of[e] = -1;
        if (j < n_columns) v[e] = prices[j], rank_of[e] = rank_of_column[j];
    }
    Clock clock = {clock64() + slice, clock64() + poll_every, GO_ON};
    int position = (int)words[W_POSITION], status = S_DONE, flag = GO_ON;
    COST_T c[COLS], ahead[COLS];
    int row = position < n_order ? order[position] : 0;
    fetch(costs, open_row(costs, row), t, n_columns, c);
    while (position < n_order) {
        if (flag != GO_ON) {
            status = flag == GONE ? S_LOST : flag == STOP_NOW ? S_STOPPED : S_YIELD;
            break;
        }
        const int rank = n_order - 1 - position;
        const int own = pick[row];
        int next = position + 1 < n_order ? order[position + 1] : row;
        fetch(costs, open_row(costs, next), t, n_columns, ahead);
        // Tell everybody the price of the row's own pick.
        Record mine;
        mine.key = ~0ULL;
        mine.low = NO_COLUMN;
        mine.owner = mine.pred = 0;
        mine.price = 0;
        mine.flag = GO_ON;
        u64 entry = 0;
        #pragma unroll UNROLL
        for (int e = 0; e < COLS; e++) {
            const int j = column_of(t, e);
            if (own >= 0 && j < n_columns && first + j == own) {
                mine.key = 0, mine.low = 0;
                mine.price = bits_of(v[e]);
                entry = bits_of(signed_cost(c[e]));
            }
        }
        if (t == 0) {
            look(clock, poll_every, host, position, 0);
            mine.flag = clock.flag;
        }
        Record r = agree(g, mine, entry, flag);
        if (flag == GONE) continue;
        if (own >= 0) {
            const PRICE price = of_bits(r.price);
#if DEVICES > 1
            const PRICE own_cost = g.post.here ? signed_cost(cost_at(costs, open_row(costs, row), own - first))
                                               : of_bits(g.post.entry);
#else
            const PRICE own_cost = signed_cost(cost_at(costs, open_row(costs, row), own));
#endif
            const PRICE reduced = own_cost - price;
            #pragma unroll UNROLL
            for (int e = 0; e < COLS; e++) {
                PRICE limit = signed_cost(c[e]) - reduced;
                bool lower = rank_of[e] >= 0 && rank_of[e] < rank && limit < v[e];
                v[e] = lower ? limit : v[e];
            }
        }
        #pragma unroll UNROLL
        for (int e = 0; e < COLS; e++) c[e] = ahead[e];
        row = next;
        position += 1;
    }
    #pragma unroll UNROLL
    for (int e = 0; e < COLS; e++) {
        int j = column_of(t, e);
        if (j < n_columns) prices[j] = v[e];
    }
    if (t == 0) {
        words[W_POSITION] = position;
        words[W_STATUS] = status;
    }
    meet(g);
}
