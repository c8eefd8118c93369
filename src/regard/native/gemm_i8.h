// Matrix products in int8: weights with one scale per output, inputs quantized row by row as they come.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>

#include "gemm_f32.h"

namespace regard {

// Inputs are unsigned, because the instructions want one factor so: ZERO_POINT stands for 0. vpmaddubsw, which is used
// where there is no VNNI, adds two products in 16 bits; they fit if inputs have 7 bits (2 * 127 * 127 < 2^15).
#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)
constexpr int ZERO_POINT = 64;
#else
constexpr int ZERO_POINT = 128;
#endif
constexpr float MAX_INPUT = ZERO_POINT - 1;
constexpr float MAX_WEIGHT = 127.0f;

// Whether this machine multiplies bytes faster than floats.
#if defined(__AVX2__)
constexpr bool HAS_FAST_INT8 = true;
#else
constexpr bool HAS_FAST_INT8 = false;
#endif

// sums += the products of four unsigned bytes of x with four signed bytes of each lane of w
inline IntVec add_products(IntVec sums, const uint8_t* x, const int8_t* w) {
#if defined(__AVX2__)
    int32_t four;
    std::memcpy(&four, x, sizeof four);
#endif
#if defined(__AVX512VNNI__)
    return (IntVec)_mm512_dpbusd_epi32((__m512i)sums, _mm512_set1_epi32(four), _mm512_load_si512(w));
#elif defined(__AVX512BW__)
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_set1_epi32(four), _mm512_load_si512(w));
    return sums + (IntVec)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVX2__) && !defined(__AVX512F__)
    const __m256i lanes = _mm256_load_si256(reinterpret_cast<const __m256i*>(w));
#if defined(__AVXVNNI__)
    return (IntVec)_mm256_dpbusd_avx_epi32((__m256i)sums, _mm256_set1_epi32(four), lanes);
#else
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi32(four), lanes);
    return sums + (IntVec)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
#else
    for (int i = 0; i < LANES; i++)
        for (int b = 0; b < 4; b++) sums[i] += int32_t(x[b]) * int32_t(w[4 * i + b]);
    return sums;
#endif
}

// Instructions take four features at a time: both factors are padded to that.
inline int64_t padded_to_4(int64_t K) { return (K + 3) / 4 * 4; }

// Input rows in 8 bits, each with a scale of its own, so that a row's results do not depend on the batch it is in.
class QuantizedRows {
  public:
    void quantize(const float* x, int64_t R, int64_t K, int threads) {
        padded_K = padded_to_4(K);
        values.reserve(R * padded_K);
        scales.reserve(R);
        parallel_for(R, K, threads,
                     [&](int64_t r) { quantize_row(x + r * K, K, values.get() + r * padded_K, scales.get()[r]); });
    }

    int64_t padded_K = 0;
    Buffer<uint8_t> values;  // (R, padded_K)
    Buffer<float> scales;    // (R)

  private:
    void quantize_row(const float* x, int64_t K, uint8_t* to, float& scale) const {
        Vec peaks{};
        int64_t k = 0;
        for (; k + LANES <= K; k += LANES) peaks = max(peaks, abs(load(x + k)));
        if (k < K) peaks = max(peaks, abs(load_partial(x + k, K - k, 0.0f)));
        scale = reduce_max(peaks) / MAX_INPUT;
        const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        for (k = 0; k < K; k++) to[k] = uint8_t(int32_t(x[k] * inverse + (ZERO_POINT + 0.5f)));
        for (; k < padded_K; k++) to[k] = ZERO_POINT;
    }
};

class MatrixI8 {
  public:
    // Quantize and pack a weight (N, K), and a bias (N), which may be null.
    MatrixI8(const float* weight, const float* bias, int64_t N, int64_t K) : MatrixI8(N, K) {
        for (int64_t j = 0; j < n_panels(N) * PANEL_WIDTH; j++)
            pack_output(j, j < N ? weight + j * K : nullptr, j < N && bias ? bias[j] : 0.0f);
    }

    // Take some outputs of another matrix.
    MatrixI8(const MatrixI8& other, const int64_t* outputs, int64_t N) : MatrixI8(N, other.K) {
        for (int64_t j = 0; j < n_panels(N) * PANEL_WIDTH; j++) {
            const int64_t output = j < N ? outputs[j] : outputs[0];  // the results of padding are never stored
            const int8_t* from = other.column(output);
            int8_t* packed = column(j);
            for (int64_t k = 0; k < padded_K_; k += 4) std::memcpy(packed + k * PANEL_WIDTH, from + k * PANEL_WIDTH, 4);
            bias_.get()[j] = other.bias_.get()[output];
            scales_.get()[j] = other.scales_.get()[output];
            zero_sums_.get()[j] = other.zero_sums_.get()[output];
        }
    }

    // out (R, N) = x (R, K) Wᵀ + b
    void multiply(const QuantizedRows& x, int64_t R, float* out, int threads) const {
        parallel_for(n_panels(N), R * padded_K_ * PANEL_WIDTH / 4, threads, [&](int64_t p) {
            for (int64_t r = 0; r < R; r += TILE_ROWS)
                dispatch_rows(R - r, [&](auto M) { tile<M.value>(x, r, p, out); });
        });
    }

    const int64_t N, K;

  private:
    MatrixI8(int64_t N, int64_t K)
        : N(N),
          K(K),
          padded_K_(padded_to_4(K)),
          packed_(n_panels(N) * PANEL_WIDTH * padded_K_),
          bias_(n_panels(N) * PANEL_WIDTH),
          scales_(n_panels(N) * PANEL_WIDTH),
          zero_sums_(n_panels(N) * PANEL_WIDTH) {}

    // The weights of output j: four features side by side, the next four 4 * PANEL_WIDTH bytes further on.
    int8_t* column(int64_t j) const {
        return packed_.get() + j / PANEL_WIDTH * PANEL_WIDTH * padded_K_ + j % PANEL_WIDTH * 4;
    }

    // A null weight is padding.
    void pack_output(int64_t j, const float* weight, float bias) {
        float peak = 0.0f;
        for (int64_t k = 0; weight && k < K; k++) peak = std::max(peak, std::fabs(weight[k]));
        const float scale = peak > 0.0f ? peak / MAX_WEIGHT : 1.0f;
        int8_t* packed = column(j);
        int32_t sum = 0;
        for (int64_t k = 0; k < padded_K_; k++) {
            const int8_t quantized = weight && k < K ? int8_t(std::lrint(weight[k] / scale)) : 0;
            packed[k / 4 * 4 * PANEL_WIDTH + k % 4] = quantized;
            sum += quantized;
        }
        scales_.get()[j] = scale;
        zero_sums_.get()[j] = ZERO_POINT * sum;
        bias_.get()[j] = bias;
    }

    // M rows of x times one panel.
    template <int M>
    void tile(const QuantizedRows& x, int64_t r, int64_t p, float* out) const {
        const uint8_t* rows = x.values.get() + r * padded_K_;
        const int8_t* panel = column(p * PANEL_WIDTH);
        IntVec sums[M][PANEL_VECTORS] = {};
        for (int64_t k = 0; k < padded_K_; k += 4, panel += 4 * PANEL_WIDTH) {
#pragma GCC unroll 6
            for (int m = 0; m < M; m++)
#pragma GCC unroll 4
                for (int v = 0; v < PANEL_VECTORS; v++)
                    sums[m][v] = add_products(sums[m][v], rows + m * padded_K_ + k, panel + 4 * LANES * v);
        }
#pragma GCC unroll 4
        for (int v = 0; v < PANEL_VECTORS; v++) {
            const int64_t j = p * PANEL_WIDTH + v * LANES;
            IntVec zero_sums;
            std::memcpy(&zero_sums, zero_sums_.get() + j, sizeof zero_sums);
            const Vec scale = load(scales_.get() + j), bias = load(bias_.get() + j);
#pragma GCC unroll 6
            for (int m = 0; m < M; m++) {
                const Vec product = __builtin_convertvector(sums[m][v] - zero_sums, Vec);
                const Vec y = product * (scale * x.scales.get()[r + m]) + bias;
                store_clipped(out + (r + m) * N + j, y, N - j);
            }
        }
    }

    const int64_t padded_K_;
    Buffer<int8_t> packed_;  // (panels, padded_K / 4, PANEL_WIDTH, 4)
    Buffer<float> bias_, scales_;
    Buffer<int32_t> zero_sums_;  // what ZERO_POINT in every input adds to the sums
};

}  // namespace regard
