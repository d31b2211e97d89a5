// kvdiv: is decoding with a key/value cache equivalent to recomputing the whole prefix?
//
// The table of contents: the command line (cli/) picks a command of its table, which loads a checkpoint (io/, model/),
// runs an experiment (experiments/ on decode/ and stats/) and writes a result (report/).
#include <fmt/format.h>

#include <new>

#include "kvdiv/base/error.h"
#include "kvdiv/base/interrupt.h"
#include "kvdiv/base/stderr.h"
#include "kvdiv/cli/app.h"
#include "kvdiv/numerics/switches.h"
#include "kvdiv/numerics/torch_info.h"

namespace {

int report(kvdiv::ErrorKind kind, const std::string& message) {
  kvdiv::write_stderr(fmt::format("kvdiv: {}\n", message));
  return static_cast<int>(kind);
}

}  // namespace

int main(int argc, char** argv) {
  kvdiv::prepare_process();
  kvdiv::install_interrupt_handlers();
  try {
    return kvdiv::run_command_line({argv + 1, argv + argc});
  } catch (const kvdiv::Error& error) {
    return report(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return report(kvdiv::ErrorKind::unreadable, "out of memory; use a smaller model or a 16-bit --dtype");
  } catch (const std::exception& error) {
    return report(kvdiv::ErrorKind::internal, "a defect of kvdiv, please report it: " + kvdiv::message_of(error));
  }
}
