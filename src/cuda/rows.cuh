#pragma once
// Norms, log softmax and elementwise functions. A row is a block's; an element's function is its own.
#include "device_code.h"
#include "kernels.h"
#include "lanes.cuh"
#include "launch.h"

namespace kvdiv::device {

/// Lanes of a row's sum.
inline constexpr int kRowLanes = 256;
inline constexpr int kRowWarps = kRowLanes / kWarp;
/// Elements of a thread of an elementwise kernel.
inline constexpr int kOfThread = 4;

template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kRowLanes, 1) rms_norm(cuda::NormCall call) {
  using W = Wide<T>;
  const std::int64_t row = block_x();
  const auto* const x = static_cast<const T*>(call.x) + row * call.x_stride;
  const auto* const weight = static_cast<const T*>(call.weight);
  auto* const y = static_cast<T*>(call.y) + row * call.C;
  const int C = static_cast<int>(call.C);

  W sum = 0;
  KVDIV_UNROLL_4
  for (int i = thread_x(); i < C; i += kRowLanes) {
    const W v = widen(x[i]);
    sum = fused(v, v, sum);
  }
  sum = add_lanes<kRowWarps>(sum, reinterpret_cast<W*>(shared_memory()));
  const W mean = add(divide(sum, static_cast<W>(call.C)), static_cast<W>(call.eps));
  const W scale = divide(static_cast<W>(1), square_root(mean)), offset = static_cast<W>(call.offset);

  KVDIV_UNROLL_4
  for (int i = thread_x(); i < C; i += kRowLanes) {
    const W scaled = mul(widen(x[i]), scale), w = widen(weight[i]);
    const W gain = offset == 0 ? w : add(w, offset);
    y[i] = narrow<T>(call.round_before_weight ? mul(rounded<T>(gain), rounded<T>(scaled)) : mul(scaled, gain));
  }
}

template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kRowLanes, 1) log_softmax(cuda::LogSoftmaxCall call) {
  using W = Wide<T>;
  const std::int64_t row = block_x();
  const auto* const x = static_cast<const T*>(call.x) + row * call.x_stride;
  auto* const y = static_cast<W*>(call.y) + row * call.C;
  const int C = static_cast<int>(call.C);
  auto* const scratch = reinterpret_cast<W*>(shared_memory());

  W largest = minus_infinity(W{});
  KVDIV_UNROLL_4
  for (int i = thread_x(); i < C; i += kRowLanes) largest = larger(largest, widen(x[i]));
  largest = largest_of_lanes<kRowWarps>(largest, scratch);
  W sum = 0;
  KVDIV_UNROLL_4
  for (int i = thread_x(); i < C; i += kRowLanes) sum = add(sum, exponential(add(widen(x[i]), -largest)));
  sum = add_lanes<kRowWarps>(sum, scratch + kRowWarps);
  const W log_sum = logarithm(sum);
  KVDIV_UNROLL_4
  for (int i = thread_x(); i < C; i += kRowLanes) y[i] = add(add(widen(x[i]), -largest), -log_sum);
}

/// x/(1 + e⁻ˣ). Where e⁻ˣ is infinite this is the right −0.
template <class W>
KVDIV_DEVICE W silu(W x) {
  return divide(x, add(static_cast<W>(1), exponential(-x)));
}

/// ½x(1 + tanh(√(2/π)(x + 0.044715x³))): the "tanh" GELU, in the reference's grouping.
template <class W>
KVDIV_DEVICE W gelu_tanh(W x) {
  const W cubic = static_cast<W>(0.044715), factor = static_cast<W>(0.79788456080286535588);
  const W cube = mul(mul(x, x), x);
  const W tanh = hyperbolic_tangent(mul(factor, fused(cubic, cube, x)));
  return mul(mul(static_cast<W>(0.5), x), add(static_cast<W>(1), tanh));
}

template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kRowLanes, 1) gated(cuda::GatedCall call) {
  const std::int64_t row = block_x(), first = static_cast<std::int64_t>(block_y()) * kRowLanes * kOfThread + thread_x();
  const auto* const gate = static_cast<const T*>(call.gate) + row * call.gate_stride;
  const auto* const up = static_cast<const T*>(call.up) + row * call.up_stride;
  auto* const y = static_cast<T*>(call.y) + row * call.C;
  KVDIV_UNROLL
  for (int j = 0; j < kOfThread; ++j) {
    const std::int64_t i = first + j * kRowLanes;
    if (i >= call.C) return;
    const Wide<T> x = widen(gate[i]);
    const Wide<T> activated = call.kind == cuda::GatedKind::silu ? silu(x) : gelu_tanh(x);
    y[i] = narrow<T>(mul(rounded<T>(activated), widen(up[i])));
  }
}

template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kRowLanes, 1) soft_cap(cuda::SoftCapCall call) {
  const std::int64_t first = static_cast<std::int64_t>(block_x()) * kRowLanes * kOfThread + thread_x();
  const auto* const x = static_cast<const T*>(call.x);
  auto* const y = static_cast<T*>(call.y);
  KVDIV_UNROLL
  for (int j = 0; j < kOfThread; ++j) {
    const std::int64_t i = first + j * kRowLanes;
    if (i >= call.n) return;
    y[i] = narrow<T>(capped<T>(widen(x[i]), static_cast<Wide<T>>(call.cap)));
  }
}

template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kRowLanes, 1) rotate(cuda::RotateCall call) {
  const int D = static_cast<int>(call.D), half = D / 2, i = block_x() * kRowLanes + thread_x();
  const std::int64_t h = block_y();
  if (i >= call.T * D) return;
  const int t = i / D, d = i % D;
  const auto* const x = static_cast<const T*>(call.x) + h * call.head_stride + t * call.position_stride;
  const Wide<T> rotated = d < half ? -widen(x[d + half]) : widen(x[d - half]);
  const Wide<T> straight = rounded<T>(mul(widen(x[d]), widen(static_cast<const T*>(call.cos)[i])));
  const Wide<T> turned = rounded<T>(mul(rotated, widen(static_cast<const T*>(call.sin)[i])));
  static_cast<T*>(call.y)[h * call.T * D + i] = narrow<T>(add(straight, turned));
}

// ---- launches: `launch(name, kernel, geometry, call)`, see linear.cuh ----------------------------------------------

template <class T, class Launch>
void launch_rms_norm(const cuda::NormCall& call, Launch&& launch) {
  launch("rms_norm", &rms_norm<T>, cuda::Geometry{call.M, 1, 1, kRowLanes, kRowWarps * sizeof(Wide<T>)}, call);
}
template <class T, class Launch>
void launch_log_softmax(const cuda::LogSoftmaxCall& call, Launch&& launch) {
  launch("log_softmax", &log_softmax<T>, cuda::Geometry{call.M, 1, 1, kRowLanes, 2 * kRowWarps * sizeof(Wide<T>)},
         call);
}
template <class T, class Launch>
void launch_gated(const cuda::GatedCall& call, Launch&& launch) {
  launch("gated", &gated<T>, cuda::Geometry{call.M, cuda::n_tiles(call.C, kRowLanes * kOfThread), 1, kRowLanes, 0},
         call);
}
template <class T, class Launch>
void launch_soft_cap(const cuda::SoftCapCall& call, Launch&& launch) {
  launch("soft_cap", &soft_cap<T>, cuda::Geometry{cuda::n_tiles(call.n, kRowLanes * kOfThread), 1, 1, kRowLanes, 0},
         call);
}
template <class T, class Launch>
void launch_rotate(const cuda::RotateCall& call, Launch&& launch) {
  cuda::require(call.D % 2 == 0, "rotate", "a head cannot be cut in half");
  cuda::require(call.T * call.D < std::int64_t{1} << 30, "rotate", "more elements of a head than are counted");
  launch("rotate", &rotate<T>, cuda::Geometry{cuda::n_tiles(call.T * call.D, kRowLanes), call.H, 1, kRowLanes, 0},
         call);
}

}  // namespace kvdiv::device
