// The exact minimum of reduced costs, in two parts: what the proof's kernels share.

#if PRICE_IS_INT
typedef long long NUMBER;
#define WORST 0x7fffffffffffffffLL
#else
typedef double NUMBER;
#define WORST __longlong_as_double(0x7ff0000000000000LL)
#endif

#if !PRICE_IS_INT
// What rounding took from c - price; of an infinite difference nothing.
__device__ __forceinline__ double rounding(double c, double price, double reduced) {
    if (reduced == WORST) return 0.0;
    const double part = reduced - c;
    return (c - (reduced - part)) + (-price - part);
}
#endif

// Lower (low, less) to (reduced, rest) where that is smaller.
__device__ __forceinline__ void take(NUMBER rest, NUMBER reduced, NUMBER& low, NUMBER& less) {
    if (reduced < low) {
        low = reduced;
        less = rest;
    } else if (reduced == low && rest < less) {
        less = rest;
    }
}
