// The nonlinear functions between the two maps of a feed-forward network.
#pragma once

#include "vectors.h"

namespace regard {

enum class Activation : int64_t { relu = 0, gelu = 1, silu = 2 };

// Abramowitz and Stegun 7.1.26: off by at most 1.5e-7.
inline Vec erf(Vec x) {
    const Vec size = size_of(x);
    const Vec t = 1.0f / (1.0f + 0.3275911f * size);
    Vec p = spread(1.061405429f);
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const Vec y = 1.0f - p * t * exp(-size * size);
    return x < 0.0f ? -y : y;
}

inline void activate(float* x, int64_t n, Activation activation) {
    switch (activation) {
        case Activation::relu: return change(x, n, [](Vec a) { return larger(a, Vec{}); });
        case Activation::gelu: return change(x, n, [](Vec a) { return 0.5f * a * (1.0f + erf(a * 0.70710678f)); });
        case Activation::silu: return change(x, n, [](Vec a) { return a / (1.0f + exp(-a)); });
    }
}

}  // namespace regard
