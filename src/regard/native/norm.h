// Normalisation of each token over its own features.
#pragma once

#include <cmath>
#include <vector>

#include "vectors.h"

namespace regard {

enum class NormKind : int64_t { layer = 0, rms = 1 };

class Norm {
  public:
    Norm(const float* weight, const float* bias, float eps, int64_t D, NormKind kind)
        : weight_(weight, weight + D), bias_(D, 0.0f), eps_(eps), kind_(kind) {
        if (bias) bias_.assign(bias, bias + D);
    }

    // out = norm(x + y); y may be nothing, and out may be x
    void row(const float* x, const float* y, float* out) const {
        const int D = weight_.size();
        for (int i = 0; y && i < D; i++) out[i] = x[i] + y[i];
        const float* in = y ? out : x;
        const float mean = kind_ == NormKind::layer ? total(in, D) / D : 0.0f;
        const float factor = 1.0f / std::sqrt(squares(in, mean, D) / D + eps_);
        for (int i = 0; i < D; i++) out[i] = (in[i] - mean) * factor * weight_[i] + bias_[i];
    }

  private:
    static float total(const float* x, int n) {
        Vec parts{};
        int i = 0;
        for (; i + LANES <= n; i += LANES) parts += load(x + i);
        if (i < n) parts += load_some(x + i, n - i, 0.0f);
        return sum(parts);
    }

    static float squares(const float* x, float mean, int n) {
        Vec parts{};
        int i = 0;
        for (; i + LANES <= n; i += LANES) {
            const Vec away = load(x + i) - mean;
            parts += away * away;
        }
        if (i < n) {
            const Vec away = load_some(x + i, n - i, mean) - mean;
            parts += away * away;
        }
        return sum(parts);
    }

    std::vector<float> weight_, bias_;
    float eps_;
    NormKind kind_;
};

}  // namespace regard
