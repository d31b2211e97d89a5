#include "kvdiv/stats/answers.h"

#include <algorithm>
#include <utility>

namespace kvdiv {
namespace {

constexpr std::string_view kMinusSign = "\u2212";
constexpr std::string_view kNextQuestion = "\nQuestion:";
constexpr std::string_view kMarker = "####";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool digit_at(std::string_view s, std::size_t i) { return i < s.size() && is_digit(s[i]); }

/// Length of the minus sign at the front of s, or 0.
std::size_t minus_length(std::string_view s) {
  return s.starts_with('-') ? 1 : s.starts_with(kMinusSign) ? kMinusSign.size() : 0;
}

/// Whether a digit group of exactly three digits stands at i.
bool group_of_three(std::string_view s, std::size_t i) {
  return digit_at(s, i) && digit_at(s, i + 1) && digit_at(s, i + 2) && !digit_at(s, i + 3);
}

/// Length of a thousands separator at i, or 0. `loose`: a comma before any digit is one.
std::size_t separator_length(std::string_view s, std::size_t i, bool loose) {
  if (loose && s[i] == ',' && digit_at(s, i + 1)) return 1;
  for (const std::string_view separator : {",", "{,}", "\\,"})
    if (s.substr(i).starts_with(separator) && group_of_three(s, i + separator.size())) return separator.size();
  return 0;
}

struct Unsigned {
  std::string whole, fraction;
  std::size_t end = 0;  // behind the last character of the number
};

/// The number that starts at i with a digit, or with a point before a digit.
Unsigned read_unsigned(std::string_view s, std::size_t i, bool loose) {
  Unsigned out;
  while (i < s.size()) {
    if (is_digit(s[i])) {
      out.whole += s[i++];
    } else if (const std::size_t skip = out.whole.empty() ? 0 : separator_length(s, i, loose); skip > 0) {
      i += skip;
    } else {
      break;
    }
  }
  if (i < s.size() && s[i] == '.' && digit_at(s, i + 1))
    for (++i; digit_at(s, i); ++i) out.fraction += s[i];
  out.end = i;
  return out;
}

bool starts_number(std::string_view s, std::size_t i) {
  return digit_at(s, i) || (i < s.size() && s[i] == '.' && digit_at(s, i + 1));
}

std::string canonical(bool negative, std::string whole, std::string fraction) {
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  fraction.erase(fraction.find_last_not_of('0') + 1);  // npos + 1 is 0: nothing but zeros
  if (whole.empty()) whole.push_back('0');
  if (whole == "0" && fraction.empty()) negative = false;
  std::string out;
  if (negative) out += '-';
  out += whole;
  if (!fraction.empty()) out.append(1, '.').append(fraction);
  return out;
}

/// Spaces that texts use, among them the invisible ones of the data set.
std::size_t space_length(std::string_view s) {
  for (const std::string_view space : {" ", "\t", "\u00a0", "\u200b"})
    if (s.starts_with(space)) return space.size();
  return 0;
}

/// Reads [space | $]* sign? [space | $]* number at the front of s; `end` gets the place behind it.
std::optional<std::string> number_at_front(std::string_view s, std::size_t* end = nullptr) {
  std::size_t i = 0;
  bool negative = false, signed_already = false;
  for (;;) {
    const std::string_view rest = s.substr(i);
    if (const std::size_t n = rest.starts_with('$') ? 1 : space_length(rest); n > 0) {
      i += n;
    } else if (const std::size_t minus = rest.starts_with('+') ? 1 : minus_length(rest); minus > 0 && !signed_already) {
      signed_already = true;
      negative = !rest.starts_with('+');
      i += minus;
    } else {
      break;
    }
  }
  if (!starts_number(s, i)) return std::nullopt;
  const Unsigned number = read_unsigned(s, i, true);
  if (end != nullptr) *end = number.end;
  return canonical(negative, number.whole, number.fraction);
}

std::optional<std::string> after_marker(std::string_view text) {
  for (std::size_t at = text.find(kMarker); at != std::string_view::npos; at = text.find(kMarker, at + 1))
    if (auto value = number_at_front(text.substr(at + kMarker.size()))) return value;
  return std::nullopt;
}

/// Whether a minus sign directly before `number` (or before the `$` before it) is a sign and not a dash.
bool is_negative(std::string_view text, std::size_t number) {
  std::string_view before = text.substr(0, number);
  if (before.ends_with('$')) before.remove_suffix(1);
  if (before.ends_with('-')) {
    before.remove_suffix(1);
  } else if (before.ends_with(kMinusSign)) {
    before.remove_suffix(kMinusSign.size());
  } else {
    return false;
  }
  if (before.empty()) return true;
  for (const std::string_view dash : {"-", "\u2212", "\u2013", "\u2014"})
    if (before.ends_with(dash)) return false;
  const char c = before.back();
  return !is_digit(c) && !is_letter(c) && std::string_view(")]}%.").find(c) == std::string_view::npos;
}

std::optional<std::string> last_number(std::string_view text) {
  std::optional<std::string> last;
  for (std::size_t i = 0; i < text.size();) {
    const bool bare_point = text[i] == '.' && i > 0 && (is_digit(text[i - 1]) || text[i - 1] == '.');
    if (bare_point || !starts_number(text, i)) {
      ++i;
      continue;
    }
    const Unsigned number = read_unsigned(text, i, false);
    last = canonical(is_negative(text, i), number.whole, number.fraction);
    i = number.end;
  }
  return last;
}

}  // namespace

ExtractedAnswer extract_answer(std::string_view text) {
  text = text.substr(0, text.find(kNextQuestion));
  if (auto value = after_marker(text)) return {std::move(value), "strict"};
  if (auto value = last_number(text)) return {std::move(value), "flexible"};
  return {};
}

std::optional<std::string> gold_answer(std::string_view solution) {
  if (auto value = after_marker(solution)) return value;
  return canonical_number(solution);
}

std::optional<std::string> canonical_number(std::string_view text) {
  while (!text.empty() && (text.front() == '\n' || text.front() == '\r')) text.remove_prefix(1);
  std::size_t end = 0;
  auto value = number_at_front(text, &end);
  if (!value) return std::nullopt;
  for (std::string_view rest = text.substr(end); !rest.empty();) {
    const bool trailing = std::string_view(".,\r\n").find(rest.front()) != std::string_view::npos;
    const std::size_t n = trailing ? 1 : space_length(rest);
    if (n == 0) return std::nullopt;
    rest.remove_prefix(n);
  }
  return value;
}

bool same_number(std::string_view a, std::string_view b) {
  const auto x = canonical_number(a), y = canonical_number(b);
  return x && y && *x == *y;
}

}  // namespace kvdiv
