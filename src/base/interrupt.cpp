#include "kvdiv/base/interrupt.h"

#include <csignal>

namespace kvdiv {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

void on_signal(int signal_number) {
  if (g_interrupted != 0) {
    std::signal(signal_number, SIG_DFL);
    std::raise(signal_number);
  }
  g_interrupted = 1;
}

}  // namespace

void install_interrupt_handlers() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::signal(SIGXFSZ,
              SIG_IGN);  // a limit on the size of files is a failed write with its own message, not a sudden end
}

bool interrupted() { return g_interrupted != 0; }
void set_interrupted(bool value) { g_interrupted = value ? 1 : 0; }

}  // namespace kvdiv
