// Loops of independent iterations, shared among threads where that pays.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace regard {

// Multiplications (40 µs in float32, 10 µs in int8) below which waking a second thread costs more than it saves: with
// a twentieth of this, two threads took up to three times as long as one for a batch of one sentence.
constexpr int64_t MIN_PARALLEL_COST = 2000000;
constexpr int SPINS = 2000;  // looks for the next loop, some 50 µs in all, before a thread goes to sleep

inline void pause_briefly() {
#if defined(__SSE2__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// The threads that help one thread with its loops. Whoever is free takes the next iterations, so that the loop does not
// wait for a thread that sleeps or that the system has taken off its core.
class Helpers {
  public:
    Helpers() = default;
    Helpers(const Helpers&) = delete;
    Helpers& operator=(const Helpers&) = delete;

    ~Helpers() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            ends_ = true;
            n_loops_++;
        }
        wake_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

    // Whether the threads are of this process: a fork leaves them behind.
    bool are_here() const { return process_ == getpid(); }

    void run(int64_t n, int threads, const std::function<void(int64_t)>& function) {
        const int wanted = int(std::min<int64_t>(threads, n));
        hire(wanted - 1);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            function_ = &function, end_ = n, grain_ = std::max<int64_t>(1, n / (8 * wanted)), next_ = 0;
            n_free_ = wanted - 1;
            n_loops_++;
        }
        wake_.notify_all();
        work(function);
        std::unique_lock<std::mutex> lock(mutex_);
        n_free_ = 0;  // who wakes up now comes too late
        done_.wait(lock, [&] { return n_working_ == 0; });
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    }

  private:
    void hire(int wanted) {
        try {
            while (int(threads_.size()) < wanted) threads_.emplace_back([this] { help(); });
        } catch (const std::system_error&) {  // the system gives no more: those that are here do the work
        }
    }

    void help() {
        for (int64_t seen = 0;;) {
            for (int i = 0; i < SPINS && n_loops_ == seen; i++) pause_briefly();
            std::unique_lock<std::mutex> lock(mutex_);
            wake_.wait(lock, [&] { return n_loops_ != seen; });
            seen = n_loops_;
            if (ends_) return;
            if (n_free_ == 0) continue;
            n_free_--, n_working_++;
            const std::function<void(int64_t)>& function = *function_;  // outlives this: run() waits for who is at work
            lock.unlock();
            work(function);
            lock.lock();
            if (--n_working_ == 0) done_.notify_one();
        }
    }

    // Take iterations until none are left.
    void work(const std::function<void(int64_t)>& function) {
        try {
            for (int64_t first; (first = next_.fetch_add(grain_)) < end_;)
                for (int64_t i = first; i < std::min(first + grain_, end_); i++) function(i);
        } catch (...) {
            std::lock_guard<std::mutex> lock(mutex_);
            failure_ = std::current_exception();
            next_ = end_;
        }
    }

    const pid_t process_ = getpid();
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    std::atomic<int64_t> n_loops_{0}, next_{0};
    const std::function<void(int64_t)>* function_ = nullptr;
    int64_t end_ = 0, grain_ = 1;
    int n_free_ = 0, n_working_ = 0;  // helpers that may still come, and that are at work
    bool ends_ = false;
    std::exception_ptr failure_;
    std::vector<std::thread> threads_;
};

// Each thread that asks has helpers of its own, which end with it.
struct HelpersOfThread {
    Helpers& get() {
        if (helpers && !helpers->are_here()) helpers.release();  // their threads cannot be ended from this process
        if (!helpers) helpers = std::make_unique<Helpers>();
        return *helpers;
    }

    ~HelpersOfThread() {
        if (helpers && !helpers->are_here()) helpers.release();
    }

    std::unique_ptr<Helpers> helpers;
};

inline Helpers& own_helpers() {
    thread_local HelpersOfThread own;
    return own.get();
}

// Call function(0) … function(n - 1); `cost` is the number of multiplications in one call.
template <typename Function>
inline void parallel_for(int64_t n, int64_t cost, int threads, Function function) {
    if (threads <= 1 || n <= 1 || n * cost < MIN_PARALLEL_COST) {
        for (int64_t i = 0; i < n; i++) function(i);
        return;
    }
    own_helpers().run(n, threads, std::ref(function));
}

}  // namespace regard
