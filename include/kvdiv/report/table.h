#pragma once
// Tables of text that line up, counted in characters as a terminal shows them (UTF-8, no wide characters used here).
#include <string>
#include <vector>

namespace kvdiv {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// First column left-aligned, the others right-aligned; two spaces between; each line indented by `indent`.
  std::string str(int indent = 2) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// Columns that a text takes on a terminal.
std::size_t display_width(const std::string& text);

}  // namespace kvdiv
