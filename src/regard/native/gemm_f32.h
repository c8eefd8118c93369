// Matrix products in float32, and the tiles that both precisions are computed in.
#pragma once

#include <type_traits>

#include "parallel.h"
#include "simd.h"

namespace regard {

// A product is computed in tiles of up to TILE_ROWS rows of the input by one panel of outputs, whose sums stay in
// registers. Weights are packed panel by panel, so that a tile reads them once, from front to back.
constexpr int PANEL_WIDTH = LANES * PANEL_VECTORS;
constexpr int TILE_ROWS = 6;

inline int64_t n_panels(int64_t N) { return (N + PANEL_WIDTH - 1) / PANEL_WIDTH; }

// Call tile(M) for the rows of one tile, M being a constant that the compiler unrolls by.
template <typename Tile>
inline void dispatch_rows(int64_t rows, Tile tile) {
    switch (rows) {
        case 1: return tile(std::integral_constant<int, 1>{});
        case 2: return tile(std::integral_constant<int, 2>{});
        case 3: return tile(std::integral_constant<int, 3>{});
        case 4: return tile(std::integral_constant<int, 4>{});
        case 5: return tile(std::integral_constant<int, 5>{});
        default: return tile(std::integral_constant<int, TILE_ROWS>{});
    }
}

// Store as many lanes as there are columns left.
inline void store_clipped(float* to, Vec x, int64_t left) {
    if (left >= LANES)
        store(to, x);
    else if (left > 0)
        store_partial(to, x, left);
}

class MatrixF32 {
  public:
    // Pack a weight (N, K) and a bias (N), which may be null.
    MatrixF32(const float* weight, const float* bias, int64_t N, int64_t K) : MatrixF32(N, K) {
        for (int64_t j = 0; j < n_panels(N) * PANEL_WIDTH; j++) {
            float* packed = column(j);
            for (int64_t k = 0; k < K; k++) packed[k * PANEL_WIDTH] = j < N ? weight[j * K + k] : 0.0f;
            bias_.get()[j] = bias && j < N ? bias[j] : 0.0f;
        }
    }

    // Take some outputs of another matrix.
    MatrixF32(const MatrixF32& other, const int64_t* outputs, int64_t N) : MatrixF32(N, other.K) {
        for (int64_t j = 0; j < n_panels(N) * PANEL_WIDTH; j++) {
            const int64_t output = j < N ? outputs[j] : outputs[0];  // the results of padding are never stored
            const float* from = other.column(output);
            float* packed = column(j);
            for (int64_t k = 0; k < K; k++) packed[k * PANEL_WIDTH] = from[k * PANEL_WIDTH];
            bias_.get()[j] = other.bias_.get()[output];
        }
    }

    // out (R, N) = x (R, K) Wᵀ + b
    void multiply(const float* x, int64_t R, float* out, int threads) const {
        parallel_for(n_panels(N), R * K * PANEL_WIDTH, threads, [&](int64_t p) {
            for (int64_t r = 0; r < R; r += TILE_ROWS)
                dispatch_rows(R - r, [&](auto M) { tile<M.value>(x + r * K, p, out + r * N); });
        });
    }

    const int64_t N, K;

  private:
    MatrixF32(int64_t N, int64_t K)
        : N(N), K(K), packed_(n_panels(N) * K * PANEL_WIDTH), bias_(n_panels(N) * PANEL_WIDTH) {}

    // The weights of output j, PANEL_WIDTH apart.
    float* column(int64_t j) const { return packed_.get() + j / PANEL_WIDTH * K * PANEL_WIDTH + j % PANEL_WIDTH; }

    // M rows of x times one panel. Each result is one sum from the first feature to the last, whatever M is, so that a
    // row's results do not depend on the batch it is in.
    template <int M>
    void tile(const float* x, int64_t p, float* out) const {
        const float *panel = column(p * PANEL_WIDTH), *bias = bias_.get() + p * PANEL_WIDTH;
        Vec sums[M][PANEL_VECTORS];
        for (int v = 0; v < PANEL_VECTORS; v++)
            for (int m = 0; m < M; m++) sums[m][v] = Vec{};
        for (int64_t k = 0; k < K; k++, panel += PANEL_WIDTH) {
            Vec w[PANEL_VECTORS];
            for (int v = 0; v < PANEL_VECTORS; v++) w[v] = load(panel + v * LANES);
#pragma GCC unroll 6
            for (int m = 0; m < M; m++) {
                const Vec a = broadcast(x[m * K + k]);
#pragma GCC unroll 4
                for (int v = 0; v < PANEL_VECTORS; v++) sums[m][v] += a * w[v];
            }
        }
#pragma GCC unroll 6
        for (int m = 0; m < M; m++)
#pragma GCC unroll 4
            for (int v = 0; v < PANEL_VECTORS; v++) {
                const int64_t j = p * PANEL_WIDTH + v * LANES;
                store_clipped(out + m * N + j, sums[m][v] + load(bias + v * LANES), N - j);
            }
    }

    Buffer<float> packed_;  // (panels, K, PANEL_WIDTH)
    Buffer<float> bias_;
};

}  // namespace regard
