// Writing: what a decoder remembers of some hypotheses, and its step by one token.
#pragma once

#include "reader.h"

namespace regard {

class Writer {
  public:
    Writer(const Model& model, const Sentences& src, int64_t n_hypotheses, int threads)
        : model_(model),
          n_hypotheses_(n_hypotheses),
          V_(model.sizes.tgt_words),
          stream_(model),
          starts_(beginnings(src)) {
        read(stream_, src, starts_, threads);
        for (const DecoderLayer& layer : model.decoder) {
            across_.emplace_back(stream_.R * 2 * stream_.D);
            stream_.times(layer.cross.kv, stream_.x, across_.back().get());
        }
        for (int64_t b = 0; b < src.B; b++) sentences_.push_back(b);
        back_.resize(model.decoder.size());
        ancestors_.resize(src.B * n_hypotheses);
    }

    int64_t rows() const { return ancestors_.size(); }

    int64_t n_sentences() const { return sentences_.size(); }

    const Model& model() const { return model_; }

    // Lets nothing be said but these words, which logits stand for then, one after another.
    void narrow(const int64_t* words, int64_t n) { some_ = std::make_unique<Linear>(model_.output, words, n), V_ = n; }

    // How many logits a step gives.
    int64_t V() const { return V_; }

    // Reads one token for each hypothesis; gives the logits (R, V) of the next, which the next step overwrites.
    float* step(const int64_t* tokens, const float* code, int threads) {
        const int64_t R = rows();
        stream_.open(R, threads);
        for (int64_t r = 0; r < R; r++) {
            stream_.embed(r, model_.tgt_table, tokens[r], code);
            ancestors_[r].push_back(r);
        }
        for (size_t l = 0; l < model_.decoder.size(); l++) {
            look_back(model_.decoder[l].own, code, back_[l]);
            look_across(model_.decoder[l].cross, across_[l].get());
            stream_.feed(model_.decoder[l].feed);
        }
        if (!model_.last_norms.empty()) stream_.finish(model_.last_norms[1]);
        float* logits = logits_.room(R * V_);
        stream_.times(some_ ? *some_ : model_.output, stream_.x, logits);
        return logits;
    }

    // Lets each hypothesis continue another; nothing but the list of its ancestors is copied.
    void reorder(const int64_t* rows, int64_t R) {
        std::vector<std::vector<int32_t>> moved;
        for (int64_t r = 0; r < R; r++) moved.push_back(ancestors_[rows[r]]);
        ancestors_.swap(moved);
    }

    // Goes on with some sentences only.
    void keep(const int64_t* chosen, int64_t M) {
        std::vector<int64_t> sentences, rows;
        for (int64_t m = 0; m < M; m++) {
            sentences.push_back(sentences_[chosen[m]]);
            for (int64_t i = 0; i < n_hypotheses_; i++) rows.push_back(chosen[m] * n_hypotheses_ + i);
        }
        sentences_.swap(sentences);
        reorder(rows.data(), rows.size());
    }

  private:
    using Memory = std::vector<Buffer<float>>;  // for each token written the keys and values (R, 2D) of that step

    void look_back(const SelfAttention& own, const float* code, Memory& memory) {
        const int64_t D = stream_.D, R = stream_.R;
        stream_.residual(own.norm, [&](const float* in) {
            stream_.times(own.qkv, in, stream_.wide);
            memory.emplace_back(R * 2 * D);
            const int64_t n = memory.size();
            each(R, n * D * 8, stream_.threads, [&](int64_t r) {
                thread_local Buffer<const float*> keys;
                float* qkv = stream_.wide + r * 3 * D;
                stream_.turn(qkv, code);
                std::memcpy(memory.back().get() + r * 2 * D, qkv + D, 2 * D * sizeof(float));
                keys.room(n);
                for (int64_t t = 0; t < n; t++) keys.get()[t] = memory[t].get() + ancestors_[r][t] * 2 * D;
                model_.heads.look(qkv, keys.get(), n, stream_.mixed + r * D);
            });
            stream_.times(own.out, stream_.mixed, stream_.wide);
            return stream_.wide;
        });
    }

    void look_across(const CrossAttention& cross, const float* source) {
        const int64_t D = stream_.D, mean = starts_.back() / std::max<int64_t>(starts_.size() - 1, 1);
        stream_.residual(cross.norm, [&](const float* in) {
            stream_.times(cross.q, in, stream_.wide);
            each(sentences_.size(), n_hypotheses_ * mean * D * 8, stream_.threads, [&](int64_t b) {
                const int64_t first = starts_[sentences_[b]], last = starts_[sentences_[b] + 1];
                std::vector<const float*> keys;
                for (int64_t t = first; t < last; t++) keys.push_back(source + t * 2 * D);
                for (int64_t r = b * n_hypotheses_; r < (b + 1) * n_hypotheses_; r++)
                    model_.heads.look(stream_.wide + r * D, keys.data(), keys.size(), stream_.mixed + r * D);
            });
            stream_.times(cross.out, stream_.mixed, stream_.wide);
            return stream_.wide;
        });
    }

    const Model& model_;
    const int64_t n_hypotheses_;
    int64_t V_;
    std::unique_ptr<Linear> some_;  // the map to those words that may be said, where not all may
    Stream stream_;
    const std::vector<int64_t> starts_;
    std::vector<int64_t> sentences_;                // those that are left
    std::vector<Buffer<float>> across_;             // keys and values of the source (tokens, 2D) for each layer
    std::vector<Memory> back_;                      // and of what was written
    std::vector<std::vector<int32_t>> ancestors_;   // for each hypothesis its row at each step
    Buffer<float> logits_;
};

}  // namespace regard
