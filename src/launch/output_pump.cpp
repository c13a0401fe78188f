#include "launch/output_pump.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "exception_text.hpp"
#include "io/signals_blocked.hpp"
#include "io/stream.hpp"
#include "manyworlds/coro/offload.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/stop.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t part_bytes = 16 * 1024;

/// Returns an errno.
int write_all(int to, std::string_view written) noexcept {
  while (!written.empty()) {
    const ssize_t some = ::write(to, written.data(), written.size());
    if (some >= 0) {
      written.remove_prefix(static_cast<std::size_t>(some));
    } else if (errno == EAGAIN) {
      ::pollfd room{to, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

output_pump::output_pump(reactor& home, const process_output& to, bool is_first_start,
                         int own, log_function log, std::stop_token functions_gone)
    : home_(home),
      to_(to),
      log_(std::move(log)),
      functions_gone_(std::move(functions_gone)) {
  for (const process_output::file& each : to_.files()) {
    const bool truncates = is_first_start && each.mode == file_mode::truncate;
    const int flags =
        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | (truncates ? O_TRUNC : 0);
    unique_descriptor file(::open(each.path.c_str(), flags, 0644));
    if (!file) throw std::system_error(errno, std::generic_category(), each.path);
    written_.push_back(file.get());
    files_.push_back(std::move(file));
  }
  if (to_.inherits()) written_.push_back(own);
  if (written_.empty()) return;
  const signals_blocked inherited;
  writer_ = std::make_unique<worker_thread>("mw-tee");
}

unique_descriptor output_pump::open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "a pipe");
  pipe_ = unique_descriptor(ends[0]);
  unique_descriptor given(ends[1]);
  ::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
  return given;
}

void output_pump::add_simulated(std::string_view written) {
  is_simulated_ = true;
  simulated_ += written;
  more_.set();
}

void output_pump::note_end() noexcept {
  has_ended_ = true;
  more_.set();
  if (!is_waiting_) return;
  ::pollfd asked{pipe_.get(), POLLIN, 0};
  if (::poll(&asked, 1, 0) == 0) drained_.set();
}

task<void> output_pump::run() {
  std::vector<char> part(part_bytes);
  for (;;) {
    std::size_t got = 0;
    if (pipe_) {
      got = co_await read(part);
    } else {
      got = co_await read_simulated(part);
    }
    if (got == 0) break;
    const std::string_view written(part.data(), got);
    if (writer_) co_await write(written);
    if (to_.longest_line() > 0) co_await split(written);
    // Other tasks have their turn, however much is written.
    co_await yield();
  }
  if (!begun_.empty()) {
    co_await give({begun_, true});
    begun_.clear();
  }
  drained_.set();
}

/// Gives 0 at the end.
task<std::size_t> output_pump::read(std::span<char> into) {
  while (!closing_.stop_requested()) {
    const ssize_t got = ::read(pipe_.get(), into.data(), into.size());
    if (got >= 0) co_return static_cast<std::size_t>(got);
    if (errno == EINTR) continue;
    if (errno != EAGAIN) break;
    if (has_ended_) drained_.set();
    is_waiting_ = true;
    try {
      io_awaiter readable(home_, io_kind::readable,
                          static_cast<socket_handle>(pipe_.get()));
      co_await stop_on(readable, closing_.get_token());
    } catch (const stopped&) {
      break;
    }
    is_waiting_ = false;
  }
  is_waiting_ = false;
  co_return 0;
}

task<std::size_t> output_pump::read_simulated(std::span<char> into) {
  while (simulated_.empty()) {
    if (has_ended_ || closing_.stop_requested()) co_return 0;
    more_.reset();
    try {
      co_await stop_on(more_.wait(), closing_.get_token());
    } catch (const stopped&) {
      co_return 0;
    }
  }
  const std::size_t taken = simulated_.copy(into.data(), into.size());
  simulated_.erase(0, taken);
  co_return taken;
}

task<void> output_pump::write(std::string_view written) {
  const auto act = [&] {
    int error = 0;
    for (int& each : written_) {
      const int failed = each < 0 ? 0 : write_all(each, written);
      if (failed == 0) continue;
      error = failed;
      // It is told once, and not tried again.
      each = -1;
    }
    return error;
  };
  const int error = co_await offload(*writer_, act);
  if (error != 0)
    log_(std::string("output is lost from here on, since it cannot be written: ") +
         std::strerror(error));
}

/// Gives the whole lines of `written`, and keeps the beginning of the last one.
task<void> output_pump::split(std::string_view written) {
  const std::size_t longest = to_.longest_line();
  const bool awaits = !to_.tasks().empty();
  while (!written.empty()) {
    const std::size_t room = longest - begun_.size();
    const std::size_t end = written.substr(0, room + 1).find('\n');
    const bool is_whole = end != std::string_view::npos;
    if (!is_whole && written.size() <= room) {
      begun_ += written;
      break;
    }
    std::string_view piece = written.substr(0, is_whole ? end : room);
    if (!begun_.empty()) {
      begun_ += piece;
      piece = begun_;
    }
    MW_ASSERT(piece.size() <= longest, "no more of a line is kept than was asked for");
    const output_line line{piece, is_whole};
    if (awaits) {
      co_await give(line);
    } else {
      give_functions(line);
    }
    begun_.clear();
    written.remove_prefix(is_whole ? end + 1 : room);
  }
}

task<void> output_pump::give(output_line line) {
  give_functions(line);
  for (const process_output::line_task& each : to_.tasks()) {
    if (functions_gone_.stop_requested()) co_return;
    try {
      co_await stop_on(each(line), functions_gone_);
    } catch (const stopped&) {
    } catch (...) {
      tell_thrown();
    }
  }
}

void output_pump::give_functions(const output_line& line) {
  for (const process_output::line_function& each : to_.functions()) {
    if (functions_gone_.stop_requested()) return;
    try {
      each(line);
    } catch (...) {
      tell_thrown();
    }
  }
}

void output_pump::tell_thrown() const {
  log_("a function that takes lines has thrown: " + handled_exception_text());
}

}  // namespace manyworlds::inline v0::detail
