#pragma once
// Results as JUnit XML, which CI systems show.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvdiv/report/contract_check.h"

namespace kvdiv {

/// `message` belongs to a case that is not ok: a <failure> if it is violated, an <error> if it is invalid.
struct JUnitCase {
  std::string name;
  LimitStatus status = LimitStatus::ok;
  std::string message, details = {};
};

struct JUnitSuite {
  std::string name;  ///< also the classname of its cases
  std::vector<JUnitCase> cases;
};

/// One case a limit and condition; a report that is invalid as a whole makes each an error.
JUnitSuite junit_suite(const Contract& contract, const ContractCheck& check);

/// Well-formed XML 1.0 in UTF-8, whatever the texts hold.
std::string junit_xml(std::span<const JUnitSuite> suites);

/// For attributes and text: markup and quotes escaped; tabs and line ends as references, so that attributes keep them;
/// what XML 1.0 cannot hold at all (other control characters, U+FFFE and U+FFFF, bytes that are not UTF-8) becomes U+FFFD.
std::string xml_escaped(std::string_view text);

}  // namespace kvdiv
