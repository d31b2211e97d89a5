#include "html_sketch.h"

#include <algorithm>
#include <cmath>

namespace kvdiv {
namespace {

constexpr double kGamma = (1.0 + QuantileSketch::kRelativeError) / (1.0 - QuantileSketch::kRelativeError);

int bin_of(double value) {
  static const double log_gamma = std::log(kGamma);
  return static_cast<int>(std::ceil(std::log(value) / log_gamma));
}

/// A value of the bin (γ^(i−1), γ^i] that is within the relative error of all of them.
double value_of(int bin) { return 2.0 * std::pow(kGamma, bin) / (kGamma + 1.0); }

}  // namespace

void QuantileSketch::make_room(int low, int high) {
  if (counts_.empty()) {
    first_ = low;
    counts_.resize(static_cast<std::size_t>(high - low + 1));
    return;
  }
  if (low < first_) {
    counts_.insert(counts_.begin(), static_cast<std::size_t>(first_ - low), 0u);
    first_ = low;
  }
  const auto size = static_cast<std::size_t>(high - first_ + 1);
  if (size > counts_.size()) counts_.resize(size);
}

void QuantileSketch::add(double value) {
  min_ = n_ == 0 ? value : std::min(min_, value);
  max_ = n_ == 0 ? value : std::max(max_, value);
  ++n_;
  if (value < kSmallest) {
    ++n_zero_;
    return;
  }
  const int bin = bin_of(std::min(value, kLargest));
  make_room(bin, bin);
  ++counts_[static_cast<std::size_t>(bin - first_)];
}

void QuantileSketch::merge(const QuantileSketch& other) {
  if (other.n_ == 0) return;
  min_ = n_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = n_ == 0 ? other.max_ : std::max(max_, other.max_);
  n_ += other.n_;
  n_zero_ += other.n_zero_;
  if (other.counts_.empty()) return;
  make_room(other.first_, other.first_ + static_cast<int>(other.counts_.size()) - 1);
  for (std::size_t i = 0; i < other.counts_.size(); ++i)
    counts_[i + static_cast<std::size_t>(other.first_ - first_)] += other.counts_[i];
}

double QuantileSketch::quantile(double q) const {
  const auto rank = static_cast<std::int64_t>(std::floor(static_cast<double>(n_ - 1) * q + 0.5));
  if (rank <= 0) return min_;
  if (rank >= n_ - 1) return max_;
  std::int64_t below = n_zero_;
  if (rank < below) return 0.0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    if (rank < below) return std::clamp(value_of(first_ + static_cast<int>(i)), min_, max_);
  }
  return max_;
}

}  // namespace kvdiv
