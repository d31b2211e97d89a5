#include "record_lines.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"
#include "kvdiv/report/records_reader.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A cursor over one line; each call eats what it names, or says no.
class Scan {
 public:
  explicit Scan(std::string_view line) : at_(line.data()), end_(line.data() + line.size()) {}

  bool eat(std::string_view text) {
    if (static_cast<std::size_t>(end_ - at_) < text.size() || std::memcmp(at_, text.data(), text.size()) != 0)
      return false;
    at_ += text.size();
    return true;
  }

  /// Null is a number that is not finite, as in from_json_value.
  bool number(std::string_view key, double& value) {
    if (!eat(key)) return false;
    value = std::numeric_limits<double>::quiet_NaN();
    return eat("null") || take(value);
  }

  bool integer(std::string_view key, std::int64_t& value) { return eat(key) && take(value); }

  bool boolean(std::string_view key, bool& value) {
    if (!eat(key)) return false;
    value = eat("true");
    return value || eat("false");
  }

  /// Printable ASCII without quotes and escapes, and the quote behind it.
  bool text(std::string_view key, std::string& value) {
    if (!eat(key)) return false;
    const char* const start = at_;
    for (; at_ < end_ && *at_ != '"'; ++at_)
      if (*at_ < ' ' || *at_ > '~' || *at_ == '\\') return false;
    if (at_ == end_) return false;
    value.assign(start, at_);
    ++at_;
    return true;
  }

  bool at_end() const { return at_ == end_; }

 private:
  template <class T>
  bool take(T& value) {
    const char* const first = at_ < end_ && *at_ == '-' ? at_ + 1 : at_;
    if (first == end_ || !is_digit(*first)) return false;  // from_chars knows "inf" and "nan", JSON does not
    const auto [stop, error] = std::from_chars(at_, end_, value);
    if (error != std::errc()) return false;
    at_ = stop;
    return true;
  }

  const char* at_;
  const char* const end_;
};

/// Lines out of a file by large blocks; the line lives until the next call.
class LineReader {
 public:
  explicit LineReader(fs::path file)
      : file_(std::move(file)), in_(open_records(file_)), buffer_(std::size_t{1} << 20) {}

  bool next(std::string_view& line) {
    for (std::size_t searched = begin_;;) {
      const void* const newline = std::memchr(buffer_.data() + searched, '\n', end_ - searched);
      if (newline != nullptr) {
        const auto stop = static_cast<std::size_t>(static_cast<const char*>(newline) - buffer_.data());
        line = {buffer_.data() + begin_, stop - begin_};
        begin_ = stop + 1;
        ++number_;
        return true;
      }
      searched = end_ - begin_;
      if (!fill()) return false;
    }
  }

  std::string where() const { return fmt::format("{}: line {}", file_.string(), number_); }

 private:
  /// Moves what is left to the front and reads on; false at the end of the file.
  bool fill() {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (end_ == buffer_.size()) {
      if (buffer_.size() > kMaxJsonBytes) {
        ++number_;
        fail_unreadable("{}: longer than {} bytes: not a file of records", where(), kMaxJsonBytes);
      }
      buffer_.resize(buffer_.size() * 2);
    }
    in_.read(buffer_.data() + end_, static_cast<std::streamsize>(buffer_.size() - end_));
    if (in_.bad()) fail_unreadable("{}: cannot be read: {}", file_.string(), std::strerror(errno));
    const auto n = static_cast<std::size_t>(in_.gcount());
    end_ += n;
    return n > 0;
  }

  fs::path file_;
  std::ifstream in_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  std::int64_t number_ = 0;
};

/// The type of a line that begins as kvdiv's lines do; empty for another line.
std::string_view leading_type(std::string_view line) {
  constexpr std::string_view kStart = "{\"type\":\"";
  if (!line.starts_with(kStart)) return {};
  const std::string_view rest = line.substr(kStart.size());
  const std::size_t quote = rest.find_first_of("\"\\");
  return quote == std::string_view::npos || rest[quote] != '"' ? std::string_view{} : rest.substr(0, quote);
}

void parse_line(std::string_view line, const std::string& where, const RecordHandlers& handlers) {
  const Json record = parse_json(line, where);
  const auto type = record.is_object() ? record.find("type") : record.end();
  if (type == record.end() || !type->is_string())
    fail_unreadable("{}: expected a record {{\"type\": …}}, found {}", where, short_name(std::string(line)));
  const auto& name = type->get_ref<const std::string&>();
  if (name == StepRecord::type) {
    StepRecord step;
    from_json_value(record, step, where);
    handlers.step(step);
  } else if (name == PairRecord::type) {
    PairRecord pair;
    from_json_value(record, pair, where);
    handlers.pair(pair);
  } else if (handlers.other) {
    handlers.other(name, line);
  }
}

}  // namespace

bool scan_step(std::string_view line, StepRecord& step) {
  Scan s(line);
  if (!s.text("{\"type\":\"step\",\"pair_id\":\"", step.pair_id)) return false;
  if (s.eat(",\"clock\":\"both\""))
    step.clock = Clock::both;
  else if (s.eat(",\"clock\":\"forced\""))
    step.clock = Clock::forced;
  else if (s.eat(",\"clock\":\"free\""))
    step.clock = Clock::free;
  else
    return false;
  return s.integer(",\"step\":", step.step) && s.boolean(",\"same_prefix\":", step.same_prefix) &&
         s.integer(",\"token_on\":", step.token_on) && s.integer(",\"token_off\":", step.token_off) &&
         s.number(",\"kl_on_off_nats\":", step.kl_on_off_nats) &&
         s.number(",\"kl_off_on_nats\":", step.kl_off_on_nats) && s.number(",\"js_nats\":", step.js_nats) &&
         s.number(",\"max_abs_dlogit\":", step.max_abs_dlogit) && s.boolean(",\"bit_equal\":", step.bit_equal) &&
         s.boolean(",\"top1_equal\":", step.top1_equal) && s.number(",\"margin_on\":", step.margin_on) &&
         s.number(",\"margin_off\":", step.margin_off) && s.boolean(",\"tie_on\":", step.tie_on) &&
         s.boolean(",\"tie_off\":", step.tie_off) && s.integer(",\"n_nonfinite\":", step.n_nonfinite) && s.eat("}") &&
         s.at_end();
}

void for_each_line(const fs::path& records_file, const RecordHandlers& handlers) {
  LineReader reader(records_file);
  StepRecord step;
  for (std::string_view line; reader.next(line);) {
    if (scan_step(line, step)) {
      handlers.step(step);
      continue;
    }
    const std::string_view type = leading_type(line);
    const bool is_other = !type.empty() && type != StepRecord::type && type != PairRecord::type;
    if (is_other && !handlers.other) continue;
    parse_line(line, reader.where(), handlers);
  }
}

}  // namespace kvdiv
