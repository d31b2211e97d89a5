#pragma once
// Tables of text that line up, counted in characters as a terminal shows them (UTF-8, no wide characters used here).
#include <set>
#include <string>
#include <vector>

namespace kvdiv {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// Aligns a column to the left; the first is, the others are not.
  TextTable& left(std::size_t column) {
    left_.insert(column);
    return *this;
  }
  /// Two spaces between columns; each line indented by `indent`.
  std::string str(int indent = 2) const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::set<std::size_t> left_{0};
};

/// Columns that a text takes on a terminal.
std::size_t display_width(const std::string& text);

}  // namespace kvdiv
