// The dense method: shortest augmenting paths over whole rows, one after another.
//
// See kernels_group.cu for who knows what.

// What is noted of each scan of a search but the first: the column by which its row was
// entered, that column's pred and owner, and, at the end, its new owner.
struct Note {
    int column, pred, owner, new_owner;
};

extern "C" __global__ void CLUSTERED __launch_bounds__(THREADS, 1) bigsap_search(
    const i64* cost_words, int n_columns, const int* order, int n_order, PRICE* v_out,
    int* owner_out, const PRICE* reference, PRICE epsilon, int n_virtual, PRICE* values,
    i64* words, Note* spill, i64 spill_size, int* settled_out, i64 slice, i64 poll_every, volatile i64* host,
    u64* board, const u64* post, int n_notes
) {
    extern __shared__ Note notes[];
    JOIN_GROUP
    Note* my_spill = spill + (i64)g.rank * spill_size;
    PRICE v[COLS], dist[COLS];
    int pred[COLS], owner[COLS];
    u32 outside[WORDS], settled[WORDS];
    #pragma unroll
    for (int w = 0; w < WORDS; w++) outside[w] = 0;
    #pragma unroll UNROLL
    for (int e = 0; e < COLS; e++) {
        int j = column_of(t, e);
        v[e] = 0, owner[e] = 0, dist[e] = INFINITE, pred[e] = 0;
        if (j < n_columns) v[e] = v_out[j], owner[e] = owner_out[j];
        else SET(outside, e);
    }
#if DEVICES > 1
    // The cost of the pair each column is in: other devices cannot read it here.
    PRICE pair_cost[COLS];
    #pragma unroll UNROLL
    for (int e = 0; e < COLS; e++) {
        pair_cost[e] = 0;
        if (!HAS(outside, e) && owner[e] >= 0)
            pair_cost[e] = signed_cost(cost_at(costs, open_row(costs, owner[e]), column_of(t, e)));
    }
#endif
    i64 scans = words[W_SCANS], n_drops = words[W_DROPS], virtual_scans = words[W_VIRTUAL_SCANS];
    int position = (int)words[W_POSITION];
    int surplus = (int)words[W_SURPLUS];
    PRICE drops = values[V_DROPS], cap = values[V_CAP];
    Clock clock = {clock64() + slice, clock64() + poll_every, GO_ON};
    int status = S_DONE, flag = GO_ON, n_notes_made = 0, root = -1;
    int next_root = position < n_order ? order[position] : 0;
    PRICE next_reference = position < n_order ? reference[next_root] : (PRICE)0;

    while (position < n_order) {
        if (flag != GO_ON) {
            status = flag == GONE ? S_LOST : flag == STOP_NOW ? S_STOPPED : S_YIELD;
            break;
        }
        root = next_root;
        const PRICE low = next_reference;
        COST_T c[COLS];
        {
            const Row opened = open_row(costs, root);
            fetch(costs, opened, t, n_columns, c);
        }
        if (position + 1 < n_order) {
            next_root = order[position + 1];
            next_reference = reference[next_root];
        }
        #pragma unroll
        for (int w = 0; w < WORDS; w++) settled[w] = outside[w];
#if VIRTUAL
        u32 held[WORDS], entered[WORDS];
        #pragma unroll
        for (int w = 0; w < WORDS; w++) held[w] = 0, entered[w] = 0;
        int virtual_note = -1;
        PRICE virtual_label = 0;
#endif
        #pragma unroll UNROLL
        for (int e = 0; e < COLS; e++) {
            PRICE label_here = (signed_cost(c[e]) - low) - v[e];
            dist[e] = HAS(settled, e) ? INFINITE : label_here;
            pred[e] = 0;
        }
        PRICE label = -INFINITE, fallen = 0;
        n_notes_made = 0;
        int n_settled = 0, scan = 0;
        bool found = false;
        scans += 1;
        PRICE sink_price = 0;
        (void)sink_price;
        while (true) {
            // The thread's own smallest label; free before matched, then the first column.
            PRICE best = INFINITE;
            u32 best_low = NO_COLUMN;
            int best_e = -1, best_owner = 0, best_pred = 0;
            PRICE best_price = 0, best_entry = 0;
            #pragma unroll UNROLL
            for (int e = 0; e < COLS; e++) {
                bool is_free = owner[e] < 0;
#if VIRTUAL
                is_free = is_free && (n_virtual == 0 || surplus > 0 || v[e] < cap);
#endif
                u32 order_low = (u32)(first + column_of(t, e)) | (is_free ? 0u : 0x80000000u);
                bool better = !HAS(settled, e)
                    && (dist[e] < best || (dist[e] == best && order_low < best_low));
                better = better && dist[e] < INFINITE;
                if (better) {
                    best = dist[e], best_low = order_low, best_e = e;
                    best_owner = owner[e], best_pred = pred[e], best_price = v[e];
#if DEVICES > 1
                    best_entry = pair_cost[e];
#endif
                }
            }
            Record mine;
            mine.key = best_e < 0 ? ~0ULL : key_of(best);
            mine.low = best_low;
            mine.owner = best_owner;
            mine.price = bits_of(best_price);
            mine.pred = best_pred;
            mine.flag = GO_ON;
            if (t == 0) {
                look(clock, poll_every, host, position, scans);
                mine.flag = clock.flag;
            }
            Record r = agree(g, mine, bits_of(best_entry), flag);
            if (flag >= STOP_NOW) break;
            if (r.low == NO_COLUMN) {
                status = S_INFEASIBLE;
                break;
            }
            PRICE reached = value_of(r.key);
            if (scan == 0 || reached > label) {
                if (n_settled) fallen += (PRICE)n_settled * (reached - label);
                label = reached;
            }
            const int column = (int)(r.low & 0x7fffffffu);
            const bool is_free = !(r.low >> 31);
            const PRICE price = of_bits(r.price);
            if (threadIdx.x == 0) {
                Note* note = n_notes_made < n_notes ? notes + n_notes_made
                                                    : my_spill + n_notes_made;
                note->column = column;
                note->pred = r.pred;
                note->owner = r.owner;
                note->new_owner = NOBODY;
            }
            const bool is_mine = mine.low == r.low && mine.key == r.key;
            n_notes_made += 1;
            scan += 1;
#if VIRTUAL
            if (!is_free && r.owner < 0) {
                // The group of virtual rows: all columns it holds are settled at once, every
                // other is relaxed at label + cap - v.
                virtual_note = n_notes_made - 1;
                virtual_label = label;
                virtual_scans += 1;
                if (is_mine) {
                    SET(entered, best_e);
                    #pragma unroll UNROLL
                    for (int e = 0; e < COLS; e++) if (e == best_e) pred[e] = virtual_note;
                }
                #pragma unroll UNROLL
                for (int e = 0; e < COLS; e++) {
                    if (HAS(settled, e)) continue;
                    if (owner[e] < 0 && v[e] == cap) {
                        SET(held, e);
                        SET(settled, e);
                        continue;
                    }
                    PRICE label_here = label + (cap - v[e]);
                    if (label_here < dist[e]) dist[e] = label_here, pred[e] = scan;
                }
                continue;
            }
#endif
            if (is_mine) {
                SET(settled, best_e);
                // From now on the place of its note.
                #pragma unroll UNROLL
                for (int e = 0; e < COLS; e++) if (e == best_e) pred[e] = n_notes_made - 1;
            }
            // What settled earlier falls further when the label rises; summed as it goes.
            if (label > reached) fallen += label - reached;
            n_settled += 1;
            if (is_free) {
                sink_price = price;
                found = true;
                break;
            }
            // Scan the row that holds the column, entered at label.
            scans += 1;
            const Row row = open_row(costs, r.owner);
            fetch(costs, row, t, n_columns, c);
#if DEVICES > 1
            const PRICE entry_cost =
                g.post.here ? signed_cost(cost_at(costs, row, column - first)) : of_bits(g.post.entry);
#else
            const PRICE entry_cost = signed_cost(cost_at(costs, row, column));
#endif
            #pragma unroll UNROLL
            for (int e = 0; e < COLS; e++) {
                PRICE label_here = (signed_cost(c[e]) - entry_cost) - (v[e] - price) + label;
                bool better = label_here < dist[e] && !HAS(settled, e);
                dist[e] = better ? label_here : dist[e];
                pred[e] = better ? scan : pred[e];
            }
        }
        if (!found) {
            if (flag >= STOP_NOW) status = flag == GONE ? S_LOST : S_STOPPED;
            break;
        }
        // Prices fall in their owners' registers while one thread of each block follows
        // the path back, each block for itself.
        if (threadIdx.x == 0) {
            int k = n_notes_made - 1;
            while (true) {
                Note* note = k < n_notes ? notes + k : my_spill + k;
                int from = note->pred;
                if (from == 0) {
                    note->new_owner = root;
                    break;
                }
                Note* entry = from - 1 < n_notes ? notes + from - 1 : my_spill + from - 1;
                note->new_owner = entry->owner;
                k = from - 1;
            }
        }
        #pragma unroll UNROLL
        for (int e = 0; e < COLS; e++) {
            bool falls = HAS(settled, e) && !HAS(outside, e);
#if VIRTUAL
            falls = falls && !HAS(held, e);
#endif
            if (falls) v[e] = v[e] - ((label - dist[e]) + epsilon);
        }
        __syncthreads();
#if VIRTUAL
        int at_cap = 0;
        const PRICE new_cap = virtual_note >= 0 ? cap - ((label - virtual_label) + epsilon) : cap;
#endif
        #pragma unroll UNROLL
        for (int e = 0; e < COLS; e++) {
            bool noted = HAS(settled, e) && !HAS(outside, e);
#if VIRTUAL
            noted = noted && (!HAS(held, e) || HAS(entered, e));
#endif
            if (noted) {
                Note* note = pred[e] < n_notes ? notes + pred[e] : my_spill + pred[e];
                int row = note->new_owner;
                if (row != NOBODY) {
                    owner[e] = row;
#if DEVICES > 1
                    if (row >= 0)
                        pair_cost[e] =
                            signed_cost(cost_at(costs, open_row(costs, row), column_of(t, e)));
#endif
#if VIRTUAL
                    // The virtual rows took this column: it is at the cap from now on.
                    if (row == FREE) v[e] = new_cap;
#endif
                }
            }
#if VIRTUAL
            if (virtual_note >= 0 && !HAS(outside, e)) {
                if (HAS(held, e) || (owner[e] < 0 && v[e] > new_cap)) v[e] = new_cap;
                if (owner[e] < 0 && v[e] == new_cap) at_cap += 1;
            }
#endif
        }
        drops += fallen;
        n_drops += n_settled;
#if VIRTUAL
        if (virtual_note >= 0) {
            drops += (PRICE)n_virtual * (label - virtual_label);
            n_drops += n_virtual;
            cap = new_cap;
            surplus = total_of(g, at_cap) - n_virtual;
        } else if (n_virtual > 0 && sink_price == cap) {
            surplus -= 1;
        }
#endif
        position += 1;
    }

    #pragma unroll UNROLL
    for (int e = 0; e < COLS; e++) {
        int j = column_of(t, e);
        if (j < n_columns) v_out[j] = v[e], owner_out[j] = owner[e];
    }
    if (t == 0) {
        words[W_POSITION] = position;
        words[W_STATUS] = status;
        words[W_SCANS] = scans;
        words[W_DROPS] = n_drops;
        words[W_SURPLUS] = surplus;
        words[W_ROOT] = root;
        words[W_VIRTUAL_SCANS] = virtual_scans;
        values[V_CAP] = cap;
        values[V_DROPS] = drops;
        if (status == S_INFEASIBLE) {
            words[W_SETTLED] = n_notes_made;
            for (int k = 0; k < n_notes_made; k++)
                settled_out[k] = (k < n_notes ? notes[k] : my_spill[k]).column;
        }
    }
    meet(g);  // no block may leave while another may still write to its shared memory
}
