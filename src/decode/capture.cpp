#include "kvdiv/decode/capture.h"

#include <ATen/ops/clone.h>

#include "kvdiv/base/error.h"

namespace kvdiv {

std::int64_t row_dimension(Site site) {
  switch (site) {
    case Site::query:
    case Site::key:
    case Site::value:
    case Site::query_rotary:
    case Site::key_rotary:
    case Site::keys:
    case Site::values:
    case Site::scores:
    case Site::capped_scores:
    case Site::weights:
    case Site::mix:
      return 2;
    default:
      return 1;
  }
}

at::Tensor last_row(Site site, const at::Tensor& tensor) {
  const auto d = row_dimension(site);
  return tensor.narrow(d, tensor.size(d) - 1, 1);
}

at::Tensor with_last_row(Site site, const at::Tensor& tensor, const at::Tensor& row) {
  at::Tensor out = tensor.clone();
  last_row(site, out).copy_(row);
  return out;
}

at::Tensor CaptureTap::visit(Site site, std::int64_t layer, const at::Tensor& tensor) {
  const bool whole = rows_ == Rows::all || site == Site::keys || site == Site::values;
  seen_[{site, layer}] = (whole ? tensor : last_row(site, tensor)).clone();
  return tensor;
}

const at::Tensor& CaptureTap::at(Site site, std::int64_t layer) const {
  const auto it = seen_.find({site, layer});
  if (it == seen_.end())
    fail(ErrorKind::internal, "capture: site {} of layer {} was not seen", static_cast<int>(site), layer);
  return it->second;
}

}  // namespace kvdiv
