// Prints the bits of what the compiled sources compute from fixed numbers, a line for each part.
#include <cstdio>
#include <vector>

#include "beam_search.h"

using namespace regard;

static uint32_t seed = 1;
static float next_number() {
    seed = seed * 1664525u + 1013904223u;
    return float(int32_t(seed >> 8) - (1 << 23)) / float(1 << 23);
}

static std::vector<float> numbers(int64_t n) {
    std::vector<float> x(n);
    for (float& each : x) each = next_number();
    return x;
}

static void print(const char* name, const std::vector<float>& x) {
    std::printf("%s", name);
    for (float each : x) std::printf(" %a", each);
    std::printf("\n");
}

int main() {
    constexpr int64_t R = 7, N = 83, K = 67;
    const auto w = numbers(N * K), b = numbers(N), x = numbers(R * K);
    const StackedWeights weights{{{w.data(), nullptr}}, N};
    WeightsMemory memory;
    std::vector<float> y(R * N);
    MatrixF32(weights, b.data(), N, K, memory).multiply(x.data(), R, y.data(), 1);
    print("float32_product", y);
    QuantizedRows rows;
    rows.quantize(x.data(), R, K, 1);
    MatrixI8(weights, b.data(), N, K, memory).multiply(rows, R, y.data(), 2);
    print("int8_product", y);

    for (NormKind kind : {NormKind::layer, NormKind::rms}) {
        std::vector<float> out(K);
        Norm(w.data(), b.data(), 1e-5f, K, kind).forward(x.data(), x.data() + K, out.data());
        print(kind == NormKind::layer ? "layer_norm" : "rms_norm", out);
    }
    for (Activation activation : {Activation::relu, Activation::gelu, Activation::silu}) {
        auto z = numbers(101);
        activate(z.data(), z.size(), activation);
        print(activation == Activation::relu ? "relu" : activation == Activation::gelu ? "gelu" : "silu", z);
    }
    auto scores = numbers(37 + SUM_LANES);
    softmax(scores.data(), 37);
    scores.resize(37);
    print("softmax", scores);
    const auto q = numbers(64), kv = numbers(9 * 128);
    std::vector<const float*> places;
    for (int t = 0; t < 9; t++) places.push_back(kv.data() + t * 128);
    for (int heads : {1, 2, 4, 16}) {
        std::vector<float> out(64);
        MultiHead{heads, 64 / heads, 0.3f}.attend(q.data(), places.data(), 9, out.data());
        char name[32];
        std::snprintf(name, sizeof name, "attention_%d", heads);
        print(name, out);
    }
    const auto logits = numbers(1003);
    float log_probs[5];
    int64_t tokens[5];
    top_k(logits.data(), 1, 1003, TopKOptions{5, 3, nullptr}, 1, log_probs, tokens);
    print("top_k", {log_probs, log_probs + 5});
    std::printf("tokens");
    for (int64_t token : tokens) std::printf(" %ld", long(token));
    std::printf("\n");
}
