// Every kernel, once for each instruction set that has a fused multiply-add.
#include "kvdiv/numerics/kernels.h"

#include "compiled_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if HWY_NATIVE_FMA
#include "kernels_linear-inl.h"
#include "kernels_rows-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace kvdiv::HWY_NAMESPACE {

#if HWY_NATIVE_FMA

/// Calls f with a null pointer to the storage type.
template <class F>
HWY_INLINE void With(Storage storage, F f) {
  switch (storage) {
    case Storage::float16:
      return f(static_cast<F16*>(nullptr));
    case Storage::bfloat16:
      return f(static_cast<BF16*>(nullptr));
    case Storage::float32:
      return f(static_cast<float*>(nullptr));
    case Storage::float64:
      return f(static_cast<double*>(nullptr));
  }
}

template <class Pointer>
using Pointee = std::remove_pointer_t<Pointer>;

KernelTable Make() {
  KernelTable t;
  t.name = hwy::TargetName(HWY_TARGET);
  t.panel_rows = kTileRows;
  t.has_fma = true;
  t.panel_bytes = PanelBytes;
  t.pack_rows = [](Storage s, const void* x, std::int64_t stride, std::int64_t M, std::int64_t K, std::int64_t first,
                   std::int64_t last, void* panels) {
    With(s, [&]<class T>(T*) {
      PackRows<T>(static_cast<const T*>(x), stride, M, K, first, last, static_cast<Wide<T>*>(panels));
    });
  };
  t.linear = [](Storage s, const LinearCall& call, std::int64_t first, std::int64_t last) {
    With(s, [&]<class T>(T*) { Linear<T>(call, first, last); });
  };
  t.rms_norm = [](Storage s, const NormCall& call) { With(s, [&]<class T>(T*) { RmsNorm<T>(call); }); };
  t.widen = [](Storage s, const void* x, std::int64_t n, std::int64_t padded, void* out) {
    With(s, [&]<class T>(T*) { Widen<T>(static_cast<const T*>(x), n, padded, static_cast<Wide<T>*>(out)); });
  };
  t.narrow = [](Storage s, const void* x, std::int64_t n, void* out) {
    With(s, [&]<class T>(T*) { Narrow<T>(static_cast<const Wide<T>*>(x), n, static_cast<T*>(out)); });
  };
  t.products = [](Storage s, const ScoreCall& call) { With(s, [&]<class T>(T*) { Products<T>(call); }); };
  t.cap_scores = [](Storage s, const ScoreCall& call) { With(s, [&]<class T>(T*) { CapScores<T>(call); }); };
  t.softmax = [](Storage s, void* scores, std::int64_t n) {
    With(s, [&]<class T>(T*) { Softmax<T>(static_cast<Wide<T>*>(scores), n); });
  };
  t.mix = [](Storage s, const MixCall& call) { With(s, [&]<class T>(T*) { Mix<T>(call); }); };
  t.log_softmax = [](Storage s, const void* x, std::int64_t n, void* out) {
    With(s, [&]<class T>(T*) { LogSoftmax<T>(static_cast<const T*>(x), n, static_cast<Wide<T>*>(out)); });
  };
  t.silu_times = [](Storage s, const void* gate, const void* up, std::int64_t n, void* out) {
    With(s, [&]<class T>(T*) {
      SiluTimes<T>(static_cast<const T*>(gate), static_cast<const T*>(up), n, static_cast<T*>(out));
    });
  };
  t.gelu_times = [](Storage s, const void* gate, const void* up, std::int64_t n, void* out) {
    With(s, [&]<class T>(T*) {
      GeluTimes<T>(static_cast<const T*>(gate), static_cast<const T*>(up), n, static_cast<T*>(out));
    });
  };
  t.soft_cap = [](Storage s, const void* x, double cap, std::int64_t n, void* out) {
    With(s, [&]<class T>(T*) { SoftCap<T>(static_cast<const T*>(x), cap, n, static_cast<T*>(out)); });
  };
  t.register_flops = RegisterFlops;
  t.read_bytes = ReadBytes;
  return t;
}

#else

KernelTable Make() {
  KernelTable t;
  t.name = hwy::TargetName(HWY_TARGET);
  return t;
}

#endif

const KernelTable* Table() {
  static const KernelTable table = Make();
  return &table;
}

}  // namespace kvdiv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvdiv {
namespace {

HWY_EXPORT(Table);

const KernelTable& table_of(std::int64_t target) {
  hwy::GetChosenTarget().Update(target);
  const KernelTable& table = *HWY_DYNAMIC_DISPATCH(Table)();
  hwy::GetChosenTarget().DeInit();
  return table;
}

}  // namespace

std::vector<const KernelTable*> compiled_kernels() {
  std::vector<const KernelTable*> out;
  const std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  for (std::int64_t rest = targets; rest != 0; rest &= rest - 1)  // a lower bit is a wider set
    if (const KernelTable& table = table_of(rest & -rest); table.has_fma) out.push_back(&table);
  return out;
}

}  // namespace kvdiv
#endif
