#pragma once
// Bytes that `operator new` of this binary has handed out: counted by the replacements in counted_memory_support.cpp.
#include <cstddef>

namespace kvdiv::test {

/// The largest number of bytes held at one time since the object was made, beyond those held before.
class PeakMemory {
 public:
  PeakMemory();
  std::size_t bytes() const;

 private:
  std::size_t before_;
};

}  // namespace kvdiv::test
