// Products in float32. A sum starts with the bias, and adds the products one after the other, fused.
//
// Why not a library: packed rows need no padding, and a row's sums do not depend on the number of rows.
//
// There is no path for AVX2, which took two to three times as long as AVX-512.
//
// Layout of weights of n outputs and k inputs: [n / 48][k][48].
#include "kernel.h"

// The reference: what the other must return, to the bit.
void float32_plain(const Linear *l, const float *x, int stride, int rows, float *out, int gelu, void *rounded) {
    (void)rounded;
    for (int p = 0; p < l->n / PANEL; p++) {
        const float *w = (const float *)l->weights + (size_t)p * l->k * PANEL;
        for (int r = 0; r < rows; r++) {
            float *o = out + (size_t)r * l->n + p * PANEL;
            for (int c = 0; c < PANEL; c++) {
                o[c] = l->bias[p * PANEL + c];
                for (int i = 0; i < l->k; i++) o[c] = fmaf(x[(size_t)r * stride + i], w[(size_t)i * PANEL + c], o[c]);
            }
            if (gelu) activate(o, l->n, 1, PANEL);
        }
    }
}

#if defined(__x86_64__)
AVX512 INLINE void tile_avx512(const float *w, const float *bias, const float *x, int stride, int k, const int rows, float *out, int n) {
    __m512 total[8][3];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 3; c++) total[r][c] = _mm512_loadu_ps(bias + c * 16);
#pragma GCC unroll 4
    for (int i = 0; i < k; i++, w += PANEL) {
        __m512 w0 = _mm512_loadu_ps(w), w1 = _mm512_loadu_ps(w + 16), w2 = _mm512_loadu_ps(w + 32);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            __m512 input = _mm512_set1_ps(x[(size_t)r * stride + i]);
            total[r][0] = _mm512_fmadd_ps(input, w0, total[r][0]);
            total[r][1] = _mm512_fmadd_ps(input, w1, total[r][1]);
            total[r][2] = _mm512_fmadd_ps(input, w2, total[r][2]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 3; c++) _mm512_storeu_ps(out + (size_t)r * n + c * 16, total[r][c]);
}

AVX512 void float32_avx512(const Linear *l, const float *x, int stride, int rows, float *out, int gelu, void *rounded) {
    (void)rounded;
    for (int p = 0; p < l->n / PANEL; p++) {
        const float *w = (const float *)l->weights + (size_t)p * l->k * PANEL, *bias = l->bias + p * PANEL;
        float *o = out + p * PANEL;
#define TILE(r, count) tile_avx512(w, bias, x + (size_t)r * stride, stride, l->k, count, o + (size_t)r * l->n, l->n)
        EACH_TILE(rows)
#undef TILE
        if (gelu) activate(o, l->n, rows, PANEL);
    }
}
#endif
