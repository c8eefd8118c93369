// What encoder and decoder layers are made of: embedding, norm and residual, attention and feed-forward sublayers.
#pragma once

#include <algorithm>

#include "model.h"

namespace regard {

// The residual stream x of R tokens, and memory for what sublayers compute, which is reused from layer to layer.
class Activations {
  public:
    explicit Activations(const Model& model) : model(model), D(model.config.D) {}

    void resize(int64_t n_tokens, int n_threads) {
        R = n_tokens, threads = n_threads;
        x = x_.reserve(R * D), normed = normed_.reserve(R * D), narrow = narrow_.reserve(R * D);
        wide = wide_.reserve(R * std::max(3 * D, model.config.F));
    }

    const Model& model;
    const int64_t D;
    int64_t R = 0;
    int threads = 1;
    float *x = nullptr, *normed = nullptr, *narrow = nullptr;  // (R, D)
    float* wide = nullptr;                                     // (R, 3D) or (R, F)
    QuantizedRows quantized;

  private:
    Buffer<float> x_, normed_, narrow_, wide_;
};

// Cost, as parallel_for counts it, of attention from n_queries to n_keys: 2 D multiplications a pair, of which each
// counts as 4 of a matrix product.
inline int64_t attention_cost(int64_t n_queries, int64_t n_keys, int64_t D) { return n_queries * n_keys * D * 8; }

// x[r] = √D · embedding[token] + position, without √D where the model does not scale, normalised where it has a norm
inline void embed(Activations& a, int64_t r, const Weights& embedding, const std::optional<Norm>& norm, int64_t token,
                  const float* position) {
    float* x = a.x + r * a.D;
    embedding.read(token, a.D, a.model.embedding_scale, x);
    for (int64_t i = 0; i < a.D; i++) x[i] += position[i];
    if (norm) norm->forward(x, nullptr, x);
}

// Rotate the query and the key of a token, which lie side by side, where positions are rotary.
inline void rotate_query_key(const Activations& a, float* qk, const float* position) {
    if (!a.model.config.d_rotary) return;
    a.model.heads.rotate(qk, position + a.D);
    a.model.heads.rotate(qk + a.D, position + a.D);
}

// out (R, N) = in (R, K) Wᵀ + b
inline void linear(Activations& a, const Linear& map, const float* in, float* out) {
    map.forward(in, a.R, out, a.quantized, a.threads);
}

// out (R, D) = norm(x), or norm(x + update) where there is an update
inline void normalise(const Activations& a, const Norm& norm, const float* update, float* out) {
    parallel_for(a.R, 4 * a.D, a.threads, [&](int64_t r) {
        const int64_t at = r * a.D;
        norm.forward(a.x + at, update ? update + at : nullptr, out + at);
    });
}

// x = norm(x + f(x)), or x + f(norm(x)) where norms come first; f takes its input and returns where its output lies.
template <typename Sublayer>
inline void residual(Activations& a, const Norm& norm, Sublayer f) {
    if (!a.model.config.norm_first) return normalise(a, norm, f(a.x), a.x);
    normalise(a, norm, nullptr, a.normed);
    const float* update = f(a.normed);
    for (int64_t i = 0; i < a.R * a.D; i++) a.x[i] += update[i];
}

// An attention sublayer between its input and output projections: `attend` reads what is projected from a.wide and
// leaves its result in a.narrow.
template <typename Attend>
inline void attention_sublayer(Activations& a, const Norm& norm, const Linear& in, const Linear& out, Attend attend) {
    residual(a, norm, [&](const float* x) {
        linear(a, in, x, a.wide);
        attend();
        linear(a, out, a.narrow, a.wide);
        return a.wide;
    });
}

inline void feed_forward(Activations& a, const FeedForward& layer) {
    residual(a, layer.norm, [&](const float* x) {
        linear(a, layer.inner, x, a.wide);
        const int64_t F = a.model.config.F;
        parallel_for(a.R, 4 * F, a.threads,
                     [&](int64_t r) { activate(a.wide + r * F, F, a.model.config.activation); });
        linear(a, layer.outer, a.wide, a.narrow);
        return a.narrow;
    });
}

}  // namespace regard
