// A matrix of 8-bit whole numbers, one scale for each output, times rows that are rounded to 8 bits as they come.
#pragma once

#include <algorithm>
#include <cmath>

#include "buffer.h"
#include "products.h"
#include "threads.h"
#include "vectors.h"

namespace regard {

// Rows in 8 bits: unsigned, since the machine's instruction wants one side so; ZERO stands for zero.
class Rounded {
  public:
    void take(const float* x, int64_t R, int64_t K, int threads) {
        wide = (K + 3) / 4 * 4;
        bytes.room(R * wide);
        scales.room(R);
        each(R, K, threads, [&](int64_t r) { row(x + r * K, K, bytes.get() + r * wide, scales.get()[r]); });
    }

    int64_t wide = 0;  // features, filled up to whole fours
    Buffer<uint8_t> bytes;
    Buffer<float> scales;

  private:
    void row(const float* x, int64_t K, uint8_t* to, float& scale) const {
        Vec peak{};
        int64_t k = 0;
        for (; k + LANES <= K; k += LANES) peak = larger(peak, size_of(load(x + k)));
        if (k < K) peak = larger(peak, size_of(load_some(x + k, K - k, 0.0f)));
        scale = largest(peak) / MOST;
        const float steps = scale > 0.0f ? 1.0f / scale : 0.0f;
        for (k = 0; k < K; k++) to[k] = uint8_t(int32_t(x[k] * steps + (ZERO + 0.5f)));
        for (; k < wide; k++) to[k] = ZERO;
    }
};

class Bytes {
  public:
    Bytes(const float* weight, const float* bias, int64_t N, int64_t K) : N(N), K(K), wide_((K + 3) / 4 * 4) {
        const int64_t columns = (N + PANEL - 1) / PANEL * PANEL;
        packed_.room(columns * wide_);
        bias_.room(columns), scales_.room(columns), excess_.room(columns);
        for (int64_t j = 0; j < columns; j++) column(j, j < N ? weight + j * K : nullptr, j < N ? bias : nullptr);
    }

    // Takes some rows of another.
    Bytes(const Bytes& from, const int64_t* rows, int64_t N) : N(N), K(from.K), wide_(from.wide_) {
        const int64_t columns = (N + PANEL - 1) / PANEL * PANEL;
        packed_.room(columns * wide_);
        bias_.room(columns), scales_.room(columns), excess_.room(columns);
        for (int64_t j = 0; j < columns; j++) {
            const int64_t row = j < N ? rows[j] : rows[0];  // what stands behind the last is never read
            const int8_t* old = from.packed_.get() + row / PANEL * PANEL * wide_ + row % PANEL * 4;
            int8_t* panel = packed_.get() + j / PANEL * PANEL * wide_ + j % PANEL * 4;
            for (int64_t k = 0; k < wide_; k += 4) std::memcpy(panel + k * PANEL, old + k * PANEL, 4);
            bias_.get()[j] = from.bias_.get()[row];
            scales_.get()[j] = from.scales_.get()[row];
            excess_.get()[j] = from.excess_.get()[row];
        }
    }

    // out (R, N) = x (R, K) Wᵀ + b
    void times(const Rounded& x, int64_t R, float* out, int threads) const {
        const int64_t panels = (N + PANEL - 1) / PANEL;
        each(panels, R * wide_ * PANEL / 4, threads, [&](int64_t p) {
            for (int64_t r = 0; r < R; r += TILE) some(x, r, R - r, p, out);
        });
    }

    const int64_t N, K;

  private:
    // Sets one output into its panel: four features of each output lie together.
    void column(int64_t j, const float* weight, const float* bias) {
        float peak = 0.0f;
        for (int64_t k = 0; weight && k < K; k++) peak = std::max(peak, std::fabs(weight[k]));
        const float scale = peak > 0.0f ? peak / 127.0f : 1.0f;
        int8_t* panel = packed_.get() + j / PANEL * PANEL * wide_ + j % PANEL * 4;
        int32_t total = 0;
        for (int64_t k = 0; k < wide_; k++) {
            const int8_t whole = weight && k < K ? int8_t(std::lrint(weight[k] / scale)) : 0;
            panel[k / 4 * 4 * PANEL + k % 4] = whole;
            total += whole;
        }
        scales_.get()[j] = scale;
        excess_.get()[j] = ZERO * total;
        bias_.get()[j] = bias ? bias[j] : 0.0f;
    }

    void some(const Rounded& x, int64_t r, int64_t rows, int64_t p, float* out) const {
        switch (rows) {
            case 1: return tile<1>(x, r, p, out);
            case 2: return tile<2>(x, r, p, out);
            case 3: return tile<3>(x, r, p, out);
            case 4: return tile<4>(x, r, p, out);
            case 5: return tile<5>(x, r, p, out);
            default: return tile<6>(x, r, p, out);
        }
    }

    // M rows of x times one panel.
    template <int M>
    void tile(const Rounded& x, int64_t r, int64_t p, float* out) const {
        const uint8_t* bytes = x.bytes.get() + r * wide_;
        const int8_t* panel = packed_.get() + p * PANEL * wide_;
        Ints sums[M][VECTORS] = {};
        for (int64_t k = 0; k < wide_; k += 4, panel += 4 * PANEL) {
#pragma GCC unroll 6
            for (int m = 0; m < M; m++)
#pragma GCC unroll 4
                for (int v = 0; v < VECTORS; v++)
                    sums[m][v] = add_products(sums[m][v], bytes + m * wide_ + k, panel + 4 * LANES * v);
        }
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            const int64_t j = p * PANEL + v * LANES, left = N - j;
            Ints excess;
            std::memcpy(&excess, excess_.get() + j, sizeof excess);
            const Vec scale = load(scales_.get() + j), bias = load(bias_.get() + j);
#pragma GCC unroll 6
            for (int m = 0; m < M; m++) {
                const Vec whole = __builtin_convertvector(sums[m][v] - excess, Vec);
                const Vec y = whole * (scale * x.scales.get()[r + m]) + bias;
                if (left >= LANES)
                    store(out + (r + m) * N + j, y);
                else if (left > 0)
                    store_some(out + (r + m) * N + j, y, left);
            }
        }
    }

    const int64_t wide_;
    Buffer<int8_t> packed_;  // (panels, K / 4, PANEL, 4)
    Buffer<float> bias_, scales_;
    Buffer<int32_t> excess_;  // what the ZERO in each of x adds to the sums
};

}  // namespace regard
