// Reading: source sentences go through the encoder, side by side and without padding.
#pragma once

#include "stream.h"

namespace regard {

struct Sentences {
    const int64_t* ids;  // (B, S)
    const int64_t* lengths;
    int64_t B, S;
    const float* codes;  // (S, code): what belongs to each place
};

// Where each sentence's tokens begin, and behind the last of them the end.
inline std::vector<int64_t> beginnings(const Sentences& src) {
    std::vector<int64_t> starts(src.B + 1, 0);
    for (int64_t b = 0; b < src.B; b++) starts[b + 1] = starts[b] + src.lengths[b];
    return starts;
}

// Lets every token look at all of its sentence; qkv (R, 3D) has queries, keys and values side by side.
inline void look_around(Stream& stream, const std::vector<int64_t>& starts, const float* codes, float* qkv,
                        float* out) {
    const Heads& heads = stream.model.heads;
    const int64_t D = stream.D, B = starts.size() - 1, mean = starts.back() / std::max<int64_t>(B, 1);
    each(B, mean * mean * D * 8, stream.threads, [&](int64_t b) {
        std::vector<const float*> keys;
        for (int64_t r = starts[b]; r < starts[b + 1]; r++) {
            stream.turn(qkv + r * 3 * D, codes + (r - starts[b]) * stream.model.sizes.code());
            keys.push_back(qkv + r * 3 * D + D);
        }
        for (int64_t r = starts[b]; r < starts[b + 1]; r++)
            heads.look(qkv + r * 3 * D, keys.data(), keys.size(), out + r * D);
    });
}

// Leaves the encoder's output in the stream, one row for each real token.
inline void read(Stream& stream, const Sentences& src, const std::vector<int64_t>& starts, int threads) {
    const Model& model = stream.model;
    const int64_t code = model.sizes.code();
    stream.open(starts.back(), threads);
    for (int64_t b = 0; b < src.B; b++)
        for (int64_t t = 0; t < src.lengths[b]; t++)
            stream.embed(starts[b] + t, model.src_table, src.ids[b * src.S + t], src.codes + t * code);
    for (const EncoderLayer& layer : model.encoder) {
        stream.residual(layer.own.norm, [&](const float* in) {
            stream.times(layer.own.qkv, in, stream.wide);
            look_around(stream, starts, src.codes, stream.wide, stream.mixed);
            stream.times(layer.own.out, stream.mixed, stream.wide);
            return stream.wide;
        });
        stream.feed(layer.feed);
    }
    if (!model.last_norms.empty()) stream.finish(model.last_norms[0]);
}

}  // namespace regard
