#include "terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "kvdiv/base/stderr.h"

namespace kvdiv {
namespace {

constexpr double kTerminalInterval_s = 0.1, kLogInterval_s = 10.0, kSilent_s = 2.0;
constexpr int kBarWidth = 24;

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

}  // namespace

std::string human_duration(double seconds) {
  const auto s = static_cast<long>(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

TerminalProgress::TerminalProgress(Verbosity verbosity)
    : is_quiet_(verbosity == Verbosity::quiet), is_terminal_(isatty(STDERR_FILENO) == 1) {}

void TerminalProgress::note(const std::string& text) {
  if (is_quiet_) return;
  clear();
  write_stderr(fmt::format("{}\n", text));
}

void TerminalProgress::stage(const std::string& text) {
  stage_ = text;
  started_ = last_drawn_ = Clock::now();
}

std::string TerminalProgress::line_for(const ProgressUpdate& u) const {
  const double elapsed = seconds_since(started_);
  const double share = u.n_total > 0 ? static_cast<double>(u.n_done) / static_cast<double>(u.n_total) : 0.0;
  std::string bar;
  const int filled = static_cast<int>(share * kBarWidth);
  for (int i = 0; i < kBarWidth; ++i) bar += i < filled ? "█" : "·";
  std::string line = fmt::format("{}  {} {}/{}", stage_, bar, u.n_done, u.n_total);
  if (u.on_tokens_per_s > 0)
    line += fmt::format("  ON {:.0f} tok/s, OFF {:.0f} tok/s", u.on_tokens_per_s, u.off_tokens_per_s);
  if (share > 0) line += fmt::format("  ETA {}", human_duration(elapsed / share - elapsed));
  return line;
}

void TerminalProgress::update(const ProgressUpdate& u) {
  if (is_quiet_ || seconds_since(started_) < kSilent_s) return;
  const double interval = is_terminal_ ? kTerminalInterval_s : kLogInterval_s;
  if (seconds_since(last_drawn_) < interval) return;
  last_drawn_ = Clock::now();
  if (is_terminal_) {
    write_stderr(fmt::format("\r\033[K{}", line_for(u)));
    std::fflush(stderr);
    is_drawn_ = true;
  } else {
    write_stderr(fmt::format("{}\n", line_for(u)));
  }
}

void TerminalProgress::clear() {
  if (is_drawn_) write_stderr("\r\033[K");
  is_drawn_ = false;
}

void TerminalProgress::end_stage() { clear(); }

}  // namespace kvdiv
