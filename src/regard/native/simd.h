// Vectors as wide as the machine's registers, aligned memory for them, and the arithmetic on them that models need.
#pragma once

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
#else
constexpr int LANES = 4;
constexpr int PANEL_VECTORS = 4;
#endif

constexpr float NEG_INF = -std::numeric_limits<float>::infinity();

typedef float Vec __attribute__((vector_size(LANES * 4)));
typedef int32_t IntVec __attribute__((vector_size(LANES * 4)));
typedef float Vec4 __attribute__((vector_size(16)));
typedef float Vec8 __attribute__((vector_size(32)));

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

// Combine the two halves of a vector until four lanes are left, which the compiler does within registers.
template <typename Combine>
inline Vec4 reduce_to_4(Vec x, Combine combine) {
    if constexpr (LANES == 16) {
        Vec8 halves[2];
        std::memcpy(halves, &x, sizeof x);
        const Vec8 half = combine(halves[0], halves[1]);
        Vec4 quarters[2];
        std::memcpy(quarters, &half, sizeof half);
        return combine(quarters[0], quarters[1]);
    }
    Vec4 parts[LANES / 4];
    std::memcpy(parts, &x, sizeof x);
    return LANES == 8 ? combine(parts[0], parts[LANES / 4 - 1]) : parts[0];
}

inline float reduce_sum(Vec x) {
    const Vec4 y = reduce_to_4(x, [](auto a, auto b) { return a + b; });
    return (y[0] + y[2]) + (y[1] + y[3]);
}

inline float reduce_max(Vec x) {
    const Vec4 y = reduce_to_4(x, [](auto a, auto b) { return a > b ? a : b; });
    const float even = y[0] > y[2] ? y[0] : y[2], odd = y[1] > y[3] ? y[1] : y[3];
    return even > odd ? even : odd;
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
inline float sum_of(const float* x, int n, float fill, Function f) {
    Vec sums{};
    int i = 0;
    for (; i + LANES <= n; i += LANES) sums += f(load(x + i));
    if (i < n) sums += f(load_partial(x + i, n - i, fill));
    return reduce_sum(sums);
}

inline float dot(const float* a, const float* b, int n) {
    Vec sums{};
    int i = 0;
    for (; i + LANES <= n; i += LANES) sums += load(a + i) * load(b + i);
    if (i < n) sums += load_partial(a + i, n - i, 0.0f) * load_partial(b + i, n - i, 0.0f);
    return reduce_sum(sums);
}

// y += a * x
inline void axpy(float a, const float* x, float* y, int n) {
    int i = 0;
    for (; i + LANES <= n; i += LANES) store(y + i, load(y + i) + load(x + i) * a);
    for (; i < n; i++) y[i] += x[i] * a;
}

}  // namespace regard
