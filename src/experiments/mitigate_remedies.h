#pragma once
// The remedies as data: what each is called, what it does, which arithmetic it has and what it does to ON's cache.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvdiv/decode/cache_remedies.h"
#include "kvdiv/experiments/mitigate.h"

namespace kvdiv {

/// What both arms compute with. `base`: the dtype and the backend of the run.
enum class Arithmetic {
  base,
  float32_attention,
  float32_accumulation,
  invariant,
  float32_arithmetic,
  bfloat16,
  float32,
  no_split_k,
  one_algorithm,
};

/// What is done to ON's cache between calls, and the form in which it is stored.
enum class CacheForm { as_computed, float32, refreshed, int8, int4 };

struct RemedyKind {
  std::string_view name;
  std::string_view what;  ///< in a line
  Arithmetic arithmetic = Arithmetic::base;
  CacheForm cache = CacheForm::as_computed;
  std::string_view arguments = "";  ///< the default ones, as in the name: ":8:0.5"
  bool needs_gpu = false;
};

struct Remedy {
  std::string name;  ///< with its arguments
  const RemedyKind* kind = nullptr;
  std::int64_t interval = 0;  ///< of a refreshed cache, in tokens
  double weight = 1.0;        ///< of the recomputed values

  /// Null: the cache is left alone. For one text of up to `capacity` positions.
  std::unique_ptr<CacheRemedy> for_cache(const ModelConfig& config, std::int64_t capacity) const;
};

/// Throws Error{usage} that names the nearest remedy, or the argument that is wrong.
Remedy parse_remedy(const std::string& name);

/// Those of the parameters (an element may be a list with commas), `none` first whether it was asked for or not. Throws
/// as parse_remedy, and for a remedy that is given twice.
std::vector<Remedy> remedies_of(const MitigateParams& params);

/// Those of them that the device has: where all are asked for, a CPU leaves out a GPU's. Throws Error{usage} where one was
/// named that is not to be had.
std::vector<Remedy> remedies_on(c10::Device device, const MitigateParams& params);

/// Computed, not measured: a process that decodes with the cache alone, at `length` positions.
struct RemedyBytes {
  std::uint64_t weights = 0;  ///< in the form in which they are kept
  std::uint64_t cache = 0;    ///< in the form that the remedy stores, kernels that
                              ///< read it presupposed
  std::uint64_t peak = 0;     ///< both, activations, what is widened for one call,
                              ///< and a second cache where there is one
};
RemedyBytes bytes_of(const Remedy& remedy, const ModelConfig& config, DType base, std::int64_t length);

/// The dtype in which an arithmetic computes and keeps its cache, and that of the weights in memory.
DType compute_dtype(Arithmetic arithmetic, DType base);
DType weights_dtype(Arithmetic arithmetic, DType base);

}  // namespace kvdiv
