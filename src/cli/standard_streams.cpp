#include "standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "kvdiv/base/error.h"

namespace kvdiv {

void open_standard_streams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // stdout for reading only: what is printed there is lost, and that must be an error. Notes on stderr may be lost.
    const int mode = descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY;
    if (open("/dev/null", mode) != descriptor) fail_unreadable("/dev/null: cannot be opened: {}", std::strerror(errno));
  }
}

void flush_stdout() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    fail_unreadable("stdout: cannot be written: {}; what was measured is in the result directory, see kvdiv report",
                    std::strerror(errno));
}

}  // namespace kvdiv
