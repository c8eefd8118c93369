// A Transformer's parameters and the parts they belong to: linear maps, norms, activations, layers.
#pragma once

#include <cmath>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "attention.h"
#include "gemm_f32.h"
#include "gemm_i8.h"

namespace regard {

enum class NormKind : int64_t { layer = 0, rms = 1 };
enum class Activation : int64_t { relu = 0, gelu = 1, silu = 2 };
enum class Precision : int64_t { float32 = 0, int8 = 1 };

// Filled in by Python, field by field in this order.
struct ModelConfig {
    int64_t D, H, F, src_vocab_size, tgt_vocab_size, n_encoder_layers, n_decoder_layers;
    NormKind norm;
    int64_t norm_first;
    Activation activation;
    Precision precision;
    int64_t d_rotary;  // features of a head that positions rotate: d_head with rotary positions, else 0
    int64_t scale_embedding;  // whether vectors of tokens are multiplied by √D
    int64_t embedding_norm;   // whether vectors of tokens with their positions are normalised

    // What is known of a position: D features that are added to its token's embedding, then its d_rotary angles.
    int64_t position_width() const { return D + d_rotary; }
};

inline void activate(float* x, int64_t n, Activation activation) {
    switch (activation) {
        case Activation::relu: return transform(x, n, [](Vec a) { return max(a, Vec{}); });
        case Activation::gelu: return transform(x, n, [](Vec a) { return 0.5f * a * (1.0f + erf(a * 0.70710678f)); });
        case Activation::silu: return transform(x, n, [](Vec a) { return a / (1.0f + exp(-a)); });
    }
}

class Linear {
  public:
    Linear(const StackedWeights& weights, const float* bias, int64_t N, int64_t K, Precision precision,
           WeightsMemory& memory) {
        if (precision == Precision::int8)
            int8_ = std::make_unique<MatrixI8>(weights, bias, N, K, memory);
        else
            float32_ = std::make_unique<MatrixF32>(weights, bias, N, K, memory);
    }

    // Take some outputs of another map.
    Linear(const Linear& other, const int64_t* outputs, int64_t N) {
        if (other.int8_)
            int8_ = std::make_unique<MatrixI8>(*other.int8_, outputs, N);
        else
            float32_ = std::make_unique<MatrixF32>(*other.float32_, outputs, N);
    }

    // out (R, N) = x (R, K) Wᵀ + b; x in 8 bits goes to `scratch`
    void forward(const float* x, int64_t R, float* out, QuantizedRows& scratch, int threads) const {
        if (float32_) return float32_->multiply(x, R, out, threads);
        scratch.quantize(x, R, int8_->K, threads);
        int8_->multiply(scratch, R, out, threads);
    }

  private:
    std::unique_ptr<MatrixF32> float32_;  // one of the two is set
    std::unique_ptr<MatrixI8> int8_;
};

// LayerNorm or RMSNorm over the features of one token.
class Norm {
  public:
    Norm(const float* weight, const float* bias, float eps, int64_t D, NormKind kind)
        : weight_(weight, weight + D), bias_(D, 0.0f), eps_(eps), kind_(kind) {
        if (bias) bias_.assign(bias, bias + D);
    }

    // out = norm(x + update); update may be null, and out may be x
    void forward(const float* x, const float* update, float* out) const {
        const int D = weight_.size();
        for (int i = 0; update && i < D; i++) out[i] = x[i] + update[i];
        const float* in = update ? out : x;
        const float mean = kind_ == NormKind::layer ? sum_of(in, D, 0.0f, [](Vec a) { return a; }) / D : 0.0f;
        const float squares = sum_of(in, D, mean, [mean](Vec a) { return (a - mean) * (a - mean); });
        const float factor = 1.0f / std::sqrt(squares / D + eps_);
        for (int i = 0; i < D; i++) out[i] = (in[i] - mean) * factor * weight_[i] + bias_[i];
    }

  private:
    std::vector<float> weight_, bias_;
    float eps_;
    NormKind kind_;
};

// Sets the next array, which lives until six more were taken; its values are null where there is none.
using NextArray = void (*)(Weights*);

// Arrays, taken one after another in the order in which Python lists them; a missing bias is null.
class Parameters {
  public:
    Parameters(NextArray next, const ModelConfig& config) : next_(next), config_(config) {}

    Weights take() {
        Weights array{};
        next_(&array);
        if (!array.values) throw std::bad_alloc();  // Python could not make it
        return array;
    }

    const float* take_floats() { return take().floats(0, 0); }

    const float* take_optional() {
        Weights array{};
        next_(&array);
        return array.floats(0, 0);
    }

    // Maps of the same input, N outputs in all: their weights come first, then their biases.
    Linear linear(int64_t N, int64_t K, int n_maps = 1) {
        StackedWeights weights{{}, N / n_maps};
        for (int i = 0; i < n_maps; i++) weights.parts[i] = take();
        std::vector<float> bias(N, 0.0f);
        for (int i = 0; i < n_maps; i++)
            if (const float* given = take_optional())
                std::memcpy(bias.data() + i * weights.rows, given, weights.rows * sizeof(float));
        return Linear(weights, bias.data(), N, K, config_.precision, memory_);
    }

    Norm norm() {
        const float *weight = take_floats(), *bias = take_optional(), *eps = take_floats();
        return Norm(weight, bias, *eps, config_.D, config_.norm);
    }

    template <typename Layer>
    std::vector<Layer> layers(int64_t n) {
        std::vector<Layer> taken;
        for (int64_t i = 0; i < n; i++) taken.emplace_back(*this, config_);
        return taken;
    }

  private:
    NextArray next_;
    const ModelConfig& config_;
    WeightsMemory memory_;
};

struct SelfAttention {
    SelfAttention(Parameters& parameters, const ModelConfig& config)
        : qkv(parameters.linear(3 * config.D, config.D, 3)),
          out(parameters.linear(config.D, config.D)),
          norm(parameters.norm()) {}
    Linear qkv, out;
    Norm norm;
};

struct CrossAttention {
    CrossAttention(Parameters& parameters, const ModelConfig& config)
        : q(parameters.linear(config.D, config.D)),
          kv(parameters.linear(2 * config.D, config.D, 2)),
          out(parameters.linear(config.D, config.D)),
          norm(parameters.norm()) {}
    Linear q, kv, out;
    Norm norm;
};

struct FeedForward {
    FeedForward(Parameters& parameters, const ModelConfig& config)
        : inner(parameters.linear(config.F, config.D)),
          outer(parameters.linear(config.D, config.F)),
          norm(parameters.norm()) {}
    Linear inner, outer;
    Norm norm;
};

struct EncoderLayer {
    EncoderLayer(Parameters& parameters, const ModelConfig& config)
        : self_attention(parameters, config), feed_forward(parameters, config) {}
    SelfAttention self_attention;
    FeedForward feed_forward;
};

struct DecoderLayer {
    DecoderLayer(Parameters& parameters, const ModelConfig& config)
        : self_attention(parameters, config), cross_attention(parameters, config), feed_forward(parameters, config) {}
    SelfAttention self_attention;
    CrossAttention cross_attention;
    FeedForward feed_forward;
};

// Members are declared in the order in which their parameters are taken.
struct Model {
    Model(const ModelConfig& config, NextArray next) : Model(config, Parameters(next, config)) {}

    const ModelConfig config;
    const MultiHead heads;
    const float embedding_scale;
    const Weights src_embedding, tgt_embedding;  // (V, D), not copied: the caller keeps them alive
    const std::optional<Norm> src_norm, tgt_norm;  // of vectors of tokens with their positions
    std::vector<EncoderLayer> encoder_layers;
    std::vector<DecoderLayer> decoder_layers;
    std::optional<Norm> encoder_norm, decoder_norm;  // after the last layer, where norms come first
    Linear output;

  private:
    Model(const ModelConfig& config, Parameters parameters)
        : config(config),
          heads{int(config.H), int(config.D / config.H), 1.0f / std::sqrt(float(config.D / config.H))},
          embedding_scale(config.scale_embedding ? std::sqrt(float(config.D)) : 1.0f),
          src_embedding(parameters.take()),
          tgt_embedding(parameters.take()),
          src_norm(config.embedding_norm ? std::optional<Norm>(parameters.norm()) : std::nullopt),
          tgt_norm(config.embedding_norm ? std::optional<Norm>(parameters.norm()) : std::nullopt),
          encoder_layers(parameters.layers<EncoderLayer>(config.n_encoder_layers)),
          decoder_layers(parameters.layers<DecoderLayer>(config.n_decoder_layers)),
          encoder_norm(config.norm_first ? std::optional<Norm>(parameters.norm()) : std::nullopt),
          decoder_norm(config.norm_first ? std::optional<Norm>(parameters.norm()) : std::nullopt),
          output(parameters.linear(config.tgt_vocab_size, config.D)) {}
};

}  // namespace regard
