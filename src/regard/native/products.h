// Sums of products of bytes, by the instruction that this machine has for them.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "vectors.h"

namespace regard {

#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)
constexpr int ZERO = 64;  // the older instruction adds two products in 16 bits, which hold them if one side has 7
#else
constexpr int ZERO = 128;
#endif
constexpr float MOST = ZERO - 1;
#if defined(__AVX2__)
constexpr bool QUICK = true;
#else
constexpr bool QUICK = false;
#endif

// sums += the products of four unsigned bytes of x with four signed bytes of each lane of w
inline Ints add_products(Ints sums, const uint8_t* x, const int8_t* w) {
#if defined(__AVX2__)
    int32_t four;
    std::memcpy(&four, x, sizeof four);
#endif
#if defined(__AVX512VNNI__)
    return (Ints)_mm512_dpbusd_epi32((__m512i)sums, _mm512_set1_epi32(four), _mm512_load_si512(w));
#elif defined(__AVX512BW__)
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_set1_epi32(four), _mm512_load_si512(w));
    return sums + (Ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVX2__) && !defined(__AVX512F__)
    const __m256i lanes = _mm256_load_si256(reinterpret_cast<const __m256i*>(w));
#if defined(__AVXVNNI__)
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sums, _mm256_set1_epi32(four), lanes);
#else
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi32(four), lanes);
    return sums + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
#else
    for (int i = 0; i < LANES; i++)
        for (int b = 0; b < 4; b++) sums[i] += int32_t(x[b]) * int32_t(w[4 * i + b]);
    return sums;
#endif
}

}  // namespace regard
