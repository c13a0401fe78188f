#include "manyworlds/launch/job_events.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>
#include <mutex>
#include <stdexcept>
#include <system_error>

#include "io/descriptor.hpp"
#include "launch/job_records.hpp"
#include "observe/json_writer.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

/// How long a console may take nothing before lines for it are dropped.
constexpr int patience_with_console_ms = 1000;

class null_sink final : public job_sink {
 public:
  void take(const job_event&) override {}
  void take(const job_metric&) override {}
};

class console_sink final : public job_sink {
 public:
  void take(const job_event& event) override { write(STDERR_FILENO, line_of(event)); }
  void take(const job_metric& metric) override { write(STDOUT_FILENO, line_of(metric)); }

 private:
  void write(int to, std::string line) {
    line += '\n';
    std::string_view rest = line;
    while (!rest.empty()) {
      ::pollfd asked{to, POLLOUT, 0};
      const int ready = ::poll(&asked, 1, is_stuck_ ? 0 : patience_with_console_ms);
      if (ready < 0 && errno == EINTR) continue;
      is_stuck_ = ready == 0;
      if (ready <= 0) return;
      // A pipe that has room has it for this, so that the write itself does not block.
      const ssize_t some =
          ::write(to, rest.data(), std::min<std::size_t>(rest.size(), PIPE_BUF));
      if (some < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (some < 0) return;
      rest.remove_prefix(static_cast<std::size_t>(some));
    }
  }

  bool is_stuck_ = false;
};

class file_sink final : public job_sink {
 public:
  /// A pipe that no process reads is refused, and one that is not read on loses records:
  /// neither holds up the job.
  explicit file_sink(const std::string& path)
      : file_(::open(path.c_str(),
                     O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                     0644),
              path.c_str()) {}

  void take(const job_event& event) override { write(line_of(event)); }
  void take(const job_metric& metric) override { write(line_of(metric)); }

 private:
  /// One write a line: those of several agents in one file stay whole.
  void write(std::string line) {
    line += '\n';
    if (::write(file_.get(), line.data(), line.size()) < 0)
      throw std::system_error(errno, std::generic_category(), "write");
  }

  const unique_descriptor file_;
};

std::unique_ptr<job_sink> make_file_sink(const job_sink_place& place) {
  if (!place.argument.empty()) return std::make_unique<file_sink>(place.argument);
  if (!place.folder.empty())
    return std::make_unique<file_sink>(place.folder + "/events.log");
  throw std::runtime_error("the run has no folder: name the file, as file:PATH");
}

struct sink_registry {
  std::mutex mutex;
  std::map<std::string, make_job_sink, std::less<>> makers = {
      {"null",
       [](const job_sink_place&) -> std::unique_ptr<job_sink> {
         return std::make_unique<null_sink>();
       }},
      {"console",
       [](const job_sink_place&) -> std::unique_ptr<job_sink> {
         return std::make_unique<console_sink>();
       }},
      {"file", &make_file_sink}};
};

sink_registry& registered_sinks() {
  static sink_registry all;
  return all;
}

void write_value(json_writer& to, const event_value& value) {
  if (std::holds_alternative<std::monostate>(value)) {
    to.null();
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    to.value(*flag);
  } else if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    to.value(*whole);
  } else if (const auto* number = std::get_if<double>(&value)) {
    // JSON has no infinity.
    if (std::isfinite(*number)) {
      to.value(*number);
    } else {
      to.null();
    }
  } else {
    to.value(std::string_view(std::get<std::string>(value)));
  }
}

}  // namespace

std::string line_of(const job_event& event) {
  using std::chrono::milliseconds;
  const auto time =
      std::chrono::duration_cast<milliseconds>(event.time.time_since_epoch());
  json_writer line;
  line.object();
  line.field("name", std::string_view(event.name));
  line.field("source", event.source == event_source::agent ? "AGENT" : "WORKER");
  line.field("timestamp", time.count());
  line.key("metadata").object();
  for (const auto& [name, value] : event.metadata) {
    line.key(name);
    write_value(line, value);
  }
  line.end_object().end_object();
  return line.take();
}

std::string line_of(const job_metric& metric) {
  const std::chrono::duration<double> time = metric.time.time_since_epoch();
  return fmt::format("[{:.6f}][{}]: {}={}", time.count(), metric.group, metric.name,
                     metric.value);
}

void register_job_sink(std::string name, make_job_sink make) {
  sink_registry& all = registered_sinks();
  const std::lock_guard lock(all.mutex);
  all.makers.insert_or_assign(std::move(name), std::move(make));
}

namespace detail {

make_job_sink kind_of_sink(const std::string& name) {
  sink_registry& all = registered_sinks();
  const std::lock_guard lock(all.mutex);
  const auto found = all.makers.find(name.substr(0, name.find(':')));
  if (found != all.makers.end()) return found->second;
  std::string known;
  for (const auto& [each, maker] : all.makers)
    known += (known.empty() ? "" : ", ") + each;
  throw std::invalid_argument(fmt::format(
      "there is no sink \"{}\" for events or metrics: expected one of {}", name, known));
}

}  // namespace detail

}  // namespace manyworlds::inline v0
