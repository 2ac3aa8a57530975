// The layers of a BERT-like model around its products: embeddings, attention, norms, pooling.
#ifndef TAUGATE_ENCODE_H
#define TAUGATE_ENCODE_H
#include "kernel.h"

// Scores of some query tokens with `blocks` times 16 keys from key j on.
INLINE void score_keys(const float *q, int stride, const float *keys, int d, int padded, int j, const int queries, const int blocks, float *weights) {
    Floats total[QUERIES][BLOCKS] = {0};
    for (int i = 0; i < d; i++)
        for (int b = 0; b < blocks; b++) {
            Floats key = load(keys + (size_t)i * padded + j + b * LANES);
            for (int t = 0; t < queries; t++) total[t][b] += q[(size_t)t * stride + i] * key;
        }
    for (int t = 0; t < queries; t++)
        for (int b = 0; b < blocks; b++) store(weights + (size_t)t * padded + j + b * LANES, total[t][b]);
}

// Scores of some query tokens with all keys: weights (tokens, padded), of which keys beyond the text are -inf.
INLINE void score(const float *q, int stride, const float *keys, int d, int tokens, int padded, const int queries, const int blocks, float *weights) {
    int j = 0;
    for (; j + blocks * LANES <= padded; j += blocks * LANES) score_keys(q, stride, keys, d, padded, j, queries, blocks, weights);
    for (; j < padded; j += LANES) score_keys(q, stride, keys, d, padded, j, queries, 1, weights);
    for (int t = 0; t < queries; t++)
        for (int j = tokens; j < padded; j++) weights[(size_t)t * padded + j] = -INFINITY;
}

// Softmax of (padded,) in place, except for the factor that it returns.
INLINE float exponentials(float *weights, int tokens, int padded) {
    Floats top[PARTS], total[PARTS] = {{0}};
    for (int p = 0; p < PARTS; p++) top[p] = all(-INFINITY);
    for (int j = 0; j < padded; j += SUMMED)
        for (int p = 0; p < PARTS; p++) top[p] = larger(top[p], load(weights + j + p * LANES));
    float most = largest(top);
    for (int j = 0; j < padded; j += LANES) store(weights + j, exp_of(load(weights + j) - most));
    for (int j = tokens; j < padded; j++) weights[j] = 0;
    for (int j = 0; j < padded; j += SUMMED)
        for (int p = 0; p < PARTS; p++) total[p] += load(weights + j + p * LANES);
    return 1.0f / sum(total);
}

// Means of `blocks` times 16 values of all tokens from value i on, weighted for some query tokens.
INLINE void mix_values(const float *v, int stride, const float *weights, int padded, int i, int tokens, const int queries, const int blocks, const float *factors, float *out, int hidden) {
    Floats total[QUERIES][BLOCKS] = {0};
    for (int j = 0; j < tokens; j++)
        for (int b = 0; b < blocks; b++) {
            Floats value = load(v + (size_t)j * stride + i + b * LANES);
            for (int t = 0; t < queries; t++) total[t][b] += weights[(size_t)t * padded + j] * value;
        }
    for (int t = 0; t < queries; t++)
        for (int b = 0; b < blocks; b++) store(out + (size_t)t * hidden + i + b * LANES, total[t][b] * factors[t]);
}

// Means of the values of all tokens, weighted for some query tokens.
INLINE void mix(const float *v, int stride, const float *weights, int padded, int d, int tokens, const int queries, const int blocks, const float *factors, float *out, int hidden) {
    int i = 0;
    for (; i + blocks * LANES <= d; i += blocks * LANES) mix_values(v, stride, weights, padded, i, tokens, queries, blocks, factors, out, hidden);
    for (; i < d; i += LANES) mix_values(v, stride, weights, padded, i, tokens, queries, 1, factors, out, hidden);
}

INLINE void attend_some(const float *qkv, int stride, const float *keys, int d, int tokens, int padded, int from, const int queries, const int blocks, int hidden, float *out, float *weights) {
    float factors[QUERIES];
    score(qkv + (size_t)from * stride, stride, keys, d, tokens, padded, queries, blocks, weights);
    for (int t = 0; t < queries; t++) factors[t] = exponentials(weights + (size_t)t * padded, tokens, padded);
    mix(qkv + 2 * hidden, stride, weights, padded, d, tokens, queries, blocks, factors, out + (size_t)from * hidden, hidden);
}

// Self-attention of the first `queries` tokens of a text to all, `group` of them at once. Keys are transposed, so that the scores of 16 are
// computed at once.
INLINE void attend(const float *qkv, int stride, int tokens, int queries, const int group, const int blocks, int hidden, int heads, float *out, float *work) {
    int d = hidden / heads, padded = (tokens + SUMMED - 1) / SUMMED * SUMMED, t;
    float *keys = work, *weights = work + (size_t)d * padded, root = 1.0f / sqrtf((float)d);
    memset(keys, 0, sizeof(float) * d * padded);
    for (int head = 0; head < heads; head++, qkv += d, out += d) {
        for (int j = 0; j < tokens; j++)
            for (int i = 0; i < d; i++) keys[(size_t)i * padded + j] = qkv[(size_t)j * stride + hidden + i] * root;
        for (t = 0; t + group <= queries; t += group) attend_some(qkv, stride, keys, d, tokens, padded, t, group, blocks, hidden, out, weights);
        for (; t < queries; t++) attend_some(qkv, stride, keys, d, tokens, padded, t, 1, blocks, hidden, out, weights);
    }
}

INLINE void add_normalized(float *x, const float *y, int stride, int rows, int n, const float *norm, float epsilon) {
    for (int r = 0; r < rows; r++) {
        float *row = x + (size_t)r * n;
        for (int i = 0; i < n; i += LANES) store(row + i, load(row + i) + load(y + (size_t)r * stride + i));
        normalize(row, n, norm, epsilon);
    }
}

INLINE void encode(const Model *m, const int32_t *ids, const int32_t *ends, int texts, float *vectors, const Memory *w, Apply *apply, const int group, const int blocks) {
    int rows = ends[texts - 1], h = m->hidden, first = m->pooling == FIRST || m->pooling == FIRST_AS_IS;
    for (int t = 0, r = 0; t < texts; t++)
        for (int place = 0; r < ends[t]; r++, place++) {
            const float *word = m->words + (size_t)(ids[r] % m->vocabulary) * h, *position = m->places + (size_t)place * h,
                        *kind = m->kinds + (size_t)(ids[r] / m->vocabulary) * h;
            for (int i = 0; i < h; i += LANES)
                store(w->x + (size_t)r * h + i, load(word + i) + load(position + i) + load(kind + i));
            normalize(w->x + (size_t)r * h, h, m->norm, m->epsilon);
        }
    for (const Layer *l = m->layer; l < m->layer + m->layers; l++) {
        apply(&l->qkv, w->x, h, rows, w->wide, 0, w->rounded);
        int ended = first && l == m->layer + m->layers - 1;  // from here on, only first tokens matter
        for (int t = 0, from = 0; t < texts; from = ends[t++]) {
            int tokens = ends[t] - from, place = ended ? t : from;
            attend(w->wide + (size_t)from * l->qkv.n, l->qkv.n, tokens, ended ? 1 : tokens, group, blocks, h, m->heads, w->y + (size_t)place * h, w->work);
            if (ended) memmove(w->x + (size_t)t * h, w->x + (size_t)from * h, sizeof(float) * h);
        }
        if (ended) rows = texts;
        apply(&l->out, w->y, h, rows, w->wide, 0, w->rounded);
        add_normalized(w->x, w->wide, l->out.n, rows, h, l->norm1, m->epsilon);
        apply(&l->up, w->x, h, rows, w->wide, 1, w->rounded);
        apply(&l->down, w->wide, l->up.n, rows, w->y, 0, w->rounded);
        add_normalized(w->x, w->y, l->down.n, rows, h, l->norm2, m->epsilon);
    }
    if (m->pooling == TOKENS) {
        memcpy(vectors, w->x, sizeof(float) * rows * h);
        return;
    }
    for (int t = 0, from = 0; t < texts; from = ends[t++]) {
        int tokens = first ? 1 : ends[t] - from, start = first ? t : from;
        float *vector = vectors + (size_t)t * h;
        Floats squares[PARTS] = {{0}};
        for (int i = 0; i < h; i += LANES) {
            Floats total = {0};
            for (int r = start; r < start + tokens; r++) total += load(w->x + (size_t)r * h + i);
            total /= (float)tokens;
            store(vector + i, total);
            squares[i / LANES % PARTS] += total * total;
        }
        float length = m->pooling == FIRST_AS_IS ? 1.0f : sqrtf(sum(squares));
        for (int i = 0; i < h; i += LANES) store(vector + i, load(vector + i) / (length > 1e-12f ? length : 1e-12f));
    }
}

#endif
