#pragma once
#include <string>

#include "kvdiv/base/json.h"

namespace kvdiv {

/// The five questions, and published beside measured.
std::string paper_summary(const Json& report);
/// The main tables of experiments 2 to 5.
std::string paper_details(const Json& report);

}  // namespace kvdiv
