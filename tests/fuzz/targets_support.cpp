#include "fuzz/targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/base/records.h"
#include "kvdiv/base/text.h"
#include "kvdiv/io/checkpoint.h"
#include "kvdiv/io/files.h"
#include "kvdiv/io/prompts.h"
#include "kvdiv/io/safetensors.h"
#include "kvdiv/io/sentencepiece_model.h"
#include "kvdiv/model/config.h"
#include "kvdiv/model/memory_need.h"
#include "kvdiv/report/contract.h"
#include "kvdiv/report/records_reader.h"
#include "fuzz/wanted_weights.h"
#include "model/weights_check.h"

namespace kvdiv::test {
namespace {

constexpr std::size_t kLongestMessage = 2000;

void hold(bool condition, std::string_view what) {
  if (!condition) throw std::logic_error(std::string(what));
}

std::string_view text_of(Bytes input) { return {reinterpret_cast<const char*>(input.data()), input.size()}; }

/// What goes to a terminal, a log, a report: at most two lines of plain text, however odd the names in the file are.
void check_message(const std::string& message) {
  const auto shown = [&] { return short_dump(Json(message), 400); };
  hold(!message.empty() && message.size() <= kLongestMessage, fmt::format("{} bytes: {}", message.size(), shown()));
  hold(is_valid_utf8(message), "not UTF-8: " + shown());
  hold(std::count(message.begin(), message.end(), '\n') <= 1, "more than two lines: " + shown());
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n'; };
  hold(std::none_of(message.begin(), message.end(), is_control), "control characters: " + shown());
}

/// Runs a parser: it may refuse the input, in a readable way.
template <class F>
void parse(F&& parser) {
  try {
    parser();
  } catch (const Error& error) {
    hold(error.kind() == ErrorKind::unreadable, fmt::format("an error of another kind: {}", error.what()));
    check_message(error.what());
  }
}

void check_header(const SafetensorsHeader& header, std::uint64_t n_data) {
  std::uint64_t at = 0;
  std::set<std::string> names;
  for (const TensorInfo& t : header.tensors) {
    hold(t.begin == at && t.begin <= t.end, "tensors do not tile the data");
    hold(names.insert(t.name).second, "a name twice");
    at = t.end;
    std::int64_t n_elements = 1;
    for (const std::int64_t dim : t.shape) hold(!__builtin_mul_overflow(n_elements, dim, &n_elements), "too many elements");
    hold(n_elements == t.n_elements() && n_elements >= 0, "another number of elements");
    // Exact up to 2⁶⁴ bits, and a header may not hold more.
    hold(static_cast<long double>(n_elements) * bits_of(t.dtype) == static_cast<long double>(t.n_bytes()) * 8, "shape and bytes differ");
  }
  hold(at == n_data, "tensors do not end where the file does");
}

/// With no rounding, as a check of sums and products that must not wrap.
long double exact_need(const ModelConfig& config, DType dtype, std::int64_t length) {
  const auto& s = config.sizes;
  using R = long double;
  const R size = size_of(dtype), T = static_cast<R>(length), hidden = static_cast<R>(s.hidden);
  const R heads = static_cast<R>(s.n_heads), kv = static_cast<R>(s.n_kv_heads), head_dim = static_cast<R>(s.head_dim);
  const R layers = static_cast<R>(s.n_layers), intermediate = static_cast<R>(s.intermediate);
  const R embedding = static_cast<R>(s.vocab) * hidden;
  const R layer = 2 * hidden * head_dim * (heads + kv) + 3 * hidden * intermediate +
                  (config.traits.sandwich_norms ? 4 : 2) * hidden;
  const R params = layers * layer + hidden + (config.traits.tied_head ? 1 : 2) * embedding;
  const R row = 6 * hidden * (size + 4) + 6 * heads * head_dim * size + 4 * intermediate * size;
  return params * size + 2 * layers * kv * head_dim * T * size + T * row + heads * T * T * (4 * size + 8) +
         48 * static_cast<R>(s.vocab);
}

void check_config(const ModelConfig& config) {
  const ModelSizes& s = config.sizes;
  hold(s.n_layers > 0 && s.hidden > 0 && s.intermediate > 0 && s.vocab > 0 && s.n_heads > 0 && s.n_kv_heads > 0 &&
           s.head_dim > 0 && s.max_positions > 0,
       "a size that is not above 0");
  hold(s.n_heads % s.n_kv_heads == 0 && s.head_dim % 2 == 0, "heads that cannot be grouped or rotated");
  hold(std::ssize(config.traits.windows) == s.n_layers, "a window for each layer");
  for (const auto& window : config.traits.windows) hold(!window || *window >= 2, "a window below 2");
  for (const double x : {config.rope_theta, config.traits.query_scale, config.traits.attention_cap.value_or(1.0),
                         config.traits.final_cap.value_or(1.0)})
    hold(std::isfinite(x) && x > 0.0, "a factor that is not above 0");
  hold(std::isfinite(config.rms_norm_eps) && config.rms_norm_eps >= 0.0, "an epsilon below 0");
  for (const TokenId id : config.eos_ids) hold(id >= 0 && id < s.vocab, "an EOS outside the vocabulary");
  hold(!config.bos_id || (*config.bos_id >= 0 && *config.bos_id < s.vocab), "a BOS outside the vocabulary");
  hold(config.n_params() > 0, "n_params overflows");
  for (const DType dtype : {DType::float16, DType::float64})
    for (const std::int64_t length : {std::int64_t{1}, std::int64_t{4096}, s.max_positions}) {
      const auto need = static_cast<long double>(memory_need(config, dtype, length).total());
      const long double exact = std::min(exact_need(config, dtype, length), 18446744073709551615.0L);
      hold(std::abs(need - exact) <= exact * 1e-15L, "the memory that a run needs overflows");
    }
}

/// Two texts with a NUL byte between them, which no JSON may hold.
std::pair<std::string_view, std::string_view> halves(std::string_view text, std::string_view otherwise) {
  const auto at = text.find('\0');
  return at == std::string_view::npos ? std::pair(text, otherwise) : std::pair(text.substr(0, at), text.substr(at + 1));
}

ModelConfig parse_config(std::string_view config, std::string_view generation) {
  Warnings warnings;
  ModelConfig model =
      parse_model_config(parse_json(config, "c"), parse_json(generation, "g"), "config.json", warnings);
  for (const Warning& warning : warnings.all()) check_message(warning.message);
  if (!model.declared_dtype.empty()) check_message(model.declared_dtype);
  check_config(model);
  return model;
}

template <class R>
void check_record(const Json& json) {
  R record;
  from_json_value(json, record, "records.jsonl");
  to_json_value(record).dump();
}

/// Where the last tensor ends, so that the check of the total size lets the rest be looked at.
std::uint64_t end_of_data(std::string_view header) {
  const Json json = parse_json(header, "h");
  std::uint64_t end = 0;
  for (const auto& [name, entry] : json.items()) {
    if (!entry.is_object() || !entry.contains("data_offsets")) continue;
    const Json& offsets = entry["data_offsets"];
    if (offsets.is_array() && offsets.size() == 2 && offsets[1].is_number_unsigned())
      end = std::max(end, offsets[1].get<std::uint64_t>());
  }
  return end;
}

}  // namespace

void fuzz_safetensors(Bytes input) {
  parse([&] {
    const SafetensorsHeader header = parse_safetensors(std::as_bytes(input), "f");
    hold(header.data_begin <= input.size(), "the data begins behind the end");
    check_header(header, input.size() - header.data_begin);
  });
}

void fuzz_config(Bytes input) {
  const auto [config, generation] = halves(text_of(input), "{}");
  parse([&, c = config, g = generation] { parse_config(c, g); });
}

void fuzz_index(Bytes input) {
  parse([&] {
    const WeightMap map = parse_weight_map(parse_json(text_of(input), "index.json"), "index.json");
    hold(!map.empty(), "an empty map");
    for (const auto& [tensor, file] : map) {
      hold(std::filesystem::path(file).filename() == file && file.ends_with(".safetensors"), "not a plain file name");
      // The C library would open what stands in front of a NUL, and a terminal obey what follows an escape.
      check_message(file);
    }
  });
}

void fuzz_prompts(Bytes input) {
  constexpr std::int64_t kVocab = 1000;
  const auto load = [&](std::optional<std::int64_t> sample_size) {
    PromptParams params;
    params.prompts = "p.jsonl";
    params.sample_size = sample_size;
    const PromptSet set = parse_prompts(text_of(input), "p.jsonl", params, nullptr, "", kVocab);
    hold(!set.prompts.empty() && set.prompts.size() == set.indices.size(), "no prompts, or other indices");
    std::set<std::string> ids;
    for (const Prompt& prompt : set.prompts) {
      hold(ids.insert(prompt.id).second, "an id twice");
      hold(!prompt.ids.empty() && prompt.sha256 == sha256_of_ids(prompt.ids), "no tokens, or another hash");
      for (const TokenId id : prompt.ids) hold(id >= 0 && id < kVocab, "a token outside the vocabulary");
    }
  };
  parse([&] {
    load(std::nullopt);
    load(1);
  });
}

void fuzz_records(Bytes input) {
  std::istringstream in{std::string(text_of(input))};
  parse([&] {
    read_records(in, "records.jsonl", [](const std::string& type, const Json& json) {
      if (type == PairRecord::type) check_record<PairRecord>(json);
      if (type == StepRecord::type) check_record<StepRecord>(json);
      if (type == LayerRecord::type) check_record<LayerRecord>(json);
      if (type == HeadRecord::type) check_record<HeadRecord>(json);
      if (type == PatchRecord::type) check_record<PatchRecord>(json);
    });
  });
}

void fuzz_contract(Bytes input) {
  parse([&] {
    const Contract contract = parse_contract_text(text_of(input), "c.json");
    const Json json = to_json(contract);
    hold(to_json(parse_contract(json, "c.json")) == json, "what is written reads otherwise");
    for (const Limit& limit : contract.limits) {
      hold(limit.bound >= limit.metric->lowest && limit.bound <= limit.metric->highest, "a bound that cannot be");
      check_message(limit_name(limit) + bound_text(limit));
    }
  });
}

void fuzz_checkpoint(Bytes input) {
  const auto [config_text, header_text] = halves(text_of(input), "{}");
  parse([&, c = config_text, h = header_text] {
    const ModelConfig config = parse_config(c, "{}");
    const std::uint64_t n_data = end_of_data(h);
    const SafetensorsHeader header = parse_safetensors_header(h, n_data, "model.safetensors");
    check_header(header, n_data);
    std::vector<const TensorInfo*> found;
    for (const TensorInfo& info : header.tensors) found.push_back(&info);
    if (config.sizes.n_layers > 8) return;  // the list of names is as long as a number says that is not in the file
    const auto wanted = published_weights(config);
    check_weights(wanted, found, config, "model");
    // What was accepted is all there, and is as large as the config says.
    std::int64_t n_elements = 0;
    for (const WantedWeight& weight : wanted) {
      const auto it = std::find_if(found.begin(), found.end(), [&](auto* info) { return info->name == weight.name; });
      hold(it != found.end() && (*it)->shape == weight.shape, "a tensor that is missing, or of another shape");
      n_elements += (*it)->n_elements();
    }
    hold(n_elements == config.n_params(), "n_params is not the number of the weights");
  });
}

void fuzz_tokenizer(Bytes input) {
  parse([&] {
    const SentencePieceTraits traits = read_sentencepiece_traits(text_of(input), "tokenizer.model");
    hold(traits.n_pieces > 0 && traits.n_pieces <= std::ssize(input), "more pieces than bytes");
    const auto changed = read_sentencepiece_traits(with_dummy_prefix(std::string(text_of(input)), false), "t");
    hold(!changed.add_dummy_prefix && changed.n_pieces == traits.n_pieces, "a setting that does not stick");
  });
}

std::span<const FuzzTarget> fuzz_targets() {
  static constexpr std::array<FuzzTarget, 8> targets{{{"safetensors", fuzz_safetensors},
                                                      {"config", fuzz_config},
                                                      {"index", fuzz_index},
                                                      {"prompts", fuzz_prompts},
                                                      {"records", fuzz_records},
                                                      {"contract", fuzz_contract},
                                                      {"checkpoint", fuzz_checkpoint},
                                                      {"tokenizer", fuzz_tokenizer}}};
  return targets;
}

}  // namespace kvdiv::test
