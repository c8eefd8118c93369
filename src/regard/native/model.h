// A Transformer's parameters, packed in the order in which they are handed over.
#pragma once

#include <vector>

#include "activation.h"
#include "attention.h"
#include "linear.h"
#include "norm.h"

namespace regard {

// As Python fills it: whole numbers only, in this order.
struct Sizes {
    int64_t D, H, F, src_words, tgt_words, n_encoder, n_decoder;
    NormKind norm;
    int64_t norm_first;
    Activation activation;
    Precision precision;
    int64_t turned;  // features of a head, where positions turn queries and keys; else 0

    // What belongs to a place: D features that are added to its token, then those that its queries and keys turn by.
    int64_t code() const { return D + turned; }
};

// Arrays of floats, taken one after another; a missing bias is null.
class Parameters {
  public:
    Parameters(const float* const* next, const Sizes& sizes) : next_(next), sizes_(sizes) {}

    const float* take() { return *next_++; }

    Linear linear(int64_t N, int64_t K) {
        const float *weight = take(), *bias = take();
        return Linear(weight, bias, N, K, sizes_.precision);
    }

    Norm norm() {
        const float *weight = take(), *bias = take(), *eps = take();
        return Norm(weight, bias, *eps, sizes_.D, sizes_.norm);
    }

  private:
    const float* const* next_;
    const Sizes& sizes_;
};

struct FeedForward {
    FeedForward(Parameters& from, const Sizes& sizes)
        : inner(from.linear(sizes.F, sizes.D)), outer(from.linear(sizes.D, sizes.F)), norm(from.norm()) {}
    Linear inner, outer;
    Norm norm;
};

struct SelfAttention {
    SelfAttention(Parameters& from, const Sizes& sizes)
        : qkv(from.linear(3 * sizes.D, sizes.D)), out(from.linear(sizes.D, sizes.D)), norm(from.norm()) {}
    Linear qkv, out;
    Norm norm;
};

struct CrossAttention {
    CrossAttention(Parameters& from, const Sizes& sizes)
        : q(from.linear(sizes.D, sizes.D)),
          kv(from.linear(2 * sizes.D, sizes.D)),
          out(from.linear(sizes.D, sizes.D)),
          norm(from.norm()) {}
    Linear q, kv, out;
    Norm norm;
};

struct EncoderLayer {
    EncoderLayer(Parameters& from, const Sizes& sizes) : own(from, sizes), feed(from, sizes) {}
    SelfAttention own;
    FeedForward feed;
};

struct DecoderLayer {
    DecoderLayer(Parameters& from, const Sizes& sizes) : own(from, sizes), cross(from, sizes), feed(from, sizes) {}
    SelfAttention own;
    CrossAttention cross;
    FeedForward feed;
};

struct Model {
    Model(const Sizes& sizes, const float* const* arrays) : Model(sizes, Parameters(arrays, sizes)) {}

    const Sizes sizes;
    const Heads heads;
    const float *src_table, *tgt_table;  // these stay where they are: whoever handed them over keeps them
    std::vector<EncoderLayer> encoder;
    std::vector<DecoderLayer> decoder;
    std::vector<Norm> last_norms;  // the encoder's and the decoder's, or none
    Linear output;

  private:
    Model(const Sizes& sizes, Parameters from)
        : sizes(sizes),
          heads{int(sizes.H), int(sizes.D / sizes.H), 1.0f / std::sqrt(float(sizes.D / sizes.H))},
          src_table(from.take()),
          tgt_table(from.take()),
          encoder(some<EncoderLayer>(sizes.n_encoder, from, sizes)),
          decoder(some<DecoderLayer>(sizes.n_decoder, from, sizes)),
          last_norms(norms(sizes.norm_first ? 2 : 0, from)),
          output(from.linear(sizes.tgt_words, sizes.D)) {}

    template <typename Layer>
    static std::vector<Layer> some(int64_t n, Parameters& from, const Sizes& sizes) {
        std::vector<Layer> layers;
        for (int64_t i = 0; i < n; i++) layers.emplace_back(from, sizes);
        return layers;
    }

    static std::vector<Norm> norms(int64_t n, Parameters& from) {
        std::vector<Norm> made;
        for (int64_t i = 0; i < n; i++) made.push_back(from.norm());
        return made;
    }
};

}  // namespace regard
