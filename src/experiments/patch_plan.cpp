#include "patch_plan.h"

#include <algorithm>
#include <numeric>

namespace kvdiv {
namespace {

std::vector<std::int64_t> first_layers(std::int64_t n) {
  std::vector<std::int64_t> layers(static_cast<std::size_t>(n));
  std::iota(layers.begin(), layers.end(), std::int64_t{0});
  return layers;
}

std::vector<std::int64_t> all_layers(const ModelSizes& sizes, const PatchParams& params) {
  if (!params.layers) return first_layers(sizes.n_layers);
  std::vector<std::int64_t> layers;
  for (const std::int64_t layer : *params.layers) layers.push_back(layer - 1);
  return layers;
}

PatchCase make_case(PatchGroup group, PatchWhat what, Direction direction, std::vector<std::int64_t> layers) {
  PatchCase c{group, std::string(name_of(what)), direction, {}, false};
  c.patch.keys = what == PatchWhat::k || what == PatchWhat::kv;
  c.patch.values = what == PatchWhat::v || what == PatchWhat::kv;
  c.patch.residual = what == PatchWhat::residual;
  c.patch.layers = std::move(layers);
  return c;
}

/// K, V or both: whole by position set, then layer by layer, then head by head. Into OFF, where each patch costs a whole
/// prefix, only the whole ones.
void add_kv(std::vector<PatchCase>& plan, const ModelSizes& sizes, const PatchParams& params, PatchWhat what,
            Direction direction) {
  for (const Positions positions : params.positions) {
    PatchCase c = make_case(PatchGroup::whole, what, direction, all_layers(sizes, params));
    c.patch.positions = positions;
    c.patch.heads = params.heads;
    c.follow = direction == Direction::off_into_on && positions == Positions::all;
    plan.push_back(std::move(c));
  }
  if (direction == Direction::on_into_off) return;
  if (!params.layers)
    for (const std::int64_t layer : first_layers(sizes.n_layers)) {
      plan.push_back(make_case(PatchGroup::by_layer, what, direction, {layer}));
      plan.back().patch.heads = params.heads;
    }
  if (!params.heads)
    for (std::int64_t head = 0; head < sizes.n_kv_heads; ++head) {
      plan.push_back(make_case(PatchGroup::by_head, what, direction, all_layers(sizes, params)));
      plan.back().patch.heads = std::vector<std::int64_t>{head};
    }
}

void add_residual(std::vector<PatchCase>& plan, const ModelSizes& sizes, const PatchParams& params,
                  Direction direction) {
  if (params.layers) {
    plan.push_back(make_case(PatchGroup::whole, PatchWhat::residual, direction, all_layers(sizes, params)));
    return;
  }
  for (const std::int64_t layer : first_layers(sizes.n_layers))
    plan.push_back(make_case(PatchGroup::by_layer, PatchWhat::residual, direction, {layer}));
  for (std::int64_t n = 1; n <= sizes.n_layers; ++n)
    plan.push_back(make_case(PatchGroup::cumulative, PatchWhat::residual, direction, first_layers(n)));
}

bool contains(const auto& list, auto value) { return std::find(list.begin(), list.end(), value) != list.end(); }

}  // namespace

Patch everything(const ModelSizes& sizes) {
  Patch patch;
  patch.keys = patch.values = patch.residual = true;
  patch.layers = first_layers(sizes.n_layers);
  return patch;
}

std::vector<PatchCase> direct_plan(const ModelSizes& sizes, const PatchParams& params) {
  std::vector<PatchCase> plan;
  for (const Direction direction : params.direction) {
    for (const PatchWhat what : {PatchWhat::k, PatchWhat::v, PatchWhat::kv})
      if (contains(params.what, what)) add_kv(plan, sizes, params, what, direction);
    if (direction == Direction::off_into_on && contains(params.what, PatchWhat::residual))
      add_residual(plan, sizes, params, direction);
    plan.push_back({PatchGroup::everything, "all", direction, everything(sizes),
                    /*follow=*/direction == Direction::off_into_on});
  }
  PatchCase random = make_case(PatchGroup::random, PatchWhat::kv, Direction::off_into_on, first_layers(sizes.n_layers));
  random.what = "random";
  plan.push_back(std::move(random));
  return plan;
}

std::vector<PatchCase> published_plan(const ModelSizes& sizes, const PatchParams& params) {
  std::vector<PatchCase> plan;
  if (contains(params.what, PatchWhat::residual) && contains(params.direction, Direction::on_into_off))
    add_residual(plan, sizes, params, Direction::on_into_off);
  return plan;
}

void validate(const PatchParams& params) {
  validate(static_cast<const ArithmeticParams&>(params));
  validate(static_cast<const SelectionParams&>(params));
  if (params.what.empty()) fail_usage("--what: the list is empty");
  if (params.step.empty()) fail_usage("--step: the list is empty");
  if (params.direction.empty()) fail_usage("--direction: the list is empty");
  if (params.positions.empty()) fail_usage("--positions: the list is empty");
  for (const std::int64_t step : params.step)
    if (step < 0 || step >= params.max_steps)
      fail_usage("--step: {} is not one of the steps 0…{} of --max-steps", step, params.max_steps - 1);
  if (params.layers && params.layers->empty()) fail_usage("--layers: the list is empty");
  if (params.heads && params.heads->empty()) fail_usage("--heads: the list is empty");
  if (params.clock == Clock::both) fail_usage("--clock: patch takes forced or free");
}

}  // namespace kvdiv
