#include <cstdlib>

#include "kvdiv/base/error.h"
#include "kvdiv/io/hub.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;

bool has_both(const fs::path& root) {
  std::error_code ignored;
  return fs::is_regular_file(root / "configs" / "models.json", ignored) &&
         fs::is_directory(root / "data" / "models", ignored);
}

DataPaths under(const fs::path& root) { return {root / "configs", root / "data"}; }

}  // namespace

DataPaths find_data_paths() {
  std::error_code error;
  const fs::path exe = fs::read_symlink("/proc/self/exe", error);
  if (error) fail_unreadable("/proc/self/exe: cannot be read: {}; set KVDIV_DATA", error.message());
  return find_data_paths_from(exe.parent_path());
}

DataPaths find_data_paths_from(const fs::path& exe_dir) {
  if (const char* root = std::getenv("KVDIV_DATA"); root != nullptr && *root != '\0') {
    if (!has_both(root))
      fail_unreadable("KVDIV_DATA={}: expected a directory with configs/models.json and data/models", root);
    return under(root);
  }
  if (const fs::path share = (exe_dir / ".." / "share" / "kvdiv").lexically_normal(); has_both(share))
    return under(share);
  for (fs::path dir = exe_dir;; dir = dir.parent_path()) {
    if (has_both(dir)) return under(dir);
    if (dir == dir.parent_path()) break;
  }
  fail_unreadable(
      "no kvdiv data: neither {}/../share/kvdiv nor a directory above it has configs/models.json and "
      "data/models\nset KVDIV_DATA to the directory that holds configs/ and data/",
      exe_dir.string());
}

}  // namespace kvdiv
