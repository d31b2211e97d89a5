#pragma once
// The text of a page out of its data and the files it is built from.
#include <filesystem>
#include <string>

#include "kvdiv/base/json.h"

namespace kvdiv {

struct PageAssets {
  std::string page;      ///< report.html, with {{title}}, {{style}}, {{data}}, {{chart_js}} and {{script}}
  std::string style;     ///< report.css
  std::string script;    ///< report.js and its parts
  std::string chart_js;  ///< empty: no charts
};

/// Reads the assets from data/report/, and Chart.js from the first of chart_js_places. Error{unreadable} for an asset
/// that is not there, but not for Chart.js.
PageAssets read_page_assets(const std::filesystem::path& data_directory);

/// The page. Nothing that comes from the data can end a script or begin an element: see embed_json.
std::string build_page(const Json& data, const std::string& title, const PageAssets& assets);

/// JSON that can stand in a <script> element, in ASCII: <, > and & are escaped, and so is every character beyond ASCII
/// (U+2028, bidi marks). Parses to the same value; bytes that are not UTF-8 become U+FFFD.
std::string embed_json(const Json& data);

std::string escape_html(const std::string& text);

}  // namespace kvdiv
