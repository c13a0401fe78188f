#include "mwrun/under_guard.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "io/abandoned_groups.hpp"
#include "io/current_reactor.hpp"
#include "io/process_list.hpp"
#include "io/process_tree.hpp"
#include "io/stream.hpp"
#include "launch/guard_connection.hpp"
#include "launch/guarded_trees.hpp"
#include "mwrun/end_orders.hpp"
#include "mwrun/say.hpp"

namespace mwrun {

namespace {

using namespace std::chrono_literals;
using mw::detail::unique_descriptor;

constexpr int code_of_signal = 128;

/// Reaps all children that have ended. Returns whether others live.
template <class Told>
bool reap(const Told& told) {
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid > 0) {
      told(pid, status);
    } else if (pid == 0 || errno != EINTR) {
      return pid == 0;
    }
  }
}

bool reap() {
  return reap([](pid_t, int) {});
}

/// Kills all that descends from this process.
void kill_descendants() {
  const auto all = mw::detail::list_processes();
  std::set<pid_t> found{::getpid()};
  for (bool grows = true; grows;) {
    grows = false;
    for (const auto& each : all) {
      if (found.contains(each.parent) && found.insert(each.pid).second) grows = true;
    }
  }
  for (const auto& each : all) {
    if (each.pid != ::getpid() && found.contains(each.pid))
      mw::detail::signal_process(each, SIGKILL);
  }
}

/// Ends what workers have left. Orphans come to this process, so that none escapes.
void end_descendants() {
  const auto until = std::chrono::steady_clock::now() + 2s;
  while (reap() && std::chrono::steady_clock::now() < until) {
    try {
      kill_descendants();
    } catch (const std::system_error&) {
      // There is no descriptor to look with now.
    }
    std::this_thread::sleep_for(1ms);
  }
}

/// The guard's life, from the fork to the end of all that the agent has started.
class agent_guard {
 public:
  agent_guard(pid_t agent, unique_descriptor signals, unique_descriptor trees,
              unique_descriptor orders)
      : agent_(agent),
        signals_(std::move(signals)),
        socket_(std::move(trees)),
        orders_(std::move(orders)) {}

  /// Returns how the agent has ended. `sweeps` says that all descendants are its.
  [[nodiscard]] agent_end watch(bool sweeps) {
    while (!status_) {
      ::pollfd asked[2] = {{signals_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
      if (::poll(asked, 2, -1) < 0) continue;
      if (asked[0].revents != 0) heed_signals();
      if (socket_ && !trees_.take_messages(socket_.get())) socket_ = unique_descriptor();
    }
    if (!WIFSIGNALED(*status_)) {
      // It has ended its workers itself, or let them be.
      if (sweeps) end_descendants();
      return {WEXITSTATUS(*status_), 0};
    }
    trees_.end_all();
    if (sweeps) end_descendants();
    // Behind the rest: a terminal may be stuck.
    say(fmt::format("the agent (pid {}) was killed by {}: its workers were killed",
                    agent_, name_of_signal(WTERMSIG(*status_))));
    return {0, WTERMSIG(*status_)};
  }

 private:
  void heed_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) ==
           static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo != SIGCHLD) pass_on(static_cast<int>(info.ssi_signo));
    }
    reap([this](pid_t pid, int status) {
      if (pid == agent_) status_ = status;
    });
  }

  void pass_on(int number) {
    if (!counted_.count(number)) return;
    // One that is stopped obeys nothing: a shell's `kill` wakes it as well.
    ::kill(agent_, SIGCONT);
    // The agent has many unread ones if there is no room for another.
    const auto byte = static_cast<unsigned char>(number);
    [[maybe_unused]] const ssize_t written = ::write(orders_.get(), &byte, 1);
  }

  const pid_t agent_;
  const unique_descriptor signals_;
  unique_descriptor socket_;
  const unique_descriptor orders_;
  mw::detail::guarded_trees trees_;
  end_orders counted_;
  std::optional<int> status_;
};

sigset_t set_of(const std::vector<int>& numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (const int each : numbers) sigaddset(&set, each);
  return set;
}

void become_agent(const sigset_t& mask) {
  // A terminal's signals reach the guard, which passes them on once.
  ::setsid();
  ::prctl(PR_SET_NAME, "mwrun-agent", 0, 0, 0);
  // An agent that is stopped when its guard is killed has to end its workers, too.
  ::prctl(PR_SET_PDEATHSIG, SIGCONT, 0, 0, 0);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
}

/// Ends what an earlier start has left that was killed with its guard.
void clear_up_behind_others() {
  std::string why_not;
  const std::string folder = mw::detail::own_group_folder(why_not);
  if (folder.empty()) return;
  for (const auto& each : mw::detail::end_abandoned_groups(folder)) say(each.text());
}

}  // namespace

guard_link::guard_link(pid_t guard, unique_descriptor trees, unique_descriptor orders)
    : guard_(mw::detail::access::make<mw::process_guard>(
          std::make_unique<mw::detail::guard_connection>(std::move(trees), guard))),
      orders_(std::move(orders)) {}

mw::task<int> guard_link::next_order() {
  mw::detail::reactor& home = *mw::detail::current_reactor();
  for (;;) {
    unsigned char number = 0;
    const ssize_t got = ::read(orders_.get(), &number, 1);
    if (got == 1) co_return number;
    if (got == 0) co_return 0;
    if (errno != EAGAIN && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "the guard's orders");
    const mw::detail::io_result woken = co_await mw::detail::io_awaiter(
        home, mw::detail::io_kind::readable,
        static_cast<mw::detail::socket_handle>(orders_.get()));
    if (!woken.ok())
      throw std::system_error(woken.error(), std::generic_category(),
                              "the guard's orders");
  }
}

agent_end run_under_guard(const guard_plan& plan,
                          const std::function<int(guard_link&)>& work) {
  // The guard says a line in the background, too.
  ::signal(SIGTTOU, SIG_IGN);
  clear_up_behind_others();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
  unique_descriptor guards_end(ends[0]);
  unique_descriptor agents_end(ends[1]);
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    throw std::system_error(errno, std::generic_category(), "pipe");
  unique_descriptor orders(ends[0]);
  unique_descriptor ordering(ends[1]);
  // From here on none is lost.
  sigset_t heard = set_of(plan.signals);
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &heard, &before);
  sigset_t agents_mask;
  sigorset(&agents_mask, &before, &heard);
  sigaddset(&heard, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &heard, nullptr);
  unique_descriptor signals(::signalfd(-1, &heard, SFD_NONBLOCK | SFD_CLOEXEC),
                            "signalfd");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  // A program that has executed mwrun in its place may have children of its own.
  const bool has_others = reap();
  const pid_t self = ::getpid();
  const pid_t agent = ::fork();
  if (agent < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (agent == 0) {
    for (unique_descriptor* const each : {&signals, &guards_end, &ordering})
      *each = unique_descriptor();
    become_agent(agents_mask);
    guard_link link(self, std::move(agents_end), std::move(orders));
    return {work(link), 0};
  }
  agents_end = unique_descriptor();
  orders = unique_descriptor();
  agent_guard guard(agent, std::move(signals), std::move(guards_end),
                    std::move(ordering));
  return guard.watch(!has_others && !plan.keeps_descendants);
}

void end_as_signaled(int number) {
  // The agent's core is the one of interest.
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  ::signal(number, SIG_DFL);
  const sigset_t one = set_of({number});
  ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
  ::kill(::getpid(), number);
  // The first process of a container does not end by its own signals.
  ::_exit(code_of_signal + number);
}

}  // namespace mwrun
