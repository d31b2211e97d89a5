// One binary a target: KVDIV_FUZZ_TARGET is the function's name.
#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvdiv::test::KVDIV_FUZZ_TARGET({data, size});
  return 0;
}
