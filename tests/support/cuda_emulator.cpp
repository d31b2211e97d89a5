// A block of threads and its scheduler.
#include "support/cuda_emulator.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/cuda_fibers.h"

#if defined(__x86_64__)
asm(R"(
.text
.type kvdiv_switch_stack, @function
kvdiv_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kvdiv_switch_stack, .-kvdiv_switch_stack
)");
#endif

namespace kvdiv::emulator {
namespace {

constexpr std::size_t kWarp = device::kWarp;

struct PendingCopy {
  void* to;
  const void* from;
  int n_bytes;
  int group;
};

void carry_out(const PendingCopy& copy) {
  char bytes[16] = {};
  if (copy.n_bytes > 0) std::memcpy(bytes, copy.from, static_cast<std::size_t>(copy.n_bytes));
  std::memcpy(copy.to, bytes, sizeof(bytes));
}

/// A draw for each step of a thread: SplitMix64 costs a tenth of std::mt19937_64.
struct Random {
  using result_type = std::uint64_t;
  std::uint64_t state;
  static constexpr std::uint64_t min() { return 0; }
  static constexpr std::uint64_t max() { return ~std::uint64_t{0}; }
  std::uint64_t operator()() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
};

enum class State { runnable, at_warp, at_block, done };

struct Fiber {
  Context context;
  char* stack = nullptr;
  void* fake_stack = nullptr;  ///< AddressSanitizer's
  Place place;
  State state = State::runnable;
  const char* instruction = "";
  CarryOut carry_out = nullptr;
  void* operands = nullptr;
  std::vector<PendingCopy> copies;
  int n_groups = 0;
};

/// The block that runs, and its scheduler.
class Block {
 public:
  Block(const Launch& launch, const std::function<void()>& kernel);
  void run(int x, int y, int z);

  Fiber& current() { return fibers_[current_]; }
  const Launch& launch() const { return launch_; }
  char* shared() { return shared_.get(); }
  bool is_shared(const void* p, std::size_t n) const {
    const auto* const c = static_cast<const char*>(p);
    return c >= shared_.get() && c + n <= shared_.get() + launch_.shared_bytes;
  }
  void wait_for_block();
  void wait_for_warp(const char* name, CarryOut carry_out, void* mine);
  bool draw(std::uint64_t one_in) { return random_() % one_in == 0; }

 private:
  static void entry();
  void start(std::size_t i, Place place);
  void make_runnable(std::size_t first, std::size_t n);
  void give_way(Context& from, void** fake_stack);
  const Context* choose();
  void arrived(void* fake_stack);
  std::string where_all_stand() const;

  const Launch& launch_;
  const std::function<void()>& kernel_;
  Random random_;
  std::uint64_t reorder_one_in_;
  std::vector<Fiber> fibers_;
  std::vector<std::vector<std::size_t>> runnable_;  ///< of each warp
  std::vector<std::size_t> n_waiting_;              ///< lanes of each warp that stand at its instruction
  std::vector<std::size_t> warp_order_;
  std::unique_ptr<char, void (*)(void*)> shared_;
  std::size_t current_ = 0, n_at_barrier_ = 0, n_done_ = 0;
  std::exception_ptr error_;
  Context home_;
  void* home_fake_stack_ = nullptr;
  const void* home_bottom_ = nullptr;  ///< the stack of run(), for AddressSanitizer
  std::size_t home_size_ = 0;
  bool at_home_ = true;
};

thread_local Block* running = nullptr;

Block& block() {
  if (running == nullptr) throw EmulationError("a primitive outside a kernel");
  return *running;
}

/// Warps side by side, now and then reordered, or one far ahead of the others: which of these, the seed decides.
std::uint64_t reorder_rate(std::uint64_t seed) {
  constexpr std::uint64_t kRates[] = {1, 16, 256};
  return kRates[seed % 3];
}

Block::Block(const Launch& launch, const std::function<void()>& kernel)
    : launch_(launch),
      kernel_(kernel),
      random_{launch.seed},
      reorder_one_in_(reorder_rate(launch.seed)),
      fibers_(static_cast<std::size_t>(launch.threads)),
      runnable_(fibers_.size() / kWarp),
      n_waiting_(runnable_.size()),
      warp_order_(runnable_.size()),
      shared_(nullptr, &std::free) {
  std::iota(warp_order_.begin(), warp_order_.end(), std::size_t{0});
  // Stacks are kept from launch to launch. They are not initialised: pages come when touched.
  thread_local std::vector<std::unique_ptr<char[]>> stacks;
  while (stacks.size() < fibers_.size()) stacks.emplace_back(new char[kStackBytes]);
  for (std::size_t i = 0; i < fibers_.size(); ++i) fibers_[i].stack = stacks[i].get();
}

void Block::start(std::size_t i, Place place) {
  Fiber& fiber = fibers_[i];
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(fiber.stack, kStackBytes);  // what the last block's frames left
#endif
  prepare(fiber.context, fiber.stack, &Block::entry);
  fiber.fake_stack = nullptr;
  fiber.place = place;
  fiber.copies.clear();
  fiber.n_groups = 0;
}

void Block::run(int x, int y, int z) {
  const std::size_t bytes = std::max<std::size_t>(launch_.shared_bytes, 1);
  void* memory = nullptr;
  if (posix_memalign(&memory, 128, bytes) != 0) throw std::bad_alloc();
  shared_.reset(static_cast<char*>(memory));
  std::memset(memory, 0xff, bytes);  // NaN in all storage types
  n_at_barrier_ = n_done_ = 0;
  for (std::size_t i = 0; i < fibers_.size(); ++i) start(i, {static_cast<int>(i), x, y, z});
  for (auto& lanes : runnable_) lanes.clear();
  std::fill(n_waiting_.begin(), n_waiting_.end(), std::size_t{0});
  make_runnable(0, fibers_.size());
  running = this;
  give_way(home_, &home_fake_stack_);
  running = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Block::entry() {
  Block& self = *running;
  self.arrived(nullptr);
  try {
    self.kernel_();
  } catch (...) {
    self.error_ = std::current_exception();
  }
  Fiber& fiber = self.current();
  for (const auto& copy : fiber.copies) carry_out(copy);
  fiber.state = State::done;
  ++self.n_done_;
  self.give_way(fiber.context, nullptr);
  std::abort();  // nobody returns to a fiber that is done
}

/// A random lane of the first warp that can run; nullptr: back to run().
const Context* Block::choose() {
  if (error_) return nullptr;
  if (draw(reorder_one_in_)) std::shuffle(warp_order_.begin(), warp_order_.end(), random_);
  for (const std::size_t w : warp_order_) {
    auto& lanes = runnable_[w];
    if (lanes.empty()) continue;
    std::swap(lanes[random_() % lanes.size()], lanes.back());
    current_ = lanes.back();
    lanes.pop_back();
    return &fibers_[current_].context;
  }
  if (n_done_ < fibers_.size()) error_ = std::make_exception_ptr(EmulationError(where_all_stand()));
  return nullptr;
}

/// Leaves `from` for whoever is next; returns when `from` is chosen again. No `fake_stack`: it never is.
void Block::give_way(Context& from, void** fake_stack) {
  const Context* to = choose();
  at_home_ = to == nullptr;
  if (to == &from) return;
#if defined(__SANITIZE_ADDRESS__)
  if (at_home_)
    __sanitizer_start_switch_fiber(fake_stack, home_bottom_, home_size_);
  else
    __sanitizer_start_switch_fiber(fake_stack, current().stack, kStackBytes);
#endif
  switch_to(from, at_home_ ? home_ : *to);
  arrived(fake_stack == nullptr ? nullptr : *fake_stack);
}

void Block::arrived([[maybe_unused]] void* fake_stack) {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
  // The first fiber comes from run() and learns where its stack lies.
  if (!at_home_ && home_bottom_ == nullptr) home_bottom_ = bottom, home_size_ = size;
#endif
}

void Block::make_runnable(std::size_t first, std::size_t n) {
  for (std::size_t i = first; i < first + n; ++i) {
    fibers_[i].state = State::runnable;
    runnable_[i / kWarp].push_back(i);
  }
}

void Block::wait_for_block() {
  Fiber& fiber = current();
  fiber.state = State::at_block;
  fiber.instruction = "block barrier";
  if (++n_at_barrier_ == fibers_.size()) {
    n_at_barrier_ = 0;
    make_runnable(0, fibers_.size());
  }
  give_way(fiber.context, &fiber.fake_stack);
}

void Block::wait_for_warp(const char* name, CarryOut carry_out, void* mine) {
  Fiber& fiber = current();
  const std::size_t w = current_ / kWarp, first = w * kWarp;
  fiber.state = State::at_warp;
  fiber.instruction = name;
  fiber.carry_out = carry_out;
  fiber.operands = mine;
  if (++n_waiting_[w] == kWarp) {
    void* lanes[kWarp];
    for (std::size_t l = 0; l < kWarp; ++l) {
      require(fibers_[first + l].carry_out == carry_out, "lanes of a warp at different instructions");
      lanes[l] = fibers_[first + l].operands;
    }
    n_waiting_[w] = 0;
    carry_out(lanes);
    make_runnable(first, kWarp);
  }
  give_way(fiber.context, &fiber.fake_stack);
}

std::string Block::where_all_stand() const {
  std::string out = "nobody can go on:";
  for (std::size_t i = 0; i < fibers_.size(); ++i) {
    const auto at = [&](std::size_t j) {
      return std::string(fibers_[j].state == State::done ? "end" : fibers_[j].instruction);
    };
    if (i == 0 || at(i) != at(i - 1)) out += " thread " + std::to_string(i) + " at " + at(i) + ";";
  }
  return out;
}

}  // namespace

// ---- what the primitives call --------------------------------------------------------------------------------------

void run(const Launch& launch, const std::function<void()>& kernel) {
  if (launch.threads < 1 || launch.threads > 1024 || launch.threads % device::kWarp != 0)
    throw EmulationError("a block of " + std::to_string(launch.threads) + " threads");
  if (launch.grid_x < 1 || launch.grid_y < 1 || launch.grid_y > 65535 || launch.grid_z < 1 || launch.grid_z > 65535)
    throw EmulationError("a grid that no GPU takes");
  Block one(launch, kernel);
  for (int z = 0; z < launch.grid_z; ++z)
    for (int y = 0; y < launch.grid_y; ++y)
      for (int x = 0; x < launch.grid_x; ++x) one.run(x, y, z);
}

void require(bool holds, const char* what) {
  if (!holds) throw EmulationError(what);
}

const Place& place() { return block().current().place; }
const Launch& current_launch() { return block().launch(); }
char* shared_memory() { return block().shared(); }
bool is_shared(const void* p, std::size_t n) { return block().is_shared(p, n); }
void block_barrier() { block().wait_for_block(); }
void warp_instruction(const char* name, CarryOut carry_out, void* mine) {
  block().wait_for_warp(name, carry_out, mine);
}

void copy_async(void* shared, const void* global, int n_bytes) {
  Block& b = block();
  require(n_bytes == 0 || n_bytes == 16, "copy_async: 0 or 16 bytes");
  require(reinterpret_cast<std::uintptr_t>(shared) % 16 == 0, "copy_async: to an address that is not aligned");
  require(reinterpret_cast<std::uintptr_t>(global) % 16 == 0, "copy_async: from an address that is not aligned");
  require(b.is_shared(shared, 16), "copy_async: to what is not shared memory");
  Fiber& fiber = b.current();
  const PendingCopy copy{shared, global, n_bytes, fiber.n_groups};
  if (b.draw(4))
    carry_out(copy);
  else
    fiber.copies.push_back(copy);
}

void copy_async_commit() { ++block().current().n_groups; }

void copy_async_wait(int n_left) {
  Fiber& fiber = block().current();
  const auto is_due = [&](const PendingCopy& copy) { return copy.group < fiber.n_groups - n_left; };
  for (const auto& copy : fiber.copies)
    if (is_due(copy)) carry_out(copy);
  std::erase_if(fiber.copies, is_due);
}

}  // namespace kvdiv::emulator
