// The layers, and the products in int8, for AVX2: registers of 8 lanes, of which there are 16.
//
// A product of int8 by int8 takes 16 bits, so vpmaddwd adds two of them without saturation, on 16-bit inputs and weights.
// vpmaddubsw multiplies twice as many, but of an unsigned number and a signed one: it needs the signs moved from the
// inputs to the weights, and vpmaddwd after it, so that it is no faster.
#define LANES 8
#include "encode.h"
#if defined(__x86_64__)

#define COLUMNS 16  // outputs of a tile: with 5 rows, their sums, weights and inputs take 14 registers
#define TILE_ROWS 5
#define CHUNK 512  // inputs whose weights are widened at once, to 16 kB, so that they stay in the cache of level 1

// A batch of inputs, (rows, k) int16. Of four, the second and the third have changed places, as in `widen`.
typedef struct {
    const int16_t *q;
    const float *scales;  // of the blocks of 64
    const int32_t *offsets;  // what the weights, of which 128 is zero, add too much to the sum of a block, negative
} Inputs;

// Stores 16 inputs, and adds -128 times their sum to some lanes.
INLINE __m256i store_inputs(int16_t *q, __m256i x, __m256i offset) {
    _mm256_storeu_si256((__m256i *)q, x);
    return _mm256_add_epi32(offset, _mm256_madd_epi16(x, _mm256_set1_epi16(-128)));
}

INLINE int32_t lane_sum(__m256i x) {
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    four = _mm_hadd_epi32(four, four);
    return _mm_cvtsi128_si32(_mm_hadd_epi32(four, four));
}

INLINE void quantize(const float *x, const Linear *l, int16_t *q, float *scales, int32_t *offsets) {
    const __m256i apart = _mm256_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15, 0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15);
    for (int b = 0; b < l->k / BLOCK; b++, q += BLOCK) {
        Floats v[BLOCK / LANES], top[PARTS] = {{0}};
        for (int i = 0; i < BLOCK / LANES; i++) {
            int at = b * BLOCK + i * LANES;
            v[i] = load(x + at) * load(l->smooth + at);
            top[i % PARTS] = larger(top[i % PARTS], (Floats)((Ints)v[i] & 0x7fffffff));
        }
        float most = largest(top), inverse = most > 0 ? 127.0f / most : 0.0f;
        __m256i offset = _mm256_setzero_si256();
        for (int i = 0; i < BLOCK / LANES; i += 2) {
            // ROUND has nothing in the lower 16 bits, in which the integer is: those of both vectors, alternating.
            __m256i low = (__m256i)(v[i] * inverse + ROUND), high = (__m256i)(v[i + 1] * inverse + ROUND);
            __m256i both = _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
            offset = store_inputs(q + i * LANES, _mm256_permute4x64_epi64(_mm256_shuffle_epi8(both, apart), 0xd8), offset);
        }
        scales[b] = most / 127.0f;
        offsets[b] = lane_sum(offset);
    }
}

// Rounds the inputs into `rounded`: scales and offsets of the blocks, then the integers.
INLINE Inputs rounded_inputs(const Linear *l, const float *x, int stride, int rows, void *rounded) {
    int blocks = l->k / BLOCK;
    float *scales = rounded;
    int32_t *offsets = (int32_t *)(scales + (size_t)rows * blocks);
    int16_t *q = (int16_t *)(offsets + (size_t)rows * blocks);
    for (int r = 0; r < rows; r++)
        quantize(x + (size_t)r * stride, l, q + (size_t)r * l->k, scales + (size_t)r * blocks, offsets + (size_t)r * blocks);
    return (Inputs){q, scales, offsets};
}

// The same of stored integers.
INLINE Inputs stored_inputs(const Linear *l, const int8_t *codes, const float *steps, int rows, void *memory) {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    int blocks = l->k / BLOCK;
    float *scales = memory;
    int32_t *offsets = (int32_t *)(scales + (size_t)rows * blocks);
    int16_t *q = (int16_t *)(offsets + (size_t)rows * blocks);
    for (int b = 0; b < rows * blocks; b++) {
        __m256i offset = _mm256_setzero_si256();
        for (int i = 0; i < BLOCK; i += 16) {
            __m128i narrow = _mm_loadu_si128((const __m128i *)(codes + (size_t)b * BLOCK + i));
            offset = store_inputs(q + (size_t)b * BLOCK + i, _mm256_shuffle_epi8(_mm256_cvtepi8_epi16(narrow), order), offset);
        }
        offsets[b] = lane_sum(offset);
        scales[b] = steps[b / blocks];
    }
    return (Inputs){q, scales, offsets};
}

// Widens the weights of 16 outputs and k inputs to [k / 2][16][2] int16: of four inputs, the first and the third, then
// the second and the fourth, because that takes an operation each.
INLINE void widen(const uint8_t *w, int k, int16_t *to) {
    const __m256i low = _mm256_set1_epi16(255);
    for (int i = 0; i < k; i += 4, w += 4 * PANEL, to += 4 * COLUMNS) {
        __m256i a = _mm256_loadu_si256((const __m256i *)w), b = _mm256_loadu_si256((const __m256i *)(w + 32));
        _mm256_store_si256((__m256i *)to, _mm256_and_si256(a, low));
        _mm256_store_si256((__m256i *)(to + 16), _mm256_and_si256(b, low));
        _mm256_store_si256((__m256i *)(to + 32), _mm256_srli_epi16(a, 8));
        _mm256_store_si256((__m256i *)(to + 48), _mm256_srli_epi16(b, 8));
    }
}

// Adds products of one to five rows and a block of 64 inputs to dot[row][half], by hand, because GCC 12 keeps the sums in
// memory otherwise.
#define ROW(input, first, second) \
    "vpbroadcastd " input ", %%ymm12\n\tvpmaddwd %%ymm14, %%ymm12, %%ymm13\n\tvpmaddwd %%ymm15, %%ymm12, %%ymm12\n\t" \
    "vpaddd %%ymm13, %" #first ", %" #first "\n\tvpaddd %%ymm12, %" #second ", %" #second "\n\t"
#define ROWS1(at) ROW(#at "(%[q])", 0, 1)
#define ROWS2(at) ROWS1(at) ROW(#at "(%[q], %[stride])", 2, 3)
#define ROWS3(at) ROWS2(at) ROW(#at "(%[q], %[stride], 2)", 4, 5)
#define ROWS4(at) ROWS3(at) ROW(#at "(%[q], %[three])", 6, 7)
#define ROWS5(at) ROWS4(at) ROW(#at "(%[q], %[stride], 4)", 8, 9)
#define PAIR(rows, at, weights) "vmovdqa " #weights "(%[w]), %%ymm14\n\tvmovdqa 32+" #weights "(%[w]), %%ymm15\n\t" rows(at)
#define SUMS(r) "+x"(dot[r][0]), "+x"(dot[r][1])
#define MULTIPLY(rows) \
    __asm__ volatile("1:\n\t" PAIR(rows, 0, 0) PAIR(rows, 4, 64) PAIR(rows, 8, 128) PAIR(rows, 12, 192) \
                     "add $256, %[w]\n\tadd $16, %[q]\n\tcmp %[end], %[q]\n\tjne 1b" \
                     : SUMS(0), SUMS(1), SUMS(2), SUMS(3), SUMS(4), [w] "+r"(w), [q] "+r"(q) \
                     : [end] "r"(q + BLOCK), [stride] "r"(stride), [three] "r"(3 * stride) \
                     : "cc", "memory", "xmm12", "xmm13", "xmm14", "xmm15")

// Adds to (rows, 16) outputs the products of some blocks of 64 inputs; `ahead` is fetched, one line for four inputs.
INLINE void tile(const int16_t *w, const float *weight_scales, const Inputs *x, int row, int block, int count, int k, const int rows, float *out, int n, const uint8_t *ahead) {
    int blocks = k / BLOCK;
    size_t stride = k * sizeof *x->q;
    for (int b = block; b < block + count; b++) {
        const int16_t *q = x->q + (size_t)row * k + b * BLOCK;
        __m256i dot[TILE_ROWS][2];
        for (int r = 0; r < TILE_ROWS; r++) dot[r][0] = dot[r][1] = r < rows ? _mm256_set1_epi32(x->offsets[(row + r) * blocks + b]) : _mm256_setzero_si256();
        if (ahead)
            for (int i = 0; i < BLOCK / 4; i++, ahead += 4 * PANEL) _mm_prefetch((const char *)ahead, _MM_HINT_T0);
        if (rows == 5) MULTIPLY(ROWS5);
        if (rows == 4) MULTIPLY(ROWS4);
        if (rows == 3) MULTIPLY(ROWS3);
        if (rows == 2) MULTIPLY(ROWS2);
        if (rows == 1) MULTIPLY(ROWS1);
        __m256 scales[2] = {_mm256_loadu_ps(weight_scales + (size_t)b * PANEL), _mm256_loadu_ps(weight_scales + (size_t)b * PANEL + 8)};
        for (int r = 0; r < rows; r++) {
            __m256 scale = _mm256_set1_ps(x->scales[(row + r) * blocks + b]);
            for (int c = 0; c < 2; c++) {
                float *o = out + (size_t)r * n + c * 8;
                _mm256_storeu_ps(o, _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r][c]), _mm256_mul_ps(scale, scales[c]), _mm256_loadu_ps(o)));
            }
        }
    }
}

// Whether 16 outputs only fill a panel: their scales are zero, and so are their products. A query of late interaction
// often leaves two thirds of a panel empty.
INLINE int padded(const float *scales, int blocks) {
    __m256i any = _mm256_setzero_si256();
    for (int b = 0; b < blocks; b++, scales += PANEL)
        any = _mm256_or_si256(any, _mm256_or_si256(_mm256_loadu_si256((const __m256i *)scales), _mm256_loadu_si256((const __m256i *)(scales + 8))));
    return _mm256_testz_si256(any, any);
}

INLINE void product(const Linear *l, const Inputs *x, int rows, float *out, int gelu) {
    int16_t widened[CHUNK * COLUMNS] __attribute__((aligned(32)));
    int blocks = l->k / BLOCK;
    for (int column = 0; column < l->n; column += COLUMNS) {
        int panel = column / PANEL, within = column % PANEL;
        const uint8_t *weights = (const uint8_t *)l->weights + (size_t)panel * l->k * PANEL + within * 4;
        const float *scales = l->scales + (size_t)panel * blocks * PANEL + within;
        for (int r = 0; r < rows; r++) memcpy(out + (size_t)r * l->n + column, l->bias + column, sizeof(float) * COLUMNS);
        for (int from = padded(scales, blocks) ? l->k : 0; from < l->k; from += CHUNK) {
            int some = l->k - from < CHUNK ? l->k - from : CHUNK;
            const uint8_t *w = weights + (size_t)from * PANEL, *ahead = weights;  // what is widened next
            if (from + CHUNK < l->k) ahead = w + CHUNK * PANEL;
            else ahead += within + COLUMNS < PANEL ? COLUMNS * 4 : l->k * PANEL - within * 4;
            widen(w, some, widened);
#define TILE(count) tile(widened, scales, x, r, from / BLOCK, some / BLOCK, l->k, count, out + (size_t)r * l->n + column, l->n, r ? NULL : ahead)
            int r = 0;
            for (; r + TILE_ROWS <= rows; r += TILE_ROWS) TILE(TILE_ROWS);
            if (rows - r == 4) TILE(4);
            if (rows - r == 3) TILE(3);
            if (rows - r == 2) TILE(2);
            if (rows - r == 1) TILE(1);
#undef TILE
        }
        if (gelu) activate(out + column, l->n, rows, COLUMNS);
    }
}

AVX2 void int8_avx2(const Linear *l, const float *x, int stride, int rows, float *out, int gelu, void *rounded) {
    Inputs inputs = rounded_inputs(l, x, stride, rows, rounded);
    product(l, &inputs, rows, out, gelu);
}

AVX2 void stored_avx2(const Linear *l, const int8_t *codes, const float *steps, int rows, float *out, void *memory) {
    Inputs inputs = stored_inputs(l, codes, steps, rows, memory);
    product(l, &inputs, rows, out, 0);
}

AVX2 void encode_avx2(const Model *m, const int32_t *ids, const int32_t *ends, int texts, float *vectors, const Memory *w, Apply *apply) {
    encode(m, ids, ends, texts, vectors, w, apply, 4, 2);
}
#endif
