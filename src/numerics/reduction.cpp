#include "kvdiv/numerics/reduction.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/base/text.h"
#include "order_sums.h"

namespace kvdiv {
namespace {

std::vector<std::string> order_names() {
  std::vector<std::string> out;
  for (const auto& [order, name] : EnumNames<SumOrder>::values) out.emplace_back(name);
  return out;
}

/// "blocked:32@float16" of a backend's name, which messages begin with.
class SpecReader {
 public:
  SpecReader(std::string_view backend, std::string_view text) : backend_(backend), text_(text) {}

  ReductionSpec read() const {
    ReductionSpec spec;
    std::string_view order = text_;
    if (const auto at = text_.find('@'); at != std::string_view::npos) {
      order = text_.substr(0, at);
      spec.accumulator = accumulator(text_.substr(at + 1));
    }
    const auto colon = order.find(':');
    spec.order = order_of(order.substr(0, colon));
    const bool has_number = colon != std::string_view::npos;
    if (takes_number(spec.order) != has_number) refuse_number(spec.order, has_number);
    if (has_number) spec.n = number(order.substr(colon + 1));
    return spec;
  }

 private:
  Accumulator accumulator(std::string_view name) const {
    if (const auto found = find_enum<Accumulator>(name)) return *found;
    fail_usage("--backend {}: '{}' is not an accumulator (available: {})", backend_, name, all_names<Accumulator>());
  }
  SumOrder order_of(std::string_view name) const {
    if (const auto found = find_enum<SumOrder>(name)) return *found;
    if (name.empty())
      fail_usage("--backend {}: an order of summation is missing (available: {})", backend_, available());
    fail_usage("--backend {}: '{}' is not an order of summation{} (available: {})", backend_, name,
               did_you_mean(name, order_names()), available());
  }
  [[noreturn]] void refuse_number(SumOrder order, bool has_number) const {
    const auto name = name_of(order);
    if (has_number) fail_usage("--backend {}: '{}': {} takes no number", backend_, text_, name);
    fail_usage("--backend {}: '{}': {} needs a number, as in {}:32", backend_, text_, name, name);
  }
  std::int64_t number(std::string_view digits) const {
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    const bool is_whole = error == std::errc{} && end == digits.data() + digits.size() && !digits.empty();
    if (!is_whole || n < 1 || n > kLargestReductionNumber)
      fail_usage("--backend {}: '{}': expected a number from 1 to {}, found '{}'", backend_, text_,
                 with_commas(static_cast<std::uint64_t>(kLargestReductionNumber)), digits);
    return n;
  }
  static std::string available() { return "sequential, pairwise, blocked:N, split-k:N, kahan"; }

  std::string_view backend_, text_;
};

}  // namespace

std::string ReductionSpec::name() const {
  std::string out(name_of(order));
  if (takes_number(order)) out += fmt::format(":{}", n);
  if (accumulator != Accumulator::float32) out += fmt::format("@{}", name_of(accumulator));
  return out;
}

std::string Reductions::name() const {
  if (same_order()) return fmt::format("{}{}", kReductionPrefix, prefill.name());
  return fmt::format("{}prefill={},decode={}", kReductionPrefix, prefill.name(), decode.name());
}

Reductions parse_reductions(std::string_view backend) {
  const bool has_spec = backend.starts_with(kReductionPrefix);
  const std::string_view text = has_spec ? backend.substr(kReductionPrefix.size()) : std::string_view{};
  if (text.find_first_of("=,") == std::string_view::npos) {
    const ReductionSpec both = SpecReader(backend, text).read();
    return {both, both};
  }
  static const std::vector<std::string> keys{"prefill", "decode"};
  std::optional<ReductionSpec> specs[2];
  for (const std::string& piece : split(text, ',')) {
    const auto equals = piece.find('=');
    if (equals == std::string::npos)
      fail_usage("--backend {}: '{}' has no key; expected prefill=SPEC,decode=SPEC", backend, piece);
    const std::string key = piece.substr(0, equals);
    if (key != keys[0] && key != keys[1])
      fail_usage("--backend {}: '{}' is not a kind of call{} (available: prefill, decode)", backend, key,
                 did_you_mean(key, keys));
    auto& spec = specs[key == keys[1]];
    if (spec) fail_usage("--backend {}: {} is given twice", backend, key);
    spec = SpecReader(backend, std::string_view(piece).substr(equals + 1)).read();
  }
  for (std::size_t i = 0; i < 2; ++i)
    if (!specs[i]) fail_usage("--backend {}: {}=SPEC is missing; both kinds of call need one", backend, keys[i]);
  return {*specs[0], *specs[1]};
}

double ordered_dot(std::span<const double> a, std::span<const double> b, const ReductionSpec& spec, DType storage) {
  if (a.size() != b.size()) fail(ErrorKind::internal, "ordered_dot: {} and {} terms", a.size(), b.size());
  if (storage == DType::float64) return OrderedDot<PlainSums<double>, double>(a, b).in(spec);
  if (spec.accumulator == Accumulator::float16) return OrderedDot<HalfSums, double>(a, b).in(spec);
  return OrderedDot<PlainSums<float>, double>(a, b).in(spec);
}

}  // namespace kvdiv
