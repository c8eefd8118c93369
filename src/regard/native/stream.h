// The residual stream of some tokens: the steps that encoder and decoder share.
#pragma once

#include <algorithm>

#include "model.h"

namespace regard {

class Stream {
  public:
    explicit Stream(const Model& model) : model(model), D(model.sizes.D) {}

    // Makes room for R tokens.
    void open(int64_t rows, int n_threads) {
        R = rows, threads = n_threads;
        x = x_.room(R * D), h_.room(R * D), mixed = mixed_.room(R * D);
        wide = wide_.room(R * std::max(3 * D, model.sizes.F));
    }

    // x[r] = √D · table[token] + code
    void embed(int64_t r, const float* table, int64_t token, const float* code) {
        const float scale = std::sqrt(float(D));
        for (int64_t i = 0; i < D; i++) x[r * D + i] = table[token * D + i] * scale + code[i];
    }

    // Turns the query and the key of a token, which lie side by side, where positions do.
    void turn(float* qk, const float* code) const {
        if (!model.sizes.turned) return;
        model.heads.turn(qk, code + D);
        model.heads.turn(qk + D, code + D);
    }

    // x becomes norm(x + f(x)), or x + f(norm(x)); f takes its input and gives where its output lies.
    template <typename Function>
    void residual(const Norm& norm, Function f) {
        if (!model.sizes.norm_first) {
            const float* y = f(x);
            return each(R, 4 * D, threads, [&](int64_t r) { norm.row(x + r * D, y + r * D, x + r * D); });
        }
        float* h = h_.get();
        each(R, 4 * D, threads, [&](int64_t r) { norm.row(x + r * D, nullptr, h + r * D); });
        const float* y = f(h);
        for (int64_t i = 0; i < R * D; i++) x[i] += y[i];
    }

    // A map of every token of `in`.
    void times(const Linear& linear, const float* in, float* out) { linear.times(in, R, out, rounded_, threads); }

    void feed(const FeedForward& feed) {
        residual(feed.norm, [&](const float* in) {
            times(feed.inner, in, wide);
            const int64_t F = model.sizes.F;
            each(R, 4 * F, threads, [&](int64_t r) { activate(wide + r * F, F, model.sizes.activation); });
            times(feed.outer, wide, mixed);
            return mixed;
        });
    }

    void finish(const Norm& norm) {
        each(R, 4 * D, threads, [&](int64_t r) { norm.row(x + r * D, nullptr, x + r * D); });
    }

    const Model& model;
    const int64_t D;
    int64_t R = 0;
    int threads = 1;
    float *x = nullptr, *mixed = nullptr, *wide = nullptr;  // (R, D), (R, D) and (R, 3D or F)

  private:
    Buffer<float> x_, h_, mixed_, wide_;
    Rounded rounded_;
};

}  // namespace regard
