#include "weights_check.h"

#include <algorithm>
#include <map>
#include <set>

#include "kvdiv/base/error.h"
#include "kvdiv/base/json.h"

namespace kvdiv {
namespace {

/// Tensors that old exporters wrote and no run needs: rotary frequencies follow from the config.
bool is_ignored(std::string_view name) { return name.ends_with("rotary_emb.inv_freq"); }

std::string first_few(const std::vector<std::string>& names) {
  const auto shown = std::min<std::size_t>(names.size(), 4);
  std::string out;
  for (std::size_t i = 0; i < shown; ++i) out += (i == 0 ? "" : ", ") + short_name(names[i]);
  return names.size() > shown ? fmt::format("{} and {} more", out, names.size() - shown) : out;
}

/// A file may give a tensor any number of dimensions.
std::string shape_text(const std::vector<std::int64_t>& shape) { return short_dump(Json(shape)); }

void check_weight(const WantedWeight& wanted, const TensorInfo& found, const std::string& where) {
  if (!is_weight_dtype(found.dtype))
    fail_unreadable(
        "{}: tensor '{}': stored as {}; weights must be F64, F32, F16 or BF16 (quantized checkpoints are not "
        "supported)",
        where, wanted.name, name_of(found.dtype));
  if (found.shape != wanted.shape)
    fail_unreadable("{}: tensor '{}': shape {} on disk, {} by config.json", where, wanted.name, shape_text(found.shape),
                    shape_text(wanted.shape));
}

}  // namespace

void check_weights(const std::vector<WantedWeight>& wanted, const std::vector<const TensorInfo*>& found,
                   const ModelConfig& config, const std::string& where) {
  std::map<std::string_view, const TensorInfo*> by_name;
  for (const TensorInfo* info : found) by_name.emplace(info->name, info);
  std::vector<std::string> missing, left_over;
  std::set<std::string_view> known;
  for (const WantedWeight& weight : wanted) {
    known.insert(weight.name);
    if (const auto it = by_name.find(weight.name); it != by_name.end())
      check_weight(weight, *it->second, where);
    else
      missing.push_back(weight.name);
  }
  for (const auto& [name, info] : by_name)
    if (!known.contains(name) && !is_ignored(name) && !(config.traits.tied_head && name == kHeadName))
      left_over.emplace_back(name);
  if (missing == std::vector<std::string>{std::string(kHeadName)})
    fail_unreadable(
        "{}: no tensor 'lm_head.weight', and config.json does not tie it to the embedding; "
        "if the model ties them, set \"tie_word_embeddings\": true",
        where);
  if (!missing.empty()) fail_unreadable("{}: missing tensor {}", where, first_few(missing));
  if (!left_over.empty())
    fail_unreadable("{}: {} tensors that {} does not have: {}", where, left_over.size(), config.architecture,
                    first_few(left_over));
}

}  // namespace kvdiv
