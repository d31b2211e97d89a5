#include "html_margins.h"

#include <algorithm>
#include <cmath>

#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

constexpr int kMaxDecade = 15;

int cell_of(double value) {
  const double cell = std::floor(std::log10(value) * MarginMap::kCellsPerDecade);
  constexpr double kMost = kMaxDecade * MarginMap::kCellsPerDecade;
  return static_cast<int>(std::clamp(cell, -kMost, kMost - 1.0));
}

}  // namespace

void MarginMap::add(const StepRecord& step) {
  ++n_;
  if (!std::isfinite(step.max_abs_dlogit) || !std::isfinite(step.margin_on)) {
    ++n_nonfinite_;
    return;
  }
  const bool changed = !step.top1_equal;
  n_changed_ += changed;
  if (step.max_abs_dlogit == 0.0) {
    ++n_equal_;
    return;
  }
  n_can_change_ += step.margin_on <= 2.0 * step.max_abs_dlogit;
  if (step.margin_on <= 0.0) {
    ++n_tied_;
    return;
  }
  Count& cell = cells_[{cell_of(step.margin_on), cell_of(step.max_abs_dlogit)}];
  ++cell.n;
  cell.n_changed += changed;
}

Json MarginMap::to_json() const {
  Json out = {{"cells_per_decade", kCellsPerDecade},
              {"n_steps", n_},
              {"n_equal", n_equal_},
              {"n_tied", n_tied_},
              {"n_nonfinite", n_nonfinite_},
              {"n_can_change", n_can_change_},
              {"n_changed", n_changed_},
              {"cells", Json::array()}};
  for (const auto& [at, count] : cells_) out["cells"].push_back({at.first, at.second, count.n, count.n_changed});
  return out;
}

void PrefixSurvival::add(const PairRecord& pair) {
  ++n_pairs_;
  if (!pair.flip_index) {
    ++ends_[std::ssize(pair.tokens_on)].n_ended;
    return;
  }
  if (*pair.flip_index < 0)
    fail_unreadable("records: pair {}: flip_index {}", short_name(pair.pair_id), *pair.flip_index);
  ++n_flipped_;
  ++ends_[*pair.flip_index].n_flips;
}

Json PrefixSurvival::bars() const {
  std::int64_t last = -1;
  for (const auto& [step, ends] : ends_)
    if (ends.n_flips > 0) last = step;
  if (last < 0) return {{"width", 1}, {"n", Json::array()}};
  std::int64_t width = 1;
  while (last / width >= kMaxBars) width *= 2;
  std::vector<std::int64_t> n(static_cast<std::size_t>(last / width) + 1);
  for (const auto& [step, ends] : ends_)
    if (ends.n_flips > 0) n[static_cast<std::size_t>(step / width)] += ends.n_flips;
  return {{"width", width}, {"n", n}};
}

Json PrefixSurvival::survival() const {
  std::vector<Json> points;
  std::int64_t at_risk = n_pairs_;
  double share = 1.0;
  for (const auto& [step, ends] : ends_) {
    at_risk -= ends.n_ended;
    if (ends.n_flips > 0) {
      share *= 1.0 - static_cast<double>(ends.n_flips) / static_cast<double>(at_risk);
      points.push_back({step, share, at_risk, ends.n_flips});
    }
    at_risk -= ends.n_flips;
  }
  const std::size_t stride = (points.size() + kMaxPoints - 1) / kMaxPoints;
  Json out = Json::array();
  for (std::size_t i = 0; i < points.size(); ++i)
    if (i % stride == 0 || i + 1 == points.size()) out.push_back(std::move(points[i]));
  return out;
}

Json PrefixSurvival::to_json() const {
  return {{"n_pairs", n_pairs_},
          {"n_flipped", n_flipped_},
          {"bars", bars()},
          {"survival", survival()},
          {"last_step", ends_.empty() ? Json() : Json(ends_.rbegin()->first)}};
}

}  // namespace kvdiv
