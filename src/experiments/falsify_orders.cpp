#include "falsify_orders.h"

#include <algorithm>
#include <vector>

#include "kvdiv/base/interrupt.h"
#include "kvdiv/numerics/reduction.h"
#include "kvdiv/stats/bootstrap.h"
#include "kvdiv/stats/metrics.h"

namespace kvdiv {
namespace {

/// Pairs of orders as prefill and decode kernels have them: large tiles for many rows, split-K for one.
const std::vector<const char*>& backends_of(DType dtype) {
  static const std::vector<const char*> wide{"order:sequential", "order:blocked:32",
                                             "order:prefill=sequential,decode=pairwise",
                                             "order:prefill=blocked:32,decode=split-k:8"};
  static const std::vector<const char*> half{"order:sequential",
                                             "order:blocked:32",
                                             "order:blocked:32@float16",
                                             "order:prefill=sequential,decode=pairwise",
                                             "order:prefill=blocked:32,decode=split-k:8",
                                             "order:prefill=blocked:32@float16,decode=split-k:8@float16"};
  return dtype == DType::float16 ? half : wide;
}

/// One row while its prompts are decoded.
struct RowSums {
  std::vector<std::pair<double, double>> kl_by_prompt;
  std::int64_t n_steps = 0, n_bit_equal = 0, flips = 0, tie_flips = 0;
  double max_abs_dlogit = 0.0;

  void add(const Trajectory& t) {
    auto& [kl, n] = kl_by_prompt.emplace_back();
    for (std::size_t i = 0; i < t.logits_on.size(); ++i) {
      const StepMetrics m = compare_logits(t.logits_on[i], t.logits_off[i]);
      const bool tied = m.tie_on || m.tie_off;
      kl += m.kl_on_off_nats, n += 1.0;
      ++n_steps;
      n_bit_equal += m.bit_equal;
      flips += !m.top1_equal && !tied;
      tie_flips += !m.top1_equal && tied;
      max_abs_dlogit = std::max(max_abs_dlogit, m.max_abs_dlogit);
    }
  }
  Json row(DType dtype, const char* backend, const Reductions& reductions) const {
    return {{"dtype", name_of(dtype)},
            {"backend", backend},
            {"same_order", reductions.same_order()},
            {"accumulator", name_of(reductions.prefill.accumulator)},
            {"n_prompts", kl_by_prompt.size()},
            {"n_steps", n_steps},
            {"bit_equal_rate", static_cast<double>(n_bit_equal) / static_cast<double>(n_steps)},
            {"kl_on_off_nats", to_json_value(ratio_of_sums(kl_by_prompt))},
            {"flips", flips},
            {"tie_flips", tie_flips},
            {"max_abs_dlogit", max_abs_dlogit}};
  }
};

}  // namespace

OrderTable order_table(Context& context, const DecodeParams& params, const std::function<bool(DType)>& fits) {
  SelectionParams selection;
  selection.max_steps = std::min(params.max_new_tokens, kOrderTableSteps);
  selection.ignore_eos = params.ignore_eos;
  const auto prompts = context.prompts.first(std::min(kOrderTablePrompts, context.prompts.size()));
  OrderTable table;
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32}) {
    if (!fits(dtype)) continue;
    for (const char* backend : backends_of(dtype)) {
      context.progress.stage(fmt::format("orders, {} {}", name_of(dtype), backend));
      const Reductions reductions = parse_reductions(backend);
      const LoadedModel model = context.load(dtype, backend, "eager");
      RowSums sums;
      for (const PromptItem& prompt : prompts) {
        if (interrupted()) return table;
        const Trajectory t = trajectory_of(arms_of(model.decoder, context), selection, prompt);
        sums.add(t);
        table.prefill_bit_equal = table.prefill_bit_equal && prefill_is_bit_equal(t);
        context.progress.update({std::ssize(sums.kl_by_prompt), std::ssize(prompts), 0.0, 0.0});
      }
      context.progress.end_stage();
      if (reductions.same_order())
        table.same_order_bit_equal = table.same_order_bit_equal && sums.n_bit_equal == sums.n_steps;
      table.rows.push_back(sums.row(dtype, backend, reductions));
    }
  }
  return table;
}

}  // namespace kvdiv
