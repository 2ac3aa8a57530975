// The layers in plain C and for AVX-512.
#include "encode.h"

void encode_plain(const Model *m, const int32_t *ids, const int32_t *ends, int texts, float *vectors, const Memory *w, Apply *apply) {
    encode(m, ids, ends, texts, vectors, w, apply, 4, 1);
}
#if defined(__x86_64__)
AVX512 void encode_avx512(const Model *m, const int32_t *ids, const int32_t *ends, int texts, float *vectors, const Memory *w, Apply *apply) {
    encode(m, ids, ends, texts, vectors, w, apply, QUERIES, BLOCKS);
}
#endif
