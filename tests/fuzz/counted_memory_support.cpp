#include "fuzz/counted_memory.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> held{0}, peak{0};

void* counted(std::size_t n_bytes) noexcept {
  void* const memory = std::malloc(n_bytes == 0 ? 1 : n_bytes);
  if (memory == nullptr) return nullptr;
  const std::size_t now = held += ::malloc_usable_size(memory);
  for (std::size_t old = peak; now > old && !peak.compare_exchange_weak(old, now);) {
  }
  return memory;
}

void uncounted(void* memory) noexcept {
  if (memory != nullptr) held -= ::malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

namespace kvdiv::test {
PeakMemory::PeakMemory() : before_(held) { peak = held.load(); }
std::size_t PeakMemory::bytes() const { return peak - before_; }
}  // namespace kvdiv::test

// The library's array and nothrow forms call these.
void* operator new(std::size_t n_bytes) {
  if (void* const memory = counted(n_bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { uncounted(memory); }
void operator delete(void* memory, std::size_t) noexcept { uncounted(memory); }
