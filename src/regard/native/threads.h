// Loops whose rounds do not depend on each other, shared out among threads.
#pragma once

#include <cstdint>

namespace regard {

// Multiplications (40 µs of floats, 10 of bytes) below which waking a second thread costs more than it does: with a
// twentieth of this, two threads took up to three times as long as one for a batch of one sentence.
constexpr int64_t WORTH_SHARING = 2000000;

template <typename Function>
inline void each(int64_t n, int64_t cost, int threads, Function function) {
    if (threads <= 1 || n <= 1 || n * cost < WORTH_SHARING) {
        for (int64_t i = 0; i < n; i++) function(i);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < n; i++) function(i);
}

}  // namespace regard
