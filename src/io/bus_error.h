#pragma once
// A mapped file that somebody cuts off while it is read: the kernel then has no page to give and sends SIGBUS, which
// would end the process without a word.
#include <cstddef>
#include <string>

namespace kvdiv {

/// While it lives, a SIGBUS inside [begin, begin + size) writes `message` to stderr and ends the process with the exit
/// code of ErrorKind::unreadable: a signal handler cannot throw. Any other SIGBUS does what it did before.
class BusErrorMessage {
 public:
  BusErrorMessage(const void* begin, std::size_t size, const std::string& message);
  ~BusErrorMessage();
  BusErrorMessage(const BusErrorMessage&) = delete;
  BusErrorMessage& operator=(const BusErrorMessage&) = delete;

 private:
  std::size_t slot_;
};

}  // namespace kvdiv
