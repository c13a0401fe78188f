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

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "io/stream.hpp"
#include "launch/guard_connection.hpp"
#include "launch/guarded_trees.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

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
  guarded_trees trees;
  for (bool is_over = false; !is_over;) {
    ::pollfd asked[2] = {{socket, POLLIN, 0}, {watched, POLLIN, 0}};
    if (::poll(asked, 2, -1) < 0) continue;
    is_over = !trees.take_messages(socket) || asked[1].revents != 0;
  }
  trees.end_all();
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

guard_connection::guard_connection(unique_descriptor socket, pid_t guard) noexcept
    : socket_(std::move(socket)), pid_(guard), is_parent_(true) {}

guard_connection::~guard_connection() {
  socket_ = unique_descriptor();
  if (is_parent_) return;
  // It gives up by itself after 20 s.
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
  MW_ASSERT(mark.variable.size() + mark.group.size() + 2 <= longest_guard_message,
            "a mark is a variable of ours and a path");
  if (tell('b', mark, is_parent_ ? MSG_DONTWAIT : 0)) return;
  // Ctrl-Z stops a parent for any time, and it finds trees among its descendants, too.
  if (!is_parent_ || errno != EAGAIN)
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
process_guard::process_guard(std::unique_ptr<guard_connection> core) noexcept
    : core_(std::move(core)) {}
process_guard::~process_guard() = default;
pid_t process_guard::pid() const noexcept { return core_->pid(); }

}  // namespace manyworlds::inline v0
