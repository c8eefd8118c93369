// Memory for the packed weights of a model: a few large regions instead of one for each matrix, in huge pages where the
// system has them. A page of 4 KiB costs a microsecond when it is first written: 5 ms for 20 MB.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

namespace regard {

// Hands out memory that lives as long as one who was given some of the same region.
class WeightsMemory {
  public:
    template <typename T>
    std::shared_ptr<T> take(size_t n) {
        const size_t bytes = (n * sizeof(T) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
        if (used_ + bytes > size_) {
            size_ = (std::max(bytes, REGION) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
            region_ = map(size_);
            used_ = 0;
        }
        char* data = region_.get() + used_;
        used_ += bytes;
        return {region_, reinterpret_cast<T*>(data)};
    }

    // Memory by itself, for a matrix that is soon gone.
    template <typename T>
    static std::shared_ptr<T> alone(size_t n) {
        const std::align_val_t alignment{CACHE_LINE};
        return {static_cast<T*>(::operator new(n * sizeof(T), alignment)),
                [alignment](T* data) { ::operator delete(data, alignment); }};
    }

  private:
    static constexpr size_t REGION = size_t(16) << 20, HUGE_PAGE = size_t(2) << 20, CACHE_LINE = 64;

    static std::shared_ptr<char> map(size_t size) {
        void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
        madvise(data, size, MADV_HUGEPAGE);
#endif
        return {static_cast<char*>(data), [size](char* region) { munmap(region, size); }};
    }

    std::shared_ptr<char> region_;
    size_t used_ = 0, size_ = 0;
};

}  // namespace regard
