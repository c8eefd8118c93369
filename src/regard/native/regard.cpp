// The door: plain functions that Python calls, each telling whether it went well.
#include <new>

#include "search.h"

using namespace regard;

namespace {

enum Outcome { DONE = 0, NO_MEMORY = 1, NO_SUCH_TOKEN = 2, NO_SUCH_ROW = 3 };

template <typename Function>
int guarded(Function function) noexcept {
    try {
        return function();
    } catch (const std::bad_alloc&) {
        return NO_MEMORY;
    }
}

bool known(const int64_t* indices, int64_t n, int64_t end) {
    for (int64_t i = 0; i < n; i++)
        if (indices[i] < 0 || indices[i] >= end) return false;
    return true;
}

}  // namespace

extern "C" {

// Whether products of bytes have an instruction of their own here.
int regard_bytes_are_quick() { return QUICK; }

int regard_model(const Sizes* sizes, const float* const* arrays, Model** made) {
    return guarded([&] {
        *made = new Model(*sizes, arrays);
        return DONE;
    });
}

void regard_forget_model(Model* model) { delete model; }

// Reads source sentences, and makes the writer of their hypotheses.
int regard_start(const Model* model, const Sentences* src, int64_t n_hypotheses, int threads, Writer** made) {
    return guarded([&] {
        for (int64_t b = 0; b < src->B; b++)
            if (!known(src->ids + b * src->S, src->lengths[b], model->sizes.src_words)) return NO_SUCH_TOKEN;
        *made = new Writer(*model, *src, n_hypotheses, threads);
        return DONE;
    });
}

void regard_forget_writer(Writer* writer) { delete writer; }

int regard_step(Writer* writer, const int64_t* tokens, const float* code, int threads, float* logits) {
    return guarded([&] {
        const int64_t R = writer->rows(), V = writer->model().sizes.tgt_words;
        if (!known(tokens, R, V)) return NO_SUCH_TOKEN;
        std::memcpy(logits, writer->step(tokens, code, threads), R * V * sizeof(float));
        return DONE;
    });
}

int regard_likeliest(Writer* writer, const int64_t* tokens, const float* code, const Choice* choice, int threads,
                     float* gains, int64_t* said) {
    return guarded([&] {
        const int64_t R = writer->rows(), V = writer->model().sizes.tgt_words;
        if (!known(tokens, R, V) || (choice->must && !known(choice->must, R, V))) return NO_SUCH_TOKEN;
        likeliest(writer->step(tokens, code, threads), R, V, *choice, threads, gains, said);
        return DONE;
    });
}

// Begins to write hypotheses to their ends, which is done some steps at a time so that Python can be told to stop.
int regard_search(Writer* writer, const Search* search, Searching** made) {
    return guarded([&] {
        if (search->words && !known(search->words, search->n_words, writer->V())) return NO_SUCH_TOKEN;
        *made = new Searching(*writer, *search);
        return DONE;
    });
}

int regard_go_on(Searching* searching, int64_t n_steps, int threads, int* over) {
    return guarded([&] {
        *over = searching->go_on(n_steps, threads);
        return DONE;
    });
}

void regard_forget_search(Searching* searching) { delete searching; }

int regard_reorder(Writer* writer, const int64_t* rows, int64_t R) {
    return guarded([&] {
        if (!known(rows, R, writer->rows())) return NO_SUCH_ROW;
        writer->reorder(rows, R);
        return DONE;
    });
}

int regard_keep(Writer* writer, const int64_t* sentences, int64_t M) {
    return guarded([&] {
        if (!known(sentences, M, writer->n_sentences())) return NO_SUCH_ROW;
        writer->keep(sentences, M);
        return DONE;
    });
}

}  // extern "C"
