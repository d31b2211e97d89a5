#pragma once
// Runs the built kvdiv as a user does.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/models.h"

namespace kvdiv::test {

struct ProcessResult {
  int code = -1;
  std::string out, err;
};

class Process {
 public:
  /// `environment`: "NAME=value" added to the caller's.
  explicit Process(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {}) {
    std::vector<std::string> words{std::string(KVDIV_TEST_BIN) + "/kvdiv"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    for (const std::string& entry : environment) putenv(strdup(entry.c_str()));
    redirect(files_.path() / "out", 1);
    redirect(files_.path() / "err", 2);
    execv(argv[0], argv.data());
    _exit(127);
  }
  void send(int signal_number) const { kill(pid_, signal_number); }
  ProcessResult wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text_file(files_.path() / "out"), read_text_file(files_.path() / "err")};
  }

 private:
  static void redirect(const std::filesystem::path& path, int descriptor) {
    const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(file, descriptor);
  }
  TempDir files_;
  pid_t pid_ = 0;
};

/// Four short prompts: OFF computes the prompt again at every step, so that runs over GSM8K take ten times as long.
inline std::string short_prompts() { return std::string(KVDIV_TEST_ROOT) + "/tests/corpus/prompts/short.jsonl"; }

inline ProcessResult kvdiv_run(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {}) {
  return Process(arguments, environment).wait();
}

}  // namespace kvdiv::test
