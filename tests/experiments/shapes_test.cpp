// `shapes` against backends whose switches are planted, so that what it must find does not depend on the CPU.
#include "kvdiv/experiments/shapes.h"

#include <ATen/ops/clone.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "experiments/shapes_onset.h"
#include "experiments/shapes_probes.h"
#include "support/experiment.h"

namespace kvdiv::test {
namespace {

using Places = std::function<bool(std::int64_t)>;

/// The last bit of the element at `index`, changed.
at::Tensor with_other_bit(const at::Tensor& x, std::int64_t index) {
  at::Tensor out = at::clone(x.contiguous());
  static_cast<std::uint16_t*>(out.mutable_data_ptr())[index] ^= 1;
  return out;
}

/// A backend that gives the same bits at every shape, but for what is planted. 16-bit dtypes only.
class PlantedOps final : public Ops {
 public:
  Places linear_differs = [](std::int64_t) { return false; };  ///< at these numbers of rows, in the last row
  Places keys_differ = [](std::int64_t) { return false; };     ///< at these numbers of keys of one query
  Places hidden_differ = [](std::int64_t) { return false; };   ///< where so many keys are hidden from one query
  Places length_differs = [](std::int64_t) { return false; };  ///< gated rows of this length, at their last place

  at::Tensor pack(const at::Tensor& w_NK) const override { return exact_->pack(w_NK); }
  at::Tensor unpack(const Matrix& w) const override { return exact_->unpack(w); }
  at::Tensor rows(const Matrix& w, const at::Tensor& ids_BT) const override { return exact_->rows(w, ids_BT); }
  at::Tensor linear(const at::Tensor& x_BTK, const Matrix& w) const override {
    const at::Tensor y = exact_->linear(x_BTK, w);
    return linear_differs(x_BTK.size(1)) ? with_other_bit(y, y.numel() - 1) : y;
  }
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w, const NormParams& p) const override { return exact_->rms_norm(x, w, p); }
  at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& visible_TS, const AttentionParams& p, TapPoint tap) const override {
    const at::Tensor y = exact_->attention(q, k, v, visible_TS, p, tap);
    const std::int64_t n_hidden = visible_TS.defined() ? visible_TS.numel() - visible_TS.sum().item().toLong() : 0;
    const bool alone = q.size(2) == 1, differs = alone && (n_hidden > 0 ? hidden_differ(n_hidden) : keys_differ(k.size(2)));
    return differs ? with_other_bit(y, y.numel() - 1) : y;
  }
  at::Tensor log_softmax(const at::Tensor& x) const override { return exact_->log_softmax(x); }
  at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) const override { return exact_->rotate(x, cos, sin); }
  at::Tensor gated(const at::Tensor& g, const at::Tensor& u, Activation a) const override {
    const at::Tensor y = exact_->gated(g, u, a);
    return length_differs(y.numel()) ? with_other_bit(y, y.numel() - 1) : y;
  }
  at::Tensor soft_cap(const at::Tensor& x, double cap) const override { return exact_->soft_cap(x, cap); }
  std::string unsupported(const AttentionNeeds&) const override { return {}; }

 private:
  std::shared_ptr<const Ops> exact_ = make_ops("order:sequential", "eager");
};

/// The row of an operation and an axis.
Json row_of(const Ops& ops, ShapeOperation operation, const std::string& axis, std::int64_t max_rows = 128) {
  ShapesParams params;
  params.operation = {operation};
  params.max_rows = max_rows;
  const ModelConfig config = config_of(golden_dir("tiny-mistral"));
  for (const Json& row : shape_rows(shape_probes(ops, config, DType::float16, params, {})))
    if (row["axis"] == axis) return row;
  fail(ErrorKind::internal, "no axis {}", axis);
}

TEST(Shapes, APlantedNumberOfRowsIsFoundExactly) {
  for (const std::int64_t onset : {2, 3, 37, 64, 65, 100, 127, 128}) {
    PlantedOps ops;
    ops.linear_differs = [onset](std::int64_t n) { return n >= onset; };
    const Json row = row_of(ops, ShapeOperation::linear, "rows");
    EXPECT_EQ(row["onset"], onset);
    EXPECT_EQ(row["max_ulp"], 1.0);
    EXPECT_EQ(row["monotone"], true);
    EXPECT_GT(row["n_probed"].get<int>(), row["n_differing_probed"].get<int>());
  }
}

TEST(Shapes, NoneIsNull) {
  const PlantedOps ops;
  for (const auto& [operation, name] : EnumNames<ShapeOperation>::values) {
    ShapesParams params;
    params.operation = {operation};
    params.max_rows = 40;
    for (const Json& row : shape_rows(shape_probes(ops, config_of(golden_dir("tiny-gemma2")), DType::float16, params, {}))) {
      EXPECT_TRUE(row["onset"].is_null()) << row;
      EXPECT_TRUE(row["monotone"].is_null()) << row;
      EXPECT_EQ(row["n_differing_probed"], 0) << row;
      EXPECT_GT(row["n_probed"].get<int>(), 10) << row;
    }
  }
}

TEST(Shapes, AnIslandIsFoundAndIsNotMonotone) {
  PlantedOps ops;
  ops.linear_differs = [](std::int64_t n) { return n >= 40 && n <= 47; };
  const Json row = row_of(ops, ShapeOperation::linear, "rows", 512);
  EXPECT_EQ(row["onset"], 40);
  EXPECT_EQ(row["monotone"], false);
}

TEST(Shapes, AttentionsSwitchesAreToldApart) {
  PlantedOps keys;
  keys.keys_differ = [](std::int64_t n) { return n >= 23; };
  EXPECT_EQ(row_of(keys, ShapeOperation::attention, "keys")["onset"], 23);
  EXPECT_TRUE(row_of(keys, ShapeOperation::attention, "hidden keys")["onset"].is_null());
  PlantedOps hidden;
  hidden.hidden_differ = [](std::int64_t n) { return n >= 19; };
  EXPECT_EQ(row_of(hidden, ShapeOperation::attention, "hidden keys")["onset"], 19);
  EXPECT_TRUE(row_of(hidden, ShapeOperation::attention, "keys")["onset"].is_null());
  EXPECT_TRUE(row_of(hidden, ShapeOperation::attention, "queries")["onset"].is_null());
}

TEST(Shapes, AnElementwiseFunctionMustNotSeeItsPlace) {
  PlantedOps ops;
  ops.length_differs = [](std::int64_t n) { return n == 33; };
  const Json row = row_of(ops, ShapeOperation::elementwise, "length");
  EXPECT_EQ(row["operation"], "gated silu");
  EXPECT_EQ(row["onset"], 33);
  EXPECT_EQ(row["n_differing_probed"], 1);
  EXPECT_EQ(row["monotone"], false);
}

TEST(Onset, ProbesEachPlaceOnce) {
  std::multiset<std::int64_t> asked;
  const Onset onset = find_onset(1, 5000, false, [&](std::int64_t n) {
    asked.insert(n);
    return n >= 777 ? 2.0 : 0.0;
  });
  EXPECT_EQ(onset.n, 777);
  EXPECT_EQ(onset.max_ulp, 2.0);
  EXPECT_EQ(std::set<std::int64_t>(asked.begin(), asked.end()).size(), asked.size());
  EXPECT_EQ(onset.n_probed, static_cast<std::int64_t>(asked.size()));
  EXPECT_LT(asked.size(), 130u);
  EXPECT_EQ(find_onset(1, 9, false, [](std::int64_t) { return 1.0; }).n, 1) << "the first place of all";
  EXPECT_FALSE(find_onset(0, 0, false, [](std::int64_t) { return 0.0; }).n.has_value());
}

// −0 and +0 are no ULP apart, but they are other bits.
TEST(Onset, OtherBitsAreAtLeastOneApart) {
  const at::Tensor zero = at::zeros({1}, at::kFloat);
  EXPECT_EQ(bit_distance(zero, zero.clone()), 0.0);
  EXPECT_EQ(bit_distance(zero, zero.neg()), 1.0);
}

TEST(Shapes, ReportsWhatABackendPromises) {
  Fixture f = toy("toy-llama", 1);
  Context context = f.context();
  ShapesParams params;
  params.backend = {"torch", "order:kahan"};
  params.dtype = {DType::float16, DType::float32};
  params.max_rows = 12;
  const ExperimentResult r = run_shapes(context, params);
  ASSERT_EQ(r.conditions.size(), 4u);
  EXPECT_EQ(r.controls["invariance_holds"], true);
  std::size_t n_aten = 0;
  for (const Json& c : r.conditions)
    for (const Json& row : c["shapes"]) {
      const bool is_aten = row["operation"].get<std::string>().starts_with("ATen");
      n_aten += is_aten;
      if (c["backend"] != "torch") {
        EXPECT_FALSE(is_aten);
        EXPECT_TRUE(row["onset"].is_null()) << row;
      }
    }
  EXPECT_EQ(n_aten, 2u * 7u);
  EXPECT_THAT(r.verdict["sentence"].get<std::string>(), testing::HasSubstr("float32/order:kahan: the same bits at every shape tried"));
  EXPECT_TRUE(is_refused<ShapesParams>([](ShapesParams& p) { p.max_rows = 1; }));
  EXPECT_TRUE(is_refused<ShapesParams>([](ShapesParams& p) { p.operation.clear(); }));
}

// Equal specs are invariant at every shape, different ones differ at two rows and nowhere else first.
TEST(Shapes, TwoOrdersSwitchAtTheSecondRow) {
  const auto ops = make_ops("order:prefill=pairwise,decode=sequential", "eager");
  ShapesParams params;
  params.operation = {ShapeOperation::linear};
  params.max_rows = 9;
  for (const Json& row : shape_rows(shape_probes(*ops, config_of(golden_dir("tiny-mistral")), DType::float32, params, {}))) {
    EXPECT_EQ(row["onset"], 2) << row;
    EXPECT_EQ(row["monotone"], true) << row;
  }
}

}  // namespace
}  // namespace kvdiv::test
