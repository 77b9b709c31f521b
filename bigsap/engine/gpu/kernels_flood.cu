// Long searches of phases with epsilon > 0, a block each: labels settle by the bucket.
//
// Such a phase only has to leave a matching and prices that have not risen; what it may cost is
// precision, of which epsilon says how much matters. So all columns whose labels lie in the same
// stretch of a width near epsilon settle together, their rows are scanned by the block's warps
// side by side, and a label that a later row would have lowered within the stretch stays as it is.
// The last phase, epsilon = 0, never comes here.
//
// Nothing depends on which warp is first. A label is one word: its distance from the root's
// smallest, rounded to float, then the column and the place in the list by which it came; the
// smallest word wins. The columns that settle together are those below a fixed boundary; the
// order in which they are noted is not fixed, but nothing follows from it. Exact labels are
// computed when a column settles, from its parent's.
//
// Comes after kernels_batch.cu. Macro set by the host: THREADS.

#define WARPS (THREADS / LANES)
// Bits of a place in a list; columns have the rest of 32 (the host sees to that).
#define PLACE_BITS 12
#define MOST_PLACES (1 << PLACE_BITS)

// Bits of a float from 0 on, in order; what lies below counts as 0.
__device__ __forceinline__ u32 ordered(PRICE x) {
    float f = (float)x;
    return f > 0 ? __float_as_uint(f) : 0u;
}

// words (n_columns a block): NO_KEY between launches; 0 once settled. front, behind (capacity a
// block): labels in waiting, the older ones of a column too. touched (n_columns a block).
extern "C" __global__ void __launch_bounds__(THREADS) bigsap_flood(
    const int* roots, const int* ids, const PRICE* costs, const i64* starts, const int* sizes,
    const PRICE* theta, const PRICE* v, const int* row_of_column, const PRICE* match_cost,
    int n_columns, PRICE postpone, PRICE stretch, int capacity, int longest, u64* words,
    int* place_of, u64* front, u64* behind, int* touched, PRICE* settled_labels,
    PRICE* settled_costs, int* settled_columns, int* settled_parents, PRICE* settled_h,
    PRICE* events, int* found, PRICE* ends, int* requested
) {
    __shared__ u64 best, next_best;
    __shared__ u32 first_event, least;
    __shared__ int n_front, n_behind, n_touched, n_settled, overflow;
    __shared__ PRICE base;
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const i64 block = blockIdx.x;
    words += block * n_columns, place_of += block * n_columns, touched += block * n_columns;
    front += block * capacity, behind += block * capacity;
    settled_labels += block * longest, settled_costs += block * longest;
    settled_columns += block * longest, settled_parents += block * longest;
    settled_h += block * longest, events += block * (longest + 1);
    found += block * WORDS, ends += block * VALUES;
    const int root = roots[block];
    const u32 far = 0x7f800000u;  // infinity
    if (warp == 0) {
        PRICE low = INFINITE;
        for (int e = lane; e < sizes[root]; e += LANES) {
            const PRICE g = costs[starts[root] + e] - v[ids[starts[root] + e]];
            low = g < low ? g : low;
        }
        const u64 key = least_of_warp(key_of(low));
        if (lane == 0) {
            base = value_of(key);
            best = next_best = (u64)far << 32;
            first_event = far;
            n_front = n_touched = n_settled = overflow = 0;
        }
    }
    __syncthreads();
    int from = -1, upto = 0;  // settled columns whose rows are to be scanned; -1: the root's
    int status = FOUND, steps = 0;
    while (true) {
        steps++;
        // -- scan their rows
        const u64 limit = best;
        for (int s = from + warp; s < upto; s += WARPS) {
            const int parent = s < 0 ? n_columns : settled_columns[s];
            const int row = s < 0 ? root : row_of_column[parent];
            const PRICE h = s < 0 ? 0 : settled_h[s];
            const i64 start = starts[row];
            const int size = sizes[row] < MOST_PLACES ? sizes[row] : MOST_PLACES;
            for (int e = lane; e < size; e += LANES) {
                const int j = ids[start + e];
                const PRICE g = h + (costs[start + e] - v[j]);
                const u64 word = (u64)ordered(g - base) << 32
                               | ((u32)parent << PLACE_BITS | (u32)e);
                if (word >= limit) continue;
                if (row_of_column[j] < 0) {
                    atomicMin(&next_best, word);
                } else if (word < __ldcg(&words[j])) {
                    const u64 old = atomicMin(&words[j], word);
                    if (word < old) {
                        const int at = atomicAdd(&n_front, 1);
                        if (at < capacity) front[at] = (word >> 32 << 32) | (u32)j;
                        else overflow = 1;
                        if (old == NO_KEY) touched[atomicAdd(&n_touched, 1)] = j;
                    }
                }
            }
            if (lane == 0) {
                PRICE event = INFINITE;
                if (theta[row] < INFINITE) {
                    event = h + theta[row];
                    event = (u64)ordered(event - base) << 32 < limit ? event + postpone : INFINITE;
                }
                events[s + 1] = event;
                if (event < INFINITE) atomicMin(&first_event, ordered(event - base));
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) best = next_best, least = far, n_behind = 0;
        __syncthreads();
        const int count = n_front < capacity ? n_front : capacity;
        u32 low = far;
        for (int p = threadIdx.x; p < count; p += THREADS) {
            const u32 key = (u32)(front[p] >> 32);
            low = key < low ? key : low;
        }
        low = (u32)least_of_warp(low);
        if (lane == 0) atomicMin(&least, low);
        __syncthreads();
        const u32 end = (u32)(best >> 32), event = first_event;
        low = least;
        if (overflow) {
            status = GREW;
            break;
        }
        if (low >= end) {
            status = event < end ? ASKS : end < far ? FOUND : STUCK;
            break;
        }
        // -- the stretch of the smallest label settles. Its boundaries are fixed: older labels
        // of columns that have settled may be among the smallest, and must not matter.
        const float width = (float)stretch;
        const float number = floorf(__uint_as_float(low) / width);
        float boundary = (number + 1) * width;
        if (event < end && __uint_as_float(event) < number * width) {
            status = ASKS;
            break;
        }
        u32 border = __float_as_uint(boundary);
        border = border > low ? border : low + 1;
        border = border < end ? border : end;
        from = n_settled;
        const bool crowded = count > capacity / 4;
        __syncthreads();
        for (int p = threadIdx.x; p < count; p += THREADS) {
            const u64 entry = front[p];
            const u32 key = (u32)(entry >> 32);
            if (key >= end) continue;
            // Older labels of a column change nothing; they go when there are many.
            if (crowded && key != (u32)(__ldcg(&words[(u32)entry]) >> 32)) continue;
            if (key >= border) {
                behind[atomicAdd(&n_behind, 1)] = entry;
                continue;
            }
            const int j = (int)(u32)entry;
            const u64 word = atomicExch(&words[j], 0ULL);
            if (word == 0) continue;  // settled before
            const int s = atomicAdd(&n_settled, 1);
            if (s >= longest) {
                overflow = 1;
                continue;
            }
            const u32 way = (u32)word;
            const int parent = (int)(way >> PLACE_BITS), e = way & (MOST_PLACES - 1);
            const int before = parent == n_columns ? -1 : place_of[parent];
            const int source = before < 0 ? root : row_of_column[parent];
            const PRICE h = before < 0 ? 0 : settled_h[before];
            const PRICE cost = costs[starts[source] + e];
            const PRICE label = h + (cost - v[j]);
            settled_labels[s] = label;
            settled_costs[s] = cost;
            settled_columns[s] = j;
            settled_parents[s] = before;
            settled_h[s] = label - (match_cost[row_of_column[j]] - v[j]);
            place_of[j] = s;
        }
        __syncthreads();
        upto = n_settled;
        u64* other = front;
        front = behind, behind = other;
        if (overflow) {
            status = GREW;
            break;
        }
        __syncthreads();
        if (threadIdx.x == 0) n_front = n_behind;
        __syncthreads();
    }
    __syncthreads();
    for (int p = threadIdx.x; p < n_touched; p += THREADS) words[touched[p]] = NO_KEY;
    const int n_known = n_settled < longest ? n_settled : longest;
    if (status == ASKS) {
        const u32 end = (u32)(best >> 32);
        // The rows of the last settled columns are scanned too whenever this is reached.
        for (int e = threadIdx.x; e <= n_known; e += THREADS) {
            if (events[e] >= INFINITE) continue;
            const u32 key = ordered(events[e] - base);
            if (key >= end) continue;
            const int asking = e ? row_of_column[settled_columns[e - 1]] : root;
            atomicMax(&requested[asking], key == first_event ? REACHED : EXPECTED);
        }
    }
    if (threadIdx.x == 0) {
        found[STATUS] = status;
        found[N_SETTLED] = n_known;
        found[SCANS] = n_known + 1;
        found[SINK] = -1;
        found[SINK_PARENT] = -1;
        found[STEPS] = steps;
        if (status == FOUND) {
            const u32 way = (u32)best;
            const int parent = (int)(way >> PLACE_BITS), e = way & (MOST_PLACES - 1);
            const int before = parent == n_columns ? -1 : place_of[parent];
            const int source = before < 0 ? root : row_of_column[parent];
            const PRICE cost = costs[starts[source] + e];
            const int sink = ids[starts[source] + e];
            found[SINK] = sink;
            found[SINK_PARENT] = before;
            ends[END_COST] = cost;
            ends[END_BEST] = (before < 0 ? 0 : settled_h[before]) + (cost - v[sink]);
            ends[END_LABEL] = ends[END_BEST];
        }
    }
}
