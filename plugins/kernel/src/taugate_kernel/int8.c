// Products in int8, with a scale for every 64 inputs of a token and for every 64 inputs of an output.
//
// Why not a library: this keeps similarities within .0015 of float32, and no packaged runtime has it together with packed
// rows, which need no padding (benchmarks/results/encoder.md). Sums of integers are exact, so all paths return the same bits.
//
// Layout of weights of n outputs and k inputs: [n / 48][k / 4][48][4] uint8 from 1 to 255, 128 being zero; their scales:
// [n / 48][k / 64][48].
#include "kernel.h"

typedef int8_t Bytes __attribute__((vector_size(16)));

// A batch of inputs in int8: (rows, k) with a scale and a sum for each block of 64.
typedef struct {
    const int8_t *q;
    const float *scales;
    const int32_t *sums;
} Inputs;

INLINE void quantize(const float *x, const Linear *l, int8_t *q, float *scales, int32_t *sums) {
    for (int b = 0; b < l->k / BLOCK; b++) {
        Floats v[BLOCK / LANES], top = {0};
        for (int i = 0; i < BLOCK / LANES; i++) {
            int at = b * BLOCK + i * LANES;
            v[i] = load(x + at) * load(l->smooth + at);
            top = larger(top, (Floats)((Ints)v[i] & 0x7fffffff));
        }
        float most = largest(&top), inverse = most > 0 ? 127.0f / most : 0.0f;
        Ints total = {0};
        for (int i = 0; i < BLOCK / LANES; i++) {
            Ints rounded = (Ints)(v[i] * inverse + ROUND) - ROUND_BITS;
            Bytes bytes = __builtin_convertvector(rounded, Bytes);
            memcpy(q + b * BLOCK + i * LANES, &bytes, sizeof bytes);
            total += rounded;
        }
        scales[b] = most / 127.0f;
        sums[b] = 0;
        for (int i = 0; i < LANES; i++) sums[b] += total[i];
    }
}

// Rounds the inputs into `rounded`: scales and sums of the blocks, then the integers.
INLINE Inputs rounded_inputs(const Linear *l, const float *x, int stride, int rows, void *rounded) {
    int blocks = l->k / BLOCK;
    float *scales = rounded;
    int32_t *sums = (int32_t *)(scales + (size_t)rows * blocks);
    int8_t *q = (int8_t *)(sums + (size_t)rows * blocks);
    for (int r = 0; r < rows; r++)
        quantize(x + (size_t)r * stride, l, q + (size_t)r * l->k, scales + (size_t)r * blocks, sums + (size_t)r * blocks);
    return (Inputs){q, scales, sums};
}

// The same of stored integers; `memory` has the scales and sums of the blocks.
INLINE Inputs stored_inputs(const Linear *l, const int8_t *codes, const float *steps, int rows, void *memory) {
    int blocks = l->k / BLOCK;
    float *scales = memory;
    int32_t *sums = (int32_t *)(scales + (size_t)rows * blocks);
    for (int b = 0; b < rows * blocks; b++) {
        int32_t total = 0;
        for (int i = 0; i < BLOCK; i++) total += codes[(size_t)b * BLOCK + i];
        scales[b] = steps[b / blocks];
        sums[b] = total;
    }
    return (Inputs){codes, scales, sums};
}

// The reference: what the other two must return, to the bit.
INLINE void product_plain(const Linear *l, const Inputs *x, int rows, float *out, int gelu) {
    int blocks = l->k / BLOCK;
    for (int p = 0; p < l->n / PANEL; p++) {
        const uint8_t *w = (const uint8_t *)l->weights + (size_t)p * l->k * PANEL;
        const float *scales = l->scales + (size_t)p * blocks * PANEL;
        for (int r = 0; r < rows; r++) {
            float *o = out + (size_t)r * l->n + p * PANEL;
            for (int c = 0; c < PANEL; c++) {
                o[c] = l->bias[p * PANEL + c];
                for (int b = 0; b < blocks; b++) {
                    int32_t dot = -128 * x->sums[r * blocks + b];
                    for (int i = b * BLOCK; i < (b + 1) * BLOCK; i++)
                        dot += x->q[(size_t)r * l->k + i] * w[((size_t)(i / 4) * PANEL + c) * 4 + i % 4];
                    o[c] = fmaf((float)dot, x->scales[r * blocks + b] * scales[b * PANEL + c], o[c]);
                }
            }
            if (gelu) activate(o, l->n, 1, PANEL);
        }
    }
}

void int8_plain(const Linear *l, const float *x, int stride, int rows, float *out, int gelu, void *rounded) {
    Inputs inputs = rounded_inputs(l, x, stride, rows, rounded);
    product_plain(l, &inputs, rows, out, gelu);
}

void stored_plain(const Linear *l, const int8_t *codes, const float *steps, int rows, float *out, void *memory) {
    Inputs inputs = stored_inputs(l, codes, steps, rows, memory);
    product_plain(l, &inputs, rows, out, 0);
}

#if defined(__x86_64__)
#define VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")))

// By hand, because GCC 12 copies the sums between registers around the intrinsic.
#define ADD_PRODUCTS(sums, weights, inputs) \
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(inputs))

VNNI INLINE void tile_avx512(const Linear *l, const Inputs *x, int panel, int row, const int rows, float *out) {
    int blocks = l->k / BLOCK;
    const uint8_t *w = (const uint8_t *)l->weights + (size_t)panel * l->k * PANEL;
    const float *scales = l->scales + (size_t)panel * blocks * PANEL;
    __m512 total[4][3];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 3; c++) total[r][c] = _mm512_loadu_ps(l->bias + panel * PANEL + c * 16);
    for (int b = 0; b < blocks; b++, scales += PANEL) {
        __m512i dot[4][3];
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < 3; c++) dot[r][c] = _mm512_set1_epi32(-128 * x->sums[(row + r) * blocks + b]);
#pragma GCC unroll 16
        for (int i = b * BLOCK; i < (b + 1) * BLOCK; i += 4, w += 4 * PANEL) {
            __m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + 64), w2 = _mm512_loadu_si512(w + 128);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, x->q + (size_t)(row + r) * l->k + i, 4);
                __m512i q = _mm512_set1_epi32(four);
                ADD_PRODUCTS(dot[r][0], w0, q);
                ADD_PRODUCTS(dot[r][1], w1, q);
                ADD_PRODUCTS(dot[r][2], w2, q);
            }
        }
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < 3; c++) {
                __m512 scale = _mm512_mul_ps(_mm512_set1_ps(x->scales[(row + r) * blocks + b]), _mm512_loadu_ps(scales + c * 16));
                total[r][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][c]), scale, total[r][c]);
            }
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 3; c++) _mm512_storeu_ps(out + (size_t)(row + r) * l->n + panel * PANEL + c * 16, total[r][c]);
}

VNNI INLINE void product_avx512(const Linear *l, const Inputs *x, int rows, float *out, int gelu) {
    for (int p = 0; p < l->n / PANEL; p++) {
        int r = 0;
        for (; r + 4 <= rows; r += 4) tile_avx512(l, x, p, r, 4, out);
        if (rows - r == 3) tile_avx512(l, x, p, r, 3, out);
        if (rows - r == 2) tile_avx512(l, x, p, r, 2, out);
        if (rows - r == 1) tile_avx512(l, x, p, r, 1, out);
        if (gelu) activate(out + p * PANEL, l->n, rows, PANEL);
    }
}

VNNI void int8_avx512(const Linear *l, const float *x, int stride, int rows, float *out, int gelu, void *rounded) {
    Inputs inputs = rounded_inputs(l, x, stride, rows, rounded);
    product_avx512(l, &inputs, rows, out, gelu);
}

VNNI void stored_avx512(const Linear *l, const int8_t *codes, const float *steps, int rows, float *out, void *memory) {
    Inputs inputs = stored_inputs(l, codes, steps, rows, memory);
    product_avx512(l, &inputs, rows, out, 0);
}
#endif
