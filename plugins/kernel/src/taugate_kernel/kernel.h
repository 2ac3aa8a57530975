// A BERT-like model (Devlin et al., NAACL 2019), and what its precisions share.
//
// A vector depends on its text alone, to the last bit: every sum has one order, whatever the other texts, the
// instructions or the compiler. A precision has up to three paths (AVX-512, AVX2, plain C) that return the same bits.
#ifndef TAUGATE_KERNEL_H
#define TAUGATE_KERNEL_H
#include "lanes.h"
#if defined(__x86_64__)
#include <immintrin.h>
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define AVX2 __attribute__((target("avx2,fma")))
#endif

#define PANEL 48  // outputs of a tile: three registers of 16
// Query tokens of attention, and times 16 keys or values, at once: the sums stay in the 32 registers of AVX-512, and do
// not wait for each other. With 16 registers of 8 lanes, it is 4 and 2.
#define QUERIES 8
#define BLOCKS 2
#define BLOCK 64  // inputs are padded to a multiple of it with zeros; int8 has a scale for so many inputs

enum { INT8, BFLOAT16, FLOAT32, PRECISIONS };
// What a text has: the mean of its tokens or its first token, of unit length, its first token as it is, or all of them.
enum { MEAN, FIRST, FIRST_AS_IS, TOKENS, POOLINGS };

typedef struct {
    int n, k;  // padded
    const void *weights;  // in panels of 48 outputs, whose layout is that of the precision
    const float *bias;
    const float *scales, *smooth;  // int8 only; smooth: (k,) factors of the inputs, whose inverse is in the weights (SmoothQuant, Xiao et al., 2023)
} Linear;

typedef struct {
    Linear qkv, out, up, down;
    const float *norm1, *norm2;  // (2, hidden): factor and offset
} Layer;

typedef struct {
    int precision, vocabulary, types, positions, hidden, inner, heads, layers, pooling;
    float epsilon;
    const float *words, *places, *kinds, *norm;  // kinds: (types, hidden), added to tokens of a type
    Layer *layer;
} Model;

// Memory of one call. `rounded` has 4 bytes for every input of a product.
typedef struct {
    float *x, *y, *wide, *work;
    void *rounded;
} Memory;

// Token ids: the row of the word in the vocabulary, plus the size of the vocabulary times the type of the token.
// Computes (rows, n) outputs of (rows, k) inputs that are `stride` apart, with GELU if `gelu`.
typedef void Apply(const Linear *, const float *x, int stride, int rows, float *out, int gelu, void *rounded);
// Vectors: (texts, hidden), or (rows, hidden) if a text has all its tokens.
typedef void Encode(const Model *, const int32_t *ids, const int32_t *ends, int texts, float *vectors, const Memory *, Apply *);

// Computes (rows, n) products of stored rows, (rows, k) integers with a step for each; l->bias is zero.
typedef void ApplyStored(const Linear *, const int8_t *codes, const float *steps, int rows, float *out, void *memory);

Encode encode_plain, encode_avx2, encode_avx512;
Apply int8_plain, int8_avx2, int8_avx512;
ApplyStored stored_plain, stored_avx2, stored_avx512;
Apply bfloat16_plain, bfloat16_avx2, bfloat16_avx512;
Apply float32_plain, float32_avx512;

// Calls TILE(first row, count) for all rows, mostly for 8. Counts are constants, so that the sums of a tile stay in registers.
#define EACH_TILE(rows) { \
    int r = 0; \
    for (; r + 8 <= rows; r += 8) TILE(r, 8); \
    if (rows - r >= 4) { TILE(r, 4); r += 4; } \
    if (rows - r == 3) TILE(r, 3); \
    if (rows - r == 2) TILE(r, 2); \
    if (rows - r == 1) TILE(r, 1); \
}

// GELU of some columns of (rows, n).
INLINE void activate(float *out, int n, int rows, const int columns) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c += LANES) store(out + (size_t)r * n + c, gelu_of(load(out + (size_t)r * n + c)));
}

#endif
