// Vectors of floats as wide as the machine's registers, and the functions on them that models need.
#pragma once

#include <cstdint>
#include <cstring>

namespace regard {

#if defined(__AVX512F__)
constexpr int LANES = 16;
constexpr int VECTORS = 4;  // in the width of a panel: 6 rows of 4 sums leave 8 of 32 registers
#elif defined(__AVX__)
constexpr int LANES = 8;
constexpr int VECTORS = 2;  // 6 rows of 2 sums leave 4 of 16 registers
#else
constexpr int LANES = 4;
constexpr int VECTORS = 4;
#endif
constexpr int PANEL = LANES * VECTORS;  // columns that are computed together
constexpr int TILE = 6;                 // rows that are computed together

typedef float Vec __attribute__((vector_size(LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(LANES * 4)));

inline Vec spread(float x) { return Vec{} + x; }

inline Vec load(const float* from) {
    Vec x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

inline void store(float* to, Vec x) { std::memcpy(to, &x, sizeof x); }

// The first n lanes; the others are `fill`.
inline Vec load_some(const float* from, int n, float fill) {
    Vec x = spread(fill);
    std::memcpy(&x, from, n * sizeof(float));
    return x;
}

inline void store_some(float* to, Vec x, int n) { std::memcpy(to, &x, n * sizeof(float)); }

inline Vec larger(Vec a, Vec b) { return a > b ? a : b; }

inline Vec size_of(Vec x) { return x > -x ? x : -x; }

typedef float Four __attribute__((vector_size(16)));
typedef float Eight __attribute__((vector_size(32)));

// Joins the two halves of a vector until four lanes are left, which the compiler does without leaving its registers.
template <typename Join>
inline Four folded(Vec x, Join join) {
    if constexpr (LANES == 16) {
        Eight halves[2];
        std::memcpy(halves, &x, sizeof x);
        const Eight joined = join(halves[0], halves[1]);
        Four quarters[2];
        std::memcpy(quarters, &joined, sizeof joined);
        return join(quarters[0], quarters[1]);
    }
    Four parts[LANES / 4];
    std::memcpy(parts, &x, sizeof x);
    return LANES == 8 ? join(parts[0], parts[LANES / 4 - 1]) : parts[0];
}

inline float sum(Vec x) {
    const Four y = folded(x, [](auto a, auto b) { return a + b; });
    return (y[0] + y[2]) + (y[1] + y[3]);
}

inline float largest(Vec x) {
    const Four y = folded(x, [](auto a, auto b) { return a > b ? a : b; });
    const float even = y[0] > y[2] ? y[0] : y[2], odd = y[1] > y[3] ? y[1] : y[3];
    return even > odd ? even : odd;
}

// e^x to 2 units in the last place: 2^n e^r with |r| <= ln 2 / 2, and e^r by its Taylor polynomial.
inline Vec exp(Vec given) {
    Vec x = given < -87.0f ? spread(-87.0f) : given;
    x = x > 88.0f ? spread(88.0f) : x;
    const Vec shift = spread(12582912.0f);  // 1.5 * 2^23: adding it rounds to whole numbers
    const Vec shifted = x * 1.44269504f + shift;
    const Vec n = shifted - shift;
    const Vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
    Vec e = spread(1.0f / 5040);
    e = e * r + 1.0f / 720;
    e = e * r + 1.0f / 120;
    e = e * r + 1.0f / 24;
    e = e * r + 1.0f / 6;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    return given < -87.0f ? Vec{} : (Vec)((Ints)e + ((Ints)shifted << 23));
}

// Puts a function of vectors on every number of an array.
template <typename Function>
inline void change(float* x, int64_t n, Function function) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(x + i, function(load(x + i)));
    if (i < n) store_some(x + i, function(load_some(x + i, n - i, 0.0f)), n - i);
}

inline float dot(const float* a, const float* b, int n) {
    Vec total{};
    int i = 0;
    for (; i + LANES <= n; i += LANES) total += load(a + i) * load(b + i);
    if (i < n) total += load_some(a + i, n - i, 0.0f) * load_some(b + i, n - i, 0.0f);
    return sum(total);
}

// to += weight * from
inline void add_scaled(float* to, const float* from, float weight, int n) {
    int i = 0;
    for (; i + LANES <= n; i += LANES) store(to + i, load(to + i) + load(from + i) * weight);
    for (; i < n; i++) to[i] += from[i] * weight;
}

}  // namespace regard
