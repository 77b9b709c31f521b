// The Hungarian method with one clock (bigsap/engine/hungarian: forest.py, growing.py, star.py) in
// one persistent launch.
//
// For whole numbers whose range fits 29 bits: times are 31 bits, and a claim is one 64-bit minimum
// of (time, row), which makes it independent of who comes first.
//
// Block 0 leads. What is short it does alone: the forest's words are then in its shared memory, its
// threads meet at block barriers, and loads go through the first-level cache, which sees
// all that the block itself has written. For what is wide it names a command, and all blocks
// of the grid do their share between two grid barriers, with the words in device memory; the
// fence behind such a barrier empties the cache.
//
// Macros set by the host: KEEP, TEAM (threads), WIDE (items from which all blocks work);
// kernels_grid.cu comes before.

#define ALL_LANES 0xffffffffu
#define NEVER 0x7fffffff
#define FAR (NEVER - 1)
#define NO_KEY 0xffffffffffffffffULL

// Words of the forest.
#define N_ROWS 0
#define N_COLUMNS 1
#define N_TOUCHED 2
#define N_TIGHT 3
#define N_FRONTIER 4
#define N_NEXT 5
#define N_LEAVES 6
#define N_KEPT 7        // columns that stay, while trees are dismissed
#define N_WAITING 8     // rows that want a star
#define N_OFFERS 9
#define COMMAND 10
#define STEP 11
#define NOW 12
#define NEXT_TIME 13
#define FIRST_END 14
#define LEFT 15
#define TURN 16         // which of two buffers is the present one: frontier, columns
#define STAR_TURN 17
#define SINGLE 18
#define STAGES 19
#define PATHS 20
#define LEVELS 21
#define CLOCKS 22
#define EXPANSIONS 23
#define EVENTS 24
#define ROOTS 25
#define MARK 26
#define MARK_LEFT 27
#define WHY 28
#define BROKEN_PATH 29
#define ITEMS 30        // of the next command
#define PLANTED 31      // whether there are trees
#define N_WORDS 32
#define BARRIER 64  // in a line of its own: all blocks but the first wait by reading it

// Commands, and why a launch has ended. STEP is the next command.
#define SETUP 1
#define OFFER 2
#define ACCEPT 3
#define PLANT 4
#define EXPAND 5
#define TAKE 6
#define DISMISS 7
#define RESET 8
#define LEAST 9
#define COLLECT 10
#define UPROOT 11
#define LEAVE 12

// A warp expands a row, several at a time: against WIDE a row counts as so many items.
#define EXPAND_SHARE 8

#define DONE 0
#define YIELD 1
#define EVENT 2
#define INFEASIBLE 3
#define LIMIT 4
#define BROKEN 5
#define TOO_FAR 6

struct Trees {
    u64* key;
    int *words, *u, *since, *root, *leaf, *rows, *rows_other, *frontier, *frontier_other, *roots;
    int *column_of_row, *v, *at, *pred, *touched, *tight, *columns, *columns_other, *row_of_column;
    int *offer, *wish;
    const int *ids, *costs, *sizes, *theta;
    int n, m;
    u32 passed;
};

// Of block 0, while it works alone.
__shared__ int own_words[N_WORDS];

template <bool ALONE> __device__ __forceinline__ int word(const Trees& f, int k) {
    return ALONE ? own_words[k] : __ldcg(f.words + k);
}
// A place of the list that word k counts, for the lanes that want one; a warp comes as a whole, since
// one addition for all is many times as fast as one each.
template <bool ALONE>
__device__ __forceinline__ int claim(const Trees& f, int k, bool wants) {
    const u32 lanes = __ballot_sync(ALL_LANES, wants);
    if (lanes == 0) return 0;
    const int lane = threadIdx.x & 31;
    int first = 0;
    if (lane == 0) first = atomicAdd((ALONE ? own_words : f.words) + k, __popc(lanes));
    return __shfl_sync(ALL_LANES, first, 0) + __popc(lanes & ((1u << lane) - 1));
}
template <bool ALONE, class T> __device__ __forceinline__ T load(const T* place) {
    return ALONE ? *place : __ldcg(place);
}

template <bool ALONE> __device__ __forceinline__ int* front(const Trees& f, int other) {
    return (word<ALONE>(f, TURN) ^ other) & 1 ? f.frontier_other : f.frontier;
}
template <bool ALONE> __device__ __forceinline__ int* reached(const Trees& f, int other) {
    return (word<ALONE>(f, STAR_TURN) ^ other) & 1 ? f.columns_other : f.columns;
}
template <bool ALONE> __device__ __forceinline__ int* living(const Trees& f, int other) {
    return (word<ALONE>(f, STAR_TURN) ^ other) & 1 ? f.rows_other : f.rows;
}

// Rows of a warp at a time: their loads wait for one another only within a row.
#define AT_ONCE 4

template <bool ALONE> __device__ __forceinline__ void expand(const Trees& f, int item, int items) {
    const int lane = item & 31, now = word<ALONE>(f, NOW), count = word<ALONE>(f, N_FRONTIER);
    const int* frontier = front<ALONE>(f, 0);
    const int warps = items >> 5;
    int expanded = 0;
    for (int first = item >> 5; first < count; first += AT_ONCE * warps) {
        int row[AT_ONCE], root[AT_ONCE], j[AT_ONCE], cost[AT_ONCE], base[AT_ONCE], when[AT_ONCE];
        u64 seen[AT_ONCE], old[AT_ONCE];
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int p = first + k * warps;
            row[k] = p < count ? load<ALONE>(frontier + p) : -1;
        }
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            root[k] = row[k] >= 0 ? load<ALONE>(f.root + row[k]) : -1;
            // No dual is negative, so the difference is of 31 bits.
            base[k] = row[k] >= 0 ? load<ALONE>(f.since + row[k]) - load<ALONE>(f.u + row[k]) : 0;
            const bool inside = row[k] >= 0 && lane < f.sizes[row[k]];
            j[k] = inside ? f.ids[(i64)row[k] * KEEP + lane] : -1;
            cost[k] = inside ? f.costs[(i64)row[k] * KEEP + lane] : 0;
        }
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            // Trees that have a free column grow no further: they are dismissed with this stage.
            const bool grows = row[k] >= 0 && load<ALONE>(f.leaf + root[k]) == f.m;
            expanded += grows ? 1 : 0;
            if (!grows) j[k] = -1;
            seen[k] = j[k] >= 0 ? load<ALONE>(f.key + j[k]) : 0;
            const i64 t = j[k] >= 0 ? (i64)cost[k] - load<ALONE>(f.v + j[k]) + base[k] : 0;
            when[k] = t < now ? now : t > FAR ? FAR : (int)t;
        }
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const u64 mine = (u64)(u32)when[k] << 32 | (u32)row[k];
            const bool claims = j[k] >= 0 && mine < seen[k];
            old[k] = claims ? atomicMin(f.key + j[k], mine) : 0;
            seen[k] = mine;
        }
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const bool won = seen[k] < old[k];
            const bool is_new = won && old[k] == NO_KEY;
            const bool is_tight =
                won && when[k] == now && (i64)(old[k] >> 32) > now;
            if (!__ballot_sync(ALL_LANES, won)) continue;
            const int touched = claim<ALONE>(f, N_TOUCHED, is_new);
            if (is_new) f.touched[touched] = j[k];
            const int tight = claim<ALONE>(f, N_TIGHT, is_tight);
            if (is_tight) f.tight[tight] = j[k];
        }
    }
    if (lane == 0 && expanded) atomicAdd((ALONE ? own_words : f.words) + EXPANSIONS, expanded);
}

template <bool ALONE> __device__ __forceinline__ void take(const Trees& f, int item, int items) {
    const int now = word<ALONE>(f, NOW), count = word<ALONE>(f, N_TIGHT);
    int* next = front<ALONE>(f, 1);
    int* columns = reached<ALONE>(f, 0) + word<ALONE>(f, N_COLUMNS);
    int* rows = living<ALONE>(f, 0) + word<ALONE>(f, N_ROWS);
    for (int from = item & ~31; from < count; from += items) {
        const int p = from + (item & 31);
        int row = -1, root = -1;
        bool first_leaf = false;
        if (p < count) {
            const int j = load<ALONE>(f.tight + p);
            const int by = (int)(u32)load<ALONE>(f.key + j);
            row = load<ALONE>(f.row_of_column + j), root = load<ALONE>(f.root + by);
            f.pred[j] = by;
            f.key[j] = 0;  // no claim is smaller
            f.at[j] = now;
            columns[p] = j;
            first_leaf = row < 0 && atomicMin(f.leaf + root, j) == f.m;
        }
        const int leaf = claim<ALONE>(f, N_LEAVES, first_leaf);
        if (first_leaf) f.roots[leaf] = root;
        const int place = claim<ALONE>(f, N_NEXT, row >= 0);
        if (row >= 0) {
            f.root[row] = root;
            f.since[row] = now;
            rows[place] = row;
            next[place] = row;
        }
    }
}

// Augment, and dismiss the trees of these paths; what lives is the next frontier.
template <bool ALONE> __device__ __forceinline__ void dismiss(const Trees& f, int item, int items) {
    const int now = word<ALONE>(f, NOW);
    const int n_leaves = word<ALONE>(f, N_LEAVES), n_rows = word<ALONE>(f, N_ROWS);
    const int n_columns = word<ALONE>(f, N_COLUMNS), n_touched = word<ALONE>(f, N_TOUCHED);
    const int *columns = reached<ALONE>(f, 0), *rows = living<ALONE>(f, 0);
    int *columns_kept = reached<ALONE>(f, 1), *rows_kept = living<ALONE>(f, 1);
    int* next = front<ALONE>(f, 1);
    for (int p = item; p < n_leaves; p += items) {
        const int root = load<ALONE>(f.roots + p);
        int j = load<ALONE>(f.leaf + root);
        for (int steps = 0;; steps++) {
            const int row = load<ALONE>(f.pred + j), before = load<ALONE>(f.column_of_row + row);
            f.column_of_row[row] = j;
            f.row_of_column[j] = row;
            if (row == root) break;
            j = before;
            if (steps > f.n || j < 0) {  // a path has no more rows than there are
                (ALONE ? own_words : f.words)[BROKEN_PATH] = 1;
                break;
            }
        }
    }
    for (int from = item & ~31; from < n_columns; from += items) {
        const int p = from + (item & 31);
        bool stays = false;
        int j = 0;
        if (p < n_columns) {
            j = load<ALONE>(columns + p);
            stays = load<ALONE>(f.leaf + load<ALONE>(f.root + load<ALONE>(f.pred + j))) == f.m;
            if (!stays) {
                f.v[j] = load<ALONE>(f.v + j) - (now - load<ALONE>(f.at + j));
                f.key[j] = NO_KEY;
            }
        }
        const int place = claim<ALONE>(f, N_KEPT, stays);
        if (stays) columns_kept[place] = j;
    }
    for (int from = item & ~31; from < n_rows; from += items) {
        const int p = from + (item & 31);
        bool stays = false;
        int row = 0;
        if (p < n_rows) {
            row = load<ALONE>(rows + p);
            stays = load<ALONE>(f.leaf + load<ALONE>(f.root + row)) == f.m;
            if (!stays) f.u[row] = load<ALONE>(f.u + row) + (now - load<ALONE>(f.since + row));
        }
        const int place = claim<ALONE>(f, N_NEXT, stays);
        if (stays) rows_kept[place] = row, next[place] = row;
    }
    for (int p = item; p < n_touched; p += items) {
        const int j = load<ALONE>(f.touched + p);
        if (load<ALONE>(f.key + j) != 0) f.key[j] = NO_KEY;
    }
}

template <bool ALONE> __device__ __forceinline__ void least_time(const Trees& f, int item, int items) {
    const int n_touched = word<ALONE>(f, N_TOUCHED), n_rows = word<ALONE>(f, N_ROWS);
    const int* rows = living<ALONE>(f, 0);
    int time = NEVER, end = NEVER;
    for (int p = item; p < n_touched; p += items) {
        const u64 key = load<ALONE>(f.key + load<ALONE>(f.touched + p));
        const int t = key ? (int)(key >> 32) : NEVER;
        time = t < time ? t : time;
    }
    for (int p = item; p < n_rows; p += items) {
        const int row = load<ALONE>(rows + p), theta = f.theta[row];
        if (theta == NEVER) continue;
        const i64 t = (i64)theta - load<ALONE>(f.u + row) + load<ALONE>(f.since + row);
        const int ends = t > FAR ? FAR : (int)t;
        end = ends < end ? ends : end;
    }
    #pragma unroll
    for (int step = 16; step; step >>= 1) {
        const int a = __shfl_xor_sync(ALL_LANES, time, step);
        const int b = __shfl_xor_sync(ALL_LANES, end, step);
        time = a < time ? a : time;
        end = b < end ? b : end;
    }
    if ((threadIdx.x & 31) == 0) {
        int* words = ALONE ? own_words : f.words;
        if (time < NEVER) atomicMin(words + NEXT_TIME, time);
        if (end < NEVER) atomicMin(words + FIRST_END, end);
    }
}

template <bool ALONE> __device__ __forceinline__ void collect(const Trees& f, int item, int items) {
    const int now = word<ALONE>(f, NOW), n_touched = word<ALONE>(f, N_TOUCHED);
    for (int from = item & ~31; from < n_touched; from += items) {
        const int p = from + (item & 31);
        const int j = p < n_touched ? load<ALONE>(f.touched + p) : 0;
        const u64 key = p < n_touched ? load<ALONE>(f.key + j) : 0;
        const bool tight = key && (int)(key >> 32) <= now;
        const int place = claim<ALONE>(f, N_TIGHT, tight);
        if (tight) f.tight[place] = j;
    }
}

// First stars, in rounds: rows offer themselves, columns take the smallest. See star.star.
template <bool ALONE> __device__ __forceinline__ void offer(const Trees& f, int item, int items) {
    const int lane = item & 31;
    const int count = word<ALONE>(f, N_WAITING), single = word<ALONE>(f, SINGLE);
    const int* waiting = living<ALONE>(f, 0);
    for (int p = item >> 5; p < count; p += items >> 5) {
        const int row = load<ALONE>(waiting + p), size = f.sizes[row];
        int j = -1;
        bool hit = false;
        if (lane < size) {
            j = f.ids[(i64)row * KEEP + lane];
            hit = f.costs[(i64)row * KEEP + lane] - load<ALONE>(f.v + j) == load<ALONE>(f.u + row)
                && load<ALONE>(f.row_of_column + j) < 0;
        }
        const u32 hits = __ballot_sync(ALL_LANES, hit);
        const int choice = __ffs(hits) - 1;  // zeros are sorted from the row's place on
        const bool offers = hits && (!single || __popc(hits) == 1);
        if (lane == 0) f.wish[row] = hits ? -1 : -2;
        __syncwarp();
        if (offers && lane == choice) {
            f.wish[row] = j;
            atomicMin(f.offer + j, row);
            (ALONE ? own_words : f.words)[N_OFFERS] = 1;
        }
    }
}

template <bool ALONE> __device__ __forceinline__ void accept(const Trees& f, int item, int items) {
    const int count = word<ALONE>(f, N_WAITING);
    const int* waiting = living<ALONE>(f, 0);
    int* still = living<ALONE>(f, 1);
    for (int from = item & ~31; from < count; from += items) {
        const int p = from + (item & 31);
        const int row = p < count ? load<ALONE>(waiting + p) : 0;
        const int j = p < count ? load<ALONE>(f.wish + row) : -2;
        bool waits = j != -2;  // else no free zero is left, nor will one come
        if (j >= 0 && load<ALONE>(f.offer + j) == row) {
            f.column_of_row[row] = j;
            f.row_of_column[j] = row;
            waits = false;
        }
        const int place = claim<ALONE>(f, N_NEXT, waits);
        if (waits) still[place] = row;
    }
}

template <bool ALONE> __device__ __forceinline__ void plant(const Trees& f, int item, int items) {
    int *rows = living<ALONE>(f, 0), *frontier = front<ALONE>(f, 0);
    for (int from = item & ~31; from < f.n; from += items) {
        const int row = from + (item & 31);
        bool is_root = false;
        if (row < f.n) {
            f.leaf[row] = f.m;
            f.since[row] = 0;
            is_root = load<ALONE>(f.column_of_row + row) < 0;
        }
        const int place = claim<ALONE>(f, N_ROWS, is_root);
        if (is_root) f.root[row] = rows[place] = frontier[place] = row;
    }
}

template <bool ALONE> __device__ __forceinline__ void uproot(const Trees& f, int item, int items) {
    const int now = word<ALONE>(f, NOW), n_rows = word<ALONE>(f, N_ROWS), n_columns = word<ALONE>(f, N_COLUMNS);
    const int *columns = reached<ALONE>(f, 0), *rows = living<ALONE>(f, 0);
    for (int p = item; p < n_columns; p += items) {
        const int j = load<ALONE>(columns + p);
        f.v[j] = load<ALONE>(f.v + j) - (now - load<ALONE>(f.at + j));
    }
    for (int p = item; p < n_rows; p += items) {
        const int row = load<ALONE>(rows + p);
        f.u[row] = load<ALONE>(f.u + row) + (now - load<ALONE>(f.since + row));
    }
}

template <bool ALONE> __device__ __forceinline__ void set_up(const Trees& f, int item, int items) {
    int* waiting = living<ALONE>(f, 0);
    for (int i = item; i < f.n; i += items) waiting[i] = i, f.column_of_row[i] = -1;
    for (int j = item; j < f.m; j += items)
        f.row_of_column[j] = -1, f.offer[j] = NEVER, f.key[j] = NO_KEY;
}

template <bool ALONE>
__device__ __forceinline__ void perform(const Trees& f, int command, int item, int items) {
    switch (command) {
        case EXPAND: expand<ALONE>(f, item, items); break;
        case TAKE: take<ALONE>(f, item, items); break;
        case DISMISS: dismiss<ALONE>(f, item, items); break;
        case RESET:
            for (int p = item; p < word<ALONE>(f, N_LEAVES); p += items)
                f.leaf[load<ALONE>(f.roots + p)] = f.m;
            break;
        case LEAST: least_time<ALONE>(f, item, items); break;
        case COLLECT: collect<ALONE>(f, item, items); break;
        case OFFER: offer<ALONE>(f, item, items); break;
        case ACCEPT: accept<ALONE>(f, item, items); break;
        case PLANT: plant<ALONE>(f, item, items); break;
        case UPROOT: uproot<ALONE>(f, item, items); break;
        case SETUP: set_up<ALONE>(f, item, items); break;
    }
}

// What follows is by one thread of block 0, on the words in its shared memory.
__device__ __forceinline__ void go_to(int command, int items) {
    own_words[STEP] = command;
    own_words[ITEMS] = items;
}

__device__ __forceinline__ int larger(int a, int b) { return a > b ? a : b; }

__device__ __forceinline__ void finish(int why) {
    own_words[WHY] = why;
    go_to(UPROOT, larger(own_words[N_ROWS], own_words[N_COLUMNS]));
}

// The next level, unless all rows are matched, or levels match too few.
__device__ __forceinline__ void go_on(int enough) {
    const int left = own_words[LEFT], levels = own_words[LEVELS];
    if (left == 0) return finish(DONE);
    if ((i64)(own_words[MARK_LEFT] - left) * 64 >= own_words[ROOTS])
        own_words[MARK] = levels, own_words[MARK_LEFT] = left;
    else if (levels - own_words[MARK] > enough)
        return finish(LIMIT);
    go_to(EXPAND, EXPAND_SHARE * own_words[N_FRONTIER]);
}

__device__ __forceinline__ void advance() {
    own_words[NEXT_TIME] = own_words[FIRST_END] = NEVER;
    go_to(LEAST, larger(own_words[N_ROWS], own_words[N_TOUCHED]));
}

// The command after this one, see growing.run_forest. Rounds of stars: every one but the last of
// its kind matches a row.
__device__ __noinline__ void decide(int command, int n_rows, int enough) {
    if (command == SETUP) {
        own_words[N_WAITING] = n_rows, own_words[SINGLE] = 1;
        go_to(OFFER, EXPAND_SHARE * n_rows);
    } else if (command == OFFER) {
        go_to(ACCEPT, own_words[N_WAITING]);
    } else if (command == ACCEPT) {
        const int offers = own_words[N_OFFERS], waiting = own_words[N_NEXT];
        const bool last = waiting == 0 || (!offers && !own_words[SINGLE]);
        own_words[N_WAITING] = waiting;
        own_words[N_NEXT] = own_words[N_OFFERS] = 0;
        own_words[STAR_TURN] ^= 1;
        own_words[SINGLE] = offers ? 1 : 0;
        go_to(last ? PLANT : OFFER, last ? n_rows : EXPAND_SHARE * waiting);
    } else if (command == PLANT) {
        const int roots = own_words[N_ROWS];
        own_words[N_FRONTIER] = own_words[LEFT] = own_words[ROOTS] = own_words[MARK_LEFT] = roots;
        own_words[PLANTED] = 1;
        go_on(enough);
    } else if (command == EXPAND) {
        own_words[LEVELS] += 1;
        if (own_words[N_TIGHT] || own_words[N_LEAVES]) go_to(TAKE, own_words[N_TIGHT]);
        else advance();
    } else if (command == TAKE) {
        const int next = own_words[N_NEXT];
        own_words[N_COLUMNS] += own_words[N_TIGHT];
        own_words[N_ROWS] += next;
        own_words[N_FRONTIER] = next;
        own_words[N_TIGHT] = own_words[N_NEXT] = 0;
        own_words[TURN] ^= 1;
        if (next) {
            go_on(enough);
        } else if (own_words[N_LEAVES]) {
            const int most = larger(own_words[N_COLUMNS], own_words[N_ROWS]);
            go_to(DISMISS, larger(most, own_words[N_TOUCHED]));
        } else {
            advance();
        }
    } else if (command == DISMISS) {
        go_to(RESET, own_words[N_LEAVES]);
    } else if (command == RESET) {
        own_words[STAGES] += 1;
        own_words[PATHS] += own_words[N_LEAVES];
        own_words[LEFT] -= own_words[N_LEAVES];
        own_words[N_COLUMNS] = own_words[N_KEPT];
        own_words[N_ROWS] = own_words[N_FRONTIER] = own_words[N_NEXT];
        own_words[N_KEPT] = own_words[N_NEXT] = own_words[N_TOUCHED] = own_words[N_LEAVES] = 0;
        own_words[TURN] ^= 1;
        own_words[STAR_TURN] ^= 1;
        if (own_words[BROKEN_PATH]) finish(BROKEN);
        else go_on(enough);
    } else if (command == LEAST) {
        const int time = own_words[NEXT_TIME], end = own_words[FIRST_END];
        const int least = time < end ? time : end;
        if (end <= own_words[NOW] || end < time || least >= FAR) {
            finish(least == NEVER ? INFEASIBLE : least == FAR ? TOO_FAR : EVENT);
        } else {
            own_words[NOW] = time, own_words[CLOCKS] += 1;
            go_to(COLLECT, own_words[N_TOUCHED]);
        }
    } else if (command == COLLECT) {
        go_to(TAKE, own_words[N_TIGHT]);
    } else {
        go_to(LEAVE, 0);
    }
}

__shared__ int stop;

// Everything after the lists. room: int32, SPAN to each vector; key: u64 (n_columns,). cycles: the
// launch ends after so many; host[0]: the host's wish that it ends, looked at now and then. Every
// launch does one command at least, so that it gets on.
extern "C" __global__ void __launch_bounds__(TEAM) bigsap_forest(
    int* words, int* room, u64* key, int span, int n_rows, int n_columns, const int* ids,
    const int* costs, const int* sizes, const int* theta, int* u, int* v, int* column_of_row,
    int* row_of_column, int enough, i64 cycles, const i64* host
) {
    Trees f;
    f.words = words, f.key = key, f.n = n_rows, f.m = n_columns, f.passed = 0;
    f.ids = ids, f.costs = costs, f.sizes = sizes, f.theta = theta, f.u = u, f.v = v;
    f.column_of_row = column_of_row, f.row_of_column = row_of_column;
    int* at = room;
    f.since = at, at += span;
    f.root = at, at += span;
    f.leaf = at, at += span;
    f.rows = at, at += span;
    f.rows_other = at, at += span;
    f.frontier = at, at += span;
    f.frontier_other = at, at += span;
    f.roots = at, at += span;
    f.at = at, at += span;
    f.pred = at, at += span;
    f.touched = at, at += span;
    f.tight = at, at += span;
    f.columns = at, at += span;
    f.columns_other = at, at += span;
    f.offer = at, at += span;
    f.wish = at, at += span;
    const bool leads = blockIdx.x == 0;
    const int t = threadIdx.x, item = blockIdx.x * TEAM + t;
    const i64 between = cycles / 200, ends = clock64() + cycles;
    i64 ask = clock64() + between;
    if (leads && t < N_WORDS) own_words[t] = words[t];
    __syncthreads();
    if (leads && t == 0) {
        stop = 0;
        if (own_words[STEP] == 0) go_to(SETUP, larger(n_rows, n_columns));
    }
    __syncthreads();
    for (;;) {
        int command = own_words[STEP];
        bool together = !leads;
        if (leads) {
            together = gridDim.x > 1 && (command == LEAVE || stop || own_words[ITEMS] > WIDE);
            if (stop) command = LEAVE;
            if (together && t < N_WORDS) words[t] = t == COMMAND ? command : own_words[t];
        }
        if (together) {
            meet((u32*)words + BARRIER, f.passed);
            if (!leads) command = word<false>(f, COMMAND);
        }
        if (command == LEAVE) break;
        if (together) {
            perform<false>(f, command, item, gridDim.x * TEAM);
            meet((u32*)words + BARRIER, f.passed);
            if (leads && t < N_WORDS) own_words[t] = __ldcg(words + t);
        } else {
            perform<true>(f, command, t, TEAM);
        }
        __syncthreads();
        if (leads && t == 0) {
            decide(command, n_rows, enough);
            const i64 now = clock64();
            bool late = now > ends;
            if (now > ask) {
                ask = now + between;
                late = late || *(volatile const i64*)host;
            }
            stop = late && own_words[STEP] < UPROOT;
            if (stop) own_words[WHY] = YIELD;
        }
        __syncthreads();
    }
    if (leads && gridDim.x == 1 && t < N_WORDS) words[t] = own_words[t];
}
