#include "launch/log_follower.hpp"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <system_error>
#include <utility>

#include "io/signals_blocked.hpp"
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

off_t size_of(const unique_descriptor& file) noexcept {
  struct stat what {};
  return ::fstat(file.get(), &what) == 0 ? what.st_size : 0;
}

unique_descriptor watch_of(const std::string& path) {
  unique_descriptor changes(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (changes && ::inotify_add_watch(changes.get(), path.c_str(), IN_MODIFY) < 0)
    return unique_descriptor();
  return changes;
}

/// Waits where the console is full. What fails is dropped: a log file has it.
void write_until(int given_up, int to, std::string_view text) noexcept {
  while (!text.empty()) {
    ::pollfd asked[2] = {{to, POLLOUT, 0}, {given_up, POLLIN, 0}};
    if (::poll(asked, 2, -1) < 0) continue;
    if (asked[1].revents != 0) return;
    // A pipe that has room has it for this, so that the write itself does not block.
    const std::size_t most = std::min<std::size_t>(text.size(), PIPE_BUF);
    const ssize_t some = ::write(to, text.data(), most);
    if (some > 0) {
      text.remove_prefix(static_cast<std::size_t>(some));
    } else if (some >= 0 || (errno != EINTR && errno != EAGAIN)) {
      return;
    }
  }
}

/// A function on the console's thread, of which a cancellation does not wait for room.
class console_job : public native_only {
 public:
  using function = std::function<void()>;
  console_job(console& on, worker_thread& thread, function f)
      : console_(on), job_(thread, std::move(f)) {}

  bool await_ready() const noexcept { return false; }
  void await_start(continuation& k) { job_.await_start(k); }
  bool await_cancel() noexcept {
    console_.give_up();
    return job_.await_cancel();
  }
  bool await_must_resume() const noexcept { return job_.await_must_resume(); }
  void await_resume() { job_.await_resume(); }

 private:
  console& console_;
  offload_awaiter<worker_thread, function> job_;
};

}  // namespace

console::console()
    : given_up_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd"), thread_([] {
        // Signals are for the program's own threads, which may await them.
        const signals_blocked while_starting;
        return worker_thread("mw-console");
      }()) {}

task<void> console::write(int to, std::string_view text) {
  console_job writing(*this, thread_,
                      [this, to, text] { write_until(given_up_.get(), to, text); });
  co_await writing;
}

void console::give_up() noexcept { ::eventfd_write(given_up_.get(), 1); }

line_filter::line_filter(const std::string& path, std::vector<std::string> texts)
    : file_(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY,
                   0644),
            path.c_str()),
      texts_(std::move(texts)) {}

bool line_filter::takes(std::string_view line) const noexcept {
  return std::any_of(texts_.begin(), texts_.end(), [line](const std::string& text) {
    return line.find(text) != std::string_view::npos;
  });
}

log_follower::log_follower(reactor& home, console& shown_on, const std::string& path,
                           int to, std::string prefix,
                           std::shared_ptr<const line_filter> filter)
    : home_(home),
      console_(shown_on),
      file_(::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644),
            path.c_str()),
      changes_(watch_of(path)),
      to_(to),
      prefix_(std::move(prefix)),
      filter_(std::move(filter)),
      // What an earlier worker wrote has been shown.
      read_(size_of(file_)) {}

void log_follower::note_end() noexcept {
  end_ = size_of(file_);
  note_size(end_);
  has_ended_.set();
}

bool log_follower::note_size(off_t now) noexcept {
  const bool was_cut = now < read_;
  if (was_cut) read_ = 0;
  return was_cut;
}

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
  co_await show_whole_lines();
}

task<void> log_follower::show_new() {
  std::string part(part_of_log, '\0');
  while (read_ < end_) {
    const auto most = std::min(end_ - read_, static_cast<off_t>(part.size()));
    const ssize_t some =
        ::pread(file_.get(), part.data(), static_cast<std::size_t>(most), read_);
    if (some < 0 && errno == EINTR) continue;
    // `echo x > /dev/stdout` of a shell cuts the file.
    if (some == 0 && !has_ended_.is_set() && note_size(size_of(file_))) continue;
    if (some <= 0) co_return;
    read_ += some;
    begun_.append(part.data(), static_cast<std::size_t>(some));
    co_await show_whole_lines();
    if (begun_.size() <= longest_shown) continue;
    begun_ += '\n';
    co_await show_whole_lines();
  }
}

/// Takes what is whole off the front, with the prefix before each line.
task<void> log_follower::show_whole_lines() {
  std::string lines;
  std::string chosen;
  std::size_t begin = 0;
  for (std::size_t end = begun_.find('\n'); end != std::string::npos;
       end = begun_.find('\n', begin)) {
    const std::string_view line(begun_.data() + begin, end + 1 - begin);
    lines.append(prefix_).append(line);
    if (filter_ && filter_->takes(line)) chosen.append(prefix_).append(line);
    begin = end + 1;
  }
  begun_.erase(0, begin);
  // First the file, which is never full for long.
  if (!chosen.empty()) co_await console_.write(filter_->file(), chosen);
  if (!lines.empty()) co_await console_.write(to_, lines);
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
