#pragma once
// Faults of known size, planted in an arm.
#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mul.h>

#include "kvdiv/decode/capture.h"
#include "kvdiv/numerics/tap.h"

namespace kvdiv::test {

/// Adds `size` to every element of the newest position at one site of one layer (from 0).
inline EditTap add_at(Site site, std::int64_t layer, double size) {
  return EditTap([site, layer](Site s, std::int64_t l) { return s == site && l == layer; },
                 [size](Site s, std::int64_t, const at::Tensor& x) {
                   const at::Tensor row = last_row(s, x);
                   return with_last_row(s, x, at::add(row, at::full_like(row, size)));
                 });
}

/// The same in ON's decode steps only: the prefill of several tokens stays as it is, as a cache's own fault would have it.
/// Whether an arm's rounding alone gives a difference is a matter of the CPU; this one is there on all of them.
inline EditTap add_in_decode(Site site, std::int64_t layer, double size) {
  return EditTap([site, layer](Site s, std::int64_t l) { return s == site && l == layer; },
                 [size](Site s, std::int64_t, const at::Tensor& x) {
                   return x.size(row_dimension(s)) > 1 ? x : at::add(x, at::full_like(x, size));
                 });
}

/// Adds `size` everywhere at a site of a layer.
inline EditTap add_everywhere(Site site, std::int64_t layer, double size) {
  return EditTap([site, layer](Site s, std::int64_t l) { return s == site && l == layer; },
                 [size](Site, std::int64_t, const at::Tensor& x) { return at::add(x, at::full_like(x, size)); });
}

}  // namespace kvdiv::test
