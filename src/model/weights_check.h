#pragma once
// The names, shapes and dtypes that a config demands, compared with those that a checkpoint has. No torch in here.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvdiv/io/safetensors.h"
#include "kvdiv/model/config.h"

namespace kvdiv {

inline constexpr std::string_view kHeadName = "lm_head.weight";

struct WantedWeight {
  std::string name;
  std::vector<std::int64_t> shape;
};

/// `found` may come in any order, each name once; `where` (the checkpoint) starts each message. Throws Error{unreadable}
/// that names the tensors that are missing, left over, or wrong.
void check_weights(const std::vector<WantedWeight>& wanted, const std::vector<const TensorInfo*>& found,
                   const ModelConfig& config, const std::string& where);

}  // namespace kvdiv
