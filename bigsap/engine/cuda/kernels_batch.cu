// Batches of small problems, each solved and proved by one block: bids of all free rows at once
// (augmenting row reduction), shortest augmenting paths for the rows that are left, then the
// quantities of bigsap/engine/small/proof.py. Prices, distances and the proof are doubles.
//
// Macros set by the host: SIDE (threads), INTEGERS (costs are such). The costs' type is NUMBER.

#define WARPS (SIDE / 32)
#define ALL 0xffffffffu
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)
#define LARGEST 1e290
#define NOBODY 0x7fffffff
// A row's column, if it has none: it bids, waits for a search, or stays alone at its own price.
enum { FREE = -1, WAITING = -2, ALONE = -3 };
// As in engine/small/batch.py and engine/small/search.py.
enum { ADDRESS, ROW_STEP, COLUMN_STEP, ROWS, COLUMNS, KIND, EXACT, CAP, FIRST_ROW, FIRST_KEPT, WORDS };
enum { OPTIMAL = 0, UNSURE = 3 };
#define FACTS 6
#define SAMPLES 16

// Adding 0.0 makes the two zeros one, which compare equal.
__device__ __forceinline__ u64 key_of(double x) {
    const u64 bits = (u64)__double_as_longlong(x + 0.0);
    return bits ^ ((bits >> 63) ? ~0ULL : (1ULL << 63));
}

struct Matrix {
    const char* first;
    i64 row, column;  // bytes
    double sign;
    __device__ const char* at(int i, int j) const { return first + i * row + j * column; }
    __device__ double cost(const char* place) const { return sign * (double)*(const NUMBER*)place; }
    __device__ double cost(int i, int j) const { return cost(at(i, j)); }
};

// a + b and what its rounding left off.
__device__ __forceinline__ double two_sum(double a, double b, double& error) {
    const double sum = __dadd_rn(a, b), part = __dsub_rn(sum, a);
    error = __dadd_rn(__dsub_rn(a, __dsub_rn(sum, part)), __dsub_rn(b, part));
    return sum;
}

// The two least of c - v in a row, and where; of equal ones the first columns. For all lanes.
struct Two {
    double first, second;
    int at, then;
    __device__ void take(double x, int j) {
        if (x < first || (x == first && j < at)) second = first, then = at, first = x, at = j;
        else if (x < second || (x == second && j < then)) second = x, then = j;
    }
};
__device__ __forceinline__ Two two_least(const Matrix& c, const double* v, int i, int m) {
    Two found = {INFINITE, INFINITE, NOBODY, NOBODY};
    const int lane = threadIdx.x & 31;
    const char* place = c.at(i, lane);
    const i64 step = 32 * c.column;
    for (int j = lane; j < m; j += 32, place += step) {
        const double x = c.cost(place) - v[j];
        if (x < found.second) found.take(x, j);
    }
    for (int step = 16; step; step >>= 1) {
        const Two other = {
            __shfl_xor_sync(ALL, found.first, step),
            __shfl_xor_sync(ALL, found.second, step),
            __shfl_xor_sync(ALL, found.at, step),
            __shfl_xor_sync(ALL, found.then, step)
        };
        found.take(other.first, other.at);
        found.take(other.second, other.then);
    }
    return found;
}

// Of a row at the final prices: the least c - v as a sum of two doubles, and the next.
struct Least {
    double low, rest, second, largest;
    bool bad;
    __device__ void take(double x, double error, double next) {
        if (x < low) {
            second = low < next ? low : next;
            low = x, rest = error;
        } else {
            if (x == low && error < rest) rest = error;
            if (x < second) second = x;
        }
    }
};
__device__ __forceinline__ Least least_of_row(const Matrix& c, const double* v, int i, int m) {
    Least found = {INFINITE, 0.0, INFINITE, 0.0, false};
    const int lane = threadIdx.x & 31;
    const char* place = c.at(i, lane);
    const i64 step = 32 * c.column;
    for (int j = lane; j < m; j += 32, place += step) {
        const double x = c.cost(place);
        if (!(x > -INFINITE)) found.bad = true;  // not a number, or the other infinity
        if (!(x < INFINITE)) continue;
        const double size = fabs(x);
        if (size > found.largest) found.largest = size;
        double error;
        const double rounded = two_sum(x, -v[j], error);
        found.take(rounded, error, INFINITE);
    }
    for (int step = 16; step; step >>= 1) {
        const double low = __shfl_xor_sync(ALL, found.low, step), rest = __shfl_xor_sync(ALL, found.rest, step);
        const double second = __shfl_xor_sync(ALL, found.second, step);
        const double largest = __shfl_xor_sync(ALL, found.largest, step);
        const int bad = __shfl_xor_sync(ALL, (int)found.bad, step);
        found.take(low, rest, second);
        if (second < found.second) found.second = second;
        if (largest > found.largest) found.largest = largest;
        found.bad = found.bad || bad;
    }
    return found;
}

// The middle of some numbers, which it sorts.
__device__ __forceinline__ double middle(double* some, int count) {
    for (int k = 1; k < count; k++) {
        const double one = some[k];
        int p = k;
        for (; p > 0 && some[p - 1] > one; p--) some[p] = some[p - 1];
        some[p] = one;
    }
    return count ? some[count / 2] : 0.0;
}

// Sums of numbers that are no less than 0, never too small; by warp 0, for all of its lanes.
__device__ __forceinline__ double sum_up(double mine) {
    for (int step = 16; step; step >>= 1) mine = __dadd_ru(mine, __shfl_xor_sync(ALL, mine, step));
    return mine;
}

// A problem and its room in shared memory; pair: the costs of the columns' pairs.
struct Task {
    Matrix c;
    int n, m;
    const double* caps;  // null: every row must be assigned
    double *v, *label, *pair, *height;
    int *row_of, *tree, *column_of, *free, *wanted;
    unsigned char* settled;
};

// Column minima as first prices of a square problem: they are what the rows compete for then.
__device__ __forceinline__ void first_prices(const Task& t) {
    for (int j = threadIdx.x; j < t.m; j += SIDE) {
        double low = INFINITE;
        const char* place = t.c.at(0, j);
        for (int i = 0; i < t.n; i++, place += t.c.row) {
            const double x = t.c.cost(place);
            if (x < low) low = x;
        }
        t.v[j] = low < INFINITE && low > -INFINITE ? low : 0.0;
    }
}

// The rows that bid, in order, and how many they are; by warp 0.
__device__ __forceinline__ int list_free(const Task& t) {
    int count = 0;
    for (int first = 0; first < t.n; first += 32) {
        const int i = first + (int)threadIdx.x;
        const bool mine = i < t.n && t.column_of[i] == FREE;
        const unsigned said = __ballot_sync(ALL, mine);
        if (mine) t.free[count + __popc(said & ((1u << threadIdx.x) - 1))] = i;
        count += __popc(said);
    }
    return count;
}

// All free rows bid at once; the lowest new price takes the column. What is left waits for a search.
__device__ __forceinline__ int bid(const Task& t, int rounds) {
    __shared__ int listed;
    int bids = 0;
    u64* keys = (u64*)t.label;
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    for (int round = 0; round < rounds; round++) {
        if (warp == 0) {
            const int count = list_free(t);
            if (lane == 0) listed = count;
        }
        for (int j = threadIdx.x; j < t.m; j += SIDE) keys[j] = ~0ULL, t.tree[j] = NOBODY;
        __syncthreads();
        const int n_free = listed;
        if (n_free == 0) break;
        bids += n_free;
        for (int f = warp; f < n_free; f += WARPS) {
            const int i = t.free[f];
            const Two best = two_least(t.c, t.v, i, t.m);
            if (lane) continue;
            int j = best.at;
            double next = best.second;
            t.wanted[f] = FREE;
            if (t.caps) {
                const double cap = t.caps[i];
                if (cap <= best.first && cap < INFINITE) {
                    t.column_of[i] = ALONE;
                    continue;
                }
                if (cap < next) next = cap;
            }
            if (!(best.first < INFINITE)) {
                t.column_of[i] = WAITING;
                continue;
            }
            if (t.row_of[j] >= 0 && !(next > best.first)) {
                // A row that cannot outbid another takes the next column, if that is as good and free.
                const bool other = best.second == best.first && best.then < t.m && t.row_of[best.then] < 0;
                j = other ? best.then : NOBODY;
            }
            if (j == NOBODY || (t.row_of[j] >= 0 && !(next < INFINITE))) {
                t.column_of[i] = WAITING;
                continue;
            }
            const double price = next < INFINITE ? t.v[j] - (next - best.first) : t.v[j];
            t.wanted[f] = j, t.height[f] = price;
            atomicMin(keys + j, key_of(price));
        }
        __syncthreads();
        for (int f = threadIdx.x; f < n_free; f += SIDE) {
            const int j = t.wanted[f];
            if (j >= 0 && keys[j] == key_of(t.height[f])) atomicMin(t.tree + j, t.free[f]);
        }
        __syncthreads();
        for (int f = threadIdx.x; f < n_free; f += SIDE) {
            const int j = t.wanted[f], i = t.free[f];
            if (j < 0 || t.tree[j] != i) continue;
            const int before = t.row_of[j];
            if (before >= 0) t.column_of[before] = FREE;
            t.row_of[j] = i, t.column_of[i] = j, t.v[j] = t.height[f], t.pair[j] = t.c.cost(i, j);
        }
        __syncthreads();
    }
    __syncthreads();
    return bids;
}

// The least label of the open columns, and of equal ones first those that are free. For all threads.
__device__ __forceinline__ void nearest_of_block(int turn, double& least, int& j, bool& taken) {
    __shared__ double leasts[2][WARPS];  // a turn's are read while the next turn's are written
    __shared__ int ranks[2][WARPS];
    int rank = j | (taken ? 1 << 30 : 0);
    for (int step = 16; step; step >>= 1) {
        const double other = __shfl_xor_sync(ALL, least, step);
        const int other_rank = __shfl_xor_sync(ALL, rank, step);
        if (other < least || (other == least && other_rank < rank)) least = other, rank = other_rank;
    }
    const int lane = threadIdx.x & 31;
    if (lane == 0) leasts[turn][threadIdx.x / 32] = least, ranks[turn][threadIdx.x / 32] = rank;
    __syncthreads();
    least = leasts[turn][lane % WARPS], rank = ranks[turn][lane % WARPS];
    for (int step = 16; step; step >>= 1) {
        const double other = __shfl_xor_sync(ALL, least, step);
        const int other_rank = __shfl_xor_sync(ALL, rank, step);
        if (other < least || (other == least && other_rank < rank)) least = other, rank = other_rank;
    }
    j = rank & ~(1 << 30), taken = rank >> 30 & 1;
}

// Dijkstra from a row to a free column, or to a row that rather stays alone. The number of rows
// scanned; -1 without a path, or after too many scans.
__device__ __forceinline__ int search(const Task& t, int root, int most) {
    for (int j = threadIdx.x; j < t.m; j += SIDE) t.label[j] = INFINITE, t.settled[j] = 0;
    double height = 0.0, leaving = t.caps ? t.caps[root] : INFINITE, reached;
    int row = root, from = FREE, last = root, end, scans = 1;
    for (;; scans++) {
        double least = INFINITE;
        int at = NOBODY >> 1;
        bool taken = true;
        const char* place = t.c.at(row, threadIdx.x);
        const i64 step = SIDE * t.c.column;
        for (int j = threadIdx.x; j < t.m; j += SIDE, place += step) {
            if (t.settled[j]) continue;
            const double x = t.c.cost(place) - t.v[j] - height;
            if (x < t.label[j]) t.label[j] = x, t.tree[j] = from;
            const double mine = t.label[j];
            if (mine < least || (mine == least && taken && mine < INFINITE)) {
                const bool other = t.row_of[j] >= 0;
                if (mine < least || !other) least = mine, at = j, taken = other;
            }
        }
        nearest_of_block(scans & 1, least, at, taken);
        if (leaving <= least && leaving < INFINITE) {
            reached = leaving, end = last == root ? FREE : t.column_of[last];
            break;
        }
        if (!(least < INFINITE) || scans >= most) return -1;
        reached = least, end = at;
        if (!taken) {
            last = FREE;
            break;
        }
        if (at % SIDE == (int)threadIdx.x) t.settled[at] = 1;
        row = t.row_of[at], from = at;
        height = t.pair[at] - t.v[at] - least;
        if (t.caps && t.caps[row] - height < leaving) leaving = t.caps[row] - height, last = row;
    }
    __syncthreads();  // all have read the pairs
    // Rounding may leave labels above what was reached; prices only fall.
    for (int j = threadIdx.x; j < t.m; j += SIDE)
        if (t.settled[j] && t.label[j] < reached) t.v[j] -= reached - t.label[j];
    if (threadIdx.x == 0) {
        if (last != FREE) t.column_of[last] = ALONE;
        for (int j = end; j >= 0;) {
            const int before = t.tree[j], mine = before < 0 ? root : t.row_of[before];
            t.row_of[j] = mine, t.column_of[mine] = j, j = before;
        }
    }
    __syncthreads();
    for (int j = threadIdx.x; j < t.m; j += SIDE)
        if ((t.settled[j] || j == end) && t.row_of[j] >= 0) t.pair[j] = t.c.cost(t.row_of[j], j);
    __syncthreads();
    return scans;
}

// Row duals, the gap, and whether it is that of an optimal result; the same for all threads.
// Doubtful gaps are left to the host: whatever it decides by more than one look at the costs.
__device__ __forceinline__ int prove(
    const Task& t, const i64* p, int scans, double* low, double* matched, double* rest, double* facts
) {
    __shared__ double margins[SAMPLES], paid[SAMPLES];
    __shared__ int status;
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, every = (t.n + SAMPLES - 1) / SAMPLES;
    const bool exact = p[EXACT] != 0;
    bool bad = false;
    double largest = 0.0;
    for (int i = warp; i < t.n; i += WARPS) {
        Least found = least_of_row(t.c, t.v, i, t.m);
        const int j = t.column_of[i];
        const double cap = t.caps ? t.caps[i] : INFINITE;
        if (cap <= found.low) {
            found.rest = cap == found.low && found.rest < 0.0 ? found.rest : 0.0;
            found.second = found.low, found.low = cap;
        } else if (cap < found.second) {
            found.second = cap;
        }
        double error = 0.0;
        const double pair = j >= 0 ? t.c.cost(i, j) : cap;
        const double tau = j >= 0 ? two_sum(pair, -t.v[j], error) : cap;
        bad = bad || found.bad || (j < 0 && !t.caps) || !(fabs(pair) < LARGEST && fabs(found.low) < LARGEST);
        largest = found.largest > largest ? found.largest : largest;
        if (cap < INFINITE && fabs(cap) > largest) largest = fabs(cap);
        if (lane == 0) {
            low[i] = found.low, rest[i] = found.rest, matched[i] = pair;
            t.height[i] = __dadd_ru(__dsub_ru(tau, found.low), __dsub_ru(error, found.rest));
            if (i % every == 0) {
                const double margin = found.second - found.low;
                // Smaller ones are ties, as in engine/small/proof.py.
                const bool counts = margin > 3.552713678800501e-15 * fabs(found.low) && margin < INFINITE;
                margins[i / every] = counts ? margin : INFINITE, paid[i / every] = fabs(pair);
            }
        }
    }
    // Sums of integers are exact: four costs a row.
    if (exact && !(4.0 * (t.n + 2) * largest < 9007199254740992.0)) bad = true;
    if (INTEGERS && !(largest < 9007199254740992.0)) bad = true;
    bad = __syncthreads_or(bad);
    if (threadIdx.x < 32) {
        double gap = 0.0, size = 0.0, least = INFINITE, most = -INFINITE;
        for (int i = lane; i < t.n; i += 32) {
            gap = __dadd_ru(gap, t.height[i]);
            size += fabs(matched[i]);
        }
        for (int j = lane; j < t.m; j += 32) {
            if (t.row_of[j] < 0) gap = __dadd_ru(gap, -t.v[j]);
            least = t.v[j] < least ? t.v[j] : least, most = t.v[j] > most ? t.v[j] : most;
        }
        gap = sum_up(gap);
        for (int step = 16; step; step >>= 1) {
            size += __shfl_xor_sync(ALL, size, step);
            const double a = __shfl_xor_sync(ALL, least, step), b = __shfl_xor_sync(ALL, most, step);
            least = a < least ? a : least, most = b > most ? b : most;
        }
        if (lane == 0) {
            int count = (t.n + every - 1) / every, known = 0;
            bool proved = !bad && size < LARGEST && most - least < LARGEST && gap >= 0.0;
            // Columns that may stay free have no price above 0.
            if (t.n != t.m || t.caps) proved = proved && most <= 0.0;
            if (proved && gap != 0.0) {
                for (int k = 0; k < count; k++)
                    if (margins[k] < INFINITE) margins[known++] = margins[k];
                const double margin = middle(margins, known), typical = middle(paid, count);
                const double small = HUGE_PAID * paid[count / 4];
                proved = !exact && gap <= SHARE * size && margin > 0.0 && margin <= DOUBTFUL * typical;
                proved = proved && gap <= CLEAR * t.n * (small > 0.0 && small < margin ? small : margin);
            }
            facts[0] = t.m ? most - least : 0.0, facts[1] = scans, facts[2] = 0.0;
            facts[3] = 0.0, facts[4] = gap, facts[5] = 0.0;
            status = proved ? OPTIMAL : UNSURE;
        }
    }
    __syncthreads();
    return status;
}

// problems (k, WORDS), caps, columns and kept: as for solve_some of engine/small/batch.py; facts[3] and
// facts[5] are left to the host. Statuses (k,): OPTIMAL or UNSURE. column_table (k, height) and row_table
// (k, width): the column of each row and the row of each column, -1 where there is none. most: pairs
// that searches of one problem may read.
extern "C" __global__ void __launch_bounds__(SIDE) bigsap_batch(
    const i64* problems, const double* caps, double sign, int rounds, i64 most, i64* columns, double* kept,
    int* statuses, i64* column_table, int height, i64* row_table, int width
) {
    extern __shared__ double room[];
    const i64 k = blockIdx.x;
    const i64* p = problems + k * WORDS;
    i64* column_line = column_table + k * height;
    i64* row_line = row_table + k * width;
    for (int i = threadIdx.x; i < height; i += SIDE) column_line[i] = -1;
    for (int j = threadIdx.x; j < width; j += SIDE) row_line[j] = -1;
    const bool gated = p[CAP] >= 0, turned = p[ROWS] > p[COLUMNS] && !gated;
    const int n = (int)p[turned ? COLUMNS : ROWS], m = (int)p[turned ? ROWS : COLUMNS];
    if (p[KIND] < 0 || n == 0) {
        if (threadIdx.x == 0) statuses[k] = p[KIND] < 0 ? UNSURE : OPTIMAL;
        if (p[KIND] >= 0)
            for (int q = threadIdx.x; q < m + FACTS; q += SIDE) kept[p[FIRST_KEPT] + q] = 0.0;
        return;
    }
    Task t;
    t.c = {(const char*)p[ADDRESS], p[turned ? COLUMN_STEP : ROW_STEP], p[turned ? ROW_STEP : COLUMN_STEP], sign};
    t.n = n, t.m = m, t.caps = gated ? caps + p[CAP] : 0;
    t.v = room, t.label = t.v + m, t.pair = t.label + m, t.height = t.pair + m;
    t.row_of = (int*)(t.height + n), t.tree = t.row_of + m, t.column_of = t.tree + m;
    t.free = t.column_of + n, t.wanted = t.free + n;
    t.settled = (unsigned char*)(t.wanted + n);
    for (int j = threadIdx.x; j < m; j += SIDE) t.v[j] = 0.0, t.row_of[j] = FREE;
    for (int i = threadIdx.x; i < n; i += SIDE) t.column_of[i] = FREE;
    if (n == m && !gated) first_prices(t);
    __syncthreads();
    i64 left = most / m + n;
    int scans = bid(t, rounds), done = 0;
    for (int i = 0; i < n && done >= 0; i++) {
        if (t.column_of[i] >= 0 || t.column_of[i] == ALONE) continue;
        done = search(t, i, left < NOBODY ? (int)left : NOBODY);
        scans += done, left -= done;
    }
    double *low = kept + p[FIRST_KEPT], *matched = low + n, *prices = matched + n, *facts = prices + m;
    const int status = done >= 0 ? prove(t, p, scans, low, matched, facts + FACTS, facts) : UNSURE;
    if (threadIdx.x == 0) statuses[k] = status;
    if (status != OPTIMAL) return;
    for (int j = threadIdx.x; j < m; j += SIDE) prices[j] = t.v[j];
    for (int i = threadIdx.x; i < n; i += SIDE) {
        const int j = t.column_of[i] < 0 ? -1 : t.column_of[i];
        columns[p[FIRST_ROW] + i] = j;
        if (j < 0) continue;
        if (turned) column_line[j] = i, row_line[i] = j;
        else column_line[i] = j, row_line[j] = i;
    }
}
