#include "soak/director.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <thread>

namespace manyworlds_tests::soak {

namespace {

mw::time_point now() { return std::chrono::steady_clock::now(); }

/// This program once more, with other arguments.
pid_t spawn(std::vector<std::string> arguments, int output = -1) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (output >= 0) ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  arguments.insert(arguments.begin(), "soak");
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error =
      ::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("soak: cannot start a process");
  return pid;
}

std::string end_text(int status) {
  return WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                             : fmt::format("ended with {}", WEXITSTATUS(status));
}

}  // namespace

director::director(const settings& s, std::string folder)
    : settings_(s), plan_(plan_of(s)), folder_(std::move(folder)), slots_(s.processes) {}

director::~director() {
  const auto end = [](pid_t pid) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  };
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].is_running) end(pid_of(i));
  }
  if (store_ > 0) end(store_);
}

void director::start_store() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("soak: no pipe");
  store_ = spawn({"store"}, ends[1]);
  ::close(ends[1]);
  char text[128];
  ssize_t got = 0;
  while (store_address_.find('\n') == std::string::npos &&
         (got = ::read(ends[0], text, sizeof text)) > 0) {
    store_address_.append(text, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  if (store_address_.empty()) throw std::runtime_error("soak: the store did not start");
  store_address_.pop_back();
}

void director::start(std::size_t slot) {
  slot_state& s = slots_[slot];
  s.process = course_.processes.size();
  s.is_running = true;
  noted_process p;
  p.slot = slot;
  p.records = fmt::format("{}/{}.records", folder_, s.process);
  p.pid = spawn({"member", fmt::format("slot={}", slot), fmt::format("life={}", s.lives),
                 fmt::format("begin={}", course_.begin.time_since_epoch().count()),
                 "store=" + store_address_, "records=" + p.records,
                 fmt::format("seed={}", settings_.seed),
                 fmt::format("span={}", settings_.span.count()),
                 fmt::format("processes={}", settings_.processes),
                 fmt::format("worlds={}", settings_.worlds)});
  ++s.lives;
  course_.processes.push_back(std::move(p));
}

void director::kill(std::size_t slot) {
  look_after(slot);
  if (!slots_[slot].is_running) return;
  course_.events.push_back({now(), event::killed, slots_[slot].process});
  ::kill(pid_of(slot), SIGKILL);
  ::waitpid(pid_of(slot), nullptr, 0);
  slots_[slot].is_running = false;
}

void director::signal(std::size_t slot, int number, event what) {
  look_after(slot);
  if (!slots_[slot].is_running) return;
  if (what == event::stopped) {
    course_.events.push_back({now(), what, slots_[slot].process});
  }
  ::kill(pid_of(slot), number);
  if (what == event::resumed) {
    course_.events.push_back({now(), what, slots_[slot].process});
  }
}

void director::look_after(std::size_t slot) {
  slot_state& s = slots_[slot];
  int status = 0;
  if (!s.is_running || ::waitpid(pid_of(slot), &status, WNOHANG) <= 0) return;
  s.is_running = false;
  const bool is_in_time = now() >= course_.begin + plan_.quiet;
  if (is_in_time && status == 0) return;
  course_.complaints.push_back(
      fmt::format("slot {} (pid {}, {}) {} {:.3f} s after the begin", slot, pid_of(slot),
                  course_.processes[s.process].records, end_text(status),
                  std::chrono::duration<double>(now() - course_.begin).count()));
  // It counts as killed: what the others see of it is explained.
  course_.events.push_back({now(), event::killed, s.process});
}

void director::plan_actions() {
  for (const planned_fault& f : plan_.faults) {
    const std::size_t slot = f.slot;
    if (f.what == deed::kill) {
      actions_.emplace(f.at, [this, slot] { kill(slot); });
      actions_.emplace(f.at + f.span, [this, slot] { start(slot); });
    }
    if (f.what == deed::stop) {
      actions_.emplace(f.at, [this, slot] { signal(slot, SIGSTOP, event::stopped); });
      actions_.emplace(f.at + f.span,
                       [this, slot] { signal(slot, SIGCONT, event::resumed); });
    }
  }
}

void director::wait_for_all() {
  const mw::time_point limit = course_.begin + plan_.quiet + 45s;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    look_after(i);
    while (slots_[i].is_running && now() < limit) {
      std::this_thread::sleep_for(10ms);
      look_after(i);
    }
    if (!slots_[i].is_running) continue;
    course_.complaints.push_back(fmt::format(
        "law 9: slot {} (pid {}) has not come to its end 45 s after all was quiet", i,
        pid_of(i)));
    kill(i);
  }
}

course director::run() {
  start_store();
  course_.begin = now();
  for (std::size_t i = 0; i < slots_.size(); ++i) start(i);
  plan_actions();
  for (const auto& [at, act] : actions_) {
    std::this_thread::sleep_until(course_.begin + at);
    act();
  }
  wait_for_all();
  return std::move(course_);
}

}  // namespace manyworlds_tests::soak
