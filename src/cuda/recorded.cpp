#include "recorded.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

namespace kvdiv::cuda {
namespace {

class Recorded final : public RecordedLaunches {
 public:
  explicit Recorded(const std::function<void()>& launches) {
    // All recordings are made on one stream, so that libraries keep one workspace for them, and take their memory from one
    // pool: they are replayed one after the other, and each writes its temporaries before it reads them.
    static const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
    static const at::cuda::MempoolId_t pool = at::cuda::graph_pool_handle();
    c10::cuda::device_synchronize();
    const c10::cuda::CUDAStreamGuard guard(stream);
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      launches();
    } catch (...) {
      graph_.capture_end();  // a stream must not be left recording
      throw;
    }
    graph_.capture_end();
  }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<RecordedLaunches> record_launches(const std::function<void()>& launches) {
  return std::make_unique<Recorded>(launches);
}

}  // namespace kvdiv::cuda
