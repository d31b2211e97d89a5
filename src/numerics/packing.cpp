#include "packing.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

#include "kvdiv/base/error.h"

namespace kvdiv {

at::Tensor pack_rows(const at::Tensor& w_NK, std::int64_t width) {
  const std::int64_t N = w_NK.size(0), K = w_NK.size(1), n_blocks = (N + width - 1) / width;
  const std::int64_t missing = n_blocks * width - N;
  const at::Tensor padded = missing == 0 ? w_NK : at::constant_pad_nd(w_NK, {0, 0, 0, missing});
  return padded.reshape({n_blocks, width, K}).transpose(1, 2).contiguous();
}

at::Tensor unpack_rows(const Matrix& w) {
  return w.data.transpose(1, 2).reshape({-1, w.data.size(1)}).narrow(0, 0, w.n_rows).contiguous();
}

at::Tensor rows_of_packed(const Matrix& w, const at::Tensor& ids_BT) {
  const at::Tensor ids = ids_BT.contiguous();
  const std::int64_t K = w.data.size(1), width = w.data.size(2);
  at::Tensor out_BTK = at::empty({ids.size(0), ids.size(1), K}, w.data.options());
  const at::Tensor flat = out_BTK.view({-1, K});
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    const std::int64_t id = ids.const_data_ptr<std::int64_t>()[i];
    if (id < 0 || id >= w.n_rows) fail(ErrorKind::internal, "row {} of a matrix of {}", id, w.n_rows);
    flat.select(0, i).copy_(w.data.select(0, id / width).select(1, id % width));
  }
  return out_BTK;
}

}  // namespace kvdiv
