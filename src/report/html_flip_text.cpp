#include "html_flip_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "kvdiv/base/text.h"

namespace kvdiv {
namespace {

constexpr std::size_t kShownBefore = 600, kShownAfter = 600;  // bytes
constexpr std::int64_t kIdsBefore = 8, kIdsAfter = 8;

bool is_inside_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

/// The start of the character that `at` is in; the end of the text for more.
std::size_t character_start(std::string_view text, std::size_t at) {
  if (at >= text.size()) return text.size();
  while (at > 0 && is_inside_character(text, at)) --at;
  return at;
}

std::size_t character_end(std::string_view text, std::size_t at) {
  if (at >= text.size()) return text.size();
  do ++at;
  while (is_inside_character(text, at));
  return at;
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const auto [end, ignored] = std::mismatch(a.begin(), a.begin() + std::ssize(a.substr(0, b.size())), b.begin());
  return character_start(a.size() < b.size() ? b : a, static_cast<std::size_t>(end - a.begin()));
}

bool goes_on_with(std::string_view text, std::size_t at, const std::optional<std::string>& token) {
  return token && !token->empty() && at <= text.size() && text.substr(at).starts_with(*token);
}

MarkedText cut(std::string_view text, std::size_t start, std::size_t end) {
  const std::size_t from = start > kShownBefore ? character_start(text, start - kShownBefore) : 0;
  const std::size_t to = character_start(text, end + kShownAfter);
  return {std::string(text.substr(from, start - from)), std::string(text.substr(start, end - start)),
          std::string(text.substr(end, to - end)), from > 0, to < text.size()};
}

Json to_json(const MarkedText& text) {
  return {{"before", text.before},
          {"token", text.token},
          {"after", text.after},
          {"is_cut_before", text.is_cut_before},
          {"is_cut_after", text.is_cut_after}};
}

std::optional<TokenId> token_at(const std::vector<TokenId>& tokens, std::int64_t step) {
  return step < std::ssize(tokens) ? std::optional(tokens[static_cast<std::size_t>(step)]) : std::nullopt;
}

std::optional<std::string> text_of(std::optional<TokenId> token, const std::optional<FlipTop>& top) {
  if (!token || !top) return std::nullopt;
  for (const auto* arm : {&top->on, &top->off})
    for (const TopToken& t : *arm)
      if (t.id == *token && t.text) return t.text;
  return std::nullopt;
}

std::vector<TokenId> ids(const std::vector<TokenId>& tokens, std::int64_t from, std::int64_t to) {
  const auto end = std::min<std::int64_t>(to, std::ssize(tokens));
  if (from >= end) return {};
  return {tokens.begin() + from, tokens.begin() + end};
}

}  // namespace

MarkedPair mark_flip(const std::string& text_on, const std::string& text_off,
                     const std::optional<std::string>& token_on, const std::optional<std::string>& token_off) {
  const std::size_t parting = common_prefix(text_on, text_off);
  const std::size_t longest = std::max(token_on ? token_on->size() : 0, token_off ? token_off->size() : 0);
  for (std::size_t start = parting + 1; start-- > parting - std::min(parting, longest);)
    if (goes_on_with(text_on, start, token_on) && goes_on_with(text_off, start, token_off))
      return {cut(text_on, start, start + token_on->size()), cut(text_off, start, start + token_off->size())};
  return {cut(text_on, std::min(parting, text_on.size()), character_end(text_on, parting)),
          cut(text_off, std::min(parting, text_off.size()), character_end(text_off, parting))};
}

Json flip_example(const PairRecord& pair, const StepRecord* flip_step) {
  const std::int64_t flip = pair.flip_index.value_or(0), from = std::max<std::int64_t>(0, flip - kIdsBefore);
  const auto on = token_at(pair.tokens_on, flip), off = token_at(pair.tokens_off, flip);
  Json out = {{"pair_id", pair.pair_id}, {"prompt_id", pair.prompt_id}, {"seed", pair.seed}, {"flip_index", flip},
              {"token_on", nullptr},     {"token_off", nullptr},        {"text", nullptr},   {"ids_from", from},
              {"step", nullptr}};
  if (on) out["token_on"] = *on;
  if (off) out["token_off"] = *off;
  out["ids_on"] = ids(pair.tokens_on, from, flip + 1 + kIdsAfter);
  out["ids_off"] = ids(pair.tokens_off, from, flip + 1 + kIdsAfter);
  if (pair.text_on && pair.text_off) {
    const MarkedPair marked =
        mark_flip(*pair.text_on, *pair.text_off, text_of(on, pair.flip_top), text_of(off, pair.flip_top));
    out["text"] = {{"on", to_json(marked.on)}, {"off", to_json(marked.off)}};
  }
  out["flip_top"] = to_json_value(pair.flip_top);
  if (flip_step != nullptr)
    out["step"] = {{"kl_on_off_nats", to_json_value(flip_step->kl_on_off_nats)},
                   {"max_abs_dlogit", to_json_value(flip_step->max_abs_dlogit)},
                   {"margin_on", to_json_value(flip_step->margin_on)},
                   {"margin_off", to_json_value(flip_step->margin_off)},
                   {"tie", flip_step->tie_on || flip_step->tie_off}};
  return out;
}

}  // namespace kvdiv
