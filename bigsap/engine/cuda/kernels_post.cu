// Letters between the groups of several devices.
//
// A letter is what a device has to say in one exchange: its best record, the cost of that
// column's own pair, its flag. Each word of 32 bits travels in a store of 64 with the number
// of the exchange beside it, to the receiver's inbox: the memory model keeps such a store whole,
// so that a word whose number is right is right, and no fence is needed. One way across
// the link, no round trip.
//
// An inbox has two turns. Nobody writes letter s + 2 before having everybody's letter s + 1,
// which is written after all blocks of its writer have read letter s.
//
// Whoever waits longer than the patience, or finds the host's wish to abort, gives up: then
// the whole group leaves, and the other devices' groups give up in their turn.

// What flag says in a record; of several devices the gravest counts.
#define GO_ON 0
#define SLICE_OVER 1
#define STOP_NOW 2
#define GONE 3  // another device does not answer: only in what agree returns

#if DEVICES > 1
enum { L_KEY = 0, L_LOW = 2, L_OWNER = 3, L_PRICE = 4, L_PRED = 6, L_FLAG = 7, L_ENTRY = 8 };
#define ABORT_FLAG 3

__device__ __forceinline__ u64 inbox_place(const Post& post, int at, int from, int k) {
    return post.inbox[at] + 8 * (u64)(((post.sent & 1) * DEVICES + from) * LETTER + k);
}

__device__ __forceinline__ void store_word(u64 place, u64 word) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" :: "l"(place), "l"(word) : "memory");
}

__device__ __forceinline__ u64 load_word(u64 place) {
    u64 word;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(place) : "memory");
    return word;
}

// By one warp, which agrees on all arguments.
__device__ __forceinline__ void send(const Post& post, const Record& r, u64 entry) {
    for (int i = threadIdx.x & 31; i < DEVICES * LETTER; i += 32) {
        const int to = i / LETTER, k = i % LETTER;
        if (to == post.me) continue;
        u32 word = (u32)r.key;
        word = k == L_KEY + 1 ? (u32)(r.key >> 32) : word;
        word = k == L_LOW ? r.low : word;
        word = k == L_OWNER ? (u32)r.owner : word;
        word = k == L_PRICE ? (u32)r.price : word;
        word = k == L_PRICE + 1 ? (u32)(r.price >> 32) : word;
        word = k == L_PRED ? (u32)r.pred : word;
        word = k == L_FLAG ? (u32)r.flag : word;
        word = k == L_ENTRY ? (u32)entry : word;
        word = k == L_ENTRY + 1 ? (u32)(entry >> 32) : word;
        store_word(inbox_place(post, to, post.me, k), ((u64)word << 32) | post.sent);
    }
}

// By the first warp of each block; false when somebody did not answer.
__device__ __forceinline__ bool receive(const Post& post, u32* letters) {
    bool fine = true;
    for (int i = threadIdx.x; i < DEVICES * LETTER; i += 32) {
        const int from = i / LETTER, k = i % LETTER;
        if (from == post.me) continue;
        const u64 place = inbox_place(post, post.me, from, k);
        u64 word;
        u32 tries = 0;
        i64 since = 0;
        while (true) {
            word = load_word(place);
            if ((u32)word == post.sent) break;
            if ((++tries & 1023) == 0) {
                const i64 now = clock64();
                if (!since) since = now;
                if (now - since > post.patience || post.host[ABORT_FLAG]) {
                    fine = false;
                    break;
                }
            }
        }
        letters[i] = (u32)(word >> 32);
    }
    return fine;
}

// One exchange: the sender, one warp of the group, writes ours, and every block reads all
// others. Afterwards post.letters holds them, or post.lost is set for the whole block.
__device__ __forceinline__ void correspond(
    Post& post, const Record& ours, u64 entry, bool is_sender
) {
    __shared__ u32 letters[2][DEVICES * LETTER];
    post.sent += 1;
    u32* received = letters[post.sent & 1];
    if (is_sender && !post.lost) send(post, ours, entry);
    bool fine = !post.lost;
    if (threadIdx.x < 32 && fine) fine = receive(post, received);
    post.lost = __syncthreads_or(!fine);
    post.letters = received;
}

__device__ __forceinline__ u64 long_word(const u32* letter, int k) {
    return ((u64)letter[k + 1] << 32) | letter[k];
}

// The best of all devices' records, and the gravest of their flags.
__device__ __forceinline__ void weigh(Post& post, Record& best, int& flag) {
    post.here = true;
    if (post.lost) {
        flag = GONE;
        return;
    }
    #pragma unroll
    for (int d = 0; d < DEVICES; d++) {
        if (d == post.me) continue;
        const u32* letter = post.letters + d * LETTER;
        const u64 key = long_word(letter, L_KEY);
        const u32 low = letter[L_LOW];
        flag = (int)letter[L_FLAG] > flag ? (int)letter[L_FLAG] : flag;
        if (key < best.key || (key == best.key && low < best.low)) {
            best.key = key;
            best.low = low;
            best.owner = (int)letter[L_OWNER];
            best.price = long_word(letter, L_PRICE);
            best.pred = (int)letter[L_PRED];
            post.entry = long_word(letter, L_ENTRY);
            post.here = false;
        }
    }
}

// Before the first launch: a word from everybody in everybody else's inbox.
extern "C" __global__ void bigsap_greet(const u64* post) {
    const int to = (int)threadIdx.x, me = (int)post[0];
    if (to >= DEVICES || to == me) return;
    store_word(post[3 + to] + 8 * (u64)(me * LETTER), (u64)(0x600D + me));
}
#endif
