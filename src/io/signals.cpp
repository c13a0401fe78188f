#include "manyworlds/io/signals.hpp"

#include <dirent.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "io/current_reactor.hpp"
#include "io/descriptor.hpp"
#include "io/stream.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

constexpr int last_signal = 64;

std::string name_of_signal(int number) {
  const char* const abbreviation = sigabbrev_np(number);
  return abbreviation ? fmt::format("SIG{}", abbreviation)
                      : fmt::format("signal {}", number);
}

sigset_t kernel_set(const signal_set& signals) noexcept {
  sigset_t set;
  sigemptyset(&set);
  for (int number = 1; number <= last_signal; ++number) {
    if (signals.has(number)) sigaddset(&set, number);
  }
  return set;
}

/// Returns the first of the signals that the thread does not block; 0 if it blocks all of
/// them, or if /proc does not tell.
int first_unblocked(const std::string& thread, const signal_set& signals,
                    std::string& name) {
  std::ifstream status(fmt::format("/proc/self/task/{}/status", thread));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Name:\t")) name = line.substr(std::strlen("Name:\t"));
    if (!line.starts_with("SigBlk:\t")) continue;
    unsigned long long blocked = 0;
    if (std::sscanf(line.c_str(), "SigBlk:\t%llx", &blocked) != 1) return 0;
    for (int number = 1; number <= last_signal; ++number) {
      if (signals.has(number) && (blocked >> (number - 1) & 1) == 0) return number;
    }
  }
  return 0;
}

/// Throws std::logic_error if a thread does not block all signals. A signal goes to any
/// such thread, where its default action ends the process.
void check_threads(const signal_set& signals) {
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(::opendir("/proc/self/task"),
                                                    [](DIR* d) { return ::closedir(d); });
  if (!threads) return;
  while (const dirent* entry = ::readdir(threads.get())) {
    if (entry->d_name[0] == '.') continue;
    std::string name;
    const int number = first_unblocked(entry->d_name, signals, name);
    if (number == 0) continue;
    throw std::logic_error(fmt::format(
        "until_signal: thread \"{}\" ({}) does not block {}, which would end the process "
        "there: call until_signal in main before other threads are started, and await "
        "what it gave later",
        name, entry->d_name, name_of_signal(number)));
  }
}

task<received_signal> next_signal(std::unique_ptr<unique_descriptor> from) {
  reactor* const home = current_reactor();
  if (!home || home->io().name() == "simulated") {
    throw std::logic_error(
        "until_signal needs a task on the reactor of a runtime of this machine: a "
        "foreign "
        "executor watches no descriptors, and a simulation sends no signals");
  }
  for (;;) {
    signalfd_siginfo info{};
    const ssize_t got = ::read(from->get(), &info, sizeof info);
    if (got == static_cast<ssize_t>(sizeof info)) {
      received_signal came;
      came.number = static_cast<int>(info.ssi_signo);
      came.sender = static_cast<pid_t>(info.ssi_pid);
      came.sender_user = static_cast<uid_t>(info.ssi_uid);
      co_return came;
    }
    if (got < 0 && errno != EAGAIN && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "read of a signalfd");
    // Another waiter may have taken it meanwhile.
    io_awaiter readable(*home, io_kind::readable,
                        static_cast<socket_handle>(from->get()));
    const io_result woken = co_await readable;
    if (!woken.ok())
      throw std::system_error(woken.error(), std::generic_category(), "until_signal");
  }
}

}  // namespace

void signal_set::add(int number) {
  const bool is_fault =
      number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL;
  if (number < 1 || number > last_signal || number == SIGKILL || number == SIGSTOP ||
      is_fault) {
    throw std::invalid_argument(
        fmt::format("{} cannot be waited for", name_of_signal(number)));
  }
  bits_ |= std::uint64_t{1} << (number - 1);
}

std::string received_signal::text() const { return name_of_signal(number); }

task<received_signal> until_signal(signal_set signals) {
  const sigset_t set = kernel_set(signals);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &set, &before);
  try {
    check_threads(signals);
  } catch (...) {
    // Signals that are not waited for keep their effect.
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  return next_signal(std::make_unique<unique_descriptor>(
      ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC), "signalfd"));
}

}  // namespace manyworlds::inline v0
