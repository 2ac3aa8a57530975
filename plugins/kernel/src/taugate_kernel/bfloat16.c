// Products in bfloat16 with sums in float32, as vdpbf16ps of AVX512_BF16 computes them.
//
// The instruction adds the product of the odd inputs of a pair, then that of the even ones, by two fused operations
// rounded to nearest even. So fused operations in this order are its equal, except that it takes subnormal numbers for
// zero. There are none: inputs and weights below 2^-49 become zero, so that products are multiples of 2^-112, and so are
// their sums. The bias, which may be any number, is added last.
//
// Layout of weights of n outputs and k inputs: [n / 48][k / 2][48][2] uint16, the upper halves of float32.
#include "kernel.h"

typedef uint16_t Halves __attribute__((vector_size(32)));

// Round 16 numbers to bfloat16, and leave them in float32.
INLINE Floats round_lanes(Floats x) {
    Ints bits = (Ints)x, rounded = (bits + 0x7fff + ((bits >> 16) & 1)) & ~0xffff;
    return (Floats)(rounded & ~((Floats)(rounded & 0x7fffffff) < 0x1p-49f));
}

// Round the inputs to (rows, k) float32 numbers.
INLINE const float *rounded_floats(const float *x, int stride, int rows, int k, float *rounded) {
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < k; i += LANES) store(rounded + (size_t)r * k + i, round_lanes(load(x + (size_t)r * stride + i)));
    return rounded;
}

// The same to the upper halves of float32.
INLINE const uint16_t *rounded_halves(const float *x, int stride, int rows, int k, uint16_t *rounded) {
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < k; i += LANES) {
            Halves halves = __builtin_convertvector((Ints)round_lanes(load(x + (size_t)r * stride + i)) >> 16, Halves);
            memcpy(rounded + (size_t)r * k + i, &halves, sizeof halves);
        }
    return rounded;
}

INLINE float widened(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// The reference: what the other two must return, to the bit.
void bfloat16_plain(const Linear *l, const float *x, int stride, int rows, float *out, int gelu, void *rounded) {
    const float *inputs = rounded_floats(x, stride, rows, l->k, rounded);
    for (int p = 0; p < l->n / PANEL; p++) {
        const uint16_t *w = (const uint16_t *)l->weights + (size_t)p * l->k * PANEL;
        for (int r = 0; r < rows; r++) {
            const float *input = inputs + (size_t)r * l->k;
            float *o = out + (size_t)r * l->n + p * PANEL;
            for (int c = 0; c < PANEL; c++) {
                float total = 0;
                for (int i = 0; i < l->k; i += 2) {
                    const uint16_t *pair = w + (size_t)i * PANEL + 2 * c;
                    total = fmaf(input[i + 1], widened(pair[1]), total);
                    total = fmaf(input[i], widened(pair[0]), total);
                }
                o[c] = total + l->bias[p * PANEL + c];
            }
            if (gelu) activate(o, l->n, 1, PANEL);
        }
    }
}

#if defined(__x86_64__)
#define BF16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")))

// By hand, because GCC 12 copies the sums between registers around the intrinsic.
#define ADD_PRODUCTS(sums, weights, inputs) __asm__("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(inputs))

BF16 INLINE void tile_avx512(const uint16_t *w, const float *bias, const uint16_t *x, int k, const int rows, float *out, int n) {
    __m512 total[8][3];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 3; c++) total[r][c] = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int i = 0; i < k; i += 2, w += 2 * PANEL) {
        __m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + 32), w2 = _mm512_loadu_si512(w + 64);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            int32_t pair;
            memcpy(&pair, x + (size_t)r * k + i, 4);
            __m512i inputs = _mm512_set1_epi32(pair);
            ADD_PRODUCTS(total[r][0], w0, inputs);
            ADD_PRODUCTS(total[r][1], w1, inputs);
            ADD_PRODUCTS(total[r][2], w2, inputs);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 3; c++) _mm512_storeu_ps(out + (size_t)r * n + c * 16, _mm512_add_ps(total[r][c], _mm512_loadu_ps(bias + c * 16)));
}

BF16 void bfloat16_avx512(const Linear *l, const float *x, int stride, int rows, float *out, int gelu, void *rounded) {
    const uint16_t *inputs = rounded_halves(x, stride, rows, l->k, rounded);
    for (int p = 0; p < l->n / PANEL; p++) {
        const uint16_t *w = (const uint16_t *)l->weights + (size_t)p * l->k * PANEL;
        float *o = out + p * PANEL;
#define TILE(r, count) tile_avx512(w, l->bias + p * PANEL, inputs + (size_t)r * l->k, l->k, count, o + (size_t)r * l->n, l->n)
        EACH_TILE(rows)
#undef TILE
        if (gelu) activate(o, l->n, rows, PANEL);
    }
}

AVX2 INLINE void tile_avx2(const uint16_t *w, const float *bias, const float *x, int k, const int rows, float *out, int n) {
    const __m256i upper = _mm256_set1_epi32((int)0xffff0000);
    for (int third = 0; third < PANEL; third += 16) {
        __m256 total[4][2];
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < 2; c++) total[r][c] = _mm256_setzero_ps();
        for (int i = 0; i < k; i += 2) {
            const uint16_t *from = w + (size_t)i * PANEL + 2 * third;
            __m256i w0 = _mm256_loadu_si256((const __m256i *)from), w1 = _mm256_loadu_si256((const __m256i *)(from + 16));
            __m256 odd0 = _mm256_castsi256_ps(_mm256_and_si256(w0, upper)), odd1 = _mm256_castsi256_ps(_mm256_and_si256(w1, upper));
            __m256 even0 = _mm256_castsi256_ps(_mm256_slli_epi32(w0, 16)), even1 = _mm256_castsi256_ps(_mm256_slli_epi32(w1, 16));
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                __m256 odd = _mm256_broadcast_ss(x + (size_t)r * k + i + 1), even = _mm256_broadcast_ss(x + (size_t)r * k + i);
                total[r][0] = _mm256_fmadd_ps(even, even0, _mm256_fmadd_ps(odd, odd0, total[r][0]));
                total[r][1] = _mm256_fmadd_ps(even, even1, _mm256_fmadd_ps(odd, odd1, total[r][1]));
            }
        }
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < 2; c++) _mm256_storeu_ps(out + (size_t)r * n + third + c * 8, _mm256_add_ps(total[r][c], _mm256_loadu_ps(bias + third + c * 8)));
    }
}

AVX2 void bfloat16_avx2(const Linear *l, const float *x, int stride, int rows, float *out, int gelu, void *rounded) {
    const float *inputs = rounded_floats(x, stride, rows, l->k, rounded);
    for (int p = 0; p < l->n / PANEL; p++) {
        const uint16_t *w = (const uint16_t *)l->weights + (size_t)p * l->k * PANEL;
        float *o = out + p * PANEL;
        int r = 0;
#define TILE(count) tile_avx2(w, l->bias + p * PANEL, inputs + (size_t)r * l->k, l->k, count, o + (size_t)r * l->n, l->n)
        for (; r + 4 <= rows; r += 4) TILE(4);
        if (rows - r == 3) TILE(3);
        if (rows - r == 2) TILE(2);
        if (rows - r == 1) TILE(1);
#undef TILE
        if (gelu) activate(o, l->n, rows, PANEL);
    }
}
#endif
