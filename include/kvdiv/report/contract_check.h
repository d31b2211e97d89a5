#pragma once
// A report held against a contract. What cannot be judged is invalid: neither a pass nor a violation.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "kvdiv/base/json.h"
#include "kvdiv/report/contract.h"

namespace kvdiv {

enum class LimitStatus { ok, violated, invalid };
template <>
struct EnumNames<LimitStatus> {
  static constexpr std::string_view what = "status";
  static constexpr std::array<std::pair<LimitStatus, std::string_view>, 3> values{
      {{LimitStatus::ok, "ok"}, {LimitStatus::violated, "violated"}, {LimitStatus::invalid, "invalid"}}};
};

/// A limit on one condition.
struct LimitResult {
  std::size_t limit = 0;  ///< index into the contract's
  std::string condition;  ///< "float16/torch/greedy"; empty if no condition of the report matches the limit
  LimitStatus status = LimitStatus::invalid;
  std::optional<double> measured = {};
  std::optional<double> ci_high = {};   ///< of a mean: upper end of its 95 % interval. To read; the mean itself decides
  std::optional<double> tightest = {};  ///< `measured` rounded outward to two digits: a limit that it would have kept
  std::string why = {};                 ///< why it is invalid
};

struct ContractCheck {
  std::vector<std::string> problems;          ///< of the report as a whole: if there are any, every limit is invalid
  std::vector<LimitResult> results;           ///< by limit, then in the report's order of conditions
  LimitStatus status = LimitStatus::invalid;  ///< invalid before violated before ok
  std::string sentence;
};

/// Why nothing in a report of `run` may be judged: it is not complete, its verdict is invalid, a control failed or one of
/// `demanded_controls` is not there.
std::vector<std::string> report_problems(const Json& report, const std::vector<std::string>& demanded_controls = {});

/// "float16/torch/greedy" of each condition of a report. Throws Error{unreadable} that starts with `where` for one without
/// these three texts.
std::vector<std::string> condition_names(const Json& report, const std::string& where);

/// Throws Error{unreadable} if the report, whose name is `where`, is of another command than `run`.
void require_run(const Json& report, const std::string& where);

/// Numbers are compared as the report holds them, unrounded; exactly the bound keeps it. Throws Error{unreadable} if the
/// report is not one of `run` (`where` is its name). Keys that an older report lacks are missed only where a
/// limit needs them, and make that limit invalid.
ContractCheck check_contract(const Contract& contract, const Json& report, const std::string& where);

/// The smallest number of two significant digits that is not below (`is_at_most`), or the largest that is not above,
/// compared as the double that its decimal text is read as.
double round_outward(double value, bool is_at_most);

/// The contract with each bound replaced by the tightest of its conditions; a limit without a measured number stays as it
/// is. Null if the report as a whole is invalid.
Json tightest_contract(const Contract& contract, const ContractCheck& check);

/// {status, sentence, problems, results: [{limit, condition, …}]}.
Json to_json(const Contract& contract, const ContractCheck& check);

/// The same for people: a table, the problems, a sentence.
std::string render_text(const Contract& contract, const ContractCheck& check);

/// A text out of a file on one line of a terminal: control characters become spaces.
std::string one_line(const std::string& text);

}  // namespace kvdiv
