#include "noise_plan.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace kvdiv {
namespace {

std::int64_t mantissa_bits_of(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return 10;
    case DType::bfloat16:
      return 7;
    case DType::float32:
      return 23;
    case DType::float64:
      return 52;
  }
  return 0;
}

template <class T>
void require_list(const std::vector<T>& list, const char* flag) {
  if (list.empty()) fail_usage("--{}: the list is empty", flag);
  if (std::set<T>(list.begin(), list.end()).size() != list.size()) fail_usage("--{}: a value is given twice", flag);
}

}  // namespace

CacheNoise NoiseCase::on(std::int64_t prompt_index) const {
  CacheNoise noise;
  noise.kind = kind;
  noise.keys = what != NoiseWhat::v;
  noise.values = what != NoiseWhat::k;
  noise.size = size;
  noise.mantissa_bits = static_cast<int>(bits);
  noise.seed = static_cast<std::uint64_t>(seed);
  noise.prompt = static_cast<std::uint64_t>(prompt_index);
  return noise;
}

std::vector<NoiseCase> noise_plan(const NoiseParams& params) {
  std::vector<NoiseCase> plan;
  for (const NoiseKind kind : params.kind)
    for (const NoiseWhat what : params.what) {
      if (kind == NoiseKind::mantissa) {
        for (const std::int64_t bits : params.mantissa_bits) plan.push_back({what, kind, 0.0, bits, 0});
        continue;
      }
      for (const double size : params.size)
        for (std::int64_t seed = 0; seed < params.noise_seeds; ++seed) plan.push_back({what, kind, size, 52, seed});
    }
  return plan;
}

void validate(const NoiseParams& params) {
  validate(static_cast<const ArithmeticParams&>(params));
  validate(static_cast<const SelectionParams&>(params));
  require_list(params.what, "what");
  require_list(params.kind, "kind");
  require_list(params.size, "size");
  require_list(params.mantissa_bits, "mantissa-bits");
  for (const double size : params.size)
    if (!std::isfinite(size) || size < 0.0) fail_usage("--size: {} is not a relative size (finite, 0 or more)", size);
  std::int64_t most = mantissa_bits_of(DType::float32);  // a narrower dtype has no use for them, and takes no harm
  for (const DType dtype : params.dtype) most = std::max(most, mantissa_bits_of(dtype));
  for (const std::int64_t bits : params.mantissa_bits)
    if (bits < 1 || bits > most) fail_usage("--mantissa-bits: {} is not one of 1…{}", bits, most);
  if (params.noise_seeds < 1) fail_usage("--noise-seeds: {} is less than 1", params.noise_seeds);
}

}  // namespace kvdiv
