#include "mitigate_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "kvdiv/base/interrupt.h"
#include "kvdiv/stats/metrics.h"
#include "kvdiv/stats/sum.h"

namespace kvdiv {
namespace {

struct Evaluated {
  OperationSet set;
  std::int64_t n_steps = 0, n_bit_equal = 0;
  double kl_mean = 0.0, kl_max = 0.0;
  bool meets = true;
  bool is_whole = true;  ///< false: given up at the first step over the limit
};

Json names_of(OperationSet set) {
  Json out = Json::array();
  for (const Operation o : set.members()) out.push_back(name_of(o));
  return out;
}

std::string text_of(OperationSet set) {
  std::vector<std::string> names;
  for (const Operation o : set.members()) names.emplace_back(name_of(o));
  return names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", "));
}

Json numbers_of(const Evaluated& e) {
  return {{"n_steps", e.n_steps},
          {"kl_mean_nats", e.kl_mean},
          {"kl_max_nats", e.kl_max},
          {"bit_equal_rate", static_cast<double>(e.n_bit_equal) / static_cast<double>(e.n_steps)},
          {"meets_limit", e.meets},
          {"is_whole", e.is_whole}};
}

/// n over k, exact for the few kinds that there are.
std::int64_t choose(std::int64_t n, std::int64_t k) {
  std::int64_t out = 1;
  for (std::int64_t i = 1; i <= k; ++i) out = out * (n - k + i) / i;
  return out;
}

class Searcher {
 public:
  Searcher(const SetSearch& search, Progress& progress)
      : search_(search), progress_(progress), kinds_(operations_of(search.usual.decoder.config())) {}
  Json run();

 private:
  const Evaluated& evaluate(OperationSet set, bool whole);
  Evaluated compute(OperationSet set, bool whole) const;
  OperationSet find_necessary();
  OperationSet forward(OperationSet set);
  OperationSet backward(OperationSet set);
  OperationSet exhaust(OperationSet set);
  std::int64_t n_smaller(OperationSet set) const;
  void note(const char* phase, OperationSet set, const std::string& what);
  std::string sentence(OperationSet set) const;

  const SetSearch& search_;
  Progress& progress_;
  const std::vector<Operation> kinds_;
  std::map<std::uint32_t, std::size_t> known_;  ///< by the set's bits: place in evaluated_
  std::vector<Evaluated> evaluated_;            ///< in the order of evaluation
  Json alone_ = Json::array(), trail_ = Json::array();
  std::string proof_ = "local";
};

Evaluated Searcher::compute(OperationSet set, bool whole) const {
  const Decoder decoder = routed_decoder(search_.usual, search_.fixed, set);
  const Arms arms(decoder, search_.planted);
  Evaluated e{set};
  CompensatedSum sum;
  for (const GivenText& text : search_.texts) {
    KvCache cache = decoder.make_cache(std::ssize(text.prompt) + text.n_steps());
    arms.on(text.prompt, cache);
    for (std::int64_t step = 1; step < text.n_steps(); ++step) {
      if (interrupted()) return e;
      const auto newest = text.tokens.subspan(static_cast<std::size_t>(step - 1), 1);
      const StepMetrics m =
          compare_logits(host_logits(arms.on(newest, cache)), host_logits(arms.off(text.prefix(step))));
      const bool over = search_.max_kl == 0.0 ? !m.bit_equal : !(m.kl_on_off_nats <= search_.max_kl);
      ++e.n_steps;
      e.n_bit_equal += m.bit_equal;
      e.kl_max = std::max(e.kl_max, m.kl_on_off_nats);
      sum.add(m.kl_on_off_nats);
      e.kl_mean = sum.value() / static_cast<double>(e.n_steps);
      e.meets = e.meets && !over;
      e.is_whole = whole || !over;
      if (!e.is_whole) return e;
    }
  }
  return e;
}

const Evaluated& Searcher::evaluate(OperationSet set, bool whole) {
  const auto it = known_.find(set.bits());
  if (it != known_.end() && (evaluated_[it->second].is_whole || !whole)) return evaluated_[it->second];
  const Evaluated e = compute(set, whole);
  if (it != known_.end()) return evaluated_[it->second] = e;
  known_[set.bits()] = evaluated_.size();
  evaluated_.push_back(e);
  progress_.update({std::ssize(evaluated_), 0, 0.0, 0.0});
  return evaluated_.back();
}

void Searcher::note(const char* phase, OperationSet set, const std::string& what) {
  Json row = {{"phase", phase}, {"what", what}, {"fixed", text_of(set)}, {"size", set.size()}};
  row.update(numbers_of(evaluated_[known_.at(set.bits())]));
  row["n_evaluated"] = evaluated_.size();
  trail_.push_back(std::move(row));
}

OperationSet Searcher::find_necessary() {
  OperationSet all, necessary;
  for (const Operation o : kinds_) all = all.with(o);
  for (const Operation o : kinds_) {
    if (interrupted()) return necessary;
    const Evaluated& e = evaluate(all.without(o), true);
    if (!e.meets) necessary = necessary.with(o);
    Json row = {{"operation", name_of(o)}, {"necessary", !e.meets}};
    row.update(numbers_of(e));
    alone_.push_back(std::move(row));
  }
  return necessary;
}

OperationSet Searcher::forward(OperationSet set) {
  while (!evaluate(set, true).meets && !interrupted()) {
    std::optional<Evaluated> best;
    Operation added{};
    for (const Operation o : kinds_) {
      if (set.contains(o)) continue;
      const Evaluated e = evaluate(set.with(o), true);
      const auto rank = [](const Evaluated& x) { return std::pair(!x.meets, x.kl_mean); };
      if (!best || rank(e) < rank(*best)) best = e, added = o;
    }
    if (!best) break;  // all kinds: met the limit before
    set = best->set;
    note("forward", set, fmt::format("added {}", name_of(added)));
  }
  return set;
}

OperationSet Searcher::backward(OperationSet set) {
  for (bool removed = true; removed;) {
    removed = false;
    for (const Operation o : set.members()) {
      if (interrupted()) return set;
      if (!evaluate(set.without(o), false).meets) continue;
      set = set.without(o);
      note("backward", set, fmt::format("left out {}", name_of(o)));
      removed = true;
    }
  }
  return set;
}

std::int64_t Searcher::n_smaller(OperationSet set) const {
  std::int64_t n = 0;
  for (int size = 0; size < set.size(); ++size) n += choose(std::ssize(kinds_), size);
  return n;
}

OperationSet Searcher::exhaust(OperationSet set) {
  const auto n_sets = std::uint32_t{1} << kinds_.size();
  for (int size = 0; size < set.size(); ++size)
    for (std::uint32_t places = 0; places < n_sets; ++places) {
      if (std::popcount(places) != size) continue;
      if (interrupted()) return set;
      OperationSet smaller;
      for (std::size_t i = 0; i < kinds_.size(); ++i)
        if ((places >> i & 1) != 0) smaller = smaller.with(kinds_[i]);
      if (!evaluate(smaller, false).meets) continue;
      note("exhaustive", smaller, "a smaller set meets the limit");
      return smaller;
    }
  note("exhaustive", set, fmt::format("none of the {} smaller sets meets the limit", n_smaller(set)));
  return set;
}

std::string Searcher::sentence(OperationSet set) const {
  const std::string how = proof_ == "exhaustive" ? fmt::format(
                                                       "proven on these steps: each of the {} smaller sets "
                                                       "was tried and fails",
                                                       n_smaller(set))
                          : proof_ == "necessary" ? "each is needed while all others are fixed; smaller sets were not "
                                                    "all tried"
                                                  : "none of them can be left out alone; smaller sets were not all "
                                                    "tried, it may not be the smallest";
  const std::string limit = search_.max_kl == 0.0 ? "the same bits" : fmt::format("{:.2g} nats", search_.max_kl);
  return fmt::format("{} must be fixed for {} ({} of {} kinds of operation; {})", text_of(set), limit, set.size(),
                     kinds_.size(), how);
}

Json Searcher::run() {
  OperationSet all;
  for (const Operation o : kinds_) all = all.with(o);
  const bool control = evaluate(all, true).meets;
  note("control", all, "all fixed");
  OperationSet set = all;
  if (control && !interrupted()) {
    const OperationSet necessary = find_necessary();
    evaluate(necessary, true);
    note("necessary", necessary, "each needed while all others are fixed");
    set = backward(forward(necessary));
    proof_ = set == necessary ? "necessary" : "local";
    if (set.size() == 0 || n_smaller(set) <= search_.max_subsets) {
      set = exhaust(set);
      proof_ = "exhaustive";
    }
  }
  if (interrupted()) return nullptr;
  Json j = {{"max_kl_nats", search_.max_kl}, {"n_texts", search_.texts.size()}, {"operations", names_of(all)}};
  j["all_fixed_meets_limit"] = control;
  j["alone"] = alone_;
  j["trail"] = trail_;
  j["n_evaluated"] = evaluated_.size();
  j["evaluated"] = Json::array();
  for (const Evaluated& e : evaluated_) {
    j["evaluated"].push_back({{"fixed", names_of(e.set)}});
    j["evaluated"].back().update(numbers_of(e));
  }
  j["smallest"] = control ? names_of(set) : Json(nullptr);
  j["size"] = control ? Json(set.size()) : Json(nullptr);
  j["n_smaller"] = control ? Json(n_smaller(set)) : Json(nullptr);
  j["proof"] = control ? Json(proof_) : Json(nullptr);
  j["proven_smallest"] = control && proof_ == "exhaustive";
  j["sentence"] = control ? sentence(set)
                          : "with every operation fixed the arms still differ "
                            "by more than the limit";
  return j;
}

}  // namespace

std::vector<Operation> operations_of(const ModelConfig& config) {
  std::vector<Operation> out;
  for (const auto& [operation, name] : EnumNames<Operation>::values)
    if (operation != Operation::final_cap || config.traits.final_cap) out.push_back(operation);
  return out;
}

Json search_smallest_set(const SetSearch& search, Progress& progress) {
  progress.stage("searching the smallest set of operations");
  Json out = Searcher(search, progress).run();
  progress.end_stage();
  return out;
}

}  // namespace kvdiv
