#include "html_page.h"

#include <array>
#include <string_view>
#include <utility>

#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"
#include "kvdiv/report/html.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;

constexpr std::array kScripts{"format.js", "charts.js", "figures_run.js", "figures_more.js", "report.js"};

/// A script's own text must not end the element that it stands in. "<\/" is "</" in a JavaScript string.
std::string embed_script(std::string text) {
  constexpr std::string_view kEnd = "</script";
  for (std::size_t at = text.find(kEnd); at != std::string::npos; at = text.find(kEnd, at + 1))
    text.insert(at + 1, "\\");
  return text;
}

}  // namespace

std::vector<fs::path> chart_js_places(const fs::path& data_directory) {
  return {data_directory / "report" / "chart.min.js", "/usr/share/javascript/chart.js/chart.min.js",
          "/usr/share/javascript/chart.js/Chart.min.js"};
}

PageAssets read_page_assets(const fs::path& data_directory) {
  const fs::path folder = data_directory / "report";
  PageAssets out{read_text_file(folder / "report.html"), read_text_file(folder / "report.css"), "", ""};
  for (const char* name : kScripts) out.script += read_text_file(folder / name);
  std::error_code ignored;
  for (const fs::path& place : chart_js_places(data_directory)) {
    if (!fs::is_regular_file(place, ignored)) continue;
    out.chart_js = read_text_file(place);
    break;
  }
  return out;
}

std::string escape_html(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= ' ')
      out += c;
  }
  return out;
}

std::string embed_json(const Json& data) {
  const std::string text = data.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (const char c : text) {  // outside of strings JSON has none of the three
    if (c == '<')
      out += "\\u003c";
    else if (c == '>')
      out += "\\u003e";
    else if (c == '&')
      out += "\\u0026";
    else
      out += c;
  }
  return out;
}

std::string build_page(const Json& data, const std::string& title, const PageAssets& assets) {
  const std::array<std::pair<std::string_view, std::string>, 5> parts{{{"{{title}}", escape_html(title)},
                                                                       {"{{style}}", assets.style},
                                                                       {"{{data}}", embed_json(data)},
                                                                       {"{{chart_js}}", embed_script(assets.chart_js)},
                                                                       {"{{script}}", embed_script(assets.script)}}};
  std::string out;
  std::string_view rest = assets.page;
  for (const auto& [mark, text] : parts) {  // in the order of the page, so that no text is searched for marks
    const std::size_t at = rest.find(mark);
    if (at == std::string_view::npos) fail(ErrorKind::internal, "report.html: {} is missing or out of order", mark);
    out.append(rest.substr(0, at)).append(text);
    rest.remove_prefix(at + mark.size());
  }
  return out.append(rest);
}

}  // namespace kvdiv
