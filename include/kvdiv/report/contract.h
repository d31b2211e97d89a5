#pragma once
// A contract: limits that a report of `kvdiv run` must keep, and how much must have been measured for that to mean anything.
// schemas/contract.schema.json says the same for editors and other programs.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvdiv/base/enums.h"
#include "kvdiv/base/json.h"

namespace kvdiv {

inline constexpr std::string_view kContractSchema = "kvdiv/contract/1";
inline constexpr std::size_t kMaxLimits = 1000;

/// The steps that a limit is about; the names are the report's keys.
enum class LimitClock { same_prefix, free_running };
template <>
struct EnumNames<LimitClock> {
  static constexpr std::string_view what = "clock";
  static constexpr std::array<std::pair<LimitClock, std::string_view>, 2> values{
      {{LimitClock::same_prefix, "same_prefix"}, {LimitClock::free_running, "free_running"}}};
};

/// A number that a limit may name.
struct LimitMetric {
  std::string_view name;   ///< in a contract
  std::string_view path;   ///< in the report: below the clock's object, or below the condition
  bool is_per_step;        ///< it is below the clock's object
  bool is_stat;            ///< many values, so that a limit names a statistic
  double lowest, highest;  ///< what it can be: a limit outside would always hold or never
};

std::span<const LimitMetric> limit_metrics();

/// Statistics of a stat that a limit may name: "mean", "std", "min", "p1", …, "p99", "max".
std::span<const std::string_view> limit_statistics();

/// Controls of `run` that a contract may demand.
std::span<const std::string_view> run_controls();

struct Limit {
  DType dtype = DType::float16;
  std::optional<std::string> backend;  ///< none: every backend
  std::optional<Strategy> strategy;    ///< none: every strategy
  std::optional<LimitClock> clock;     ///< may be none for a metric of whole pairs: both clocks part at the same step
  const LimitMetric* metric = nullptr;
  std::string statistic;   ///< empty for a metric that is one number
  bool is_at_most = true;  ///< else at least
  double bound = 0.0;
  std::string reason;
};

struct Contract {
  std::string title;
  std::int64_t min_pairs = 0, min_steps = 0;  ///< of each condition that a limit applies to
  std::vector<std::string> controls;          ///< must be in the report, and hold
  std::vector<Limit> limits;
};

/// Throws Error{unreadable} for whatever is not a contract: `where` (the file's name), key, expected and found, and the
/// nearest name for one that is unknown. No key is left unread.
Contract parse_contract(const Json& json, const std::string& where);
/// The same of a file's bytes, under the limits of parse_json.
Contract parse_contract_text(std::string_view text, const std::string& where);

Json to_json(const Contract& contract);

/// "float16 same_prefix kl_on_off_nats mean", with backend and strategy behind it where the limit names them.
std::string limit_name(const Limit& limit);

/// "≤ 5e-05" or "≥ 1": the bound with all its digits.
std::string bound_text(const Limit& limit);

}  // namespace kvdiv
