#include "shapes_onset.h"

#include <iterator>
#include <map>
#include <set>

namespace kvdiv {
namespace {

std::set<std::int64_t> places(std::int64_t first, std::int64_t last, bool exhaustive) {
  std::set<std::int64_t> out;
  const auto add = [&](std::int64_t n) {
    if (n >= first && n <= last) out.insert(n);
  };
  add(first), add(last);
  for (std::int64_t n = first; exhaustive && n <= last; ++n) add(n);
  for (std::int64_t power = 1; power <= last + 1; power *= 2) add(power - 1), add(power), add(power + 1);
  for (std::int64_t n = 8; n <= last; n += n < 128 ? 8 : n < 512 ? 32 : 128) add(n);
  return out;
}

}  // namespace

Onset find_onset(std::int64_t first, std::int64_t last, bool exhaustive,
                 const std::function<double(std::int64_t)>& max_ulp) {
  std::map<std::int64_t, double> probed;
  for (const std::int64_t n : places(first, last, exhaustive)) probed[n] = max_ulp(n);
  const auto first_differing = [&] {
    auto it = probed.begin();
    while (it != probed.end() && it->second == 0.0) ++it;
    return it;
  };
  for (auto it = first_differing(); it != probed.end() && it != probed.begin(); it = first_differing()) {
    const std::int64_t equal = std::prev(it)->first, differing = it->first;
    if (differing - equal <= 1) break;
    const std::int64_t middle = equal + (differing - equal) / 2;
    probed[middle] = max_ulp(middle);
  }
  Onset onset;
  onset.n_probed = std::ssize(probed);
  for (const auto& [n, ulp] : probed) {
    const bool differs = ulp != 0.0;
    if (differs && !onset.n) {
      onset.n = n;
      onset.max_ulp = ulp;
    }
    onset.n_differing += differs;
    if (onset.n && !differs) onset.monotone = false;
  }
  return onset;
}

}  // namespace kvdiv
