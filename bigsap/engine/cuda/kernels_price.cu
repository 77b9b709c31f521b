// The type of prices and labels, and numbers of its order. Macro set by the host: PRICE_IS_INT.

#if PRICE_IS_INT
typedef long long PRICE;
#define INFINITE (1LL << 60)
__device__ __forceinline__ float rounded_down(PRICE x) {
    return x >= INFINITE ? __int_as_float(0x7f800000) : __ll2float_rd(x);
}
__device__ __forceinline__ u64 key_of(PRICE x) { return (u64)x ^ (1ULL << 63); }
__device__ __forceinline__ PRICE value_of(u64 key) { return (PRICE)(key ^ (1ULL << 63)); }
#else
typedef double PRICE;
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)
__device__ __forceinline__ float rounded_down(PRICE x) { return __double2float_rd(x); }
// Adding 0.0 makes the two zeros one, which compare equal.
__device__ __forceinline__ u64 key_of(PRICE x) {
    u64 bits = (u64)__double_as_longlong(x + 0.0);
    return bits ^ ((bits >> 63) ? ~0ULL : (1ULL << 63));
}
__device__ __forceinline__ PRICE value_of(u64 key) {
    return __longlong_as_double((i64)(key ^ ((key >> 63) ? (1ULL << 63) : ~0ULL)));
}
#endif
