#pragma once
// A report for people: everything is read out of the report's JSON, so that a report can be rendered again at any time.
#include <string>

#include "kvdiv/base/json.h"

namespace kvdiv {

/// Header, a table per condition, controls, verdict, warnings.
std::string render_text(const Json& report);

/// What a command prints of a report: the text, or the JSON as it stands in report.json.
std::string render_report(const Json& report, bool as_json);

/// "1.2e-06", "0", "–" for null: two significant digits.
std::string short_number(const Json& value);

}  // namespace kvdiv
