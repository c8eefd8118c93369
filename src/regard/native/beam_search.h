// Beam search over a batch, with the decisions of the reference in Python; a beam of 1 is greedy search.
#pragma once

#include <functional>

#include "decoder.h"
#include "topk.h"

namespace regard {

constexpr int64_t PAD = 0, BOS = 2, EOS = 3;  // as in Python

// When a sentence is done before its maximum length, besides where nothing better can be found.
enum class EarlyStopping : int64_t { full = 0, heuristic = 1, never = 2 };

// Filled in by Python: the settings, and arrays for the history of the search, from which Python traces back the
// hypotheses.
struct BeamSearchArgs {
    int64_t N, n_best;  // hypotheses that are continued, and finished ones that are wanted
    int64_t min_token;  // smaller tokens are never generated
    int64_t T;          // the largest of max_lengths
    int64_t n_scores;   // best scores of finished hypotheses that are remembered
    EarlyStopping early_stopping;
    int64_t first_token;  // that every hypothesis begins with, at no cost; PAD: none
    int64_t forced_end;   // whether hypotheses end at their maximum length, at no cost
    double length_penalty;
    const int64_t* max_lengths;  // (B)
    const int64_t* shortlist;    // tokens that may be generated, EOS among them; null: all from min_token on
    int64_t n_shortlist;
    const float* positions;  // (T, position_width)
    // (B, T, N): hypotheses that go on, and those that end, at each step. A parent is the index, within its sentence,
    // of the hypothesis that is continued; totals are sums of log-probabilities, -∞ where nothing ends.
    int32_t *tokens, *parents, *end_parents;
    double *log_probs, *end_log_probs, *totals, *end_totals;
    int64_t* lengths;  // (B): steps until the sentence was done
};

// A hypothesis continued by one token.
struct Candidate {
    double total;
    float log_prob;
    int64_t token;
    int32_t parent;
};

// The hypotheses of one sentence.
class Beam {
  public:
    Beam(const BeamSearchArgs& args, int64_t sentence)
        : args_(args),
          sentence_(sentence),
          totals_(args.N, NEG_INF),
          best_scores_(args.n_scores, NEG_INF),
          last_tokens_(args.N, BOS),
          parents_(args.N),
          candidates_(2 * args.N) {
        totals_[0] = 0.0;  // all hypotheses begin alike, so one is enough
    }

    int64_t sentence() const { return sentence_; }
    const std::vector<int64_t>& last_tokens() const { return last_tokens_; }
    const std::vector<int32_t>& parents() const { return parents_; }

    // Continue with the N best of k continuations (N, k) of each hypothesis; return whether the sentence is done.
    bool advance(const float* log_probs, const int64_t* tokens, int64_t k, int64_t step) {
        const int64_t N = args_.N, at = (sentence_ * args_.T + step) * N;
        const bool forced = args_.forced_end && step + 1 == args_.max_lengths[sentence_];
        const int64_t n = forced ? end_all() : find_candidates(log_probs, tokens, k);
        for (int64_t i = 0; i < N; i++) record_end(candidates_[i], at + i, step + 1);
        int64_t n_continued = 0;
        for (int64_t i = 0; i < n && n_continued < N; i++)
            if (candidates_[i].token != EOS) extend(candidates_[i], n_continued, at + n_continued), n_continued++;
        for (int64_t i = n_continued; i < N; i++) args_.totals[at + i] = NEG_INF;
        return is_done(step + 1);
    }

  private:
    // Find the 2N best candidates, of which at most N are ends, and return how many there are.
    int64_t find_candidates(const float* log_probs, const int64_t* tokens, int64_t k) {
        const auto better = [](const Candidate& a, const Candidate& b) { return a.total > b.total; };
        int64_t n = 0;
        for (int64_t j = 0; j < args_.N * k; j++) {
            const Candidate candidate{totals_[j / k] + double(log_probs[j]), log_probs[j], tokens[j], int32_t(j / k)};
            n = insert_top_k(candidates_.data(), n, 2 * args_.N, candidate, better);
        }
        return n;
    }

    // Let every hypothesis end, at no cost.
    int64_t end_all() {
        const auto better = [](const Candidate& a, const Candidate& b) { return a.total > b.total; };
        int64_t n = 0;
        for (int64_t i = 0; i < args_.N; i++)
            n = insert_top_k(candidates_.data(), n, 2 * args_.N, Candidate{totals_[i], 0.0f, EOS, int32_t(i)}, better);
        return n;
    }

    void record_end(const Candidate& candidate, int64_t at, int64_t length) {
        const double total = candidate.token == EOS ? candidate.total : NEG_INF;
        args_.end_parents[at] = candidate.parent;
        args_.end_log_probs[at] = candidate.log_prob, args_.end_totals[at] = total;
        if (total == NEG_INF) return;
        n_finished_++;
        insert_top_k(best_scores_.data(), args_.n_scores, args_.n_scores, score(total, length), std::greater<double>());
    }

    void extend(const Candidate& candidate, int64_t i, int64_t at) {
        args_.tokens[at] = candidate.token, args_.parents[at] = candidate.parent;
        args_.log_probs[at] = candidate.log_prob, args_.totals[at] = candidate.total;
        totals_[i] = candidate.total, last_tokens_[i] = candidate.token, parents_[i] = candidate.parent;
    }

    double score(double total, double length) const { return total / std::pow(length, args_.length_penalty); }

    // A sentence is done with N finished hypotheses, at its maximum length, or when no hypothesis can reach the last of
    // the best finished ones: its total never grows, so its best possible score is that of its total at the longest
    // length for a positive penalty, and at the next length otherwise. The heuristic takes its score at this length.
    bool is_done(int64_t length) const {
        const int64_t max_length = args_.max_lengths[sentence_];
        const double best_total = *std::max_element(totals_.begin(), totals_.end());
        const double bound = score(best_total, args_.length_penalty > 0 ? max_length : length + 1);
        if (bound <= best_scores_.back() || max_length <= length) return true;
        if (args_.early_stopping == EarlyStopping::full) return n_finished_ >= args_.N;
        return args_.early_stopping == EarlyStopping::heuristic && score(best_total, length) <= best_scores_.back();
    }

    const BeamSearchArgs& args_;
    const int64_t sentence_;
    std::vector<double> totals_;
    std::vector<double> best_scores_;  // the n_scores of finished hypotheses, largest first
    std::vector<int64_t> last_tokens_;
    std::vector<int32_t> parents_;
    std::vector<Candidate> candidates_;
    int64_t n_finished_ = 0;
};

// The search of a batch, all of whose hypotheses have the same length; the decoder outlives it.
class BeamSearch {
  public:
    BeamSearch(Decoder& decoder, const BeamSearchArgs& args) : decoder_(decoder), args_(args) {
        if (args.shortlist) decoder.set_shortlist(args.shortlist, args.n_shortlist);
        // One hypothesis needs at most N + 1 continuations: it may end, and be continued in N ways.
        options_ = {std::min(args.N + 1, decoder.n_logits()), args.shortlist ? 0 : args.min_token, nullptr};
        for (int64_t b = 0; b < decoder.n_sentences(); b++) beams_.emplace_back(args_, b);
        next_tokens_.resize(beams_.size() * args.N * options_.k), log_probs_.resize(next_tokens_.size());
    }

    // Take n_steps, or fewer if the search ends before; return whether all sentences are done.
    bool advance(int64_t n_steps, int threads) {
        for (; n_steps > 0 && !beams_.empty(); n_steps--) {
            predict(threads);
            select();
            step_++;
        }
        return beams_.empty();
    }

  private:
    // Run the decoder on the last tokens, and find the best continuations of each hypothesis, (R, k).
    void predict(int threads) {
        std::vector<int64_t> tokens;
        for (const Beam& beam : beams_)
            tokens.insert(tokens.end(), beam.last_tokens().begin(), beam.last_tokens().end());
        const int64_t R = tokens.size();
        const float* position = args_.positions + step_ * decoder_.config().position_width();
        const float* logits = decoder_.step(tokens.data(), position, threads);
        const bool begins = step_ == 0 && args_.first_token != PAD;
        const std::vector<int64_t> first(begins ? R : 0, args_.first_token);
        options_.forced = begins ? first.data() : nullptr;
        top_k(logits, R, decoder_.n_logits(), options_, threads, log_probs_.data(), next_tokens_.data());
        for (int64_t r = 0; begins && r < R; r++) log_probs_[r * options_.k] = 0.0f;
        for (int64_t i = 0; args_.shortlist && i < R * options_.k; i++)
            next_tokens_[i] = args_.shortlist[next_tokens_[i]];
    }

    // Let every beam choose among them, and drop the sentences that are done.
    void select() {
        const int64_t N = args_.N, k = options_.k;
        std::vector<int64_t> rows, remaining;
        std::vector<Beam> unfinished;
        for (size_t i = 0; i < beams_.size(); i++) {
            const bool done = beams_[i].advance(&log_probs_[i * N * k], &next_tokens_[i * N * k], k, step_);
            for (int32_t parent : beams_[i].parents()) rows.push_back(i * N + parent);
            if (done) {
                args_.lengths[beams_[i].sentence()] = step_ + 1;
            } else {
                remaining.push_back(i);
                unfinished.push_back(std::move(beams_[i]));
            }
        }
        if (N > 1) decoder_.reorder(rows.data(), rows.size());
        if (remaining.size() < beams_.size()) decoder_.keep(remaining.data(), remaining.size());
        beams_.swap(unfinished);
    }

    Decoder& decoder_;
    const BeamSearchArgs args_;
    TopKOptions options_;
    std::vector<Beam> beams_;
    std::vector<int64_t> next_tokens_;
    std::vector<float> log_probs_;
    int64_t step_ = 0;
};

}  // namespace regard
