// Attention of one query to keys that may lie anywhere, each with its value behind it.
#pragma once

#include <cmath>
#include <limits>

#include "buffer.h"
#include "vectors.h"

namespace regard {

constexpr float NEVER = -std::numeric_limits<float>::infinity();

// Turns scores, filled up to whole vectors by NEVER, into weights that sum to one.
inline void softmax(float* x, int n) {
    Vec peaks = load(x), total{};
    for (int i = LANES; i < n; i += LANES) peaks = larger(peaks, load(x + i));
    const float peak = largest(peaks);
    for (int i = 0; i < n; i += LANES) {
        const Vec e = exp(load(x + i) - peak);
        total += e;
        store(x + i, e);
    }
    const float share = 1.0f / sum(total);
    for (int i = 0; i < n; i += LANES) store(x + i, load(x + i) * share);
}

struct Heads {
    int n, width;
    float scale;

    // out = softmax(scale * q k) v for each head; keys[t] points at a key, and its value follows. No keys give zeros.
    void look(const float* q, const float* const* keys, int n_keys, float* out) const {
        thread_local Buffer<float> scratch;
        const int whole = (n_keys + LANES - 1) / LANES * LANES;
        float* weights = scratch.room(whole + 1);
        for (int h = 0; h < n; h++) {
            const int at = h * width;
            switch (width % LANES ? 0 : width / LANES) {
                case 1: one_head<1>(q + at, keys, at, n_keys, whole, weights, out + at); break;
                case 2: one_head<2>(q + at, keys, at, n_keys, whole, weights, out + at); break;
                case 4: one_head<4>(q + at, keys, at, n_keys, whole, weights, out + at); break;
                case 8: one_head<8>(q + at, keys, at, n_keys, whole, weights, out + at); break;
                default: any_head(q + at, keys, at, n_keys, whole, weights, out + at);
            }
        }
    }

    // Turns each pair of features of every head; `by` has the cosine and the sine for each. An odd one stays.
    void turn(float* x, const float* by) const {
        for (float* head = x; head < x + n * width; head += width)
            for (int i = 0; i + 1 < width; i += 2) {
                const float a = head[i], b = head[i + 1];
                head[i] = a * by[i] - b * by[i + 1];
                head[i + 1] = a * by[i + 1] + b * by[i];
            }
    }

  private:
    // A head of V vectors, which stay in registers.
    template <int V>
    void one_head(const float* q, const float* const* keys, int at, int n_keys, int whole, float* weights,
                  float* out) const {
        Vec query[V], mixed[V];
        for (int v = 0; v < V; v++) query[v] = load(q + v * LANES) * scale, mixed[v] = Vec{};
        for (int t = 0; t < n_keys; t++) {
            Vec products = query[0] * load(keys[t] + at);
            for (int v = 1; v < V; v++) products += query[v] * load(keys[t] + at + v * LANES);
            weights[t] = sum(products);
        }
        for (int t = n_keys; t < whole; t++) weights[t] = NEVER;
        if (n_keys) softmax(weights, n_keys);
        for (int t = 0; t < n_keys; t++)
            for (int v = 0; v < V; v++) mixed[v] += weights[t] * load(keys[t] + n * width + at + v * LANES);
        for (int v = 0; v < V; v++) store(out + v * LANES, mixed[v]);
    }

    void any_head(const float* q, const float* const* keys, int at, int n_keys, int whole, float* weights,
                  float* out) const {
        for (int t = 0; t < n_keys; t++) weights[t] = dot(q, keys[t] + at, width) * scale;
        for (int t = n_keys; t < whole; t++) weights[t] = NEVER;
        if (n_keys) softmax(weights, n_keys);
        for (int i = 0; i < width; i++) out[i] = 0.0f;
        for (int t = 0; t < n_keys; t++) add_scaled(out, keys[t] + n * width + at, weights[t], width);
    }
};

}  // namespace regard
