#include "check.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "check_against.h"
#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"
#include "kvdiv/report/contract.h"
#include "kvdiv/report/contract_check.h"
#include "kvdiv/report/junit.h"
#include "kvdiv/report/result_directory.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;

int exit_code(LimitStatus status) {
  switch (status) {
    case LimitStatus::ok:
      return 0;
    case LimitStatus::violated:
      return static_cast<int>(ErrorKind::violated);
    case LimitStatus::invalid:
      break;
  }
  return static_cast<int>(ErrorKind::invalid_measurement);
}

/// The file that a result directory is read from.
std::string report_file(const std::string& directory_or_file) {
  std::error_code ignored;
  return fs::is_directory(directory_or_file, ignored) ? (fs::path(directory_or_file) / kReportFile).string()
                                                      : directory_or_file;
}

void refuse_to_overwrite(const std::string& junit, const std::string& input) {
  std::error_code ignored;
  if (fs::equivalent(junit, input, ignored)) fail_usage("--junit {}: is {}, which is only read here", junit, input);
}

void put_results(const Contract& contract, const ContractCheck& check, const std::optional<Comparison>& comparison,
                 Json& out) {
  out.update(to_json(contract, check));
  if (comparison) out["sentence"] = check.sentence + " " + comparison->sentence;
  out["tightest"] = tightest_contract(contract, check);
  out["against"] = comparison ? to_json(*comparison) : Json(nullptr);
}

}  // namespace

int check_command(const Invocation& invocation) {
  const auto params = take<CheckParams>(invocation);
  if (invocation.positionals.size() != 1)
    fail_usage("kvdiv check takes one result directory of kvdiv run, or its report.json; see kvdiv check --help");
  if (!params.contract) fail_usage("--contract FILE is missing: the limits to check; configs/contracts has some");
  const std::string source = report_file(invocation.positionals.front());
  const std::string older = params.against ? report_file(*params.against) : "";
  if (params.junit)
    for (const std::string& input : {source, *params.contract, older}) refuse_to_overwrite(*params.junit, input);

  const Contract contract = parse_contract(read_json_file(*params.contract), *params.contract);
  const Json report = read_report(source);
  const ContractCheck check = check_contract(contract, report, source);
  std::optional<Comparison> comparison;
  if (params.against) comparison = compare_reports(report, source, read_report(older), older);

  if (params.junit) {
    std::vector<JUnitSuite> suites{junit_suite(contract, check)};
    if (comparison) suites.push_back(junit_suite(*comparison));
    write_text_file_atomically(*params.junit, junit_xml(suites));
  }
  const LimitStatus status = comparison ? std::max(check.status, comparison->status) : check.status;
  if (!params.json) {
    fmt::print("{}{}", render_text(contract, check), comparison ? render_text(*comparison) : "");
    return exit_code(status);
  }
  Json out = {
      {"schema", "kvdiv/check/1"}, {"report", source}, {"contract", *params.contract}, {"title", contract.title}};
  put_results(contract, check, comparison, out);
  out["status"] = name_of(status);
  out["exit_code"] = exit_code(status);
  fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
  return exit_code(status);
}

}  // namespace kvdiv
