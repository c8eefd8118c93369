// The decoder: its key-value cache, and one step of all hypotheses by one token.
#pragma once

#include "encoder.h"

namespace regard {

class Decoder {
  public:
    // Encode the sources; each gets n_hypotheses rows, which are empty at first.
    Decoder(const Model& model, const SourceBatch& src, int64_t n_hypotheses, int threads)
        : model_(model),
          n_hypotheses_(n_hypotheses),
          n_logits_(model.config.tgt_vocab_size),
          activations_(model),
          offsets_(row_offsets(src)),
          self_cache_(model.decoder_layers.size()),
          cache_rows_(src.B * n_hypotheses) {
        encode(activations_, src, offsets_, threads);
        for (const DecoderLayer& layer : model.decoder_layers) {
            cross_cache_.emplace_back(activations_.R * 2 * activations_.D);
            linear(activations_, layer.cross_attention.kv, activations_.x, cross_cache_.back().get());
        }
        for (int64_t b = 0; b < src.B; b++) sentences_.push_back(b);
    }

    int64_t n_rows() const { return cache_rows_.size(); }

    int64_t n_sentences() const { return sentences_.size(); }

    int64_t n_logits() const { return n_logits_; }

    const ModelConfig& config() const { return model_.config; }

    // Compute logits of these tokens only, in their order.
    void set_shortlist(const int64_t* tokens, int64_t n) {
        shortlist_output_ = std::make_unique<Linear>(model_.output, tokens, n), n_logits_ = n;
    }

    // Append one token to each hypothesis; return the logits (R, n_logits) of the next, valid until the next step.
    float* step(const int64_t* tokens, const float* position, int threads) {
        const int64_t R = n_rows();
        activations_.resize(R, threads);
        for (int64_t r = 0; r < R; r++) {
            embed(activations_, r, model_.tgt_embedding, model_.tgt_norm, tokens[r], position);
            cache_rows_[r].push_back(r);
        }
        for (size_t l = 0; l < model_.decoder_layers.size(); l++) {
            const DecoderLayer& layer = model_.decoder_layers[l];
            self_attention(layer.self_attention, position, self_cache_[l]);
            cross_attention(layer.cross_attention, cross_cache_[l].get());
            feed_forward(activations_, layer.feed_forward);
        }
        if (model_.decoder_norm) normalise(activations_, *model_.decoder_norm, nullptr, activations_.x);
        float* logits = logits_.reserve(R * n_logits_);
        linear(activations_, shortlist_output_ ? *shortlist_output_ : model_.output, activations_.x, logits);
        return logits;
    }

    // Row r becomes the continuation of rows[r]. Only the indices into the cache are copied.
    void reorder(const int64_t* rows, int64_t R) {
        std::vector<std::vector<int32_t>> reordered;
        for (int64_t r = 0; r < R; r++) reordered.push_back(cache_rows_[rows[r]]);
        cache_rows_.swap(reordered);
    }

    // Keep only the sentences at these indices.
    void keep(const int64_t* indices, int64_t M) {
        std::vector<int64_t> sentences, rows;
        for (int64_t m = 0; m < M; m++) {
            sentences.push_back(sentences_[indices[m]]);
            for (int64_t i = 0; i < n_hypotheses_; i++) rows.push_back(indices[m] * n_hypotheses_ + i);
        }
        sentences_.swap(sentences);
        reorder(rows.data(), rows.size());
    }

  private:
    using LayerCache = std::vector<Buffer<float>>;  // for each step the keys and values (R, 2D) of its rows

    void self_attention(const SelfAttention& layer, const float* position, LayerCache& cache) {
        Activations& a = activations_;
        const int64_t D = a.D, R = a.R;
        attention_sublayer(a, layer.norm, layer.qkv, layer.out, [&] {
            cache.emplace_back(R * 2 * D);
            const int64_t length = cache.size();
            parallel_for(R, attention_cost(1, length, D), a.threads, [&](int64_t r) {
                thread_local Buffer<const float*> kv;
                float* qkv = a.wide + r * 3 * D;
                rotate_query_key(a, qkv, position);
                std::memcpy(cache.back().get() + r * 2 * D, qkv + D, 2 * D * sizeof(float));
                kv.reserve(length);
                for (int64_t t = 0; t < length; t++) kv.get()[t] = cache[t].get() + cache_rows_[r][t] * 2 * D;
                model_.heads.attend(qkv, kv.get(), length, a.narrow + r * D);
            });
        });
    }

    // src_kv (tokens, 2D): keys and values of the encoder's output
    void cross_attention(const CrossAttention& layer, const float* src_kv) {
        Activations& a = activations_;
        const int64_t D = a.D, cost = attention_cost(n_hypotheses_, mean_length(offsets_), D);
        attention_sublayer(a, layer.norm, layer.q, layer.out, [&] {
            parallel_for(sentences_.size(), cost, a.threads, [&](int64_t b) {
                const int64_t first = offsets_[sentences_[b]], last = offsets_[sentences_[b] + 1];
                std::vector<const float*> kv;
                for (int64_t t = first; t < last; t++) kv.push_back(src_kv + t * 2 * D);
                for (int64_t r = b * n_hypotheses_; r < (b + 1) * n_hypotheses_; r++)
                    model_.heads.attend(a.wide + r * D, kv.data(), kv.size(), a.narrow + r * D);
            });
        });
    }

    const Model& model_;
    const int64_t n_hypotheses_;
    int64_t n_logits_;
    std::unique_ptr<Linear> shortlist_output_;  // null without a shortlist
    Activations activations_;
    const std::vector<int64_t> offsets_;            // of the sources' tokens in the cross-attention caches
    std::vector<int64_t> sentences_;                // those that are left, as indices into the source batch
    std::vector<Buffer<float>> cross_cache_;        // (tokens, 2D) for each layer
    std::vector<LayerCache> self_cache_;            // for each layer
    std::vector<std::vector<int32_t>> cache_rows_;  // for each hypothesis and step, its row of the cache
    Buffer<float> logits_;
};

}  // namespace regard
