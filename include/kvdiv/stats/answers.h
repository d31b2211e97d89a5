#pragma once
// The number that a GSM8K text answers. Two rules, as in the usual harnesses: `strict`, the number after "####";
// failing that `flexible`, the last number of the text. Which one fired is reported.
#include <optional>
#include <string>
#include <string_view>

namespace kvdiv {

struct ExtractedAnswer {
  std::optional<std::string> value;  ///< canonical number (see canonical_number), null if the text has none
  std::string rule = "none";         ///< "strict", "flexible" or "none"
};

/// The answer of a model's text. Only text before the first newline followed by "Question:" counts (a model that goes
/// on asks itself the next question); the word inside a sentence cuts nothing. The text itself is not changed: what is
/// logged stays whole.
///
/// strict: the first "####" that a number follows, on the same line, after any of space, `$`, a sign and `$` again.
/// Commas between digits are dropped; what follows the number does not matter.
/// flexible: the last number. A number is digits, with thousands groups (`,`, `{,}` or `\,` before just three digits)
/// and a decimal part; `.5` counts where nothing numeric stands before the point. A point or comma that no digit
/// follows is punctuation. `-` or `−` (U+2212) is a sign only if no letter, digit, `)`, `]`, `}`, `%`, `.` or dash
/// stands before it (so `3-5` ends in 5) and the number or `$` follows at once. Everything else separates: `3/4` is 4,
/// `5:30` is 30, `1e5` is 5, as in the reference rules.
///
/// On purpose other than the reference rules: `####18`, `#### $1,450,000.` and `#### −10` are strict; `3-5`, `9{,}500`,
/// `5...` and text past the next question are read as a person would; 18.00 is 18.
ExtractedAnswer extract_answer(std::string_view text);

/// The gold answer of a GSM8K solution: the number after its "####", else the whole text if that is one number (as in
/// prompt files with a bare `answer`); null otherwise. Nothing is cut.
std::optional<std::string> gold_answer(std::string_view solution);

/// The canonical text of a number that is all there is in `text` but for spaces, `$`, a sign, commas between digits and
/// trailing `.` or `,`: no sign but `-` (and none for 0), no leading zeros, no trailing zeros after the point. So 18,
/// 18.0, 018 and $18.00 are all "18". Decimal text throughout: no floating point, no limit on digits. Null if none.
std::optional<std::string> canonical_number(std::string_view text);

/// True if both texts are numbers (in the sense of canonical_number) of the same value, exactly.
bool same_number(std::string_view a, std::string_view b);

}  // namespace kvdiv
