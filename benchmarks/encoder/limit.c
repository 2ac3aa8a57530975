// What a processor with AVX2 multiplies at most: loops of the instructions alone, on registers.
#include <stdint.h>
#if defined(__x86_64__)
#define TWELVE(step) step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7) step(8) step(9) step(10) step(11)
#define CLOBBERED "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define LOOP(steps) \
    __asm__ volatile("vxorps %%ymm14, %%ymm14, %%ymm14\n\tvxorps %%ymm15, %%ymm15, %%ymm15\n1:\n\t" steps "dec %0\n\tjnz 1b\n\tvzeroupper" \
                     : "+r"(rounds) : : CLOBBERED);

#define FUSED(i) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #i "\n\t"
#define PAIRED(i) "vpmaddubsw %%ymm14, %%ymm15, %%ymm" #i "\n\tvpmaddwd %%ymm" #i ", %%ymm15, %%ymm" #i "\n\t"

// Each returns how many products it made in so many rounds.
int64_t float32_limit(int64_t rounds) {
    int64_t products = rounds * 12 * 8;
    LOOP(TWELVE(FUSED))
    return products;
}

int64_t int8_limit(int64_t rounds) {
    int64_t products = rounds * 12 * 32;
    LOOP(TWELVE(PAIRED))
    return products;
}
#endif
