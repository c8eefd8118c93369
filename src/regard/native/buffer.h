// Aligned memory that is as large as it was ever asked to be, and not filled.
#pragma once

#include <cstddef>
#include <new>

namespace regard {

template <typename T>
class Buffer {
  public:
    Buffer() = default;
    explicit Buffer(size_t size) { room(size); }
    Buffer(Buffer&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr, other.size_ = 0; }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer() { release(); }

    // Gives memory for so many; what was in it before is lost where it must grow.
    T* room(size_t size) {
        if (size > size_) {
            release();
            data_ = static_cast<T*>(::operator new(size * sizeof(T), ALIGNMENT));
            size_ = size;
        }
        return data_;
    }

    T* get() const { return data_; }

  private:
    static constexpr std::align_val_t ALIGNMENT{64};

    void release() {
        if (data_) ::operator delete(data_, ALIGNMENT);
        data_ = nullptr, size_ = 0;
    }

    T* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace regard
