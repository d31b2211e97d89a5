#pragma once
// What flags mean together: pairs that exclude each other, and flags that the chosen settings have no use for.
#include <map>
#include <string>

#include "command.h"

namespace kvdiv {

/// Values of one layer: a config file's, or the command line's. Snake_case keys.
/// Throws Error{usage} if two settings of a layer exclude each other; `where` ("" or "--config FILE: ") goes before it.
/// A null or false one is not there; "seeds" at its default is not there beside "seed", as --print-config writes both.
void refuse_contradictions(const Command& command, Json& layer, const std::string& where);

/// `values` with `upper` put over them: where the upper layer has one of an excluding pair, the other leaves `values`.
void put_over(Json& values, const Json& upper);

/// Throws Error{usage} for a flag that was given (not one of a file or a default) and is not used with the settings in
/// `values`: --top-k without the strategy top-k.
void refuse_unused(const Command& command, const Json& given, const Json& values);

}  // namespace kvdiv
