#pragma once
// Which keys of config.json there are, and what kvdiv does about each: one table.
#include <string>

#include "kvdiv/base/json.h"
#include "kvdiv/base/warnings.h"

namespace kvdiv {

/// Refuses by name and value every key that changes the numbers and is not implemented, unless it has the value that
/// leaves them alone. Keys that are in no list and not null are named in one warning. `architecture` decides about the
/// keys that only Gemma-2 has.
void check_config_keys(const Json& config, const std::string& architecture, const std::string& file,
                       Warnings& warnings);

}  // namespace kvdiv
