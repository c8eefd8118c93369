// The functions that Python calls, most of which return a status.
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include <new>

#include "beam_search.h"

using namespace regard;

namespace {

enum Status { SUCCESS = 0, OUT_OF_MEMORY = 1, INVALID_TOKEN = 2, INVALID_ROW = 3 };

// Call a function; no exception may leave C++.
template <typename Function>
int guard(Function function) noexcept {
    try {
        return function();
    } catch (const std::bad_alloc&) {
        return OUT_OF_MEMORY;
    }
}

bool all_below(const int64_t* indices, int64_t n, int64_t end) {
    for (int64_t i = 0; i < n; i++)
        if (indices[i] < 0 || indices[i] >= end) return false;
    return true;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// The best of the levels of build.py that this processor has.
int regard_best_level() {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return 1;
    return __builtin_cpu_supports("avx512vnni") ? 3 : 2;
#elif defined(__aarch64__) && defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? 1 : 0;
#else
    return 0;
#endif
}

int regard_model_new(const ModelConfig* config, NextArray next, Model** model) {
    return guard([&] {
        *model = new Model(*config, next);
        return SUCCESS;
    });
}

void regard_model_free(Model* model) { delete model; }

// Encode source sentences, and make the decoder of their hypotheses.
int regard_decoder_new(const Model* model, const SourceBatch* src, int64_t n_hypotheses, int threads,
                       Decoder** decoder) {
    return guard([&] {
        for (int64_t b = 0; b < src->B; b++)
            if (!all_below(src->ids + b * src->S, src->lengths[b], model->config.src_vocab_size)) return INVALID_TOKEN;
        *decoder = new Decoder(*model, *src, n_hypotheses, threads);
        return SUCCESS;
    });
}

void regard_decoder_free(Decoder* decoder) { delete decoder; }

int regard_decoder_step(Decoder* decoder, const int64_t* tokens, const float* position, int threads, float* logits) {
    return guard([&] {
        const int64_t R = decoder->n_rows(), V = decoder->n_logits();
        if (!all_below(tokens, R, decoder->config().tgt_vocab_size)) return INVALID_TOKEN;
        std::memcpy(logits, decoder->step(tokens, position, threads), R * V * sizeof(float));
        return SUCCESS;
    });
}

int regard_decoder_top_k(Decoder* decoder, const int64_t* tokens, const float* position, const TopKOptions* options,
                         int threads, float* log_probs, int64_t* next_tokens) {
    return guard([&] {
        const int64_t R = decoder->n_rows(), V = decoder->n_logits();
        if (!all_below(tokens, R, decoder->config().tgt_vocab_size)) return INVALID_TOKEN;
        if (options->forced && !all_below(options->forced, R, V)) return INVALID_TOKEN;
        top_k(decoder->step(tokens, position, threads), R, V, *options, threads, log_probs, next_tokens);
        return SUCCESS;
    });
}

int regard_decoder_reorder(Decoder* decoder, const int64_t* rows, int64_t R) {
    return guard([&] {
        if (!all_below(rows, R, decoder->n_rows())) return INVALID_ROW;
        decoder->reorder(rows, R);
        return SUCCESS;
    });
}

int regard_decoder_keep(Decoder* decoder, const int64_t* sentences, int64_t M) {
    return guard([&] {
        if (!all_below(sentences, M, decoder->n_sentences())) return INVALID_ROW;
        decoder->keep(sentences, M);
        return SUCCESS;
    });
}

// Prepare a search, which then runs a few steps per call, so that Python can interrupt it.
int regard_beam_search_new(Decoder* decoder, const BeamSearchArgs* args, BeamSearch** search) {
    return guard([&] {
        const int64_t vocab_size = decoder->config().tgt_vocab_size;
        if (args->shortlist && !all_below(args->shortlist, args->n_shortlist, vocab_size)) return INVALID_TOKEN;
        if (!all_below(&args->first_token, 1, args->shortlist ? 1 : vocab_size)) return INVALID_TOKEN;
        *search = new BeamSearch(*decoder, *args);
        return SUCCESS;
    });
}

int regard_beam_search_advance(BeamSearch* search, int64_t n_steps, int threads, int* done) {
    return guard([&] {
        *done = search->advance(n_steps, threads);
        return SUCCESS;
    });
}

void regard_beam_search_free(BeamSearch* search) { delete search; }

}  // extern "C"
#pragma GCC visibility pop
