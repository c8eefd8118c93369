// Matrix products in int8: weights with one scale per output, inputs quantized row by row as they come.
#pragma once

#include <algorithm>
#include <cmath>

#include "gemm_f32.h"

namespace regard {

// Inputs are stored as bytes from 1 to 255, where ZERO_POINT stands for 0, and weights are from -127 to 127. Sums of
// their products are whole numbers, the same on every machine, and so are all results.
constexpr int ZERO_POINT = 128;
constexpr float MAX_INPUT = 127.0f, MAX_WEIGHT = 127.0f;

// How far ahead weights are asked for: a step reads more of them than the caches near a core hold, and the processor's
// own guesses stop where a page ends. It saved 4 % of the time of a batch of 32 on a busy machine.
constexpr int64_t PREFETCH_BYTES = 2048, CACHE_LINE = 64;

// Whether products are of inputs as they are stored, because the instruction wants one factor without a sign.
// ZERO_POINT times the sum of the weights is subtracted in the end then.
#if defined(__AVX512VNNI__) || (defined(__AVXVNNI__) && !defined(__AVX512F__))
constexpr bool UNSIGNED_INPUTS = true;
#else
constexpr bool UNSIGNED_INPUTS = false;
#endif

// Four inputs side by side, as many times as a vector has lanes.
inline IntVec broadcast_inputs(const uint8_t* x) {
    uint32_t four;
    std::memcpy(&four, x, sizeof four);
    return IntVec{} + int32_t(UNSIGNED_INPUTS ? four : four ^ 0x80808080u);
}

// sums += the products of four inputs with the four weights of each lane
inline IntVec add_products(IntVec sums, IntVec inputs, const int8_t* weights) {
#if defined(__AVX512F__)
    const __m512i x = (__m512i)inputs, w = _mm512_load_si512(weights);
#if defined(__AVX512VNNI__)
    return (IntVec)_mm512_dpbusd_epi32((__m512i)sums, x, w);
#else  // |x| · (w with the sign of x): two such products fit in 16 bits, as 2 · 127 · 127 < 2^15
    const __m512i signed_w = _mm512_mask_sub_epi8(w, _mm512_movepi8_mask(x), _mm512_setzero_si512(), w);
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(x), signed_w);
    return sums + (IntVec)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#endif
#elif defined(__AVX2__)
    const __m256i x = (__m256i)inputs, w = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights));
#if defined(__AVXVNNI__)
    return (IntVec)_mm256_dpbusd_avx_epi32((__m256i)sums, x, w);
#else
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(w, x));
    return sums + (IntVec)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
#elif defined(__SSE2__) && !defined(__AVX__)
    const __m128i x = (__m128i)inputs, w = _mm_load_si128(reinterpret_cast<const __m128i*>(weights));
    const __m128i x16 = _mm_srai_epi16(_mm_unpacklo_epi8(x, x), 8);
    const __m128i low = _mm_madd_epi16(x16, _mm_srai_epi16(_mm_unpacklo_epi8(w, w), 8));
    const __m128i high = _mm_madd_epi16(x16, _mm_srai_epi16(_mm_unpackhi_epi8(w, w), 8));
    const __m128 even = _mm_shuffle_ps(_mm_castsi128_ps(low), _mm_castsi128_ps(high), _MM_SHUFFLE(2, 0, 2, 0));
    const __m128 odd = _mm_shuffle_ps(_mm_castsi128_ps(low), _mm_castsi128_ps(high), _MM_SHUFFLE(3, 1, 3, 1));
    return sums + (IntVec)_mm_castps_si128(even) + (IntVec)_mm_castps_si128(odd);
#elif defined(__aarch64__)
    const int8x16_t x = (int8x16_t)inputs, w = vld1q_s8(weights);
#if defined(__ARM_FEATURE_DOTPROD)
    return (IntVec)vdotq_s32((int32x4_t)sums, x, w);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(w)), high = vmull_high_s8(x, w);
    return sums + (IntVec)vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
#endif
#else
    int8_t x[4];
    std::memcpy(x, &inputs, sizeof x);
    for (int i = 0; i < LANES; i++)
        for (int b = 0; b < 4; b++) sums[i] += int32_t(x[b]) * int32_t(weights[4 * i + b]);
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
        Lanes peaks(0.0f);
        for_lanes(x, K, 0.0f, peaks, [](Vec& peak, Vec a) { peak = max(peak, abs(a)); });
        scale = peaks.max() / MAX_INPUT;
        const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        int64_t k = 0;
        for (; k < K; k++) to[k] = uint8_t(int32_t(x[k] * inverse + (ZERO_POINT + 0.5f)));
        for (; k < padded_K; k++) to[k] = ZERO_POINT;
    }
};

class MatrixI8 {
  public:
    // Pack weights (N, K), quantized now if they are not yet, and a bias (N), which may be null.
    MatrixI8(const StackedWeights& weights, const float* bias, int64_t N, int64_t K, WeightsMemory& memory)
        : MatrixI8(N, K, memory.take<int8_t>(packed_size(N, K))) {
        Buffer<int8_t> rows(PANEL_WIDTH * padded_K_);  // of one panel, which a processor's cache holds
        for (int64_t first = 0; first < n_panels(N) * PANEL_WIDTH; first += PANEL_WIDTH) {
            for (int64_t j = first; j < first + PANEL_WIDTH; j++) {
                int8_t* row = rows.get() + (j - first) * padded_K_;
                scales_.get()[j] = j < N ? quantized(weights.part(j), j % weights.rows, row) : 1.0f;
                bias_.get()[j] = bias && j < N ? bias[j] : 0.0f;
                std::memset(row + (j < N ? K : 0), 0, padded_K_ - (j < N ? K : 0));
                int32_t sum = 0;
                for (int64_t k = 0; k < padded_K_; k++) sum += row[k];
                zero_sums_.get()[j] = UNSIGNED_INPUTS ? ZERO_POINT * sum : 0;
            }
            int8_t* packed = column(first);
            for (int64_t k = 0; k < padded_K_; k += 4)
                for (int64_t j = 0; j < PANEL_WIDTH; j++, packed += 4)
                    std::memcpy(packed, rows.get() + j * padded_K_ + k, 4);
        }
    }

    // Take some outputs of another matrix.
    MatrixI8(const MatrixI8& other, const int64_t* outputs, int64_t N)
        : MatrixI8(N, other.K, WeightsMemory::alone<int8_t>(packed_size(N, other.K))) {
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
    static size_t packed_size(int64_t N, int64_t K) { return n_panels(N) * PANEL_WIDTH * padded_to_4(K); }

    MatrixI8(int64_t N, int64_t K, std::shared_ptr<int8_t> packed)
        : N(N),
          K(K),
          padded_K_(padded_to_4(K)),
          packed_(std::move(packed)),
          bias_(n_panels(N) * PANEL_WIDTH),
          scales_(n_panels(N) * PANEL_WIDTH),
          zero_sums_(n_panels(N) * PANEL_WIDTH) {}

    // The weights of output j: four features side by side, the next four 4 * PANEL_WIDTH bytes further on.
    int8_t* column(int64_t j) const {
        return packed_.get() + j / PANEL_WIDTH * PANEL_WIDTH * padded_K_ + j % PANEL_WIDTH * 4;
    }

    // Write a row of weights as bytes; return their scale.
    float quantized(const Weights& weights, int64_t j, int8_t* row) const {
        if (weights.scales) {
            std::memcpy(row, weights.bytes(j, K), K);
            return weights.scales[j];
        }
        const float* from = weights.floats(j, K);
        Lanes peaks(0.0f);
        for_lanes(from, K, 0.0f, peaks, [](Vec& peak, Vec a) { peak = max(peak, abs(a)); });
        const float peak = peaks.max(), scale = peak > 0.0f ? peak / MAX_WEIGHT : 1.0f;
        for (int64_t k = 0; k < K; k++) row[k] = int8_t(int32_t(std::nearbyint(from[k] / scale)));
        return scale;
    }

    // M rows of x times one panel.
    template <int M>
    void tile(const QuantizedRows& x, int64_t r, int64_t p, float* out) const {
        const uint8_t* rows = x.values.get() + r * padded_K_;
        const int8_t* panel = column(p * PANEL_WIDTH);
        IntVec sums[M][PANEL_VECTORS] = {};
        for (int64_t k = 0; k < padded_K_; k += 4, panel += 4 * PANEL_WIDTH) {
            for (int64_t i = 0; i < 4 * PANEL_WIDTH; i += CACHE_LINE) __builtin_prefetch(panel + PREFETCH_BYTES + i);
#pragma GCC unroll 6
            for (int m = 0; m < M; m++) {
                const IntVec inputs = broadcast_inputs(rows + m * padded_K_ + k);
#pragma GCC unroll 4
                for (int v = 0; v < PANEL_VECTORS; v++)
                    sums[m][v] = add_products(sums[m][v], inputs, panel + 4 * LANES * v);
            }
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
    std::shared_ptr<int8_t> packed_;  // (panels, padded_K / 4, PANEL_WIDTH, 4)
    Buffer<float> bias_, scales_;
    Buffer<int32_t> zero_sums_;  // what ZERO_POINT in every input adds to the sums
};

}  // namespace regard
