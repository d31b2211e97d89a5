#pragma once
// Reduction specs: in which order a sum's terms are added, and how precise the accumulator is. One spec for calls of many
// rows and one for calls of a single row is what makes a kernel's decode step differ from its prefill: the backend
// `order:…` computes so, on any CPU. No torch header.
//
// Grammar of a backend's name, as --backend takes it:
//   order:SPEC                      one order for every call
//   order:prefill=SPEC,decode=SPEC  in either order of the two; both are needed
//   SPEC = sequential | pairwise | blocked:N | split-k:N | kahan, then optionally @float32 (the default) or @float16
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kvdiv/base/enums.h"

namespace kvdiv {

/// n terms p₁ … pₙ, each a product aₖbₖ. "+" is an addition rounded to the accumulator's precision.
enum class SumOrder {
  sequential,  ///< ((p₁ + p₂) + p₃) + …
  pairwise,    ///< halves summed the same way, ⌊n/2⌋ terms first, down to one term
  blocked,     ///< sequential sums of N neighbours (the last of fewer), then sequentially over the blocks
  split_k,  ///< contiguous parts of ⌈n/N⌉ terms (at most N of them), each sequential, then sequentially over the parts
  kahan,  ///< sequential with Kahan's compensation (1965), which is held in the accumulator's precision too
};
template <>
struct EnumNames<SumOrder> {
  static constexpr std::string_view what = "order of summation";
  static constexpr std::array<std::pair<SumOrder, std::string_view>, 5> values{{{SumOrder::sequential, "sequential"},
                                                                                {SumOrder::pairwise, "pairwise"},
                                                                                {SumOrder::blocked, "blocked"},
                                                                                {SumOrder::split_k, "split-k"},
                                                                                {SumOrder::kahan, "kahan"}}};
};

enum class Accumulator { float16, float32 };
template <>
struct EnumNames<Accumulator> {
  static constexpr std::string_view what = "accumulator";
  static constexpr std::array<std::pair<Accumulator, std::string_view>, 2> values{
      {{Accumulator::float16, "float16"}, {Accumulator::float32, "float32"}}};
};

/// Whether an order has a number: the terms of a block, or the parts.
constexpr bool takes_number(SumOrder order) { return order == SumOrder::blocked || order == SumOrder::split_k; }

inline constexpr std::int64_t kLargestReductionNumber = 1'000'000;

struct ReductionSpec {
  SumOrder order = SumOrder::sequential;
  std::int64_t n = 0;  ///< of blocked and split_k, 1 … kLargestReductionNumber; else 0
  Accumulator accumulator = Accumulator::float32;

  bool operator==(const ReductionSpec&) const = default;
  /// "blocked:32", "kahan@float16": as parse_reductions reads it; @float32 is left out.
  std::string name() const;
};

/// The specs of a backend. A call is decode-shaped if it has exactly one row (of a product or a norm) or one query (of
/// attention), else prefill-shaped.
struct Reductions {
  ReductionSpec prefill, decode;

  const ReductionSpec& of(std::int64_t n_rows) const { return n_rows == 1 ? decode : prefill; }
  bool same_order() const { return prefill == decode; }
  bool operator==(const Reductions&) const = default;
  /// "order:SPEC" if both are equal, else "order:prefill=SPEC,decode=SPEC": parse_reductions gives back the same.
  std::string name() const;
};

inline constexpr std::string_view kReductionPrefix = "order:";
/// Reads the whole name, prefix included. Throws Error{usage} that names the piece and what is allowed.
Reductions parse_reductions(std::string_view backend);

/// Σ aₖbₖ of two spans of one length (else an internal error), of numbers that `storage` holds; 0 for no terms. The
/// definition that every kernel of the backend is held to, bit for bit:
/// - accumulator + product is rounded once, to the accumulator, as a fused multiply-add does; a product is never rounded
///   by itself. A product that is a leaf of the pairwise tree, or starts a sum, is added to 0 in the same way; a Kahan
///   term is product − compensation, rounded once.
/// - float64 storage accumulates in double whatever the spec says: it is the arithmetic that others are held against, as
///   it is on the torch backend. The order applies all the same. So `@float16` says nothing about float64.
/// The result is the accumulator, before any rounding for storage. A float16 accumulator overflows to ±inf at 65520.
double ordered_dot(std::span<const double> a, std::span<const double> b, const ReductionSpec& spec, DType storage);

}  // namespace kvdiv
