// Loops of independent iterations, shared among threads where that pays.
#pragma once

#include <cstdint>

namespace regard {

// Multiplications (40 µs in float32, 10 µs in int8) below which waking a second thread costs more than it saves: with
// a twentieth of this, two threads took up to three times as long as one for a batch of one sentence.
constexpr int64_t MIN_PARALLEL_COST = 2000000;

// Call function(0) … function(n - 1); `cost` is the number of multiplications in one call.
template <typename Function>
inline void parallel_for(int64_t n, int64_t cost, int threads, Function function) {
    if (threads <= 1 || n <= 1 || n * cost < MIN_PARALLEL_COST) {
        for (int64_t i = 0; i < n; i++) function(i);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < n; i++) function(i);
}

}  // namespace regard
