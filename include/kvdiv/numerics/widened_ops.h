#pragma once
// Backends with part of their arithmetic in FP32 where the model has 16 bits. Each wraps the operations of a backend and calls
// them with widened operands, so that the order of every sum is that backend's order for FP32.
//
// What is still rounded to 16 bits, beside what the wrapped backend rounds in FP32:
//   attention      the products of linear, rotary, norms, activations and residual sums; of attention its result, once
//   accumulation   everything that the model stores: a product when its sum is done, a scaled score, a weight, a mix
//   arithmetic     nothing but the weights themselves
#include <memory>

#include "kvdiv/numerics/ops.h"

namespace kvdiv {

/// q, k and v are widened; scores, softmax and mix are in FP32, computed by `wide`, and the result is rounded once to the
/// dtype of q. Taps see the scores, weights and mix in FP32. Everything else is `wrapped`'s.
std::shared_ptr<const Ops> float32_attention(std::shared_ptr<const Ops> wrapped, std::shared_ptr<const Ops> wide);

/// Operands stay in 16 bits; every product is summed in FP32 and rounded once when it is stored. A score is stored when
/// it is scaled, where the eager reference rounds before and after: one rounding less, none for a scale that is a power
/// of two. A fused attention stores no scores and is rounded once, at its end. Softmax and norms sum in FP32 as they
/// are. A weight is widened at each call: that costs time and one matrix.
std::shared_ptr<const Ops> float32_accumulation(std::shared_ptr<const Ops> wrapped);

/// For a decoder of float32 whose weights are left in 16 bits: each is widened by the operation that reads it, and what it
/// returns is float32.
std::shared_ptr<const Ops> float32_arithmetic(std::shared_ptr<const Ops> wrapped);

}  // namespace kvdiv
