// Vectors as wide as the machine's registers, aligned memory for them, and the arithmetic on them that models need.
//
// Results do not depend on that width: sums run over SUM_LANES lanes on every machine, and the compiler is told not to
// fuse products with sums (-ffp-contract=off). Only products of float32 matrices use fused sums where there are any.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>

namespace regard {

#if defined(__AVX512F__)
constexpr int LANES = 16;
constexpr int PANEL_VECTORS = 4;  // a tile of 6 rows x 4 vectors of sums leaves 8 of 32 registers
#elif defined(__AVX__)
constexpr int LANES = 8;
constexpr int PANEL_VECTORS = 2;  // a tile of 6 rows x 2 vectors of sums leaves 4 of 16 registers
#elif defined(__aarch64__)
constexpr int LANES = 4;
constexpr int PANEL_VECTORS = 4;
#else
constexpr int LANES = 4;
constexpr int PANEL_VECTORS = 2;
#endif
constexpr int SUM_LANES = 16;
constexpr int SUM_VECTORS = SUM_LANES / LANES;

constexpr float NEG_INF = -std::numeric_limits<float>::infinity();

typedef float Vec __attribute__((vector_size(LANES * 4)));
typedef int32_t IntVec __attribute__((vector_size(LANES * 4)));
typedef float Vec4 __attribute__((vector_size(16)));

// Memory aligned to cache lines (64 bytes), uninitialised, that grows to the largest size it was asked for.
template <typename T>
class Buffer {
  public:
    Buffer() = default;
    explicit Buffer(size_t size) { reserve(size); }
    Buffer(Buffer&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr, other.size_ = 0; }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer() { release(); }

    // Return memory for `size` elements; the content is lost where it has to grow.
    T* reserve(size_t size) {
        if (size > size_) {
            release();
            data_ = static_cast<T*>(::operator new(size * sizeof(T), ALIGNMENT));
            size_ = size;
        }
        return data_;
    }

    T* get() const { return data_; }

  private:
    static constexpr std::align_val_t ALIGNMENT{64};

    void release() {
        if (data_) ::operator delete(data_, ALIGNMENT);
        data_ = nullptr, size_ = 0;
    }

    T* data_ = nullptr;
    size_t size_ = 0;
};

inline Vec broadcast(float x) { return Vec{} + x; }

inline Vec load(const float* from) {
    Vec x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

inline void store(float* to, Vec x) { std::memcpy(to, &x, sizeof x); }

// Load the first n lanes; the others are `fill`.
inline Vec load_partial(const float* from, int n, float fill) {
    Vec x = broadcast(fill);
    std::memcpy(&x, from, n * sizeof(float));
    return x;
}

inline void store_partial(float* to, Vec x, int n) { std::memcpy(to, &x, n * sizeof(float)); }

inline Vec max(Vec a, Vec b) { return a > b ? a : b; }

inline Vec abs(Vec x) { return x > -x ? x : -x; }

// x + a * b, rounded once where the machine can
inline Vec multiply_add(Vec a, Vec b, Vec x) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, x);
#elif defined(__FMA__)
    return _mm256_fmadd_ps(a, b, x);
#elif defined(__aarch64__)
    return (Vec)vfmaq_f32((float32x4_t)x, (float32x4_t)a, (float32x4_t)b);
#else
    return x + a * b;
#endif
}

// SUM_LANES running sums, or maxima.
struct Lanes {
    Vec part[SUM_VECTORS];

    explicit Lanes(float x) {
        for (Vec& one : part) one = broadcast(x);
    }

    // Combine lanes i and i + 8, then i and i + 4, and the four that are left.
    template <typename Combine>
    float reduce(Combine combine) const {
        Vec4 quarters[4];
        std::memcpy(quarters, part, sizeof part);
        const Vec4 y = combine(combine(quarters[0], quarters[2]), combine(quarters[1], quarters[3]));
        return combine(combine(y[0], y[2]), combine(y[1], y[3]));
    }

    float sum() const {
        return reduce([](auto a, auto b) { return a + b; });
    }

    float max() const {
        return reduce([](auto a, auto b) { return a > b ? a : b; });
    }
};

// Call visit(part, x) with each vector of an array and the lanes it belongs to; missing elements are `fill`.
template <typename Visit>
inline void for_lanes(const float* x, int64_t n, float fill, Lanes& lanes, Visit visit) {
    int64_t i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES)
        for (int v = 0; v < SUM_VECTORS; v++) visit(lanes.part[v], load(x + i + v * LANES));
    for (int v = 0; i < n; v++, i += LANES)
        visit(lanes.part[v], n - i >= LANES ? load(x + i) : load_partial(x + i, n - i, fill));
}

// e^x to 2 units in the last place: 2^n e^r with |r| <= ln 2 / 2, and e^r by its Taylor polynomial. Below -87, where
// results are no longer normal floats, it is 0; above 88 it stays at e^88.
inline Vec exp(Vec unclamped) {
    Vec x = unclamped < -87.0f ? broadcast(-87.0f) : unclamped;
    x = x > 88.0f ? broadcast(88.0f) : x;
    const Vec shift = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to whole numbers
    const Vec shifted = x * 1.44269504f + shift;
    const Vec n = shifted - shift;
    const Vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
    Vec e = broadcast(1.0f / 5040);
    e = e * r + 1.0f / 720;
    e = e * r + 1.0f / 120;
    e = e * r + 1.0f / 24;
    e = e * r + 1.0f / 6;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    return unclamped < -87.0f ? Vec{} : (Vec)((IntVec)e + ((IntVec)shifted << 23));
}

// Abramowitz and Stegun 7.1.26, whose absolute error is at most 1.5e-7.
inline Vec erf(Vec x) {
    const Vec magnitude = abs(x);
    const Vec t = 1.0f / (1.0f + 0.3275911f * magnitude);
    Vec p = broadcast(1.061405429f);
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const Vec y = 1.0f - p * t * exp(-magnitude * magnitude);
    return x < 0.0f ? -y : y;
}

// Replace every element of an array by a function of it.
template <typename Function>
inline void transform(float* x, int64_t n, Function function) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(x + i, function(load(x + i)));
    if (i < n) store_partial(x + i, function(load_partial(x + i, n - i, 0.0f)), n - i);
}

// Σ f(x_i); in the last vector the missing x_i are `fill`, for which f must be 0.
template <typename Function>
inline float sum_of(const float* x, int64_t n, float fill, Function f) {
    Lanes sums(0.0f);
    for_lanes(x, n, fill, sums, [&](Vec& sum, Vec a) { sum += f(a); });
    return sums.sum();
}

inline float dot(const float* a, const float* b, int n) {
    Lanes sums(0.0f);
    int i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES)
        for (int v = 0; v < SUM_VECTORS; v++) sums.part[v] += load(a + i + v * LANES) * load(b + i + v * LANES);
    for (int v = 0; i < n; v++, i += LANES) {
        const int left = n - i < LANES ? n - i : LANES;
        sums.part[v] += load_partial(a + i, left, 0.0f) * load_partial(b + i, left, 0.0f);
    }
    return sums.sum();
}

// y += a * x
inline void axpy(float a, const float* x, float* y, int n) {
    int i = 0;
    for (; i + LANES <= n; i += LANES) store(y + i, load(y + i) + load(x + i) * a);
    for (; i < n; i++) y[i] += x[i] * a;
}

}  // namespace regard
