// Matrix products in float32, and the tiles that both precisions are computed in.
#pragma once

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

#include "parallel.h"
#include "simd.h"
#include "weights_memory.h"

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

// A matrix (N, K) as Python passes it, which stays where it lies: float32, or int8 with the scale of each row.
struct Weights {
    const void* values;
    const float* scales;  // (N); null: the values are float32

    const float* floats(int64_t row, int64_t K) const { return static_cast<const float*>(values) + row * K; }
    const int8_t* bytes(int64_t row, int64_t K) const { return static_cast<const int8_t*>(values) + row * K; }

    // out (K) = factor * row
    void read(int64_t row, int64_t K, float factor, float* out) const {
        if (scales) {
            const int8_t* from = bytes(row, K);
            const float scale = scales[row];
            for (int64_t k = 0; k < K; k++) out[k] = from[k] * scale * factor;
        } else {
            const float* from = floats(row, K);
            for (int64_t k = 0; k < K; k++) out[k] = from[k] * factor;
        }
    }
};

// The rows of up to three matrices of one size, one below the other: maps of the same input that are computed as one.
struct StackedWeights {
    static constexpr int MOST = 3;
    Weights parts[MOST];
    int64_t rows;  // of each

    const Weights& part(int64_t row) const { return parts[row / rows]; }
};

// Store as many lanes as there are columns left.
inline void store_clipped(float* to, Vec x, int64_t left) {
    if (left >= LANES)
        store(to, x);
    else if (left > 0)
        store_partial(to, x, left);
}

class MatrixF32 {
  public:
    // Pack weights (N, K) and a bias (N), which may be null.
    MatrixF32(const StackedWeights& weights, const float* bias, int64_t N, int64_t K, WeightsMemory& memory)
        : MatrixF32(N, K, memory.take<float>(packed_size(N, K))) {
        Buffer<float> rows(PANEL_WIDTH * K);  // of one panel, which a processor's cache holds
        for (int64_t first = 0; first < n_panels(N) * PANEL_WIDTH; first += PANEL_WIDTH) {
            for (int64_t j = first; j < first + PANEL_WIDTH; j++) {
                float* row = rows.get() + (j - first) * K;
                if (j < N)
                    weights.part(j).read(j % weights.rows, K, 1.0f, row);
                else
                    std::fill(row, row + K, 0.0f);
                bias_.get()[j] = bias && j < N ? bias[j] : 0.0f;
            }
            float* packed = column(first);
            for (int64_t k = 0; k < K; k++)
                for (int64_t j = 0; j < PANEL_WIDTH; j++) *packed++ = rows.get()[j * K + k];
        }
    }

    // Take some outputs of another matrix.
    MatrixF32(const MatrixF32& other, const int64_t* outputs, int64_t N)
        : MatrixF32(N, other.K, WeightsMemory::alone<float>(packed_size(N, other.K))) {
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
    static size_t packed_size(int64_t N, int64_t K) { return n_panels(N) * K * PANEL_WIDTH; }

    MatrixF32(int64_t N, int64_t K, std::shared_ptr<float> packed)
        : N(N), K(K), packed_(std::move(packed)), bias_(n_panels(N) * PANEL_WIDTH) {}

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
                for (int v = 0; v < PANEL_VECTORS; v++) sums[m][v] = multiply_add(a, w[v], sums[m][v]);
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

    std::shared_ptr<float> packed_;  // (panels, K, PANEL_WIDTH)
    Buffer<float> bias_;
};

}  // namespace regard
