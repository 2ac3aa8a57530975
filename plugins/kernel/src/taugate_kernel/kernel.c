// The Python module: reads weights, checks texts, and chooses a path of this processor. One thread a call.
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"

typedef struct {
    const char *name;
    Encode *encode;
    Apply *apply;
    ApplyStored *stored;  // of int8
} Path;

// A model, and the arrays that it reads.
typedef struct {
    Model model;
    Py_buffer *buffers;
    int held;
} Weights;

static const char *const names[] = {"avx512", "avx2", "plain"};
static int fastest;  // of names; slower processors than this one are tested by a larger number

// The paths of a precision, fastest first; the last is always there.
static int paths(int precision, Path *found) {
    static Apply *const plain[PRECISIONS] = {int8_plain, bfloat16_plain, float32_plain};
    int n = 0;
#if defined(__x86_64__)
    static Apply *const avx2[PRECISIONS] = {int8_avx2, bfloat16_avx2, NULL};
    static Apply *const avx512[PRECISIONS] = {int8_avx512, bfloat16_avx512, float32_avx512};
    __builtin_cpu_init();
    int special[PRECISIONS] = {!!__builtin_cpu_supports("avx512vnni"), !!__builtin_cpu_supports("avx512bf16"), 1};
    if (!fastest && special[precision] && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        found[n++] = (Path){names[0], encode_avx512, avx512[precision], stored_avx512};
    if (fastest <= 1 && avx2[precision] && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found[n++] = (Path){names[1], encode_avx2, avx2[precision], stored_avx2};
#endif
    found[n++] = (Path){names[2], encode_plain, plain[precision], stored_plain};
    return n;
}

static int known(int precision) {
    if (precision >= 0 && precision < PRECISIONS) return 1;
    PyErr_SetString(PyExc_ValueError, "a precision that this kernel does not have");
    return 0;
}

static PyObject *py_paths(PyObject *self, PyObject *args) {
    (void)self;
    int precision;
    if (!PyArg_ParseTuple(args, "i", &precision) || !known(precision)) return NULL;
    Path found[3];
    int n = paths(precision, found);
    PyObject *names = PyTuple_New(n);
    for (int i = 0; names && i < n; i++)
        if (PyTuple_SetItem(names, i, PyUnicode_FromString(found[i].name))) Py_CLEAR(names);
    return names;
}

static void release(PyObject *capsule) {
    Weights *w = PyCapsule_GetPointer(capsule, "taugate.model");
    for (int i = 0; i < w->held; i++) PyBuffer_Release(&w->buffers[i]);
    free(w->buffers);
    free(w->model.layer);
    free(w);
}

// Take the next array, of exactly `bytes` bytes.
static const void *take(Weights *w, PyObject *arrays, int64_t bytes) {
    PyObject *array = PySequence_GetItem(arrays, w->held);
    if (!array) return NULL;
    Py_buffer *buffer = &w->buffers[w->held];
    int failed = PyObject_GetBuffer(array, buffer, PyBUF_SIMPLE);
    Py_DECREF(array);
    if (failed) return NULL;
    w->held++;
    if (buffer->len == bytes) return buffer->buf;
    PyErr_Format(PyExc_ValueError, "array %d has %zd bytes, not %lld", w->held - 1, buffer->len, (long long)bytes);
    return NULL;
}

static int take_linear(Weights *w, PyObject *arrays, Linear *l, int n, int k) {
    static const int bytes[PRECISIONS] = {1, 2, 4};
    int precision = w->model.precision;
    l->n = (n + PANEL - 1) / PANEL * PANEL;
    l->k = (k + BLOCK - 1) / BLOCK * BLOCK;
    int64_t weights = (int64_t)l->n * l->k;
    if (!(l->weights = take(w, arrays, weights * bytes[precision])) || !(l->bias = take(w, arrays, 4LL * l->n))) return 0;
    return precision != INT8 || ((l->scales = take(w, arrays, weights / BLOCK * 4)) && (l->smooth = take(w, arrays, 4LL * l->k)));
}

static int fill(Weights *w, PyObject *arrays) {
    Model *m = &w->model;
    int h = m->hidden;
    if (!(m->words = take(w, arrays, 4LL * m->vocabulary * h)) || !(m->places = take(w, arrays, 4LL * m->positions * h)) ||
        !(m->kinds = take(w, arrays, 4LL * m->types * h)) || !(m->norm = take(w, arrays, 8LL * h)))
        return 0;
    for (Layer *l = m->layer; l < m->layer + m->layers; l++)
        if (!take_linear(w, arrays, &l->qkv, 3 * h, h) || !take_linear(w, arrays, &l->out, h, h) || !(l->norm1 = take(w, arrays, 8LL * h)) ||
            !take_linear(w, arrays, &l->up, m->inner, h) || !take_linear(w, arrays, &l->down, h, m->inner) || !(l->norm2 = take(w, arrays, 8LL * h)))
            return 0;
    return 1;
}

static PyObject *py_model(PyObject *self, PyObject *args) {
    (void)self;
    Model shape = {0};
    PyObject *arrays;
    if (!PyArg_ParseTuple(args, "iiiiiiiiifO", &shape.precision, &shape.vocabulary, &shape.types, &shape.positions, &shape.hidden, &shape.inner, &shape.heads,
                          &shape.layers, &shape.pooling, &shape.epsilon, &arrays))
        return NULL;
    if (!known(shape.precision)) return NULL;
    int h = shape.hidden, limit = 1 << 16, large = shape.vocabulary > 1 << 24 || shape.types > 64 || shape.positions > 1 << 24 || h > limit || shape.inner > limit || shape.layers > limit || shape.heads > limit;
    int small = shape.vocabulary < 1 || shape.types < 1 || shape.positions < 1 || h < BLOCK || shape.inner < BLOCK || shape.heads < 1 || shape.layers < 1;
    if (large || small || shape.pooling < 0 || shape.pooling >= POOLINGS || h % BLOCK || shape.inner % BLOCK || h % (shape.heads * LANES))
        return PyErr_Format(PyExc_ValueError, "sizes that this kernel does not support");
    int count = 4 + (shape.precision == INT8 ? 18 : 10) * shape.layers;
    if (PySequence_Size(arrays) != count) return PyErr_Format(PyExc_ValueError, "%d arrays are needed", count);
    Weights *w = calloc(1, sizeof *w);
    if (!w) return PyErr_NoMemory();
    w->model = shape;
    w->model.layer = calloc(shape.layers, sizeof *w->model.layer);
    w->buffers = calloc(count, sizeof *w->buffers);
    PyObject *capsule = PyCapsule_New(w, "taugate.model", release);
    if (!capsule) {
        free(w->model.layer), free(w->buffers), free(w);
        return NULL;
    }
    if (!w->model.layer || !w->buffers) PyErr_NoMemory();
    else if (fill(w, arrays)) return capsule;
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
        if (ids[i] < 0 || ids[i] >= m->vocabulary * m->types) return 0;
    return 1;
}

static PyObject *py_encode(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule, *result = NULL;
    Py_buffer ids, ends, vectors;
    int which;
    if (!PyArg_ParseTuple(args, "Oy*y*w*i", &capsule, &ids, &ends, &vectors, &which)) return NULL;
    Weights *weights = PyCapsule_GetPointer(capsule, "taugate.model");
    Path found[3];
    Py_ssize_t rows = ids.len / 4, texts = ends.len / 4;
    int longest = 0;
    if (!weights) goto done;
    const Model *m = &weights->model;
    int n = paths(m->precision, found);
    if (which < 0 || which >= n || texts < 1 || rows > 1 << 20 || vectors.len != (m->pooling == TOKENS ? rows : texts) * m->hidden * 4 ||
        !texts_fit(m, ids.buf, rows, ends.buf, texts, &longest)) {
        PyErr_SetString(PyExc_ValueError, "texts, vectors or path do not fit the model");
        goto done;
    }
    size_t wide = 0, deep = m->inner > m->hidden ? m->inner : m->hidden, h = m->layer->out.n;
    if ((size_t)m->layer->qkv.n > wide) wide = m->layer->qkv.n;
    if ((size_t)m->layer->up.n > wide) wide = m->layer->up.n;
    size_t padded = (longest + LANES) / LANES * LANES, head = m->hidden / m->heads;
    float *memory = malloc((rows * (m->hidden + h + wide + deep) + (head + QUERIES) * padded) * sizeof *memory);
    if (!memory) {
        PyErr_NoMemory();
        goto done;
    }
    Memory w = {.x = memory};
    w.y = w.x + rows * m->hidden;
    w.wide = w.y + rows * h;
    w.rounded = w.wide + rows * wide;
    w.work = w.wide + rows * (wide + deep);
    Py_BEGIN_ALLOW_THREADS
    found[which].encode(m, ids.buf, ends.buf, (int)texts, vectors.buf, &w, found[which].apply);
    Py_END_ALLOW_THREADS
    free(memory);
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&ids);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&vectors);
    return result;
}

#define ROWS 64  // stored rows at once, whose products with 48 outputs stay in the cache

// Largest product of every query token with the rows of each document: best (documents, n).
static void largest_products(const Linear *l, const int8_t *codes, const float *steps, const int64_t *offsets, const int64_t *positions, int documents, float *best, float *memory, ApplyStored *apply) {
    for (int d = 0; d < documents; d++, best += l->n) {
        int64_t end = offsets[positions[d] + 1];
        for (int c = 0; c < l->n; c++) best[c] = -INFINITY;
        for (int64_t from = offsets[positions[d]]; from < end; from += ROWS) {
            int rows = end - from < ROWS ? (int)(end - from) : ROWS;
            apply(l, codes + from * l->k, steps + from, rows, memory, memory + ROWS * l->n);
            for (int r = 0; r < rows; r++)
                for (int c = 0; c < l->n; c += LANES) store(best + c, larger(load(best + c), load(memory + r * l->n + c)));
        }
    }
}

static PyObject *py_largest_products(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer weights, scales, codes, steps, offsets, positions, best;
    int k, which;
    if (!PyArg_ParseTuple(args, "iy*y*y*y*y*y*w*i", &k, &weights, &scales, &codes, &steps, &offsets, &positions, &best, &which)) return NULL;
    PyObject *result = NULL;
    Path found[3];
    Py_ssize_t documents = positions.len / 8, stored = offsets.len / 8 - 1, rows = steps.len / 4, n = k > 0 ? weights.len / k : 0;
    const int64_t *o = offsets.buf, *p = positions.buf;
    int fits = k > 0 && k <= 1 << 16 && k % BLOCK == 0 && n > 0 && n <= 1 << 16 && n % PANEL == 0 && weights.len == n * k && scales.len == n * (k / BLOCK) * 4 &&
               codes.len / k >= rows && documents < 1 << 20 && best.len == documents * n * 4 && which >= 0 && which < paths(INT8, found);
    for (Py_ssize_t d = 0; fits && d < documents; d++)
        fits = p[d] >= 0 && p[d] < stored && o[p[d]] >= 0 && o[p[d]] <= o[p[d] + 1] && o[p[d] + 1] <= rows;
    float *memory = fits ? calloc(n + ROWS * (n + 2 * (k / BLOCK) + k / 2), sizeof *memory) : NULL;
    if (memory) {
        Linear l = {.n = (int)n, .k = k, .weights = weights.buf, .bias = memory, .scales = scales.buf};
        Py_BEGIN_ALLOW_THREADS
        largest_products(&l, codes.buf, steps.buf, o, p, (int)documents, best.buf, memory + n, found[which].stored);
        Py_END_ALLOW_THREADS
        free(memory);
        result = Py_NewRef(Py_None);
    } else if (fits) PyErr_NoMemory();
    else PyErr_SetString(PyExc_ValueError, "query, documents or path do not fit each other");
    Py_buffer *held[] = {&weights, &scales, &codes, &steps, &offsets, &positions, &best};
    for (int i = 0; i < 7; i++) PyBuffer_Release(held[i]);
    return result;
}

static PyMethodDef methods[] = {
    {"paths", py_paths, METH_VARARGS, "paths(precision) -> names of the paths that this processor has, fastest first"},
    {"model", py_model, METH_VARARGS, "model(precision, vocabulary, types, positions, hidden, inner, heads, layers, pooling, epsilon, arrays) -> model"},
    {"encode", py_encode, METH_VARARGS, "encode(model, ids, ends, vectors, path): fill vectors, (texts, hidden) float32, or (tokens, hidden)"},
    {"largest_products", py_largest_products, METH_VARARGS, "largest_products(k, weights, scales, codes, steps, offsets, positions, best, path): fill best, (documents, n) float32"},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "kernel", .m_doc = "Encodes texts with a BERT-like model.", .m_methods = methods, .m_slots = slots};

// TEST_KERNEL is for tests: it names the fastest path, as on another processor, or none, as if no compiler had been there.
// A wrong one ends the process with one line.
static int restrict_paths(const char *name) {
    if (!name || !*name) return 1;
    if (!strcmp(name, "none")) return PyErr_Format(PyExc_ModuleNotFoundError, "TEST_KERNEL=none"), 0;
    for (int i = 0; i < 3; i++) {
        Path found[3];
        if (strcmp(name, names[i])) continue;
        fastest = i;
        paths(i ? INT8 : FLOAT32, found);
        if (found[0].name == names[i]) return 1;
        return PyErr_Format(PyExc_SystemExit, "TEST_KERNEL=%s: this processor does not have it", name), 0;
    }
    return PyErr_Format(PyExc_SystemExit, "TEST_KERNEL=%s: must be avx512, avx2, plain or none", name), 0;
}

PyMODINIT_FUNC PyInit_kernel(void) { return restrict_paths(getenv("TEST_KERNEL")) ? PyModuleDef_Init(&definition) : NULL; }
