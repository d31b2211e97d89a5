#pragma once
// What a long loop tells a person. The implementation decides between a bar, a line now and then, and silence.
#include <cstdint>
#include <string>

namespace kvdiv {

struct ProgressUpdate {
  std::int64_t n_done = 0, n_total = 0;  ///< pairs
  double on_tokens_per_s = 0.0, off_tokens_per_s = 0.0;
};

class Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  virtual ~Progress() = default;
  virtual void stage(const std::string& text) = 0;  ///< "float16/torch/greedy"
  virtual void update(const ProgressUpdate& update) = 0;
  virtual void end_stage() = 0;
};

}  // namespace kvdiv
