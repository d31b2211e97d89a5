#include "run_family.h"

#include <utility>

namespace kvdiv {

void adjust_family(Json& conditions, std::vector<std::optional<McNemarResult>> tests) {
  for (const auto& [member, key] :
       {std::pair{&McNemarResult::exact, "exact"}, std::pair{&McNemarResult::mid_p, "mid_p"},
        std::pair{&McNemarResult::chi2, "chi2"}}) {
    std::vector<TestResult*> family;
    std::vector<std::optional<double>> p;
    std::vector<std::size_t> where;
    for (std::size_t i = 0; i < tests.size(); ++i) {
      if (!tests[i]) continue;
      family.push_back(&((*tests[i]).*member));
      p.push_back(family.back()->p);
      where.push_back(i);
    }
    adjust_family(family, Adjustment::bonferroni, "conditions");
    const AdjustedP bh = adjust(p, Adjustment::benjamini_hochberg);
    for (std::size_t k = 0; k < where.size(); ++k) {
      Json& out = conditions[where[k]]["mcnemar"];
      const Json bh_so_far = out.value("p_benjamini_hochberg", Json::object());
      out = to_json_value(*tests[where[k]]);
      out["p_benjamini_hochberg"] = bh_so_far;
      out["p_benjamini_hochberg"][key] = to_json_value(bh.p[k]);
    }
  }
}

}  // namespace kvdiv
