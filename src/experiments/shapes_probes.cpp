#include "shapes_probes.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "kvdiv/model/dtype.h"
#include "kvdiv/model/mask.h"
#include "kvdiv/numerics/half_sums.h"
#include "kvdiv/numerics/ulp.h"
#include "shapes_onset.h"

namespace kvdiv {
namespace {

constexpr std::uint32_t kPurpose = 7301;  // of the random numbers: shared with no other experiment
enum Operand : std::uint32_t { kRows, kOtherRows, kWeight, kQueries, kKeys, kValues };

/// Rows [from, from + count) computed together: [1,count,N].
using RowFunction = std::function<at::Tensor(std::int64_t from, std::int64_t count)>;

/// Each row computed alone, the first time that one is asked for.
class Alone {
 public:
  Alone(std::int64_t n_rows, RowFunction function) : n_rows_(n_rows), function_(std::move(function)) {}
  at::Tensor rows(std::int64_t from, std::int64_t count) {
    if (!rows_.defined()) {
      std::vector<at::Tensor> each;
      for (std::int64_t row = 0; row < n_rows_; ++row) each.push_back(function_(row, 1));
      rows_ = at::cat(each, 1);
    }
    return rows_.narrow(1, from, count);
  }

 private:
  std::int64_t n_rows_;
  RowFunction function_;
  at::Tensor rows_;
};

/// n rows at once against each of them alone, for all whole blocks of n that the rows make: a 16-bit result seldom shows
/// the order of its sum, so that every n is judged by about as many rows.
ShapeProbe rows_probe(std::string operation, std::string shape, std::int64_t max_rows, const RowFunction& function) {
  ShapeProbe probe{std::move(operation), "rows", std::move(shape), 1, max_rows, false, {}};
  probe.max_ulp = [alone = std::make_shared<Alone>(max_rows, function), function, max_rows](std::int64_t n) {
    double ulp = 0.0;
    for (std::int64_t from = 0; from + n <= max_rows; from += n)
      ulp = std::max(ulp, bit_distance(function(from, n), alone->rows(from, n)));
    return ulp;
  };
  return probe;
}

/// The products of a model by shape: [K, N] → the names that have it.
std::map<std::pair<std::int64_t, std::int64_t>, std::string> products(const ModelSizes& s) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> out;
  const auto add = [&](const char* name, std::int64_t K, std::int64_t N) {
    std::string& names = out[{K, N}];
    names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add("q_proj", s.hidden, s.n_heads * s.head_dim);
  add("k_proj", s.hidden, s.n_kv_heads * s.head_dim);
  add("v_proj", s.hidden, s.n_kv_heads * s.head_dim);
  add("o_proj", s.n_heads * s.head_dim, s.hidden);
  add("gate_proj", s.hidden, s.intermediate);
  add("up_proj", s.hidden, s.intermediate);
  add("down_proj", s.intermediate, s.hidden);
  add("lm_head", s.hidden, s.vocab);
  return out;
}

/// Everything that the probes of one backend are made from.
class ProbeMaker {
 public:
  ProbeMaker(const Ops& ops, const ModelConfig& config, DType dtype, std::int64_t max_rows, c10::Device device)
      : ops_(ops), config_(config), dtype_(dtype), max_rows_(max_rows), device_(device) {}

  void linear();
  void rms_norm();
  void log_softmax();
  void gated();
  void soft_cap();
  void attention();
  std::vector<ShapeProbe> take() { return std::move(probes_); }

 private:
  at::Tensor operand(at::IntArrayRef shape, std::uint32_t index) const {
    return random_operand(shape, dtype_, index).to(device_);
  }
  /// Rows of a width, so that one operand stays below 2²⁴ numbers.
  std::int64_t rows_of(std::int64_t width) const {
    return std::clamp<std::int64_t>((std::int64_t{1} << 24) / width, 1, max_rows_);
  }
  void attention_axis(std::string axis, std::int64_t first, std::int64_t last,
                      std::function<double(std::int64_t)> max_ulp, std::int64_t window = 0);

  const Ops& ops_;
  const ModelConfig& config_;
  DType dtype_;
  std::int64_t max_rows_;
  c10::Device device_;
  std::vector<ShapeProbe> probes_;
};

void ProbeMaker::linear() {
  for (const auto& [shape, names] : products(config_.sizes)) {
    const auto [K, N] = shape;
    // Weights of this size make results of the size of the inputs.
    const at::Tensor weight = at::mul(operand({N, K}, kWeight), 1.0 / std::sqrt(static_cast<double>(K)));
    const Matrix packed{ops_.pack(weight), N};
    const std::int64_t n = std::min(rows_of(K), rows_of(N));
    const at::Tensor x = operand({1, n, K}, kRows);
    probes_.push_back(rows_probe("linear " + names, fmt::format("{} → {}", K, N), n,
                                 [&ops = ops_, packed, x](std::int64_t from, std::int64_t count) {
                                   return ops.linear(x.narrow(1, from, count), packed);
                                 }));
  }
}

void ProbeMaker::rms_norm() {
  const std::int64_t C = config_.sizes.hidden;
  const Traits& t = config_.traits;
  const NormParams params{config_.rms_norm_eps, t.norm_offset, t.norm_cast == NormCast::before_weight};
  const at::Tensor gain = operand({C}, kWeight), x = operand({1, max_rows_, C}, kRows);
  probes_.push_back(rows_probe("rms_norm", fmt::format("{}", C), max_rows_,
                               [&ops = ops_, gain, params, x](std::int64_t from, std::int64_t count) {
                                 return ops.rms_norm(x.narrow(1, from, count), gain, params);
                               }));
}

void ProbeMaker::log_softmax() {
  const std::int64_t V = config_.sizes.vocab, n = rows_of(V);
  const at::Tensor x = operand({1, n, V}, kRows);
  probes_.push_back(rows_probe(
      "log_softmax", fmt::format("{}", V), n,
      [&ops = ops_, x](std::int64_t from, std::int64_t count) { return ops.log_softmax(x.narrow(1, from, count)); }));
}

void ProbeMaker::gated() {
  const std::int64_t F = config_.sizes.intermediate;
  const at::Tensor gate = operand({1, max_rows_, F}, kRows), up = operand({1, max_rows_, F}, kOtherRows);
  const Activation activation = config_.traits.activation;
  probes_.push_back(rows_probe(fmt::format("gated {}", name_of(activation)), fmt::format("{}", F), max_rows_,
                               [&ops = ops_, gate, up, activation](std::int64_t from, std::int64_t count) {
                                 return ops.gated(gate.narrow(1, from, count), up.narrow(1, from, count), activation);
                               }));
}

void ProbeMaker::soft_cap() {
  if (!config_.traits.final_cap) return;
  const std::int64_t V = config_.sizes.vocab, n = rows_of(V);
  const double cap = *config_.traits.final_cap;
  const at::Tensor x = operand({1, n, V}, kRows);
  probes_.push_back(
      rows_probe("soft_cap", fmt::format("{}", V), n, [&ops = ops_, x, cap](std::int64_t from, std::int64_t count) {
        return ops.soft_cap(x.narrow(1, from, count), cap);
      }));
}

void ProbeMaker::attention_axis(std::string axis, std::int64_t first, std::int64_t last,
                                std::function<double(std::int64_t)> max_ulp, std::int64_t window) {
  const ModelSizes& s = config_.sizes;
  std::string shape = fmt::format("{} heads of {} on {}", s.n_heads, s.head_dim, s.n_kv_heads);
  if (window > 0) shape += fmt::format(", window {}", window);
  probes_.push_back({"attention", std::move(axis), std::move(shape), first, last, false, std::move(max_ulp)});
}

void ProbeMaker::attention() {
  const ModelSizes& s = config_.sizes;
  const AttentionParams params{config_.traits.query_scale, config_.traits.attention_cap, 0};
  std::set<std::int64_t> windows;
  for (const auto& w : config_.traits.windows)
    if (w) windows.insert(*w);
  const std::int64_t S = max_rows_, longest = S + (windows.empty() ? 0 : *windows.rbegin());
  const at::Tensor q = operand({1, s.n_heads, S, s.head_dim}, kQueries);
  const at::Tensor k = operand({1, s.n_kv_heads, longest, s.head_dim}, kKeys);
  const at::Tensor v = operand({1, s.n_kv_heads, longest, s.head_dim}, kValues);
  // Queries [from, from + T) over the keys [first, first + n_keys).
  const auto attend = [&ops = ops_, q, k, v, params](std::int64_t from, std::int64_t T, std::int64_t first,
                                                     std::int64_t n_keys, const at::Tensor& visible_TS) {
    AttentionParams own = params;
    own.first_key = first;
    return ops.attention(q.narrow(2, from, T), k.narrow(2, first, n_keys), v.narrow(2, first, n_keys), visible_TS, own,
                         {});
  };
  // A query alone sees the keys up to its own, as decoding with a cache has it.
  const auto alone =
      std::make_shared<Alone>(S, [attend](std::int64_t row, std::int64_t) { return attend(row, 1, 0, row + 1, {}); });
  attention_axis("queries", 1, S, [attend, alone, S, device = device_](std::int64_t n) {
    return bit_distance(attend(S - n, n, 0, S, visibility(S - n, n, 0, S, {}, device)), alone->rows(S - n, n));
  });
  attention_axis("keys", 1, S, [attend, alone, device = device_](std::int64_t n) {
    return bit_distance(attend(0, n, 0, n, visibility(0, n, 0, n, {}, device)), alone->rows(0, n));
  });
  for (const std::int64_t w : windows)
    attention_axis(
        "hidden keys", 0, S,
        [attend, S, w, device = device_](std::int64_t n) {
          // The query stands behind all keys; of `n + w` its window shows it the last w.
          const at::Tensor mask = visibility(S + w - 1, 1, S - n, n + w, w, device);
          return bit_distance(attend(S - 1, 1, S - n, n + w, mask), attend(S - 1, 1, S, w, {}));
        },
        w);
}

}  // namespace

at::Tensor random_operand(at::IntArrayRef shape, DType dtype, std::uint32_t index) {
  at::Tensor out = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
  fill_standard_normals({out.mutable_data_ptr<float>(), static_cast<std::size_t>(out.numel())}, {kPurpose, index, 0});
  return out.to(scalar_type(dtype));
}

double bit_distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.cpu().contiguous(), y = b.cpu().contiguous();
  if (x.nbytes() == y.nbytes() && std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0) return 0.0;
  const auto ulps = ulp_distances(x, y);
  return std::max(1.0, *std::max_element(ulps.begin(), ulps.end()));
}

std::vector<ShapeProbe> shape_probes(const Ops& ops, const ModelConfig& config, DType dtype, const ShapesParams& params,
                                     const ProbePlace& place) {
  ProbeMaker maker(ops, config, dtype, params.max_rows, place.device);
  const std::pair<ShapeOperation, void (ProbeMaker::*)()> makers[] = {
      {ShapeOperation::linear, &ProbeMaker::linear},           {ShapeOperation::rms_norm, &ProbeMaker::rms_norm},
      {ShapeOperation::log_softmax, &ProbeMaker::log_softmax}, {ShapeOperation::gated, &ProbeMaker::gated},
      {ShapeOperation::soft_cap, &ProbeMaker::soft_cap},       {ShapeOperation::attention, &ProbeMaker::attention}};
  const auto wants = [&](ShapeOperation operation) {
    return std::find(params.operation.begin(), params.operation.end(), operation) != params.operation.end();
  };
  for (const auto& [operation, make] : makers)
    if (wants(operation)) (maker.*make)();
  std::vector<ShapeProbe> probes = maker.take();
  if (wants(ShapeOperation::elementwise))
    for (ShapeProbe& probe : elementwise_probes(ops, config, dtype, place)) probes.push_back(std::move(probe));
  return probes;
}

Json shape_rows(const std::vector<ShapeProbe>& probes) {
  Json rows = Json::array();
  for (const ShapeProbe& probe : probes) {
    const Onset onset = find_onset(probe.first, probe.last, probe.exhaustive, probe.max_ulp);
    rows.push_back({{"operation", probe.operation},
                    {"axis", probe.axis},
                    {"shape", probe.shape},
                    {"first", probe.first},
                    {"last", probe.last},
                    {"onset", to_json_value(onset.n)},
                    {"max_ulp", onset.n ? Json(onset.max_ulp) : Json(nullptr)},
                    {"n_probed", onset.n_probed},
                    {"n_differing_probed", onset.n_differing},
                    {"monotone", onset.n ? Json(onset.monotone) : Json(nullptr)}});
  }
  return rows;
}

}  // namespace kvdiv
