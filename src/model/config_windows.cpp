// The attention window of each layer. What the reference (transformers 5.24) does, and where kvdiv is stricter:
// Mistral slides in every layer, or as layer_types says; without sliding_window its class default is 4096, null is full
// attention. Gemma-2 slides in the even 0-based layers, or as layer_types says. LLaMA has no window: given one, the
// reference cuts its cache but not its mask, so that ON and OFF differ by logits; that is refused. So is a window of 1,
// where the reference's cache keeps everything that the mask hides.
#include <algorithm>

#include "config_reader.h"

namespace kvdiv {
namespace {

using Window = std::optional<std::int64_t>;

constexpr std::int64_t kMaxWindow = std::int64_t{1} << 40;  // a position plus a window must not overflow

std::int64_t checked_window(const ConfigReader& reader, const Json& whole, const Json& value) {
  const auto n = as_integer(value);
  if (n == 1)
    reader.refuse("sliding_window", whole,
                  "at least 2, or null: with a window of 1 the reference's own arms differ by "
                  "logits (its cache keeps the keys that its mask hides)");
  if (!n || *n < 1 || *n > kMaxWindow)
    reader.refuse("sliding_window", whole, "an integer of at least 2, or null for full attention");
  return *n;
}

/// Which layers slide, as layer_types says; none if the key is absent or null.
std::optional<std::vector<bool>> read_layer_types(const ConfigReader& reader, std::int64_t n_layers) {
  const Json* types = reader.find_set("layer_types");
  if (types == nullptr) return std::nullopt;
  if (!types->is_array()) reader.refuse("layer_types", *types, "a list, one entry a layer");
  if (types->size() != static_cast<std::size_t>(n_layers))
    fail_unreadable("{}: layer_types: {} entries, but num_hidden_layers is {}", reader.file(), types->size(), n_layers);
  std::vector<bool> slides;
  for (std::size_t i = 0; i < types->size(); ++i) {
    const Json& type = (*types)[i];
    if (type != "full_attention" && type != "sliding_attention")
      reader.refuse(fmt::format("layer_types[{}]", i).c_str(), type, "full_attention or sliding_attention");
    slides.push_back(type == "sliding_attention");
  }
  return slides;
}

void refuse_windows(const ConfigReader& reader, const std::optional<std::vector<bool>>& slides) {
  if (const Json* window = reader.find_set("sliding_window"))
    reader.refuse("sliding_window", *window,
                  "null: LlamaForCausalLM has no window (given one, the reference's arms differ "
                  "by logits); is this a Mistral checkpoint?");
  if (slides && std::find(slides->begin(), slides->end(), true) != slides->end())
    reader.refuse("layer_types", *reader.find("layer_types"), "full_attention only: LlamaForCausalLM has no window");
}

std::vector<Window> read_list(const ConfigReader& reader, const Json& list, std::int64_t n_layers, bool has_types) {
  if (list.size() != static_cast<std::size_t>(n_layers) || has_types)
    reader.refuse("sliding_window", list,
                  fmt::format("a number or null, or a list of {} of them without layer_types", n_layers));
  std::vector<Window> windows;
  for (const Json& value : list)
    windows.push_back(value.is_null() ? Window{} : Window{checked_window(reader, list, value)});
  return windows;
}

/// The one window of all sliding layers; none: full attention everywhere.
Window read_window(const ConfigReader& reader, const WindowRule& rule, bool some_slide, Warnings& warnings) {
  const Json* value = reader.find("sliding_window");
  if (value != nullptr && !value->is_null()) return checked_window(reader, *value, *value);
  if (value != nullptr) return std::nullopt;
  if (some_slide && rule.warn_default && rule.class_default)
    warnings.add(WarningCode::sliding_window_default,
                 fmt::format("{}: sliding_window is absent; the class default of {} is used, as the reference does",
                             reader.file(), *rule.class_default));
  return rule.class_default;
}

}  // namespace

std::vector<Window> read_windows(const ConfigReader& reader, const WindowRule& rule, std::int64_t n_layers,
                                 Warnings& warnings) {
  const auto n = static_cast<std::size_t>(n_layers);
  std::optional<std::vector<bool>> slides = read_layer_types(reader, n_layers);
  const bool has_types = slides.has_value();
  if (!rule.allowed) {
    refuse_windows(reader, slides);
    return std::vector<Window>(n);
  }
  if (const Json* list = reader.find("sliding_window"); list != nullptr && list->is_array())
    return read_list(reader, *list, n_layers, has_types);
  if (!slides) {
    slides.emplace(n, true);
    for (std::size_t i = 0; rule.alternates && i < n; ++i) (*slides)[i] = i % 2 == 0;
  }
  const bool some_slide = std::find(slides->begin(), slides->end(), true) != slides->end();
  const Window window = read_window(reader, rule, some_slide, warnings);
  if (!window && has_types && some_slide)
    reader.refuse("sliding_window", *reader.find("sliding_window"),
                  "a number: layer_types has layers of sliding_attention");
  std::vector<Window> windows(n);
  for (std::size_t i = 0; i < n; ++i)
    if ((*slides)[i]) windows[i] = window;
  return windows;
}

}  // namespace kvdiv
