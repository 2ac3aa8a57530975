// Encodes texts with a BERT-like model (Devlin et al., NAACL 2019) in int8, one thread a call.
//
// Why not a library: the scale of each token and of 64 of its inputs keeps similarities within .0015 of float32, and no
// packaged runtime has it together with packed rows, which need no padding (docs/benchmarks/encoder.md).
//
// A vector depends on its text alone, to the last bit: every sum has one order, whatever the other texts, the
// instructions or the compiler. So products and sums are not contracted (-ffp-contract=off), sums over 16 lanes end in one
// tree, and sums of integers are exact. Three paths (AVX-512 VNNI, AVX2, plain C) return the same bits.
//
// Layout of int8 weights of n outputs and k inputs: [n / 48][k / 4][48][4] uint8 from 1 to 255, 128 being zero; their
// scales: [n / 48][k / 64][48]. Outputs are padded to 48 and inputs to 64 with zeros.
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define LANES 16
#define PANEL 48  // outputs of a tile: three registers of 16
#define BLOCK 64  // inputs with a scale of their own
#define QUERIES 4  // query tokens at once, so that their sums do not wait for each other
#define ROUND 12582912.0f  // 1.5 · 2^23: adding it rounds to an integer, which is then in the low bits
#define ROUND_BITS 0x4B400000

typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef float Eight __attribute__((vector_size(32)));
typedef int32_t EightInts __attribute__((vector_size(32)));
typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourInts __attribute__((vector_size(16)));
typedef int8_t Bytes __attribute__((vector_size(16)));

typedef struct {
    int n, k;  // padded
    const uint8_t *weights;
    const float *scales, *bias;
    const float *smooth;  // (k,) factors of the inputs, whose inverse is in the weights (SmoothQuant, Xiao et al., 2023)
} Linear;

typedef struct {
    Linear qkv, out, up, down;
    const float *norm1, *norm2;  // (2, hidden): factor and offset
} Layer;

typedef struct {
    int vocabulary, positions, hidden, inner, heads, layers, first_token;
    float epsilon;
    const float *words, *places, *norm;
    Layer *layer;
    Py_buffer *buffers;
    int held;
} Model;

// A batch of inputs in int8: (rows, k) with a scale and a sum for each block of 64.
typedef struct {
    const int8_t *q;
    const float *scales;
    const int32_t *sums;
} Inputs;

typedef void Product(const Linear *, const Inputs *, int rows, float *out, int gelu);

INLINE Floats load(const float *p) { Floats v; memcpy(&v, p, sizeof v); return v; }
INLINE void store(float *p, Floats v) { memcpy(p, &v, sizeof v); }
INLINE Floats all(float x) { return (Floats){0} + x; }
INLINE Floats choose(Ints mask, Floats a, Floats b) { return (Floats)(((Ints)a & mask) | ((Ints)b & ~mask)); }
INLINE Floats larger(Floats a, Floats b) { return choose(a > b, a, b); }
INLINE Floats smaller(Floats a, Floats b) { return choose(a < b, a, b); }

#define HALVES(v, half, operation) \
    half low, high; \
    memcpy(&low, &v, sizeof low); \
    memcpy(&high, (const char *)&v + sizeof low, sizeof high); \
    return operation;

INLINE Eight halve_sum(Floats v) { HALVES(v, Eight, low + high) }
INLINE Four quarter_sum(Eight v) { HALVES(v, Four, low + high) }
INLINE float sum(Floats v) {
    Four a = quarter_sum(halve_sum(v));
    return (a[0] + a[2]) + (a[1] + a[3]);
}

INLINE Eight halve_largest(Floats v) { HALVES(v, Eight, (Eight)(((low > high) & (EightInts)low) | (~(low > high) & (EightInts)high))) }
INLINE Four quarter_largest(Eight v) { HALVES(v, Four, (Four)(((low > high) & (FourInts)low) | (~(low > high) & (FourInts)high))) }
INLINE float largest(Floats v) {
    Four a = quarter_largest(halve_largest(v));
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
    Floats total = {0}, squares = {0};
    for (int i = 0; i < n; i += LANES) total += load(x + i);
    float mean = sum(total) / (float)n;
    for (int i = 0; i < n; i += LANES) {
        Floats d = load(x + i) - mean;
        squares += d * d;
    }
    float scale = 1.0f / sqrtf(sum(squares) / (float)n + epsilon);
    for (int i = 0; i < n; i += LANES) store(x + i, (load(x + i) - mean) * scale * load(norm + i) + load(norm + n + i));
}

INLINE void quantize(const float *x, const Linear *l, int8_t *q, float *scales, int32_t *sums) {
    for (int b = 0; b < l->k / BLOCK; b++) {
        Floats v[BLOCK / LANES], top = {0};
        for (int i = 0; i < BLOCK / LANES; i++) {
            int at = b * BLOCK + i * LANES;
            v[i] = load(x + at) * load(l->smooth + at);
            top = larger(top, (Floats)((Ints)v[i] & 0x7fffffff));
        }
        float most = largest(top), inverse = most > 0 ? 127.0f / most : 0.0f;
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

INLINE void activate(float *out, int n, int rows) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < PANEL; c += LANES) store(out + (size_t)r * n + c, gelu_of(load(out + (size_t)r * n + c)));
}

// The reference: what the other two must return, to the bit.
static void product_plain(const Linear *l, const Inputs *x, int rows, float *out, int gelu) {
    int blocks = l->k / BLOCK;
    for (int p = 0; p < l->n / PANEL; p++) {
        const uint8_t *w = l->weights + (size_t)p * l->k * PANEL;
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
            if (gelu) activate(o, l->n, 1);
        }
    }
}

#if defined(__x86_64__)
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")))
#define AVX2 __attribute__((target("avx2,fma")))

// By hand, because GCC 12 copies the sums between registers around the intrinsic.
#define ADD_PRODUCTS(sums, weights, inputs) \
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(inputs))

AVX512 INLINE void tile_512(const Linear *l, const Inputs *x, int panel, int row, const int rows, float *out) {
    int blocks = l->k / BLOCK;
    const uint8_t *w = l->weights + (size_t)panel * l->k * PANEL;
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

AVX512 static void product_512(const Linear *l, const Inputs *x, int rows, float *out, int gelu) {
    for (int p = 0; p < l->n / PANEL; p++) {
        int r = 0;
        for (; r + 4 <= rows; r += 4) tile_512(l, x, p, r, 4, out);
        if (rows - r == 3) tile_512(l, x, p, r, 3, out);
        if (rows - r == 2) tile_512(l, x, p, r, 2, out);
        if (rows - r == 1) tile_512(l, x, p, r, 1, out);
        if (gelu) activate(out + p * PANEL, l->n, rows);
    }
}

// maddubs takes unsigned times signed: |x| · (w with the sign of x). 2 · 127 · 127 fits 16 bits, so nothing saturates.
AVX2 INLINE void tile_2(const Linear *l, const Inputs *x, int panel, int row, const int rows, float *out) {
    int blocks = l->k / BLOCK;
    const float *scales = l->scales + (size_t)panel * blocks * PANEL;
    const __m256i ones = _mm256_set1_epi16(1), zero = _mm256_set1_epi8((char)128);
    for (int half = 0; half < PANEL; half += 24) {
        const uint8_t *w = l->weights + (size_t)panel * l->k * PANEL + half * 4;
        __m256 total[2][3];
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < 3; c++) total[r][c] = _mm256_loadu_ps(l->bias + panel * PANEL + half + c * 8);
        for (int b = 0; b < blocks; b++) {
            __m256i dot[2][3];
            for (int r = 0; r < rows; r++)
                for (int c = 0; c < 3; c++) dot[r][c] = _mm256_setzero_si256();
            for (int i = b * BLOCK; i < (b + 1) * BLOCK; i += 4, w += 4 * PANEL) {
                __m256i v[3];
                for (int c = 0; c < 3; c++) v[c] = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(w + c * 32)), zero);
                for (int r = 0; r < rows; r++) {
                    int32_t four;
                    memcpy(&four, x->q + (size_t)(row + r) * l->k + i, 4);
                    __m256i q = _mm256_set1_epi32(four), magnitude = _mm256_abs_epi8(q);
                    for (int c = 0; c < 3; c++) {
                        __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(v[c], q));
                        dot[r][c] = _mm256_add_epi32(dot[r][c], _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
            for (int r = 0; r < rows; r++)
                for (int c = 0; c < 3; c++) {
                    __m256 scale = _mm256_mul_ps(_mm256_set1_ps(x->scales[(row + r) * blocks + b]), _mm256_loadu_ps(scales + b * PANEL + half + c * 8));
                    total[r][c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r][c]), scale, total[r][c]);
                }
        }
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < 3; c++) _mm256_storeu_ps(out + (size_t)(row + r) * l->n + panel * PANEL + half + c * 8, total[r][c]);
    }
}

AVX2 static void product_2(const Linear *l, const Inputs *x, int rows, float *out, int gelu) {
    for (int p = 0; p < l->n / PANEL; p++) {
        int r = 0;
        for (; r + 2 <= rows; r += 2) tile_2(l, x, p, r, 2, out);
        if (r < rows) tile_2(l, x, p, r, 1, out);
        if (gelu) activate(out + p * PANEL, l->n, rows);
    }
}
#endif

// Scores of some query tokens with all keys: weights (tokens, padded), of which keys beyond the text are -inf.
INLINE void score(const float *q, int stride, const float *keys, int d, int tokens, int padded, const int queries, float *weights) {
    for (int j = 0; j < padded; j += LANES) {
        Floats total[QUERIES] = {0};
        for (int i = 0; i < d; i++) {
            Floats key = load(keys + (size_t)i * padded + j);
            for (int t = 0; t < queries; t++) total[t] += q[(size_t)t * stride + i] * key;
        }
        for (int t = 0; t < queries; t++) store(weights + (size_t)t * padded + j, total[t]);
    }
    for (int t = 0; t < queries; t++)
        for (int j = tokens; j < padded; j++) weights[(size_t)t * padded + j] = -INFINITY;
}

// Softmax of (padded,) in place, except for the factor that it returns.
INLINE float exponentials(float *weights, int tokens, int padded) {
    Floats top = all(-INFINITY), total = {0};
    for (int j = 0; j < padded; j += LANES) top = larger(top, load(weights + j));
    float most = largest(top);
    for (int j = 0; j < padded; j += LANES) store(weights + j, exp_of(load(weights + j) - most));
    for (int j = tokens; j < padded; j++) weights[j] = 0;
    for (int j = 0; j < padded; j += LANES) total += load(weights + j);
    return 1.0f / sum(total);
}

// Means of the values of all tokens, weighted for some query tokens.
INLINE void mix(const float *v, int stride, const float *weights, int padded, int d, int tokens, const int queries, const float *factors, float *out, int hidden) {
    for (int i = 0; i < d; i += LANES) {
        Floats total[QUERIES] = {0};
        for (int j = 0; j < tokens; j++) {
            Floats value = load(v + (size_t)j * stride + i);
            for (int t = 0; t < queries; t++) total[t] += weights[(size_t)t * padded + j] * value;
        }
        for (int t = 0; t < queries; t++) store(out + (size_t)t * hidden + i, total[t] * factors[t]);
    }
}

INLINE void attend_some(const float *qkv, int stride, const float *keys, int d, int tokens, int padded, int from, const int queries, int hidden, float *out, float *weights) {
    float factors[QUERIES];
    score(qkv + (size_t)from * stride, stride, keys, d, tokens, padded, queries, weights);
    for (int t = 0; t < queries; t++) factors[t] = exponentials(weights + (size_t)t * padded, tokens, padded);
    mix(qkv + 2 * hidden, stride, weights, padded, d, tokens, queries, factors, out + (size_t)from * hidden, hidden);
}

// Self-attention of one text. Keys are transposed, so that the scores of 16 keys are computed at once.
INLINE void attend(const float *qkv, int stride, int tokens, int hidden, int heads, float *out, float *work) {
    int d = hidden / heads, padded = (tokens + LANES - 1) / LANES * LANES, t;
    float *keys = work, *weights = work + (size_t)d * padded, root = 1.0f / sqrtf((float)d);
    memset(keys, 0, sizeof(float) * d * padded);
    for (int head = 0; head < heads; head++, qkv += d, out += d) {
        for (int j = 0; j < tokens; j++)
            for (int i = 0; i < d; i++) keys[(size_t)i * padded + j] = qkv[(size_t)j * stride + hidden + i] * root;
        for (t = 0; t + QUERIES <= tokens; t += QUERIES)
            attend_some(qkv, stride, keys, d, tokens, padded, t, QUERIES, hidden, out, weights);
        for (; t < tokens; t++) attend_some(qkv, stride, keys, d, tokens, padded, t, 1, hidden, out, weights);
    }
}

// Memory of one call.
typedef struct {
    float *x, *y, *wide, *scales, *work;
    int32_t *sums;
    int8_t *q;
} Memory;

INLINE void apply(const Linear *l, const float *x, int stride, int rows, float *out, int gelu, const Memory *m, Product *product) {
    int blocks = l->k / BLOCK;
    for (int r = 0; r < rows; r++)
        quantize(x + (size_t)r * stride, l, m->q + (size_t)r * l->k, m->scales + (size_t)r * blocks, m->sums + (size_t)r * blocks);
    Inputs inputs = {m->q, m->scales, m->sums};
    product(l, &inputs, rows, out, gelu);
}

INLINE void add_normalized(float *x, const float *y, int stride, int rows, int n, const float *norm, float epsilon) {
    for (int r = 0; r < rows; r++) {
        float *row = x + (size_t)r * n;
        for (int i = 0; i < n; i += LANES) store(row + i, load(row + i) + load(y + (size_t)r * stride + i));
        normalize(row, n, norm, epsilon);
    }
}

INLINE void encode(const Model *m, const int32_t *ids, const int32_t *ends, int texts, float *vectors, const Memory *w, Product *product) {
    int rows = ends[texts - 1], h = m->hidden;
    for (int t = 0, r = 0; t < texts; t++)
        for (int place = 0; r < ends[t]; r++, place++) {
            const float *word = m->words + (size_t)ids[r] * h, *position = m->places + (size_t)place * h;
            for (int i = 0; i < h; i += LANES) store(w->x + (size_t)r * h + i, load(word + i) + load(position + i));
            normalize(w->x + (size_t)r * h, h, m->norm, m->epsilon);
        }
    for (const Layer *l = m->layer; l < m->layer + m->layers; l++) {
        apply(&l->qkv, w->x, h, rows, w->wide, 0, w, product);
        for (int t = 0, from = 0; t < texts; from = ends[t++])
            attend(w->wide + (size_t)from * l->qkv.n, l->qkv.n, ends[t] - from, h, m->heads, w->y + (size_t)from * h, w->work);
        apply(&l->out, w->y, h, rows, w->wide, 0, w, product);
        add_normalized(w->x, w->wide, l->out.n, rows, h, l->norm1, m->epsilon);
        apply(&l->up, w->x, h, rows, w->wide, 1, w, product);
        apply(&l->down, w->wide, l->up.n, rows, w->y, 0, w, product);
        add_normalized(w->x, w->y, l->down.n, rows, h, l->norm2, m->epsilon);
    }
    for (int t = 0, from = 0; t < texts; from = ends[t++]) {
        int tokens = m->first_token ? 1 : ends[t] - from;
        float *vector = vectors + (size_t)t * h;
        Floats squares = {0};
        for (int i = 0; i < h; i += LANES) {
            Floats total = {0};
            for (int r = from; r < from + tokens; r++) total += load(w->x + (size_t)r * h + i);
            total /= (float)tokens;
            store(vector + i, total);
            squares += total * total;
        }
        float length = sqrtf(sum(squares));
        for (int i = 0; i < h; i += LANES) store(vector + i, load(vector + i) / (length > 1e-12f ? length : 1e-12f));
    }
}

static void encode_plain(const Model *m, const int32_t *ids, const int32_t *ends, int texts, float *vectors, const Memory *w) {
    encode(m, ids, ends, texts, vectors, w, product_plain);
}
#if defined(__x86_64__)
AVX512 static void encode_512(const Model *m, const int32_t *ids, const int32_t *ends, int texts, float *vectors, const Memory *w) {
    encode(m, ids, ends, texts, vectors, w, product_512);
}
AVX2 static void encode_2(const Model *m, const int32_t *ids, const int32_t *ends, int texts, float *vectors, const Memory *w) {
    encode(m, ids, ends, texts, vectors, w, product_2);
}
#endif

typedef void Encode(const Model *, const int32_t *, const int32_t *, int, float *, const Memory *);
typedef struct {
    const char *name;
    Encode *encode;
} Path;

// Fastest first; the last is always there.
static int paths(Path *found) {
    int n = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        found[n++] = (Path){"avx512", encode_512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found[n++] = (Path){"avx2", encode_2};
#endif
    found[n++] = (Path){"plain", encode_plain};
    return n;
}

static PyObject *py_paths(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    Path found[3];
    int n = paths(found);
    PyObject *names = PyTuple_New(n);
    for (int i = 0; names && i < n; i++)
        if (PyTuple_SetItem(names, i, PyUnicode_FromString(found[i].name))) Py_CLEAR(names);
    return names;
}

static void release(PyObject *capsule) {
    Model *m = PyCapsule_GetPointer(capsule, "taugate.model");
    for (int i = 0; i < m->held; i++) PyBuffer_Release(&m->buffers[i]);
    free(m->buffers);
    free(m->layer);
    free(m);
}

// Take the next array, of exactly `bytes` bytes.
static const void *take(Model *m, PyObject *arrays, int64_t bytes) {
    PyObject *array = PySequence_GetItem(arrays, m->held);
    if (!array) return NULL;
    Py_buffer *buffer = &m->buffers[m->held];
    int failed = PyObject_GetBuffer(array, buffer, PyBUF_SIMPLE);
    Py_DECREF(array);
    if (failed) return NULL;
    m->held++;
    if (buffer->len == bytes) return buffer->buf;
    PyErr_Format(PyExc_ValueError, "array %d has %zd bytes, not %lld", m->held - 1, buffer->len, (long long)bytes);
    return NULL;
}

static int take_linear(Model *m, PyObject *arrays, Linear *l, int n, int k) {
    l->n = (n + PANEL - 1) / PANEL * PANEL;
    l->k = (k + BLOCK - 1) / BLOCK * BLOCK;
    int64_t weights = (int64_t)l->n * l->k;
    return (l->weights = take(m, arrays, weights)) && (l->scales = take(m, arrays, weights / BLOCK * 4)) &&
           (l->bias = take(m, arrays, 4LL * l->n)) && (l->smooth = take(m, arrays, 4LL * l->k));
}

static int fill(Model *m, PyObject *arrays) {
    int h = m->hidden;
    if (!(m->words = take(m, arrays, 4LL * m->vocabulary * h)) || !(m->places = take(m, arrays, 4LL * m->positions * h)) ||
        !(m->norm = take(m, arrays, 8LL * h)))
        return 0;
    for (Layer *l = m->layer; l < m->layer + m->layers; l++)
        if (!take_linear(m, arrays, &l->qkv, 3 * h, h) || !take_linear(m, arrays, &l->out, h, h) || !(l->norm1 = take(m, arrays, 8LL * h)) ||
            !take_linear(m, arrays, &l->up, m->inner, h) || !take_linear(m, arrays, &l->down, h, m->inner) || !(l->norm2 = take(m, arrays, 8LL * h)))
            return 0;
    return 1;
}

static PyObject *py_model(PyObject *self, PyObject *args) {
    (void)self;
    Model shape = {0};
    PyObject *arrays;
    if (!PyArg_ParseTuple(args, "iiiiiiifO", &shape.vocabulary, &shape.positions, &shape.hidden, &shape.inner, &shape.heads, &shape.layers,
                          &shape.first_token, &shape.epsilon, &arrays))
        return NULL;
    int h = shape.hidden, limit = 1 << 16, large = shape.vocabulary > 1 << 24 || shape.positions > 1 << 24 || h > limit || shape.inner > limit || shape.layers > limit || shape.heads > limit;
    int small = shape.vocabulary < 1 || shape.positions < 1 || h < BLOCK || shape.inner < BLOCK || shape.heads < 1 || shape.layers < 1;
    if (large || small || h % BLOCK || shape.inner % BLOCK || h % (shape.heads * LANES))
        return PyErr_Format(PyExc_ValueError, "sizes that this kernel does not support");
    int count = 3 + 18 * shape.layers;
    if (PySequence_Size(arrays) != count) return PyErr_Format(PyExc_ValueError, "%d arrays are needed", count);
    Model *m = malloc(sizeof *m);
    if (!m) return PyErr_NoMemory();
    *m = shape;
    m->layer = calloc(m->layers, sizeof *m->layer);
    m->buffers = calloc(count, sizeof *m->buffers);
    PyObject *capsule = PyCapsule_New(m, "taugate.model", release);
    if (!capsule) {
        free(m->layer), free(m->buffers), free(m);
        return NULL;
    }
    if (!m->layer || !m->buffers) PyErr_NoMemory();
    else if (fill(m, arrays)) return capsule;
    Py_DECREF(capsule);
    return NULL;
}

// Check what reads memory: the texts end in order, and every token has a word and a position.
static int texts_fit(const Model *m, const int32_t *ids, Py_ssize_t rows, const int32_t *ends, Py_ssize_t texts, int *longest) {
    int32_t from = 0;
    for (Py_ssize_t t = 0; t < texts; from = ends[t++]) {
        if (ends[t] <= from || ends[t] - from > m->positions) return 0;
        if (ends[t] - from > *longest) *longest = ends[t] - from;
    }
    if (from != rows) return 0;
    for (Py_ssize_t i = 0; i < rows; i++)
        if (ids[i] < 0 || ids[i] >= m->vocabulary) return 0;
    return 1;
}

static PyObject *py_encode(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule, *result = NULL;
    Py_buffer ids, ends, vectors;
    int which;
    if (!PyArg_ParseTuple(args, "Oy*y*w*i", &capsule, &ids, &ends, &vectors, &which)) return NULL;
    Model *m = PyCapsule_GetPointer(capsule, "taugate.model");
    Path found[3];
    Py_ssize_t rows = ids.len / 4, texts = ends.len / 4;
    int longest = 0, n = paths(found);
    if (!m) goto done;
    if (which < 0 || which >= n || texts < 1 || rows > 1 << 20 || vectors.len != texts * m->hidden * 4 ||
        !texts_fit(m, ids.buf, rows, ends.buf, texts, &longest)) {
        PyErr_SetString(PyExc_ValueError, "texts, vectors or path do not fit the model");
        goto done;
    }
    size_t wide = 0, deep = m->inner > m->hidden ? m->inner : m->hidden, h = m->layer->out.n;
    if ((size_t)m->layer->qkv.n > wide) wide = m->layer->qkv.n;
    if ((size_t)m->layer->up.n > wide) wide = m->layer->up.n;
    size_t padded = (longest + LANES) / LANES * LANES, head = m->hidden / m->heads;
    size_t floats = rows * (m->hidden + h + wide + 2 * (deep / BLOCK)) + (head + QUERIES) * padded;
    char *memory = malloc(floats * 4 + rows * deep);
    if (!memory) {
        PyErr_NoMemory();
        goto done;
    }
    Memory w = {.x = (float *)memory};
    w.y = w.x + rows * m->hidden;
    w.wide = w.y + rows * h;
    w.scales = w.wide + rows * wide;
    w.sums = (int32_t *)(w.scales + rows * (deep / BLOCK));
    w.work = (float *)(w.sums + rows * (deep / BLOCK));
    w.q = (int8_t *)(w.work + (head + QUERIES) * padded);
    Py_BEGIN_ALLOW_THREADS
    found[which].encode(m, ids.buf, ends.buf, (int)texts, vectors.buf, &w);
    Py_END_ALLOW_THREADS
    free(memory);
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&ids);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&vectors);
    return result;
}

static PyMethodDef methods[] = {
    {"paths", py_paths, METH_NOARGS, "paths() -> names of the paths that this processor has, fastest first"},
    {"model", py_model, METH_VARARGS, "model(vocabulary, positions, hidden, inner, heads, layers, first_token, epsilon, arrays) -> model"},
    {"encode", py_encode, METH_VARARGS, "encode(model, ids, ends, vectors, path): fill vectors, (texts, hidden) float32"},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "kernel", .m_doc = "Encodes texts with a BERT-like model in int8.", .m_methods = methods, .m_slots = slots};
PyMODINIT_FUNC PyInit_kernel(void) { return PyModuleDef_Init(&definition); }
