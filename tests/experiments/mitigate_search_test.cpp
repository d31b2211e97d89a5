// The search for the smallest set of operations, against operations whose dependence on the number of rows is planted. The
// backends underneath give the same bits at every shape and on every CPU, so what must be found is known.
#include "experiments/mitigate_search.h"

#include <ATen/ops/add.h>
#include <ATen/ops/full_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvdiv/decode/sampling.h"
#include "kvdiv/numerics/forwarding_ops.h"
#include "support/experiment.h"
#include "support/planted.h"

namespace kvdiv::test {
namespace {

using Plants = std::map<Operation, double>;

/// A backend that adds something to what some kinds of operation give for more than one row.
class RowDependentOps final : public ForwardingOps {
 public:
  RowDependentOps(std::shared_ptr<const Ops> exact, const ModelSizes& sizes, Plants plants)
      : ForwardingOps(std::move(exact)), sizes_(sizes), plants_(std::move(plants)) {}

  at::Tensor linear(const at::Tensor& x, const Matrix& w) const override { return changed(wrapped().linear(x, w), kind_of(x, w)); }
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w, const NormParams& p) const override { return changed(wrapped().rms_norm(x, w, p), Operation::norms); }
  at::Tensor gated(const at::Tensor& g, const at::Tensor& u, Activation a) const override { return changed(wrapped().gated(g, u, a), Operation::activation); }
  at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& visible_TS, const AttentionParams& p, TapPoint tap) const override {
    return changed(wrapped().attention(q, k, v, visible_TS, p, tap), Operation::attention);
  }

 private:
  /// By shape: queries and o have the same one, so qkv is planted in keys and values alone.
  std::optional<Operation> kind_of(const at::Tensor& x, const Matrix& w) const {
    if (w.n_rows == sizes_.n_kv_heads * sizes_.head_dim) return Operation::qkv;
    if (w.n_rows == sizes_.intermediate) return Operation::gate_up;
    if (x.size(2) == sizes_.intermediate) return Operation::down;
    return std::nullopt;
  }
  at::Tensor changed(const at::Tensor& y_BTN, std::optional<Operation> kind) const {
    const auto plant = kind ? plants_.find(*kind) : plants_.end();
    return plant == plants_.end() || y_BTN.size(1) < 2 ? y_BTN : at::add(y_BTN, at::full_like(y_BTN, plant->second));
  }

  ModelSizes sizes_;
  Plants plants_;
};

struct Searched {
  Fixture f = toy("toy-llama", 2);
  LoadedModel usual = load(f.dir, DType::float16, "eager", "order:sequential"), fixed = load(f.dir, DType::float16, "eager", "invariant");
  std::vector<std::vector<TokenId>> tokens;

  Json operator()(const Plants& plants, double max_kl = 0.0, std::int64_t max_subsets = 1000, Planted planted = {}) {
    const auto ops = std::make_shared<RowDependentOps>(make_ops("order:sequential", "eager"), f.config.sizes, plants);
    Decoder decoder = decoder_over(usual.decoder, DType::float16, ops);
    SetSearch search{{decoder, ops}, {fixed.decoder, make_ops("invariant", "eager")}, planted, {}, max_kl, max_subsets};
    tokens.clear();
    for (const PromptItem& p : f.prompts) {
      TrajectoryRequest request{p.ids, 5, {}, false};
      tokens.push_back(decode_trajectory(Arms(decoder), request).tokens);
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) search.texts.push_back({f.prompts[i].ids, tokens[i]});
    return search_smallest_set(search, f.progress);
  }
};

Json alone(const Json& found, const std::string& operation) {
  for (const Json& row : found["alone"])
    if (row["operation"] == operation) return row;
  fail(ErrorKind::internal, "no row {}", operation);
}

TEST(SmallestSet, IsEmptyWhereNothingDependsOnRows) {
  Searched search;
  const Json found = search({});
  EXPECT_EQ(found["smallest"], Json::array());
  EXPECT_EQ(found["proven_smallest"], true);
  EXPECT_EQ(found["all_fixed_meets_limit"], true);
  for (const Json& row : found["alone"]) EXPECT_EQ(row["bit_equal_rate"], 1.0) << row;
}

TEST(SmallestSet, FindsExactlyWhatIsPlanted) {
  Searched search;
  for (const Operation planted : {Operation::norms, Operation::qkv, Operation::attention, Operation::gate_up, Operation::activation, Operation::down}) {
    const Json found = search({{planted, 0.01}});
    EXPECT_EQ(found["smallest"], Json({name_of(planted)}));
    EXPECT_EQ(found["proof"], "exhaustive");
    for (const Json& row : found["alone"]) EXPECT_EQ(row["necessary"], row["operation"] == name_of(planted)) << row;
    EXPECT_GT(alone(found, std::string(name_of(planted)))["kl_max_nats"].get<double>(), 1e-9);
  }
}

TEST(SmallestSet, FindsTwo) {
  Searched search;
  const Json found = search({{Operation::down, 0.01}, {Operation::norms, 0.01}});
  EXPECT_EQ(found["smallest"], Json({"norms", "down"}));
  EXPECT_EQ(found["proven_smallest"], true);
  EXPECT_EQ(found["n_smaller"], 10);
  EXPECT_GE(found["n_evaluated"], 11 + 10) << "all, each left out, the pair, and the smaller ones";
  EXPECT_THAT(found["sentence"].get<std::string>(), testing::HasSubstr("norms, down must be fixed"));
}

// Without the means to try all smaller sets it is not called the smallest.
TEST(SmallestSet, SaysWhatItDidNotTry) {
  Searched search;
  const Json found = search({{Operation::down, 0.01}, {Operation::norms, 0.01}}, 0.0, 9);
  EXPECT_EQ(found["smallest"], Json({"norms", "down"}));
  EXPECT_EQ(found["proof"], "necessary");
  EXPECT_EQ(found["proven_smallest"], false);
  EXPECT_THAT(found["sentence"].get<std::string>(), testing::HasSubstr("not all tried"));
}

// A limit between the two contributions leaves the smaller one as it is.
TEST(SmallestSet, ALimitNeedsFewer) {
  Searched search;
  const Plants plants{{Operation::down, 0.05}, {Operation::norms, 0.002}};
  const Json strict = search(plants);
  ASSERT_EQ(strict["size"], 2);
  const double large = alone(strict, "down")["kl_max_nats"].get<double>(), small = alone(strict, "norms")["kl_max_nats"].get<double>();
  ASSERT_GT(large, 10.0 * small);
  const Json found = search(plants, std::sqrt(large * small));
  EXPECT_EQ(found["smallest"], Json({"down"}));
  EXPECT_EQ(found["proven_smallest"], true);
}

// Either of two is enough: neither is necessary, so the way is forward, and one of them is the answer.
TEST(SmallestSet, GoesForwardWhereNoneIsNecessary) {
  Searched search;
  const Plants plants{{Operation::down, 0.01}, {Operation::activation, 0.01}};
  const Json strict = search(plants);
  const double a = alone(strict, "down")["kl_max_nats"].get<double>(), b = alone(strict, "activation")["kl_max_nats"].get<double>();
  const Json found = search(plants, 1.0001 * std::max(a, b));
  for (const Json& row : found["alone"]) EXPECT_EQ(row["necessary"], false) << row;
  bool forward = false;
  for (const Json& step : found["trail"]) forward |= step["phase"] == "forward";
  ASSERT_TRUE(forward) << "both together are within the limit: " << found["trail"];
  EXPECT_EQ(found["size"], 1);
  EXPECT_EQ(found["proven_smallest"], true);
}

TEST(SmallestSet, AFaultElsewhereIsNotSearchedFor) {
  Searched search;
  EditTap tap = add_in_decode(Site::block, 1, 0.05);
  const Json found = search({}, 0.0, 1000, {&tap, nullptr});
  EXPECT_EQ(found["all_fixed_meets_limit"], false);
  EXPECT_TRUE(found["smallest"].is_null());
  EXPECT_EQ(found["n_evaluated"], 1);
}

// With everything fixed it is the invariant backend, with nothing fixed the usual one: bit for bit.
TEST(RoutedDecoder, IsEitherBackendAtTheEnds) {
  for (const char* name : {"toy-llama", "toy-gemma2"}) {
    LoadedModel usual = load(toy_dir(name), DType::float16), fixed = load(toy_dir(name), DType::float16, "eager", "invariant");
    const OpsOf a{usual.decoder, make_ops("torch", "eager")}, b{fixed.decoder, make_ops("invariant", "eager")};
    const std::vector<TokenId> text{1, 40, 7, 99, 12, 300};
    EXPECT_EQ(host_logits(routed_decoder(a, b, {}).forward(text, nullptr)), host_logits(usual.decoder.forward(text, nullptr)));
    EXPECT_EQ(host_logits(routed_decoder(a, b, OperationSet(0x3FF)).forward(text, nullptr)), host_logits(fixed.decoder.forward(text, nullptr)));
  }
}

/// Counts the calls of gated with more than one row: one a layer that computes them all.
class CountingOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  at::Tensor gated(const at::Tensor& g, const at::Tensor& u, Activation a) const override {
    n_many += g.size(1) > 1;
    return wrapped().gated(g, u, a);
  }
  mutable std::int64_t n_many = 0;
};

// A row-invariant backend leaves out rows of the last layer that nobody reads; then both arms would do the same work there.
TEST(RoutedDecoder, ComputesEveryRowOfTheLastLayer) {
  LoadedModel model = load(toy_dir("toy-llama"), DType::float16, "eager", "invariant");
  const auto ops = std::make_shared<CountingOps>(make_ops("invariant", "eager"));
  const OpsOf both{model.decoder, ops};
  const std::vector<TokenId> text{1, 40, 7, 99};
  decoder_over(model.decoder, DType::float16, ops).forward(text, nullptr);
  EXPECT_EQ(ops->n_many, model.decoder.config().sizes.n_layers - 1) << "else this shows nothing";
  ops->n_many = 0;
  routed_decoder(both, both, OperationSet(0x3FF)).forward(text, nullptr);
  EXPECT_EQ(ops->n_many, model.decoder.config().sizes.n_layers);
}

}  // namespace
}  // namespace kvdiv::test
