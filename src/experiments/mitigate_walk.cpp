#include "mitigate_walk.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "kvdiv/base/error.h"
#include "kvdiv/numerics/device.h"

namespace kvdiv {
namespace {

/// Adds the seconds that it lives to a sum. A GPU has finished by then what was asked of it meanwhile.
class Stopwatch {
 public:
  Stopwatch(double& seconds, c10::Device device) : seconds_(seconds), gpu_(module_of(device)) {}
  ~Stopwatch() {
    if (gpu_ != nullptr) gpu_->synchronize();
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  const DeviceModule* gpu_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void keep(WalkedSteps& walked, const at::Tensor& logits_V, const char* arm, const std::string& what) {
  walked.logits.push_back(host_logits(logits_V));
  const std::vector<double>& row = walked.logits.back();
  if (std::all_of(row.begin(), row.end(), [](double v) { return std::isfinite(v); })) return;
  fail(ErrorKind::invalid_measurement,
       "{}: a logit of arm {} is not finite at step {}; leave it out with "
       "--remedy",
       what, arm, walked.logits.size() - 1);
}

}  // namespace

std::vector<TokenId> GivenText::prefix(std::int64_t step) const {
  std::vector<TokenId> out(prompt.begin(), prompt.end());
  out.insert(out.end(), tokens.begin(), tokens.begin() + step);
  return out;
}

WalkedSteps walk_on(const Arms& arms, const GivenText& text, CacheRemedy* remedy, const std::string& what) {
  const c10::InferenceMode inference;
  KvCache cache = arms.decoder().make_cache(std::ssize(text.prompt) + text.n_steps());
  const std::vector<TokenId> all = text.prefix(text.n_steps());
  WalkedSteps walked;
  for (std::int64_t step = 0; step < text.n_steps(); ++step) {
    const auto stored = std::span(all).first(text.prompt.size() + static_cast<std::size_t>(step));
    const auto fed = step == 0 ? stored : stored.last(1);
    at::Tensor logits_V;
    {
      const Stopwatch stopwatch(walked.seconds, arms.decoder().device());
      logits_V = arms.on(fed, cache);
      if (remedy != nullptr) remedy->after_call(arms, stored, std::ssize(fed), cache);
    }
    keep(walked, logits_V, "ON", what);
  }
  return walked;
}

WalkedSteps walk_off(const Arms& arms, const GivenText& text, std::int64_t n_steps, const std::string& what) {
  WalkedSteps walked;
  for (std::int64_t step = 0; step < n_steps; ++step) {
    const std::vector<TokenId> prefix = text.prefix(step);
    at::Tensor logits_V;
    {
      const Stopwatch stopwatch(walked.seconds, arms.decoder().device());
      logits_V = arms.off(prefix);
    }
    keep(walked, logits_V, "OFF", what);
  }
  return walked;
}

}  // namespace kvdiv
