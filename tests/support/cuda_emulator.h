#pragma once
// Runs the kernels of src/cuda on a CPU, so that their logic can be tested without a GPU: include this before them.
//
// A grid is run block by block, each thread of a block as a fiber of its own. A fiber runs until it stands at a barrier
// or at an instruction of the whole warp; which one runs next is drawn with a seed. Shared memory starts as NaNs,
// asynchronous copies are carried out as late as is allowed or, some of them, at once. So what a kernel leaves to luck
// (a missing barrier or wait) shows as different bits under different seeds. Shared memory is freshly allocated for
// each block: under AddressSanitizer it has bounds.
//
// What it cannot show: a warp barrier that is missing in front of another instruction of the whole warp (here all of
// them order the lanes' memory), and what a tensor core does inside: its sixteen products are added one by one, with a
// rounding each, which no GPU does.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "cuda/device_types.h"

#define KVDIV_CUDA_EMULATED 1
#define KVDIV_DEVICE inline
#define KVDIV_HOST_DEVICE
#define KVDIV_KERNEL inline
#define KVDIV_LAUNCH_BOUNDS(threads, blocks_per_sm)
#define KVDIV_UNROLL
#define KVDIV_UNROLL_4

namespace kvdiv::emulator {

/// A fault that a GPU would turn into a hang or into undefined results: a barrier that not all threads reach, a warp
/// instruction without all its lanes, an address that is not aligned or not in shared memory.
class EmulationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Launch {
  int grid_x = 1, grid_y = 1, grid_z = 1;
  int threads = 32;  ///< a multiple of 32
  std::size_t shared_bytes = 0;
  std::uint64_t seed = 1;
};

/// Calls `kernel` once for each thread of the grid. Throws EmulationError, or what the kernel throws.
void run(const Launch& launch, const std::function<void()>& kernel);

// ---- for the primitives below --------------------------------------------------------------------------------------

struct Place {
  int thread_x = 0, block_x = 0, block_y = 0, block_z = 0;
};
const Place& place();
const Launch& current_launch();
char* shared_memory();
void block_barrier();
/// Waits until all lanes of the warp are at this instruction, then `carry_out` reads and writes what they brought.
using CarryOut = void (*)(void* const* lanes);
void warp_instruction(const char* name, CarryOut carry_out, void* mine);
void require(bool holds, const char* what);
/// Whether n bytes at p lie in the block's shared memory.
bool is_shared(const void* p, std::size_t n);

void copy_async(void* shared, const void* global, int n_bytes);
void copy_async_commit();
void copy_async_wait(int n_left);

struct MatrixLane {
  const void* row;
  std::uint32_t out[4];
};
void load_matrices(void* const* lanes);
void load_matrices_transposed(void* const* lanes);

struct TileLane {
  float* c;
  std::uint32_t a[4], b[2];
};
void multiply_add_half(void* const* lanes);
void multiply_add_bfloat(void* const* lanes);

float widen_half(std::uint16_t bits);
std::uint16_t narrow_half(float x);

template <class W>
struct ShuffleLane {
  W value, got;
  int mask;
};
template <class W>
void shuffle_xor(void* const* lanes) {
  for (int l = 0; l < device::kWarp; ++l) {
    auto* const lane = static_cast<ShuffleLane<W>*>(lanes[l]);
    require(lane->mask > 0 && lane->mask < device::kWarp, "shuffle: mask within the warp");
    lane->got = static_cast<ShuffleLane<W>*>(lanes[l ^ lane->mask])->value;
  }
}

}  // namespace kvdiv::emulator

// ---- the primitives, as in cuda/device_code.h ----------------------------------------------------------------------

namespace kvdiv::device {

inline int thread_x() { return emulator::place().thread_x; }
inline int block_x() { return emulator::place().block_x; }
inline int block_y() { return emulator::place().block_y; }
inline int block_z() { return emulator::place().block_z; }
inline int block_threads() { return emulator::current_launch().threads; }
inline int grid_x() { return emulator::current_launch().grid_x; }

inline char* shared_memory() { return emulator::shared_memory(); }

inline void block_barrier() { emulator::block_barrier(); }
inline void warp_barrier() {
  emulator::warp_instruction("warp barrier", [](void* const*) {}, nullptr);
}
template <class W>
W shuffle_xor(W v, int mask) {
  emulator::ShuffleLane<W> lane{v, v, mask};
  emulator::warp_instruction("shuffle", &emulator::shuffle_xor<W>, &lane);
  return lane.got;
}

inline void load_matrices(std::uint32_t (&out)[4], const void* row) {
  emulator::MatrixLane lane{row, {}};
  emulator::warp_instruction("ldmatrix", &emulator::load_matrices, &lane);
  std::memcpy(out, lane.out, sizeof(out));
}
inline void load_matrices_transposed(std::uint32_t (&out)[4], const void* row) {
  emulator::MatrixLane lane{row, {}};
  emulator::warp_instruction("ldmatrix.trans", &emulator::load_matrices_transposed, &lane);
  std::memcpy(out, lane.out, sizeof(out));
}

inline void copy_async(void* shared, const void* global, int n_bytes) {
  emulator::copy_async(shared, global, n_bytes);
}
inline void copy_async_commit() { emulator::copy_async_commit(); }
template <int kLeft>
void copy_async_wait() {
  emulator::copy_async_wait(kLeft);
}

template <class T>
void multiply_add_tile(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  emulator::TileLane lane{c, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  constexpr bool kHalf = sizeof(T) == sizeof(Half) && !std::is_same_v<T, BFloat>;
  emulator::warp_instruction(kHalf ? "mma.f16" : "mma.bf16",
                             kHalf ? &emulator::multiply_add_half : &emulator::multiply_add_bfloat, &lane);
}

inline float widen(Half x) { return emulator::widen_half(x.bits); }
inline float widen(BFloat x) {
  const std::uint32_t bits = static_cast<std::uint32_t>(x.bits) << 16;
  float out;
  std::memcpy(&out, &bits, sizeof(out));
  return out;
}
inline float widen(float x) { return x; }
inline double widen(double x) { return x; }

template <class T>
T narrow(Wide<T> x) {
  return x;
}
template <>
inline Half narrow<Half>(float x) {
  return {emulator::narrow_half(x)};
}
template <>
inline BFloat narrow<BFloat>(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if (x != x) return {0x7fff};  // what the GPU's conversion gives for every NaN
  return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

template <class W>
W add(W a, W b) {
  return a + b;
}
template <class W>
W mul(W a, W b) {
  return a * b;
}
template <class W>
W divide(W a, W b) {
  return a / b;
}
template <class W>
W fused(W a, W b, W c) {
  return std::fma(a, b, c);
}
template <class W>
W square_root(W x) {
  return std::sqrt(x);
}
template <class W>
W larger(W a, W b) {
  return std::fmax(a, b);
}
template <class W>
W exponential(W x) {
  return std::exp(x);
}
template <class W>
W logarithm(W x) {
  return std::log(x);
}
template <class W>
W hyperbolic_tangent(W x) {
  return std::tanh(x);
}
template <class T>
T zero() {
  return T{};
}
template <class W>
W minus_infinity(W) {
  return -std::numeric_limits<W>::infinity();
}

}  // namespace kvdiv::device
