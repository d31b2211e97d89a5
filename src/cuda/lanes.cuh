#pragma once
// What ends a sum over the lanes of a block, and rounding.
#include "device_code.h"

namespace kvdiv::device {

/// The storage type's nearest number, widened again.
template <class T>
KVDIV_DEVICE Wide<T> rounded(Wide<T> x) {
  return widen(narrow<T>(x));
}

/// cap·tanh(x/cap), rounded after each of the three.
template <class T>
KVDIV_DEVICE Wide<T> capped(Wide<T> x, Wide<T> cap) {
  return rounded<T>(mul(rounded<T>(hyperbolic_tangent(rounded<T>(divide(x, cap)))), cap));
}

/// The tree: lanes of a warp that lie 16, 8, 4, 2, 1 apart are combined, then the warps, ascending. `scratch`: a number
/// for each warp, in shared memory, used by nothing else. All threads get the result.
template <int kWarps, class W, class F>
KVDIV_DEVICE W combine_lanes(W mine, W* scratch, F combine) {
  KVDIV_UNROLL
  for (int apart = 16; apart > 0; apart /= 2) mine = combine(mine, shuffle_xor(mine, apart));
  if (thread_x() % kWarp == 0) scratch[thread_x() / kWarp] = mine;
  block_barrier();
  W out = scratch[0];
  KVDIV_UNROLL
  for (int i = 1; i < kWarps; ++i) out = combine(out, scratch[i]);
  return out;
}

template <int kWarps, class W>
KVDIV_DEVICE W add_lanes(W mine, W* scratch) {
  return combine_lanes<kWarps>(mine, scratch, [](W a, W b) { return add(a, b); });
}
template <int kWarps, class W>
KVDIV_DEVICE W largest_of_lanes(W mine, W* scratch) {
  return combine_lanes<kWarps>(mine, scratch, [](W a, W b) { return larger(a, b); });
}

}  // namespace kvdiv::device
