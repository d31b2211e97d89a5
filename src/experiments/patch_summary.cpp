#include "patch_summary.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "kvdiv/base/fields.h"
#include "kvdiv/stats/bootstrap.h"
#include "kvdiv/stats/summary.h"

namespace kvdiv {
namespace {

/// Share of the mean KL that a patch removed, in percent: (Σ base − Σ patched)/Σ base over the drawn prompts. Steadier than
/// the mean of the prompts' own percentages, whose denominators can be next to nothing.
BootstrapInterval share_of_mean(const std::vector<double>& base, const std::vector<double>& patched) {
  return bootstrap_interval(
      std::ssize(base),
      [&](std::span<const std::uint32_t> drawn) -> std::optional<double> {
        double b = 0.0, p = 0.0;
        for (const std::uint32_t i : drawn) b += base[i], p += patched[i];
        if (!(b / static_cast<double>(drawn.size()) >= kNothing)) return std::nullopt;
        return (b - p) / b * 100.0;
      },
      BootstrapMethod::percentile);
}

double mean(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
}

/// Per prompt, where there is something to recover.
std::vector<double> percentages(const std::vector<double>& base, const std::vector<double>& patched) {
  std::vector<double> out;
  for (std::size_t i = 0; i < base.size(); ++i)
    if (base[i] >= kNothing) out.push_back((base[i] - patched[i]) / base[i] * 100.0);
  return out;
}

std::string set_name(PatchGroup group) { return group == PatchGroup::cumulative ? "layers 1…l" : "single layer"; }

/// Reading order of the table of parts.
std::tuple<std::int64_t, std::string, std::size_t> rank(const Json& row) {
  static const std::vector<std::string> order{"k", "v", "kv", "residual", "all"};
  const auto at = std::find(order.begin(), order.end(), row["what"].get<std::string>());
  return {row["step"], row["direction"].get<std::string>() == "off_into_on" ? "a" : "b",
          static_cast<std::size_t>(at - order.begin())};
}

}  // namespace

std::optional<double> PatchEffect::pct_recovered() const {
  return kl_base >= kNothing ? std::optional((kl_base - kl_patched) / kl_base * 100.0) : std::nullopt;
}

void PatchSummary::Cell::add(std::int32_t prompt, const PatchEffect& effect) {
  base.push_back(effect.kl_base);
  patched.push_back(effect.kl_patched);
  prompts.push_back(prompt);
  n_bit_equal += effect.bit_equal;
}

PatchSummary::Key PatchSummary::key_of(const PatchCase& c, std::int64_t step, std::int64_t offset) {
  std::int64_t index = -1;
  if (c.group == PatchGroup::by_layer || c.group == PatchGroup::cumulative) index = c.patch.layers.back() + 1;
  if (c.group == PatchGroup::by_head) index = c.patch.heads->front();
  return {c.group, c.what, c.direction, c.patch.positions, step, offset, index};
}

void PatchSummary::add(const PatchCase& c, std::int64_t step, std::int64_t offset, std::int32_t prompt,
                       const PatchEffect& effect) {
  Cell& cell = cells_[key_of(c, step, offset)];
  cell.patch = c.patch;
  cell.add(prompt, effect);
}

void PatchSummary::add_published(const PatchCase& c, std::int64_t step, std::int32_t prompt,
                                 const PatchEffect& effect) {
  published_[key_of(c, step, 0)].add(prompt, effect);
}

Json PatchSummary::describe(const Cell& cell) {
  const std::vector<double> pct = percentages(cell.base, cell.patched);
  Json j;
  j["n_prompts"] = cell.base.size();
  j["n_nothing_to_recover"] = cell.base.size() - pct.size();
  j["kl_base_nats"] = mean(cell.base);
  j["kl_patched_nats"] = mean(cell.patched);
  j["pct_of_mean"] = to_json_value(share_of_mean(cell.base, cell.patched));
  j["pct_median"] = to_json_value(median_interval(pct, own_clusters(pct.size())));
  j["pct_mean"] = pct.empty() ? Json(nullptr) : Json(mean(pct));
  j["bit_equal_rate"] = static_cast<double>(cell.n_bit_equal) / static_cast<double>(cell.base.size());
  return j;
}

std::string PatchSummary::layer_set(const Patch& patch) const {
  const auto n = std::ssize(patch.layers);
  if (n == n_layers_) return "all";
  std::vector<std::int64_t> numbers;
  for (const std::int64_t layer : patch.layers) numbers.push_back(layer + 1);
  if (n > 2 && numbers.back() - numbers.front() + 1 == n) return fmt::format("{}…{}", numbers.front(), numbers.back());
  return fmt::format("{}", fmt::join(numbers, ","));
}

/// The one table: what of the difference is in K, in V, in the newest token's residual stream, and what remains.
Json PatchSummary::part_rows() const {
  Json rows = Json::array();
  for (const auto& [key, cell] : cells_) {
    const bool whole = key.group == PatchGroup::whole || key.group == PatchGroup::everything;
    const bool all_but_last = key.group == PatchGroup::cumulative && key.index == n_layers_ - 1;
    if (key.offset != 0 || (!whole && !all_but_last)) continue;
    Json row = {{"step", key.step}, {"direction", name_of(key.direction)}, {"what", key.what}};
    row["positions"] = key.what == "residual" ? "newest" : std::string(name_of(key.positions));
    row["layers"] = layer_set(cell.patch);
    row["heads"] = cell.patch.heads ? fmt::format("{}", fmt::join(*cell.patch.heads, ",")) : "all";
    row.update(describe(cell));
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Json& a, const Json& b) { return rank(a) < rank(b); });
  return rows;
}

/// A row per step, direction and layer (or head); a column per quantity: share of the mean KL that patching it there removes.
Json PatchSummary::indexed_rows(std::initializer_list<PatchGroup> groups, const char* index_name) const {
  std::map<std::tuple<std::int64_t, Direction, std::int64_t>, Json> rows;
  for (const auto& [key, cell] : cells_) {
    if (key.offset != 0 || std::find(groups.begin(), groups.end(), key.group) == groups.end()) continue;
    Json& row = rows[{key.step, key.direction, key.index}];
    if (row.is_null()) row = {{"step", key.step}, {"direction", name_of(key.direction)}, {index_name, key.index}};
    const std::string column = key.group == PatchGroup::cumulative ? "residual_up_to" : key.what;
    row[column] = to_json_value(share_of_mean(cell.base, cell.patched));
  }
  Json out = Json::array();
  for (auto& [key, row] : rows) out.push_back(std::move(row));
  return out;
}

std::vector<const PatchSummary::Entry*> PatchSummary::followed() const {
  std::set<std::pair<std::string, std::int64_t>> names;
  for (const auto& [key, cell] : cells_)
    if (key.offset > 0) names.insert({key.what, key.step});
  std::vector<const Entry*> out;
  for (const Entry& entry : cells_) {
    const Key& key = entry.first;
    const bool whole = key.group == PatchGroup::whole || key.group == PatchGroup::everything;
    if (whole && key.direction == Direction::off_into_on && key.positions == Positions::all &&
        names.contains({key.what, key.step}))
      out.push_back(&entry);
  }
  return out;
}

/// What is left of a patch of ON's cache so many steps later. A single step's KL hangs on single roundings, so steps are
/// pooled in windows that double.
Json PatchSummary::decay_rows() const {
  using Window = std::tuple<std::int64_t, std::string, std::int64_t>;  // step, what, first offset
  const auto first_of = [](std::int64_t offset) {
    std::int64_t first = 0;
    for (const std::int64_t edge : {1, 2, 4, 8, 16, 32, 64}) first = offset >= edge ? edge : first;
    return first;
  };
  std::map<Window, std::map<std::int32_t, std::pair<double, double>>> windows;
  std::map<Window, std::int64_t> last_offset;
  for (const Entry* entry : followed()) {
    const auto& [key, cell] = *entry;
    const Window window{key.step, key.what, first_of(key.offset)};
    last_offset[window] = std::max(last_offset[window], key.offset);
    for (std::size_t i = 0; i < cell.prompts.size(); ++i) {
      auto& [base, patched] = windows[window][cell.prompts[i]];
      base += cell.base[i], patched += cell.patched[i];
    }
  }
  Json rows = Json::array();
  for (const auto& [window, prompts] : windows) {
    std::vector<double> base, patched;
    for (const auto& [prompt, sums] : prompts) base.push_back(sums.first), patched.push_back(sums.second);
    const auto& [step, what, first] = window;
    const std::string range =
        first == last_offset[window] ? std::to_string(first) : fmt::format("{}–{}", first, last_offset[window]);
    rows.push_back({{"step", step}, {"what", what}, {"steps_later", range}, {"n_prompts", base.size()}});
    rows.back()["pct_of_mean"] = to_json_value(share_of_mean(base, patched));
  }
  return rows;
}

Json PatchSummary::decay_by_step_rows() const {
  Json rows = Json::array();
  for (const Entry* entry : followed()) {
    const auto& [key, cell] = *entry;
    rows.push_back({{"step", key.step},
                    {"what", key.what},
                    {"offset", key.offset},
                    {"n_prompts", cell.base.size()},
                    {"kl_base_nats", mean(cell.base)},
                    {"kl_patched_nats", mean(cell.patched)}});
  }
  return rows;
}

Json PatchSummary::published_rows() const {
  Json rows = Json::array();
  for (const auto& [key, cell] : published_) {
    Json row = {
        {"step", key.step}, {"set", set_name(key.group)}, {"layer", key.index}, {"over_all_steps", describe(cell)}};
    const auto here = cells_.find(key);
    row["at_the_step"] = here == cells_.end() ? Json(nullptr) : describe(here->second);
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Json& a, const Json& b) {
    return std::pair(a["step"], a["set"]) < std::pair(b["step"], b["set"]);
  });
  return rows;
}

/// As the paper counts: each (prompt, layer) is a value. The intervals resample prompts.
Json PatchSummary::published_pooled_rows() const {
  struct Pool {
    std::vector<double> pct;
    std::vector<std::int32_t> prompts;
    std::int64_t n_null = 0;
  };
  std::map<std::pair<std::int64_t, PatchGroup>, Pool> pools;
  for (const auto& [key, cell] : published_) {
    Pool& pool = pools[{key.step, key.group}];
    for (std::size_t i = 0; i < cell.base.size(); ++i) {
      const auto pct = PatchEffect{cell.base[i], cell.patched[i], false}.pct_recovered();
      if (!pct) {
        ++pool.n_null;
        continue;
      }
      pool.pct.push_back(*pct);
      pool.prompts.push_back(cell.prompts[i]);
    }
  }
  Json rows = Json::array();
  for (const auto& [where, pool] : pools)
    rows.push_back({{"step", where.first},
                    {"set", set_name(where.second)},
                    {"n_values", pool.pct.size()},
                    {"n_nothing_to_recover", pool.n_null},
                    {"median", to_json_value(median_interval(pool.pct, pool.prompts))},
                    {"mean", to_json_value(mean_interval_bca(pool.pct, pool.prompts))}});
  return rows;
}

Json PatchSummary::to_json() const {
  std::vector<double> random_pct;
  for (const auto& [key, cell] : cells_)
    if (key.group == PatchGroup::random)
      for (const double p : percentages(cell.base, cell.patched)) random_pct.push_back(p);
  Json j;
  j["parts"] = part_rows();
  j["by_layer"] = indexed_rows({PatchGroup::by_layer, PatchGroup::cumulative}, "layer");
  j["by_head"] = indexed_rows({PatchGroup::by_head}, "kv_head");
  j["decay"] = decay_rows();
  j["decay_by_step"] = decay_by_step_rows();
  j["published"] = published_rows();
  j["published_pooled"] = published_pooled_rows();
  j["random_patch"] = to_json_value(summarize(random_pct));
  return j;
}

}  // namespace kvdiv
