// A matrix of 32-bit floats, cut into panels of columns that are read once from front to back.
#pragma once

#include "buffer.h"
#include "threads.h"
#include "vectors.h"

namespace regard {

// M rows of x times one panel. Each result is one sum from the first feature to the last, however many rows there are.
template <int M>
inline void float_tile(const float* x, int64_t K, const float* panel, const float* bias, float* out, int64_t N, int n) {
    Vec sums[M][VECTORS];
    for (int v = 0; v < VECTORS; v++)
        for (int m = 0; m < M; m++) sums[m][v] = Vec{};
    for (int64_t k = 0; k < K; k++, panel += PANEL) {
        Vec w[VECTORS];
        for (int v = 0; v < VECTORS; v++) w[v] = load(panel + v * LANES);
#pragma GCC unroll 6
        for (int m = 0; m < M; m++) {
            const Vec a = spread(x[m * K + k]);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) sums[m][v] += a * w[v];
        }
    }
#pragma GCC unroll 6
    for (int m = 0; m < M; m++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            const int left = n - v * LANES;
            const Vec y = sums[m][v] + load(bias + v * LANES);
            if (left >= LANES)
                store(out + m * N + v * LANES, y);
            else if (left > 0)
                store_some(out + m * N + v * LANES, y, left);
        }
}

class Floats {
  public:
    // Takes N rows of K numbers, and a bias for each row or nothing.
    Floats(const float* weight, const float* bias, int64_t N, int64_t K) : N(N), K(K) {
        const int64_t panels = (N + PANEL - 1) / PANEL;
        packed_.room(panels * K * PANEL);
        bias_.room(panels * PANEL);
        for (int64_t j = 0; j < panels * PANEL; j++) {
            float* column = packed_.get() + j / PANEL * K * PANEL + j % PANEL;
            for (int64_t k = 0; k < K; k++) column[k * PANEL] = j < N ? weight[j * K + k] : 0.0f;
            bias_.get()[j] = bias && j < N ? bias[j] : 0.0f;
        }
    }

    // Takes some rows of another.
    Floats(const Floats& from, const int64_t* rows, int64_t N) : N(N), K(from.K) {
        const int64_t panels = (N + PANEL - 1) / PANEL;
        packed_.room(panels * K * PANEL);
        bias_.room(panels * PANEL);
        for (int64_t j = 0; j < panels * PANEL; j++) {
            const int64_t row = j < N ? rows[j] : rows[0];  // what stands behind the last is never read
            const float* old = from.packed_.get() + row / PANEL * K * PANEL + row % PANEL;
            float* column = packed_.get() + j / PANEL * K * PANEL + j % PANEL;
            for (int64_t k = 0; k < K; k++) column[k * PANEL] = old[k * PANEL];
            bias_.get()[j] = from.bias_.get()[row];
        }
    }

    // out (R, N) = x (R, K) Wᵀ + b
    void times(const float* x, int64_t R, float* out, int threads) const {
        const int64_t panels = (N + PANEL - 1) / PANEL;
        each(panels, R * K * PANEL, threads, [&](int64_t p) {
            const float* panel = packed_.get() + p * K * PANEL;
            for (int64_t r = 0; r < R; r += TILE) some(R - r, x + r * K, panel, p, out + r * N);
        });
    }

    const int64_t N, K;

  private:
    void some(int64_t rows, const float* x, const float* panel, int64_t p, float* out) const {
        const float* bias = bias_.get() + p * PANEL;
        const int n = N - p * PANEL < PANEL ? N - p * PANEL : PANEL;
        out += p * PANEL;
        switch (rows) {
            case 1: return float_tile<1>(x, K, panel, bias, out, N, n);
            case 2: return float_tile<2>(x, K, panel, bias, out, N, n);
            case 3: return float_tile<3>(x, K, panel, bias, out, N, n);
            case 4: return float_tile<4>(x, K, panel, bias, out, N, n);
            case 5: return float_tile<5>(x, K, panel, bias, out, N, n);
            default: return float_tile<6>(x, K, panel, bias, out, N, n);
        }
    }

    Buffer<float> packed_;  // (panels, K, PANEL)
    Buffer<float> bias_;
};

}  // namespace regard
