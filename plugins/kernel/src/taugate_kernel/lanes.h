// Vectors of 16 float32 lanes, or of 8 for AVX2.
//
// Each sum over lanes ends in one tree, and nothing is contracted (-ffp-contract=off), so all processors compute the same bits.
#ifndef TAUGATE_LANES_H
#define TAUGATE_LANES_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ROUND 12582912.0f  // 1.5 · 2^23: adding it rounds to an integer, which is then in the low bits
#define ROUND_BITS 0x4B400000
#define SUMMED 16  // numbers that are added side by side before they are added up, however wide the registers are
#define PARTS (SUMMED / LANES)

// The width of the registers: a compiler takes a wider vector apart, and compares its lanes one by one.
#ifndef LANES
#define LANES 16
#endif
#if LANES == 8
#include <immintrin.h>
#define INLINE static inline __attribute__((always_inline, target("avx2,fma")))
#else
#define INLINE static inline __attribute__((always_inline))
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef float Eight __attribute__((vector_size(32)));
typedef int32_t EightInts __attribute__((vector_size(32)));
typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourInts __attribute__((vector_size(16)));

INLINE Floats load(const float *p) { Floats v; memcpy(&v, p, sizeof v); return v; }
INLINE void store(float *p, Floats v) { memcpy(p, &v, sizeof v); }
INLINE Floats all(float x) { return (Floats){0} + x; }
#if LANES == 8
INLINE Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }  // b if one is not a number, like the others
INLINE Floats smaller(Floats a, Floats b) { return _mm256_min_ps(a, b); }
#else
INLINE Floats choose(Ints mask, Floats a, Floats b) { return (Floats)(((Ints)a & mask) | ((Ints)b & ~mask)); }
INLINE Floats larger(Floats a, Floats b) { return choose(a > b, a, b); }
INLINE Floats smaller(Floats a, Floats b) { return choose(a < b, a, b); }
#endif

#define HALVES(v, half, operation) \
    half low, high; \
    memcpy(&low, v, sizeof low); \
    memcpy(&high, (const char *)(v) + sizeof low, sizeof high); \
    return operation;

INLINE Eight halve_sum(const Floats *parts) { HALVES(parts, Eight, low + high) }
INLINE Four quarter_sum(Eight v) { HALVES(&v, Four, low + high) }
INLINE float sum(const Floats *parts) {
    Four a = quarter_sum(halve_sum(parts));
    return (a[0] + a[2]) + (a[1] + a[3]);
}

INLINE Eight halve_largest(const Floats *parts) { HALVES(parts, Eight, (Eight)(((low > high) & (EightInts)low) | (~(low > high) & (EightInts)high))) }
INLINE Four quarter_largest(Eight v) { HALVES(&v, Four, (Four)(((low > high) & (FourInts)low) | (~(low > high) & (FourInts)high))) }
INLINE float largest(const Floats *parts) {
    Four a = quarter_largest(halve_largest(parts));
    float first = a[0] > a[1] ? a[0] : a[1], second = a[2] > a[3] ? a[2] : a[3];
    return first > second ? first : second;
}

// erf by Eigen's rational approximation, within a few units in the last place.
INLINE Floats gelu_of(Floats x) {
    Floats z = larger(smaller(x * 0.70710678118654752f, all(4.0f)), all(-4.0f)), s = z * z;
    Floats p = s * -2.72614225801306e-10f + 2.77068142495902e-08f;
    p = p * s + -2.10102402082508e-06f;
    p = p * s + -5.69250639462346e-05f;
    p = p * s + -7.34990630326855e-04f;
    p = p * s + -2.95459980854025e-03f;
    p = (p * s + -1.60960333262415e-02f) * z;
    Floats q = s * -1.45660718464996e-05f + -2.13374055278905e-04f;
    q = q * s + -1.68282697438203e-03f;
    q = q * s + -7.37332916720468e-03f;
    q = q * s + -1.42647390514189e-02f;
    return x * 0.5f * (p / q + 1.0f);
}

// e^x for x ≤ 0, by the polynomial of Cephes's expf.
INLINE Floats exp_of(Floats x) {
    x = larger(x, all(-87.0f));
    Floats shifted = x * 1.44269504088896341f + ROUND;
    Ints n = (Ints)shifted - ROUND_BITS;
    Floats whole = shifted - ROUND, f = x - whole * 0.693359375f;
    f = f - whole * -2.12194440e-4f;
    Floats p = f * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    p = p * f * f + f + 1.0f;
    return (Floats)((Ints)p + (n << 23));
}

INLINE void normalize(float *x, int n, const float *norm, float epsilon) {
    Floats total[PARTS] = {{0}}, squares[PARTS] = {{0}};
    for (int i = 0; i < n; i += SUMMED)
        for (int p = 0; p < PARTS; p++) total[p] += load(x + i + p * LANES);
    float mean = sum(total) / (float)n;
    for (int i = 0; i < n; i += SUMMED)
        for (int p = 0; p < PARTS; p++) {
            Floats d = load(x + i + p * LANES) - mean;
            squares[p] += d * d;
        }
    float scale = 1.0f / sqrtf(sum(squares) / (float)n + epsilon);
    for (int i = 0; i < n; i += LANES) store(x + i, (load(x + i) - mean) * scale * load(norm + i) + load(norm + n + i));
}

#endif
