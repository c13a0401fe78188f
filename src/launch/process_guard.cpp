#include "manyworlds/launch/process_guard.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "io/process_list.hpp"
#include "io/process_tree.hpp"
#include "io/stream.hpp"
#include "launch/guard_connection.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

using namespace std::chrono_literals;

constexpr std::size_t longest_message = 8192;

/// Trees by their variables, with their groups.
using known_trees = std::map<std::string, std::string>;

void require_single_thread() {
  std::error_code error;
  std::size_t threads = 0;
  for (std::filesystem::directory_iterator each("/proc/self/task", error), end;
       !error && each != end; each.increment(error))
    ++threads;
  if (threads > 1) {
    throw std::logic_error(
        "a process_guard is made by fork, which copies the locks of other threads as "
        "they are, and this process has " +
        std::to_string(threads) +
        " threads: make the guard at the beginning of main, before any runtime");
  }
}

/// A message: 'b' or 'e', the variable, a zero, the group.
void take_message(std::string_view message, known_trees& trees) {
  const std::size_t zero = message.find('\0');
  if (message.empty() || zero == std::string_view::npos) return;
  const std::string variable(message.substr(1, zero - 1));
  if (message.front() == 'b') {
    trees[variable] = std::string(message.substr(zero + 1));
  } else {
    trees.erase(variable);
  }
}

/// Kills what is left. Returns whether nothing was.
bool end_once(listed_tree& listed, const std::string& group) {
  bool is_over = true;
  if (!group.empty()) {
    group_tree grouped(group, group_tree::existing{});
    if (!grouped.is_empty()) {
      grouped.kill();
      is_over = false;
    }
  }
  listed.ask();
  if (!listed.is_empty()) {
    listed.kill();
    is_over = false;
  }
  return is_over;
}

/// Kills what carries the variable, and what is in the group.
void end_tree(const std::string& variable, const std::string& group) {
  listed_tree listed(variable, std::make_shared<process_census>(tree_variable));
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (std::chrono::steady_clock::now() < until) {
    try {
      if (end_once(listed, group)) break;
    } catch (const std::system_error&) {
      // There is no descriptor to look with now.
    }
    std::this_thread::sleep_for(1ms);
  }
  if (!group.empty()) remove_group(group);
}

/// Leaves nothing of the starter open that another process may wait for.
void close_all_but(int kept) {
  const int null = ::open("/dev/null", O_RDWR);
  for (int standard = 0; standard <= 2; ++standard) {
    if (standard != kept) ::dup2(null, standard);
  }
  if (null > 2) ::close(null);
  std::error_code error;
  std::vector<int> open;
  for (std::filesystem::directory_iterator each("/proc/self/fd", error), end;
       !error && each != end; each.increment(error))
    open.push_back(std::atoi(each->path().filename().c_str()));
  for (const int each : open) {
    if (each > 2 && each != kept) ::close(each);
  }
}

[[noreturn]] void run_guard(int socket, pid_t starter) {
  ::setsid();
  ::prctl(PR_SET_NAME, "mw-guard", 0, 0, 0);
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  close_all_but(socket);
  if (::chdir("/") != 0) ::_exit(1);
  // A child that the starter forked may hold its end of the socket.
  const auto watched = static_cast<int>(::syscall(SYS_pidfd_open, starter, 0));
  if (::getppid() != starter) ::_exit(0);
  known_trees trees;
  std::string message(longest_message, '\0');
  for (;;) {
    ::pollfd asked[2] = {{socket, POLLIN, 0}, {watched, POLLIN, 0}};
    if (::poll(asked, 2, -1) < 0) continue;
    const ssize_t got = ::recv(socket, message.data(), message.size(), MSG_DONTWAIT);
    if (got > 0) {
      take_message(std::string_view(message.data(), static_cast<std::size_t>(got)),
                   trees);
    } else if (got == 0 || asked[1].revents != 0) {
      break;
    }
  }
  for (const auto& [variable, group] : trees) end_tree(variable, group);
  ::_exit(0);
}

}  // namespace

namespace detail {

guard_connection::guard_connection() {
  require_single_thread();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
  socket_ = unique_descriptor(ends[0]);
  unique_descriptor theirs(ends[1]);
  const timeval longest_wait{1, 0};
  ::setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &longest_wait, sizeof longest_wait);
  const pid_t starter = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ == 0) run_guard(theirs.get(), starter);
}

guard_connection::~guard_connection() {
  socket_ = unique_descriptor();
  // It gives up by itself after 20 s for each tree.
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

bool guard_connection::tell(char what, const tree_mark& mark, int flags) noexcept {
  std::string message;
  message += what;
  message += mark.variable;
  message += '\0';
  message += mark.group;
  const std::lock_guard lock(mutex_);
  return ::send(socket_.get(), message.data(), message.size(), flags | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(message.size());
}

void guard_connection::tree_begins(const tree_mark& mark) {
  MW_ASSERT(mark.variable.size() + mark.group.size() + 2 <= longest_message,
            "a mark is a variable of ours and a path");
  if (!tell('b', mark, 0))
    throw std::system_error(errno, std::generic_category(), "the guard does not answer");
}

task<void> guard_connection::ended(reactor& home) const {
  // It says nothing, so that there is only the end to read.
  for (::pollfd asked{socket_.get(), POLLIN, 0}; ::poll(&asked, 1, 0) != 1;) {
    const io_result woken = co_await io_awaiter(
        home, io_kind::readable, static_cast<socket_handle>(socket_.get()));
    if (!woken.ok() && woken.error() != EINTR && woken.error() != EAGAIN)
      throw std::system_error(woken.error(), std::generic_category(),
                              "waiting for the end of the guard");
  }
}

// Where it is not told, it finds an empty tree.
void guard_connection::tree_has_ended(const tree_mark& mark) noexcept {
  [[maybe_unused]] const bool is_told = tell('e', mark, MSG_DONTWAIT);
}

}  // namespace detail

process_guard::process_guard() : core_(std::make_unique<guard_connection>()) {}
process_guard::~process_guard() = default;
pid_t process_guard::pid() const noexcept { return core_->pid(); }

}  // namespace manyworlds::inline v0
