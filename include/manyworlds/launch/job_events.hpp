// Job events: what a launch agent records of a job, and the sinks that take it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// Where an event has happened.
enum class event_source : std::uint8_t { agent, worker };

/// A value of an event; the first alternative is JSON's null.
using event_value = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

/// Something that has happened in a job, as torch.distributed.elastic.events.Event.
struct job_event {
  std::string name;
  event_source source = event_source::agent;
  /// When it has happened.
  std::chrono::system_clock::time_point time = std::chrono::system_clock::now();
  std::vector<std::pair<std::string, event_value>> metadata = {};
};

/// A number that a job has at a time, as of torch.distributed.elastic.metrics.
struct job_metric {
  std::string name;
  double value = 0;
  std::string group = "torchelastic";
  /// When it was measured.
  std::chrono::system_clock::time_point time = std::chrono::system_clock::now();
};

/// Returns the event as one line of JSON, without its end. The time is in milliseconds.
[[nodiscard]] std::string line_of(const job_event& event);
/// Returns `[seconds][group]: name=value`, as torch's console has it.
[[nodiscard]] std::string line_of(const job_metric& metric);

/// Takes what is recorded of a job. Thread: one of the agent's own, so that it may block;
/// the agent lives until all is taken. Errors: what is thrown is dropped with the event.
///
///     class printer final : public mw::job_sink {
///       void take(const mw::job_event& event) override {
///       std::puts(line_of(event).c_str()); } void take(const mw::job_metric&) override
///       {}
///     };
///
/// `register_job_sink` gives it a name.
///
/// Known from the start are `null`, `console` (events to the error output, metrics to the
/// output; what that does not take within a second is dropped) and `file`.
class job_sink {
 public:
  job_sink() = default;
  job_sink(const job_sink&) = delete;
  job_sink& operator=(const job_sink&) = delete;
  virtual ~job_sink() = default;
  /// Takes what has happened.
  virtual void take(const job_event& event) = 0;
  /// Takes a number.
  virtual void take(const job_metric& metric) = 0;
};

/// What a sink is made for.
struct job_sink_place {
  /// What stands behind a colon in the sink's name: of `file:PATH` the path.
  std::string argument;
  /// The folder of the run's files; empty if it has none. `file` alone writes
  /// events.log there.
  std::string folder;
};

/// Makes a sink for one job. Errors: what it throws is told, and nothing is recorded.
using make_job_sink = std::function<std::unique_ptr<job_sink>(const job_sink_place&)>;

/// Adds a kind of sink under a name without colons, or replaces it, for all jobs of the
/// process that are made afterwards. Thread: any.
///
///     mw::register_job_sink("mine", [](const mw::job_sink_place& place) {
///       return make_my_sink(place.argument);
///     });
void register_job_sink(std::string name, make_job_sink make);

}  // namespace manyworlds::inline v0
