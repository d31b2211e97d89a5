#include "kvdiv/report/junit.h"

#include <fmt/format.h>

#include <algorithm>

#include "kvdiv/base/text.h"

namespace kvdiv {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

std::size_t count_of(const JUnitSuite& suite, LimitStatus status) {
  return static_cast<std::size_t>(
      std::count_if(suite.cases.begin(), suite.cases.end(), [&](const JUnitCase& c) { return c.status == status; }));
}

std::string case_xml(const JUnitSuite& suite, const JUnitCase& c) {
  std::string out =
      fmt::format("    <testcase classname=\"{}\" name=\"{}\"", xml_escaped(suite.name), xml_escaped(c.name));
  if (c.status == LimitStatus::ok) return out + "/>\n";
  const char* const element = c.status == LimitStatus::violated ? "failure" : "error";
  return out + fmt::format(">\n      <{} message=\"{}\">{}</{}>\n    </testcase>\n", element, xml_escaped(c.message),
                           xml_escaped(c.details), element);
}

void append_ascii(std::string& out, char c) {
  switch (c) {
    case '&':
      out += "&amp;";
      return;
    case '<':
      out += "&lt;";
      return;
    case '>':
      out += "&gt;";
      return;
    case '"':
      out += "&quot;";
      return;
    case '\'':
      out += "&apos;";
      return;
    case '\t':
    case '\n':
    case '\r':
      out += fmt::format("&#{};", static_cast<int>(c));
      return;
    default:
      if (static_cast<unsigned char>(c) < 0x20)
        out += kReplacement;
      else
        out += c;
  }
}

/// Bytes of the well-formed character at the front, 0 if there is none.
std::size_t character_length(std::string_view text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(4, text.size()); ++n)
    if (is_valid_utf8(text.substr(0, n))) return n;
  return 0;
}

}  // namespace

std::string xml_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t n = character_length(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(n, 1));
    if (n == 0 || character == "\xEF\xBF\xBE" || character == "\xEF\xBF\xBF")
      out += kReplacement;
    else if (n == 1)
      append_ascii(out, character.front());
    else
      out += character;
    text.remove_prefix(character.size());
  }
  return out;
}

JUnitSuite junit_suite(const Contract& contract, const ContractCheck& check) {
  JUnitSuite suite{contract.title, {}};
  std::string problems;
  for (const std::string& problem : check.problems) problems += (problems.empty() ? "" : "; ") + problem;
  for (const LimitResult& r : check.results) {
    const Limit& limit = contract.limits[r.limit];
    JUnitCase c{fmt::format("{} {} [{}]", limit_name(limit), bound_text(limit),
                            r.condition.empty() ? "no condition" : r.condition),
                r.status, ""};
    if (r.status == LimitStatus::violated)
      c.message = fmt::format("measured {}, allowed {}", *r.measured, bound_text(limit));
    else if (r.status == LimitStatus::invalid)
      c.message = problems.empty() ? r.why : problems;
    if (r.status != LimitStatus::ok) c.details = "the limit's reason: " + limit.reason;
    suite.cases.push_back(std::move(c));
  }
  return suite;
}

std::string junit_xml(std::span<const JUnitSuite> suites) {
  std::size_t n = 0, n_failures = 0, n_errors = 0;
  std::string body;
  for (const JUnitSuite& suite : suites) {
    const std::size_t failures = count_of(suite, LimitStatus::violated), errors = count_of(suite, LimitStatus::invalid);
    body += fmt::format("  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"0\">\n",
                        xml_escaped(suite.name), suite.cases.size(), failures, errors);
    for (const JUnitCase& c : suite.cases) body += case_xml(suite, c);
    body += "  </testsuite>\n";
    n += suite.cases.size();
    n_failures += failures;
    n_errors += errors;
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"kvdiv check\" tests=\"{}\" failures=\"{}\" "
      "errors=\"{}\">\n{}</testsuites>\n",
      n, n_failures, n_errors, body);
}

}  // namespace kvdiv
