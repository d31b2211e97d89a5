#pragma once
// Tests that need a GPU. Where there is none they are skipped, and say why.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "kvdiv/numerics/device.h"
#include "kvdiv/numerics/switches.h"
#include "support/models.h"

namespace kvdiv::test {

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    prepare_process();
    std::string why;
    gpu = try_load_cuda(why);
    if (gpu == nullptr) GTEST_SKIP() << "no GPU: " << why;
    guard = std::make_unique<NumericGuard>(NumericSwitches{});
  }
  LoadedModel load_there(const std::string& model, DType dtype, const std::string& backend = "torch") const {
    Warnings warnings;
    const auto dir = golden_dir(model);
    return load_model(Checkpoint::open(dir), config_of(dir), dtype, make_ops(backend, "eager", gpu->device()), warnings,
                      gpu->device());
  }
  at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype, std::uint64_t seed = 1) const {
    at::manual_seed(seed);
    return at::randn(shape, at::TensorOptions().dtype(at::kFloat)).to(gpu->device(), dtype);
  }

  const DeviceModule* gpu = nullptr;
  std::unique_ptr<NumericGuard> guard;
};

inline std::vector<TokenId> prompt_of(std::int64_t n, std::int64_t vocab) {
  std::vector<TokenId> ids{1};
  while (std::ssize(ids) < n) ids.push_back(static_cast<TokenId>(3 + std::ssize(ids) * 29 % (vocab - 3)));
  return ids;
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.cpu().contiguous(), y = b.cpu().contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

/// ‖a − b‖ / ‖b‖ in FP64.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kCPU, at::kDouble), y = b.to(at::kCPU, at::kDouble);
  return (x - y).norm().item().toDouble() / y.norm().item().toDouble();
}

}  // namespace kvdiv::test
