#include "pages.h"

#include <fmt/format.h>

#include "kvdiv/base/error.h"
#include "kvdiv/base/stderr.h"
#include "kvdiv/report/csv.h"
#include "kvdiv/report/html.h"
#include "params.h"

namespace kvdiv {

namespace fs = std::filesystem;

void require_page_places(const Invocation& invocation) {
  const auto page = take<PageParams>(invocation);
  std::error_code ignored;
  if (page.html) {
    const fs::path file = *page.html, folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    if (fs::is_directory(file, ignored)) fail_unreadable("--html {}: is a directory; name a file", file.string());
    const auto output = take<OutputParams>(invocation).output;  // is made before the page is written
    const bool is_output =
        output && fs::weakly_canonical(folder / ".", ignored) == fs::weakly_canonical(fs::path(*output) / ".", ignored);
    if (!is_output && !fs::is_directory(folder, ignored))
      fail_unreadable("--html {}: there is no directory {}; make it first", file.string(), folder.string());
  }
  if (page.csv && fs::exists(*page.csv, ignored) && !fs::is_directory(*page.csv, ignored))
    fail_unreadable("--csv {}: is not a directory; name one, it is made if it is not there", *page.csv);
}

void write_pages(const Invocation& invocation, const std::vector<fs::path>& results) {
  const auto page = take<PageParams>(invocation);
  if (page.html && !write_html(results, *page.html))
    write_stderr(fmt::format(
        "kvdiv: {} has no charts: Chart.js was not found; install Debian's libjs-chart.js and write it again\n",
        *page.html));
  if (page.csv) write_csv(results.front(), *page.csv);
}

}  // namespace kvdiv
