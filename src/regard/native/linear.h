// A linear map in one of two precisions.
#pragma once

#include <memory>

#include "bytes.h"
#include "floats.h"

namespace regard {

enum class Precision : int64_t { float32 = 0, int8 = 1 };

class Linear {
  public:
    Linear(const float* weight, const float* bias, int64_t N, int64_t K, Precision precision) {
        if (precision == Precision::int8)
            bytes_ = std::make_unique<Bytes>(weight, bias, N, K);
        else
            floats_ = std::make_unique<Floats>(weight, bias, N, K);
    }

    // Takes some rows of another.
    Linear(const Linear& from, const int64_t* rows, int64_t N) {
        if (from.bytes_)
            bytes_ = std::make_unique<Bytes>(*from.bytes_, rows, N);
        else
            floats_ = std::make_unique<Floats>(*from.floats_, rows, N);
    }

    // out (R, N) = x (R, K) Wᵀ + b; `rounded` is a place for x in 8 bits
    void times(const float* x, int64_t R, float* out, Rounded& rounded, int threads) const {
        if (floats_) return floats_->times(x, R, out, threads);
        rounded.take(x, R, bytes_->K, threads);
        bytes_->times(rounded, R, out, threads);
    }

  private:
    std::unique_ptr<Floats> floats_;
    std::unique_ptr<Bytes> bytes_;
};

}  // namespace regard
