#include "launch/file_timers.hpp"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <vector>

#include "io/stream.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"

#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#define MANYWORLDS_READS_FILE_TIMERS 1
#endif

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t most_file_timers = 4096;
/// Of PIPE_BUF bytes each: the largest pipe that a user may have.
constexpr int most_parts_unread = 256;
/// By the clock of this machine, which may be set meanwhile.
constexpr duration longest_file_timer_sleep = std::chrono::milliseconds(500);

double seconds_since_1970() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

[[noreturn]] void throw_pipe_error(const std::string& path) {
  throw std::system_error(errno, std::generic_category(),
                          "the pipe of file timers " + path);
}

}  // namespace

#ifdef MANYWORLDS_READS_FILE_TIMERS

std::optional<file_timer_line> read_file_timer(const std::string& line) {
  using nlohmann::json;
  if (line.size() > PIPE_BUF) return std::nullopt;
  const json in = json::parse(line, nullptr, false);
  if (!in.is_object()) return std::nullopt;
  const auto found = [&](const char* name) -> const json* {
    const auto at = in.find(name);
    return at == in.end() ? nullptr : &*at;
  };
  const json* const version = found("version");
  const json* const pid = found("pid");
  const json* const scope = found("scope_id");
  const json* const expires = found("expiration_time");
  const json* const signal = found("signal");
  if (!version || *version != 1 || !pid || !pid->is_number_integer() || !scope ||
      !scope->is_string() || !expires || !expires->is_number() || !signal ||
      !signal->is_number_integer())
    return std::nullopt;
  const auto number = pid->get<std::int64_t>();
  const auto sent = signal->get<std::int64_t>();
  file_timer_line read;
  read.expires = expires->get<double>();
  if (number < 1 || number > INT_MAX || sent < -1 || sent > 64 ||
      !std::isfinite(read.expires))
    return std::nullopt;
  read.pid = static_cast<pid_t>(number);
  read.signal = static_cast<int>(sent);
  read.scope = scope->get<std::string>();
  return read;
}

#else

std::optional<file_timer_line> read_file_timer(const std::string&) {
  return std::nullopt;
}

#endif

file_timers::file_timers(reactor& home, const std::string& path, overrun told)
    : home_(home), told_(std::move(told)), path_(path) {
  if (path_.empty()) {
    std::string made =
        std::filesystem::temp_directory_path() / "manyworlds_timers_XXXXXX";
    if (!::mkdtemp(made.data())) throw_pipe_error(made);
    folder_ = made;
    path_ = folder_ + "/timers";
  }
  struct stat what {};
  if (::lstat(path_.c_str(), &what) == 0 && S_ISFIFO(what.st_mode))
    ::unlink(path_.c_str());
  if (::mkfifo(path_.c_str(), 0600) != 0) throw_pipe_error(path_);
  // With a writer of our own it never ends.
  pipe_ = unique_descriptor(::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!pipe_) throw_pipe_error(path_);
}

file_timers::~file_timers() {
  struct stat ours {};
  struct stat there {};
  // Another server may have replaced the pipe.
  if (::fstat(pipe_.get(), &ours) == 0 && ::lstat(path_.c_str(), &there) == 0 &&
      ours.st_dev == there.st_dev && ours.st_ino == there.st_ino)
    ::unlink(path_.c_str());
  if (!folder_.empty()) ::rmdir(folder_.c_str());
}

task<void> file_timers::run() {
  co_await scope::run([this](scope& s) -> task<void> {
    s.spawn(expire());
    co_await read_lines();
  });
}

task<void> file_timers::read_lines() {
  for (;;) {
    io_awaiter readable(home_, io_kind::readable,
                        static_cast<socket_handle>(pipe_.get()));
    const io_result woken = co_await readable;
    if (!woken.ok())
      throw std::system_error(woken.error(), std::generic_category(), "file timers");
    (void)take_bytes();
    // A writer that does not cease holds up no other task.
    co_await yield();
  }
}

bool file_timers::take_bytes() {
  char part[PIPE_BUF];
  const ssize_t got = ::read(pipe_.get(), part, sizeof part);
  if (got <= 0) return false;
  begun_.append(part, static_cast<std::size_t>(got));
  for (std::size_t end; (end = begun_.find('\n')) != std::string::npos;) {
    take(begun_.substr(0, end));
    begun_.erase(0, end + 1);
  }
  // No line of a client is longer.
  if (begun_.size() > 2 * PIPE_BUF) begun_.clear();
  return true;
}

void file_timers::take(const std::string& line) {
  auto timer = read_file_timer(line);
  if (!timer) return;
  const key at(timer->pid, timer->scope);
  if (timer->expires < 0) {
    timers_.erase(at);
  } else if (timers_.size() < most_file_timers || timers_.contains(at)) {
    timers_.insert_or_assign(at, std::move(*timer));
    changed_.set();
  }
}

task<void> file_timers::expire() {
  for (;;) {
    changed_.reset();
    const double now = seconds_since_1970();
    const bool is_one_due =
        std::any_of(timers_.begin(), timers_.end(),
                    [&](const auto& each) { return each.second.expires <= now; });
    // A line that lets go of it in time may be unread, if this process was held up.
    for (int i = 0; is_one_due && i < most_parts_unread; ++i) {
      if (!take_bytes()) break;
    }
    double next = now + 1;
    std::vector<file_timer_line> passed;
    for (const auto& [at, timer] : timers_) {
      if (timer.expires <= now) passed.push_back(timer);
      next = std::min(next, timer.expires);
    }
    for (const file_timer_line& each : passed) {
      timers_.erase(key(each.pid, each.scope));
      told_(each);
    }
    if (timers_.empty()) {
      co_await changed_.wait();
      continue;
    }
    const auto until_next = std::chrono::duration_cast<duration>(
        std::chrono::duration<double>(std::max(next - now, 0.001)));
    co_await when_any(changed_.wait(),
                      sleep_for(std::min(until_next, longest_file_timer_sleep)));
  }
}

}  // namespace manyworlds::inline v0::detail
