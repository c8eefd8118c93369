// The likeliest of what may be said next, with their log-probabilities.
#pragma once

#include <cmath>

#include "attention.h"
#include "buffer.h"
#include "threads.h"
#include "vectors.h"

namespace regard {

constexpr int BLOCK = 4 * LANES;  // numbers that are passed over together where none of them is large enough

struct Choice {
    int64_t k;            // tokens that are wanted for each row
    int64_t first;        // tokens below this one are never said …
    const int64_t* must;  // … unless it is the one that must be said now; 0 is a row that is free, null are all free
};

// Gives the largest of each block, and of all.
inline float find_peaks(const float* x, int64_t V, float* peaks) {
    Vec all = spread(NEVER);
    for (int64_t i = 0; i < V; i += BLOCK) {
        Vec block = spread(NEVER);
        for (int64_t j = i; j < i + BLOCK && j < V; j += LANES)
            block = larger(block, j + LANES <= V ? load(x + j) : load_some(x + j, V - j, NEVER));
        all = larger(all, block);
        *peaks++ = largest(block);
    }
    return largest(all);
}

// log Σ e^x
inline float log_sum_exp(const float* x, int64_t V, float peak) {
    Vec parts[4] = {};
    int64_t i = 0;
    for (; i + BLOCK <= V; i += BLOCK)
        for (int v = 0; v < 4; v++) parts[v] += exp(load(x + i + v * LANES) - peak);
    for (; i < V; i += LANES)
        parts[0] += exp((i + LANES <= V ? load(x + i) : load_some(x + i, V - i, NEVER)) - peak);
    return peak + std::log(sum((parts[0] + parts[1]) + (parts[2] + parts[3])));
}

// Sets a number into its place among k that fall, if it is larger than the last; of equal ones the first stays first.
inline void insert(float x, int64_t token, int64_t k, float* gains, int64_t* tokens) {
    if (!(x > gains[k - 1])) return;
    int64_t at = k - 1;
    for (; at > 0 && x > gains[at - 1]; at--) gains[at] = gains[at - 1], tokens[at] = tokens[at - 1];
    gains[at] = x, tokens[at] = token;
}

inline void find_likeliest(const float* x, int64_t V, int64_t must, const Choice& choice, float* gains,
                           int64_t* tokens) {
    thread_local Buffer<float> scratch;
    float* peaks = scratch.room((V + BLOCK - 1) / BLOCK);
    const float total = log_sum_exp(x, V, find_peaks(x, V, peaks));
    for (int64_t i = 0; i < choice.k; i++) gains[i] = NEVER, tokens[i] = 0;
    if (must) {
        gains[0] = x[must], tokens[0] = must;
    } else {
        for (int64_t i = 0; i < V; i += BLOCK) {
            if (!(peaks[i / BLOCK] > gains[choice.k - 1])) continue;
            for (int64_t j = i < choice.first ? choice.first : i; j < i + BLOCK && j < V; j++)
                insert(x[j], j, choice.k, gains, tokens);
        }
    }
    for (int64_t i = 0; i < choice.k; i++) gains[i] -= total;
}

// gains and tokens (R, k), the likeliest first, of logits (R, V); places for which none is left have −∞ and token 0.
inline void likeliest(const float* logits, int64_t R, int64_t V, const Choice& choice, int threads, float* gains,
                      int64_t* tokens) {
    each(R, 16 * V, threads, [&](int64_t r) {
        const int64_t must = choice.must ? choice.must[r] : 0;
        find_likeliest(logits + r * V, V, must, choice, gains + r * choice.k, tokens + r * choice.k);
    });
}

}  // namespace regard
