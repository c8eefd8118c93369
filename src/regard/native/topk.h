// The k most probable next tokens, with their log-probabilities.
#pragma once

#include <algorithm>
#include <cmath>

#include "parallel.h"
#include "simd.h"

namespace regard {

// Filled in by Python.
struct TopKOptions {
    int64_t k;
    int64_t min_token;      // smaller tokens are never chosen …
    const int64_t* forced;  // (R) … unless the row must continue with one; PAD (0) leaves it free. Null: all are free
};

// Insert an item into the n best, best first, of at most k; of equal items the first stays first. Return the new n.
template <typename Item, typename Better>
inline int64_t insert_top_k(Item* top, int64_t n, int64_t k, const Item& item, Better better) {
    if (n == k && !better(item, top[k - 1])) return n;
    int64_t i = n < k ? n++ : k - 1;
    for (; i > 0 && better(item, top[i - 1]); i--) top[i] = top[i - 1];
    top[i] = item;
    return n;
}

constexpr int BLOCK = 4 * SUM_LANES;  // logits that are skipped together where their maximum is not among the best

// Write the maximum of each block; return that of all.
inline float block_maxima(const float* x, int64_t V, float* maxima) {
    float all = NEG_INF;
    for (int64_t i = 0; i < V; i += BLOCK) {
        Lanes peaks(NEG_INF);
        for_lanes(x + i, std::min<int64_t>(BLOCK, V - i), NEG_INF, peaks, [](Vec& p, Vec a) { p = max(p, a); });
        *maxima = peaks.max();
        all = std::max(all, *maxima++);
    }
    return all;
}

// log Σ exp(x_i), given the maximum of x
inline float log_sum_exp(const float* x, int64_t V, float peak) {
    return peak + std::log(sum_of(x, V, NEG_INF, [peak](Vec a) { return exp(a - peak); }));
}

struct ScoredToken {
    float logit;
    int64_t token;
};

// Fill `top` with the k largest logits of one row; entries for which no token is left have logit -∞ and token 0.
inline void top_k_row(const float* logits, const float* maxima, int64_t V, const TopKOptions& options,
                      ScoredToken* top) {
    const int64_t k = options.k;
    const auto larger = [](const ScoredToken& a, const ScoredToken& b) { return a.logit > b.logit; };
    for (int64_t i = 0; i < k; i++) top[i] = {NEG_INF, 0};
    for (int64_t i = 0; i < V; i += BLOCK) {
        if (!(maxima[i / BLOCK] > top[k - 1].logit)) continue;
        for (int64_t j = i < options.min_token ? options.min_token : i; j < i + BLOCK && j < V; j++)
            insert_top_k(top, k, k, ScoredToken{logits[j], j}, larger);
    }
}

// log_probs and tokens (R, k), the most probable first, of logits (R, V).
inline void top_k(const float* logits, int64_t R, int64_t V, const TopKOptions& options, int threads, float* log_probs,
                  int64_t* tokens) {
    parallel_for(R, 16 * V, threads, [&](int64_t r) {
        thread_local Buffer<float> maxima;
        thread_local Buffer<ScoredToken> top;
        maxima.reserve((V + BLOCK - 1) / BLOCK), top.reserve(options.k);
        const float* row = logits + r * V;
        const float normaliser = log_sum_exp(row, V, block_maxima(row, V, maxima.get()));
        if (const int64_t forced = options.forced ? options.forced[r] : 0) {
            for (int64_t i = 0; i < options.k; i++) top.get()[i] = {NEG_INF, 0};
            top.get()[0] = {row[forced], forced};
        } else {
            top_k_row(row, maxima.get(), V, options, top.get());
        }
        for (int64_t i = 0; i < options.k; i++) {
            log_probs[r * options.k + i] = top.get()[i].logit - normaliser;
            tokens[r * options.k + i] = top.get()[i].token;
        }
    });
}

}  // namespace regard
