#include "common_fingerprint.h"

namespace kvdiv {
namespace {

void add_row(Sha256& hash, const at::Tensor& logits_V) {
  const at::Tensor here = logits_V.cpu().contiguous();
  hash.update(here.const_data_ptr(), here.nbytes());
}

}  // namespace

void Fingerprinter::add(const StepView& step) {
  if (!step.same_prefix || step.step >= kControlSteps) return;
  add_row(on_, step.row_on->tensor());
  add_row(off_, step.row_off->tensor());
}

}  // namespace kvdiv
