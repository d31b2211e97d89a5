#pragma once
// Stacks to switch between: what a fiber of the emulator runs on.
#include <ucontext.h>

#include <algorithm>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace kvdiv::emulator {

inline constexpr std::size_t kStackBytes = 256 * 1024;

/// A place to continue at. Switching by ucontext asks the kernel for the signal mask each time; on x86-64 the callee-
/// saved registers are all that is needed, which is thirty times faster.
struct Context {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t saved{};
#endif
};

#if defined(__x86_64__)
/// Defined with the scheduler.
extern "C" void kvdiv_switch_stack(void** save, void* load);
#endif

inline void prepare(Context& context, char* stack, void (*entry)()) {
#if defined(__x86_64__)
  // From the top: two words that align it as a call would, a return address that ends every backtrace, the entry, and
  // six registers.
  auto* top = reinterpret_cast<void**>(stack + kStackBytes) - 3;
  std::fill(top - 7, top + 3, nullptr);
  top[-1] = reinterpret_cast<void*>(entry);
  context.stack_pointer = top - 7;
#else
  getcontext(&context.saved);
  context.saved.uc_stack.ss_sp = stack;
  context.saved.uc_stack.ss_size = kStackBytes;
  context.saved.uc_link = nullptr;
  makecontext(&context.saved, entry, 0);
#endif
}

inline void switch_to(Context& from, const Context& to) {
#if defined(__x86_64__)
  kvdiv_switch_stack(&from.stack_pointer, to.stack_pointer);
#else
  swapcontext(&from.saved, &to.saved);
#endif
}

}  // namespace kvdiv::emulator
