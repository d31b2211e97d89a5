#include "bus_error.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

/// What the handler may read: a slot is filled before `end` is set, and `end` is cleared first. No memory is allocated
/// or freed, so a signal in one thread never meets a change in another half done.
struct Slot {
  std::atomic<bool> is_taken{false};
  std::atomic<std::uintptr_t> begin{0}, end{0};
  std::array<char, 512> message{};
  std::size_t n_chars = 0;
};

// A checkpoint has fewer shards than that; a mapping without a slot merely dies as every program does.
constexpr std::size_t kSlots = 1024;
std::array<Slot, kSlots> slots;
struct sigaction previous {};

void handle(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const Slot& slot : slots) {
    if (address >= slot.end.load(std::memory_order_acquire) || address < slot.begin.load(std::memory_order_relaxed))
      continue;
    [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, slot.message.data(), slot.n_chars);
    ::_exit(static_cast<int>(ErrorKind::unreadable));
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr)
    previous.sa_sigaction(signal, info, context);
  else
    ::sigaction(SIGBUS, &previous, nullptr);  // and the instruction is tried again
}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGBUS, &action, &previous);
}

}  // namespace

BusErrorMessage::BusErrorMessage(const void* begin, std::size_t size, const std::string& message) : slot_(kSlots) {
  static const bool installed = (install_handler(), true);
  static_cast<void>(installed);
  const auto free_one = std::find_if(slots.begin(), slots.end(), [](Slot& slot) {
    bool expected = false;
    return slot.is_taken.compare_exchange_strong(expected, true);
  });
  if (free_one == slots.end()) return;
  slot_ = static_cast<std::size_t>(free_one - slots.begin());
  free_one->n_chars = std::min(message.size(), free_one->message.size());
  std::copy_n(message.begin(), free_one->n_chars, free_one->message.begin());
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  free_one->begin.store(address, std::memory_order_relaxed);
  free_one->end.store(address + size, std::memory_order_release);
}

BusErrorMessage::~BusErrorMessage() {
  if (slot_ == kSlots) return;
  slots[slot_].end.store(0, std::memory_order_release);
  slots[slot_].is_taken.store(false);
}

}  // namespace kvdiv
