// The encoder: source sentences of a batch, packed one after another without padding.
#pragma once

#include "layers.h"

namespace regard {

// Filled in by Python.
struct SourceBatch {
    const int64_t* ids;      // (B, S)
    const int64_t* lengths;  // (B)
    int64_t B, S;
    const float* positions;  // (S, position_width)
};

// The row at which each sentence begins, and the number of all rows behind the last: (B + 1).
inline std::vector<int64_t> row_offsets(const SourceBatch& src) {
    std::vector<int64_t> offsets(src.B + 1, 0);
    for (int64_t b = 0; b < src.B; b++) offsets[b + 1] = offsets[b] + src.lengths[b];
    return offsets;
}

inline int64_t mean_length(const std::vector<int64_t>& offsets) {
    return offsets.back() / std::max<int64_t>(offsets.size() - 1, 1);
}

// Every token attends to all tokens of its sentence.
inline void encoder_self_attention(Activations& a, const SelfAttention& layer, const std::vector<int64_t>& offsets,
                                   const float* positions) {
    const int64_t D = a.D, B = offsets.size() - 1, length = mean_length(offsets);
    attention_sublayer(a, layer.norm, layer.qkv, layer.out, [&] {
        parallel_for(B, attention_cost(length, length, D), a.threads, [&](int64_t b) {
            const int64_t first = offsets[b], last = offsets[b + 1];
            std::vector<const float*> kv;
            for (int64_t r = first; r < last; r++) {
                float* qkv = a.wide + r * 3 * D;
                rotate_query_key(a, qkv, positions + (r - first) * a.model.config.position_width());
                kv.push_back(qkv + D);
            }
            for (int64_t r = first; r < last; r++)
                a.model.heads.attend(a.wide + r * 3 * D, kv.data(), kv.size(), a.narrow + r * D);
        });
    });
}

// Leave the encoder's output in a.x, one row for each token.
inline void encode(Activations& a, const SourceBatch& src, const std::vector<int64_t>& offsets, int threads) {
    const Model& model = a.model;
    const int64_t width = model.config.position_width();
    a.resize(offsets.back(), threads);
    for (int64_t b = 0; b < src.B; b++)
        for (int64_t t = 0; t < src.lengths[b]; t++)
            embed(a, offsets[b] + t, model.src_embedding, model.src_norm, src.ids[b * src.S + t],
                  src.positions + t * width);
    for (const EncoderLayer& layer : model.encoder_layers) {
        encoder_self_attention(a, layer.self_attention, offsets, src.positions);
        feed_forward(a, layer.feed_forward);
    }
    if (model.encoder_norm) normalise(a, *model.encoder_norm, nullptr, a.x);
}

}  // namespace regard
