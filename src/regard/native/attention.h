// Multi-head attention of one query to keys that may lie anywhere in memory.
#pragma once

#include "simd.h"

namespace regard {

// softmax(x)_i = exp(x_i - max x) / Σ_j exp(x_j - max x), in place; subtracting the maximum keeps exp in its range.
// Whole vectors are computed, so x has room for n rounded up to SUM_LANES; the padding is -∞ and weighs 0.
inline void softmax(float* x, int n) {
    if (n == 0) return;
    for (int i = n; i % SUM_LANES != 0; i++) x[i] = NEG_INF;
    Lanes peaks(NEG_INF), sums(0.0f);
    for_lanes(x, n, NEG_INF, peaks, [](Vec& peak, Vec a) { peak = max(peak, a); });
    const float peak = peaks.max();
    for (int i = 0; i < n; i += SUM_LANES)
        for (int v = 0; v < SUM_VECTORS; v++) {
            const Vec e = exp(load(x + i + v * LANES) - peak);
            sums.part[v] += e;
            store(x + i + v * LANES, e);
        }
    const float inverse = 1.0f / sums.sum();
    for (int i = 0; i < n; i += LANES) store(x + i, load(x + i) * inverse);
}

struct MultiHead {
    int n_heads, d_head;
    float scale;  // of the scores: 1 / √d_head

    // out = softmax(scale · q kᵀ) v for each head; kv[t] points at a key (D), which its value (D) follows. Without
    // keys the output is zero.
    void attend(const float* q, const float* const* kv, int n_keys, float* out) const {
        thread_local Buffer<float> scratch;
        float* weights = scratch.reserve(n_keys + SUM_LANES);
        for (int h = 0; h < n_heads; h++) {
            const int at = h * d_head;
            switch (d_head % SUM_LANES ? 0 : d_head / SUM_LANES) {
                case 1: attend_vectors<1>(q + at, kv, at, n_keys, weights, out + at); break;
                case 2: attend_vectors<2>(q + at, kv, at, n_keys, weights, out + at); break;
                case 4: attend_vectors<4>(q + at, kv, at, n_keys, weights, out + at); break;
                case 8: attend_vectors<8>(q + at, kv, at, n_keys, weights, out + at); break;
                default: attend_any(q + at, kv, at, n_keys, weights, out + at);
            }
        }
    }

    // Rotate each pair of features of every head (RoPE); `angles` has the cosine and the sine for each pair. With an
    // odd d_head the last feature stays.
    void rotate(float* x, const float* angles) const {
        for (float* head = x; head < x + n_heads * d_head; head += d_head)
            for (int i = 0; i + 1 < d_head; i += 2) {
                const float a = head[i], b = head[i + 1];
                head[i] = a * angles[i] - b * angles[i + 1];
                head[i + 1] = a * angles[i + 1] + b * angles[i];
            }
    }

  private:
    // One head, which begins at feature `at`, of W times SUM_LANES features: query and output stay in registers.
    template <int W>
    void attend_vectors(const float* q, const float* const* kv, int at, int n_keys, float* weights, float* out) const {
        constexpr int V = W * SUM_VECTORS;
        Vec query[V], output[V];
        for (int v = 0; v < V; v++) query[v] = load(q + v * LANES) * scale, output[v] = Vec{};
        for (int t = 0; t < n_keys; t++) {
            Lanes products(0.0f);
            for (int v = 0; v < V; v++) products.part[v % SUM_VECTORS] += query[v] * load(kv[t] + at + v * LANES);
            weights[t] = products.sum();
        }
        softmax(weights, n_keys);
        for (int t = 0; t < n_keys; t++)
            for (int v = 0; v < V; v++) output[v] += weights[t] * load(kv[t] + n_heads * d_head + at + v * LANES);
        for (int v = 0; v < V; v++) store(out + v * LANES, output[v]);
    }

    // One head of any width.
    void attend_any(const float* q, const float* const* kv, int at, int n_keys, float* weights, float* out) const {
        for (int t = 0; t < n_keys; t++) weights[t] = dot(q, kv[t] + at, d_head) * scale;
        softmax(weights, n_keys);
        for (int i = 0; i < d_head; i++) out[i] = 0.0f;
        for (int t = 0; t < n_keys; t++) axpy(weights[t], kv[t] + n_heads * d_head + at, out, d_head);
    }
};

}  // namespace regard
