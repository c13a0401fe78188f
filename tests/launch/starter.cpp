// A program that starts others, for tests of what its end does to them:
//   starter [guard | dead-guard] [reason] SUBJECT FILE ORDER...
// It writes its program's number to FILE and stays; with `reason` it writes how that has
// ended. A dead guard is killed before.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "manyworlds/launch.hpp"
#include "manyworlds/mw.hpp"

using namespace std::chrono_literals;

namespace {

mw::task<void> supervise(mw::runtime& rt, mw::process_options how, std::string file) {
  mw::supervised_process one(rt, how);
  co_await one.started();
  std::ofstream(file + ".begun") << one.pid();
  std::rename((file + ".begun").c_str(), file.c_str());
  co_await one.ended();
}

mw::task<void> tell_reason(mw::runtime& rt, mw::process_options how, std::string file) {
  mw::supervised_process one(rt, how);
  const mw::exit_reason end = co_await one.ended();
  std::ofstream(file) << mw::name_of(end.kind) << ": " << end.text();
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::string> words(arguments + 1, arguments + count);
  std::optional<mw::process_guard> guard;
  const bool kills_guard = words.front() == "dead-guard";
  if (words.front() == "guard" || kills_guard) {
    guard.emplace();
    words.erase(words.begin());
  }
  if (kills_guard) {
    siginfo_t ended;
    ::kill(guard->pid(), SIGKILL);
    ::waitid(P_PID, static_cast<id_t>(guard->pid()), &ended, WEXITED | WNOWAIT);
  }
  const bool tells = words.front() == "reason";
  if (tells) words.erase(words.begin());
  const std::string program = words.at(0);
  const std::string file = words.at(1);
  mw::process_options how(program, {words.begin() + 2, words.end()});
  if (guard) how.guarded_by(*guard);
  mw::runtime rt({.log_from = mw::log_level::error});
  // V6: the thread that asked for the start ends long before the program.
  auto running = rt.start(tells ? tell_reason(rt, how, file) : supervise(rt, how, file));
  running.get();
  return 0;
}
