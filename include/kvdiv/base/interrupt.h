#pragma once
// SIGINT and SIGTERM set a flag; long loops look at it between records.
namespace kvdiv {

/// Installs the handlers. A second signal ends the process at once.
void install_interrupt_handlers();
bool interrupted();
/// For tests: as if a signal had come (or not).
void set_interrupted(bool value);

}  // namespace kvdiv
