#pragma once
// Taps that keep what they see, and taps that put something in its place.
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <utility>

#include "kvdiv/numerics/tap.h"

namespace kvdiv {

/// Keeps copies of the tensors at the sites that `wanted` names. Everything is copied: a view of the cache would change
/// with the next step.
class CaptureTap final : public Tap {
 public:
  enum class Rows { all, last };  ///< last: of the query dimension only the newest position (not for keys and values)
  using Wanted = std::function<bool(Site, std::int64_t layer)>;

  explicit CaptureTap(Wanted wanted, Rows rows = Rows::all) : wanted_(std::move(wanted)), rows_(rows) {}
  bool wants(Site site, std::int64_t layer) const override { return wanted_(site, layer); }
  at::Tensor visit(Site site, std::int64_t layer, const at::Tensor& tensor) override;

  bool has(Site site, std::int64_t layer) const { return seen_.contains({site, layer}); }
  /// Error (internal) if it was not seen.
  const at::Tensor& at(Site site, std::int64_t layer) const;

 private:
  Wanted wanted_;
  Rows rows_;
  std::map<std::pair<Site, std::int64_t>, at::Tensor> seen_;
};

/// Calls a function at the sites that `wanted` names and goes on with what it returns.
class EditTap final : public Tap {
 public:
  using Wanted = CaptureTap::Wanted;
  using Edit = std::function<at::Tensor(Site, std::int64_t layer, const at::Tensor&)>;
  EditTap(Wanted wanted, Edit edit) : wanted_(std::move(wanted)), edit_(std::move(edit)) {}
  bool wants(Site site, std::int64_t layer) const override { return wanted_(site, layer); }
  at::Tensor visit(Site site, std::int64_t layer, const at::Tensor& tensor) override {
    return edit_(site, layer, tensor);
  }

 private:
  Wanted wanted_;
  Edit edit_;
};

/// The dimension of a site's tensor that counts query positions: 1 of [B,T,C], 2 of [B,H,T,D] and [B,H,T,S].
std::int64_t row_dimension(Site site);

/// The newest position only: [B,T,C] → [B,1,C], [B,H,T,D] → [B,H,1,D]. A view.
at::Tensor last_row(Site site, const at::Tensor& tensor);

/// A copy of `tensor` whose newest position is `row`.
at::Tensor with_last_row(Site site, const at::Tensor& tensor, const at::Tensor& row);

}  // namespace kvdiv
