#include "launch/log_follower.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "io/stream.hpp"
#include "manyworlds/coro/offload.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// A file that grows fast is read and shown in parts of this size.
constexpr std::size_t part_of_log = 64 * 1024;
/// A line that is longer is shown in pieces.
constexpr std::size_t longest_shown = 1 << 20;

/// Where a user has no inotify left, files are looked at this often.
constexpr duration between_looks = std::chrono::milliseconds(50);

/// What an earlier worker wrote has been shown.
unique_descriptor opened_at_end(const std::string& path) {
  unique_descriptor file(
      ::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644));
  if (!file) throw std::system_error(errno, std::generic_category(), path);
  ::lseek(file.get(), 0, SEEK_END);
  return file;
}

unique_descriptor watch_of(const std::string& path) {
  unique_descriptor changes(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (changes && ::inotify_add_watch(changes.get(), path.c_str(), IN_MODIFY) < 0)
    return unique_descriptor();
  return changes;
}

/// Waits where the console is full. What fails is dropped: a log file has it.
void write_to_console(int to, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t some = ::write(to, text.data(), text.size());
    if (some > 0) {
      text.remove_prefix(static_cast<std::size_t>(some));
    } else if (some < 0 && errno == EAGAIN) {
      ::pollfd room{to, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (some >= 0 || errno != EINTR) {
      return;
    }
  }
}

}  // namespace

log_follower::log_follower(reactor& home, worker_thread& writer, const std::string& path,
                           int to, std::string prefix)
    : home_(home),
      writer_(writer),
      file_(opened_at_end(path)),
      changes_(watch_of(path)),
      to_(to),
      prefix_(std::move(prefix)) {}

task<void> log_follower::run() {
  for (;;) {
    // Asked before the reading: what was written by then is read.
    const bool is_last = has_ended_.is_set();
    co_await show_new();
    if (is_last) break;
    co_await until_changed();
  }
  if (begun_.empty()) co_return;
  begun_ += '\n';
  const std::string rest = whole_lines();
  co_await offload(writer_, [&] { write_to_console(to_, rest); });
}

task<void> log_follower::show_new() {
  std::string part(part_of_log, '\0');
  for (;;) {
    const ssize_t some = ::read(file_.get(), part.data(), part.size());
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) co_return;
    begun_.append(part.data(), static_cast<std::size_t>(some));
    if (begun_.size() > longest_shown) begun_ += '\n';
    const std::string lines = whole_lines();
    if (!lines.empty()) co_await offload(writer_, [&] { write_to_console(to_, lines); });
  }
}

/// Takes what is whole off the front, with the prefix before each line.
std::string log_follower::whole_lines() {
  std::string lines;
  std::size_t begin = 0;
  for (std::size_t end = begun_.find('\n'); end != std::string::npos;
       end = begun_.find('\n', begin)) {
    lines += prefix_;
    lines.append(begun_, begin, end + 1 - begin);
    begin = end + 1;
  }
  begun_.erase(0, begin);
  return lines;
}

task<void> log_follower::until_changed() {
  auto changed = [this]() -> task<void> {
    if (!changes_) {
      co_await sleep_for(between_looks);
      co_return;
    }
    co_await io_awaiter(home_, io_kind::readable,
                        static_cast<socket_handle>(changes_.get()));
  };
  co_await when_any(changed(), has_ended_.wait());
  // The notices themselves say nothing that the file does not.
  if (!changes_) co_return;
  char notices[4096];
  while (::read(changes_.get(), notices, sizeof notices) > 0) {}
}

}  // namespace manyworlds::inline v0::detail
