// Beam search from the first token to the last, as `Beams` in Python decides; beam 1 is greedy search.
#pragma once

#include <functional>
#include <limits>

#include "likeliest.h"
#include "writer.h"

namespace regard {

constexpr double NOTHING = -std::numeric_limits<double>::infinity();
constexpr int64_t BOS = 2, EOS = 3;

// What is wanted, and where what was decided at each age is written, (B, T, N) each; `Record` in Python has the same.
struct Search {
    int64_t N, n_best, first, T;  // hypotheses, ends that are wanted, the least token that is said, the longest limit
    double length_penalty;
    const int64_t* limits;  // (B)
    const int64_t* words;   // that may be said, or null: all from `first` on
    int64_t n_words;
    const float* codes;     // (T, code): what belongs to each place
    int32_t *tokens, *parents, *end_parents;
    double *gains, *end_gains, *totals, *end_totals;
    int64_t* lengths;  // (B): tokens that each had when it was over
};

// One continuation of a sentence's hypotheses.
struct Continuation {
    double total;
    float gain;
    int64_t token;
    int32_t parent;
};

class Sentence {
  public:
    Sentence(const Search& search, int64_t number)
        : search_(search), number_(number), totals_(search.N, NOTHING), standing_(search.n_best, NOTHING),
          last_(search.N, BOS), parents_(search.N) {
        totals_[0] = 0.0;  // all begin alike
    }

    int64_t number() const { return number_; }
    const std::vector<int64_t>& last() const { return last_; }
    const std::vector<int32_t>& parents() const { return parents_; }

    // Goes on with the N best of k continuations of each hypothesis; tells whether the sentence is over then.
    bool advance(const float* gains, const int64_t* tokens, int64_t k, int64_t age) {
        find_best(gains, tokens, k);
        const int64_t N = search_.N, column = (number_ * search_.T + age) * N;
        for (int64_t i = 0; i < N; i++) note_end(best_[i], column + i, age + 1);
        int64_t n = 0;
        for (const Continuation& each : best_)
            if (each.token != EOS && n < N) go_on(each, n, column + n), n++;
        const double reach = search_.length_penalty > 0 ? search_.limits[number_] : age + 2;
        const double best = *std::max_element(totals_.begin(), totals_.end());
        const double bound = best / std::pow(reach, search_.length_penalty);
        return n_ended_ >= N || bound <= standing_.back() || search_.limits[number_] <= age + 1;
    }

  private:
    // Finds the 2N best, of which at most N are ends: of equal ones the first stays first.
    void find_best(const float* gains, const int64_t* tokens, int64_t k) {
        all_.clear();
        for (int64_t j = 0; j < search_.N * k; j++)
            all_.push_back({totals_[j / k] + double(gains[j]), gains[j], tokens[j], int32_t(j / k)});
        const auto better = [](const Continuation& a, const Continuation& b) { return a.total > b.total; };
        std::stable_sort(all_.begin(), all_.end(), better);
        best_.assign(all_.begin(), all_.begin() + std::min<int64_t>(2 * search_.N, all_.size()));
    }

    void note_end(const Continuation& one, int64_t at, int64_t length) {
        const double total = one.token == EOS ? one.total : NOTHING;
        search_.end_parents[at] = one.parent, search_.end_gains[at] = one.gain, search_.end_totals[at] = total;
        if (total == NOTHING) return;
        n_ended_++;
        const double score = total / std::pow(double(length), search_.length_penalty);
        if (score > standing_.back()) standing_.back() = score;
        std::sort(standing_.begin(), standing_.end(), std::greater<double>());
    }

    void go_on(const Continuation& one, int64_t n, int64_t at) {
        search_.tokens[at] = one.token, search_.parents[at] = one.parent;
        search_.gains[at] = one.gain, search_.totals[at] = one.total;
        totals_[n] = one.total, last_[n] = one.token, parents_[n] = one.parent;
    }

    const Search& search_;
    const int64_t number_;
    std::vector<double> totals_, standing_;  // of the hypotheses; the best scores of ends, largest first
    std::vector<int64_t> last_;
    std::vector<int32_t> parents_;
    std::vector<Continuation> all_, best_;
    int64_t n_ended_ = 0;
};

// All sentences of a batch, which are of one age; the writer outlives it.
class Searching {
  public:
    Searching(Writer& writer, const Search& search)
        : writer_(writer), search_(search), V_(search.words ? search.n_words : writer.V()),
          choice_{std::min(search.N + 1, V_), search.words ? 0 : search.first, nullptr} {
        if (search.words) writer.narrow(search.words, search.n_words);
        for (int64_t b = 0; b < writer.n_sentences(); b++) sentences_.emplace_back(search_, b);
        said_.resize(sentences_.size() * search.N * choice_.k), gains_.resize(said_.size());
    }

    // Takes so many steps, or as many as there are; tells whether all sentences are over.
    bool go_on(int64_t n_steps, int threads) {
        for (; n_steps > 0 && !sentences_.empty(); n_steps--) step(threads);
        return sentences_.empty();
    }

  private:
    void step(int threads) {
        tokens_.clear(), rows_.clear(), left_.clear();
        for (const Sentence& each : sentences_) tokens_.insert(tokens_.end(), each.last().begin(), each.last().end());
        const float* code = search_.codes + age_ * writer_.model().sizes.code();
        const float* logits = writer_.step(tokens_.data(), code, threads);
        likeliest(logits, tokens_.size(), V_, choice_, threads, gains_.data(), said_.data());
        if (search_.words)
            for (size_t i = 0; i < tokens_.size() * choice_.k; i++) said_[i] = search_.words[said_[i]];
        const int64_t N = search_.N, each_has = N * choice_.k;
        std::vector<Sentence> going;
        for (size_t i = 0; i < sentences_.size(); i++) {
            const bool over = sentences_[i].advance(&gains_[i * each_has], &said_[i * each_has], choice_.k, age_);
            for (int32_t parent : sentences_[i].parents()) rows_.push_back(i * N + parent);
            if (over) {
                search_.lengths[sentences_[i].number()] = age_ + 1;
            } else {
                left_.push_back(i);
                going.push_back(std::move(sentences_[i]));
            }
        }
        if (N > 1) writer_.reorder(rows_.data(), rows_.size());
        if (left_.size() < sentences_.size()) writer_.keep(left_.data(), left_.size());
        sentences_.swap(going);
        age_++;
    }

    Writer& writer_;
    const Search search_;
    const int64_t V_;
    const Choice choice_;
    std::vector<Sentence> sentences_;
    std::vector<int64_t> tokens_, rows_, left_, said_;
    std::vector<float> gains_;
    int64_t age_ = 0;
};

}  // namespace regard
