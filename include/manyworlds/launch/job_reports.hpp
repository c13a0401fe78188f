// Job reports: what a worker tells the agent that has started it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "manyworlds/time.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class agent_reporter;
}  // namespace detail

/// The fields of a `launch_context::event`, by name.
using job_fields = std::map<std::string, std::string, std::less<>>;

/// Holds this process to a limit of time: the agent ends it by SIGKILL if the object
/// still lives then. It is like a file timer of PyTorch.
///
///     const auto job = mw::launch_context::from_environment();
///     {
///       const mw::job_deadline at_most = job.expires(30s, "load the model");
///       co_await load();
///     }
///
/// Without an agent it does nothing. Thread: any.
class job_deadline {
 public:
  job_deadline(job_deadline&& other) noexcept
      : to_(std::move(other.to_)), number_(other.number_) {}
  job_deadline& operator=(job_deadline&&) = delete;
  ~job_deadline();

 private:
  friend struct launch_context;
  job_deadline(std::shared_ptr<detail::agent_reporter> to, duration limit,
               std::string_view what);

  std::shared_ptr<detail::agent_reporter> to_;
  std::uint64_t number_ = 0;
};

/// Measures the time that it lives, and tells the agent at its end.
///
///     const auto job = mw::launch_context::from_environment();
///     {
///       const mw::job_timer loading = job.timed("load");
///       co_await load();
///     }
///
/// Without an agent it does nothing. Thread: any.
class job_timer {
 public:
  job_timer(job_timer&& other) noexcept
      : to_(std::move(other.to_)), name_(std::move(other.name_)), since_(other.since_) {}
  job_timer& operator=(job_timer&&) = delete;
  ~job_timer();

 private:
  friend struct launch_context;
  job_timer(std::shared_ptr<detail::agent_reporter> to, std::string_view name);

  std::shared_ptr<detail::agent_reporter> to_;
  std::string name_;
  time_point since_{};
};

}  // namespace manyworlds::inline v0
