#pragma once
// Enums that appear in flags, reports and messages: each lists its names once, in one array.
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kvdiv/base/error.h"

namespace kvdiv {

/// Specialise with `static constexpr std::array<std::pair<E, std::string_view>, N> values` and `static constexpr
/// std::string_view what` (for messages: "dtype").
template <class E>
struct EnumNames;

template <class E>
concept NamedEnum = requires {
  EnumNames<E>::values;
};

template <NamedEnum E>
constexpr std::string_view name_of(E value) {
  for (const auto& [v, name] : EnumNames<E>::values)
    if (v == value) return name;
  return "?";
}

template <NamedEnum E>
std::optional<E> find_enum(std::string_view text) {
  for (const auto& [v, name] : EnumNames<E>::values)
    if (name == text) return v;
  return std::nullopt;
}

template <NamedEnum E>
std::string all_names() {
  std::string out;
  for (const auto& [v, name] : EnumNames<E>::values) out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

enum class DType { float16, bfloat16, float32, float64 };
template <>
struct EnumNames<DType> {
  static constexpr std::string_view what = "dtype";
  static constexpr std::array<std::pair<DType, std::string_view>, 4> values{{{DType::float16, "float16"},
                                                                             {DType::bfloat16, "bfloat16"},
                                                                             {DType::float32, "float32"},
                                                                             {DType::float64, "float64"}}};
};

/// Bytes of one element.
constexpr int size_of(DType dtype) { return dtype == DType::float64 ? 8 : dtype == DType::float32 ? 4 : 2; }

enum class Activation { silu, gelu_tanh };
template <>
struct EnumNames<Activation> {
  static constexpr std::string_view what = "activation";
  static constexpr std::array<std::pair<Activation, std::string_view>, 2> values{
      {{Activation::silu, "silu"}, {Activation::gelu_tanh, "gelu_pytorch_tanh"}}};
};

enum class Clock { forced, free, both };
template <>
struct EnumNames<Clock> {
  static constexpr std::string_view what = "clock";
  static constexpr std::array<std::pair<Clock, std::string_view>, 3> values{
      {{Clock::forced, "forced"}, {Clock::free, "free"}, {Clock::both, "both"}}};
};

enum class Strategy { greedy, top_k, top_p };
template <>
struct EnumNames<Strategy> {
  static constexpr std::string_view what = "strategy";
  static constexpr std::array<std::pair<Strategy, std::string_view>, 3> values{
      {{Strategy::greedy, "greedy"}, {Strategy::top_k, "top-k"}, {Strategy::top_p, "top-p"}}};
};

enum class Arm { on, off };
template <>
struct EnumNames<Arm> {
  static constexpr std::string_view what = "arm";
  static constexpr std::array<std::pair<Arm, std::string_view>, 2> values{{{Arm::on, "on"}, {Arm::off, "off"}}};
};

}  // namespace kvdiv
