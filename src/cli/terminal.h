#pragma once
// stderr for people: notes, and progress as a bar on a terminal, a line now and then otherwise, nothing when quiet.
#include <chrono>
#include <string>

#include "kvdiv/base/progress.h"

namespace kvdiv {

enum class Verbosity { quiet, normal, verbose };

class TerminalProgress final : public Progress {
 public:
  explicit TerminalProgress(Verbosity verbosity);
  void stage(const std::string& text) override;
  void update(const ProgressUpdate& update) override;
  void end_stage() override;
  /// A line that stays.
  void note(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;
  std::string line_for(const ProgressUpdate& update) const;
  void clear();

  bool is_quiet_, is_terminal_, is_drawn_ = false;
  std::string stage_;
  Clock::time_point started_, last_drawn_;
};

/// "42 s", "3 min 05 s", "2 h 10 min".
std::string human_duration(double seconds);

}  // namespace kvdiv
