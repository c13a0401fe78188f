// Sessions over nodes, for tests: the agents are in this process.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "manyworlds/launch/process_options.hpp"
#include "manyworlds/launch/supervised_process.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "session_functions.hpp"
#include "spmd/node_agent.hpp"
#include "spmd/node_source.hpp"
#include "spmd/session_core.hpp"

namespace manyworlds::spmd_tests {

using namespace std::chrono_literals;

inline duration longest_session() {
  const char* const seconds = std::getenv("MANYWORLDS_SESSION_SECONDS");
  return 60s + std::chrono::seconds(seconds ? std::atoi(seconds) : 0);
}

inline task<void> in_time(task<void> all) {
  co_await within(std::move(all), longest_session());
}

inline constexpr const char* secret_of_tests = "of these tests";

inline runtime_options guarded(const char* secret) {
  runtime_options options;
  options.secret = secret;
  return options;
}

/// A node: an agent with a runtime of its own, as mwnode is.
class node_of_test {
 public:
  node_of_test(const std::string& controller, int node,
               const char* program = SESSION_WORKER, const char* secret = secret_of_tests,
               duration wait = 60s)
      : rt_(guarded(secret)),
        meeting_(rt_, controller, store_options(secret)),
        agent_(rt_, meeting_, place_of(controller, node, wait), process_options(program)),
        serving_(rt_.start(agent_.run())) {}

  node_of_test(const node_of_test&) = delete;
  node_of_test& operator=(const node_of_test&) = delete;
  ~node_of_test() {
    rt_.stop(0s);
    (void)serving_.wait_for(10s);
  }

  /// Ends when the agent has; gives what it threw.
  [[nodiscard]] std::string end() {
    REQUIRE(serving_.wait_for(longest_session()));
    try {
      serving_.get();
    } catch (const std::exception& e) {
      return e.what();
    }
    return {};
  }

 private:
  static detail::node_place place_of(const std::string& controller, int node,
                                     duration wait) {
    detail::node_place place;
    place.node = node;
    place.store = controller;
    place.wait = wait;
    return place;
  }
  static tcp_store_options store_options(const char* secret) {
    tcp_store_options options;
    options.secret = secret;
    return options;
  }

  runtime rt_;
  tcp_store meeting_;
  detail::node_agent agent_;
  started<void> serving_;
};

/// A session over nodes, of which the test starts the agents at `address`.
class session_over_nodes {
 public:
  explicit session_over_nodes(int count, int per_node, session_options limits = {})
      : how_{.count = count, .workers_per_node = per_node, .limits = limits},
        rt_(guarded(secret_of_tests)),
        source_(std::make_unique<detail::node_source>(rt_, how_)),
        address_(source_->address()) {}

  [[nodiscard]] const std::string& address() const noexcept { return address_; }

  [[nodiscard]] runtime& controller() noexcept { return rt_; }
  /// Precondition: `run_beside` has started it.
  [[nodiscard]] supervised_process& agent() noexcept { return *agent_; }

  template <class Body>
  void run(Body body) {
    run_beside(std::nullopt, std::move(body));
  }
  /// The program is the agent of a node; it ends with the session.
  template <class Body>
  void run_beside(std::optional<process_options> program, Body body,
                  bool ends_well = true) {
    auto whole = [&]() -> task<void> {
      if (program) {
        agent_.emplace(rt_, *program);
        co_await agent_->started();
      }
      session s = co_await detail::start_session(
          rt_, std::move(source_), how_.count * how_.workers_per_node, how_.limits);
      co_await body(s);
      co_await s.close();
      if (agent_) {
        const exit_reason end = co_await agent_->ended();
        CHECK_MESSAGE(end.is_success() == ends_well, end.text());
        agent_ = std::nullopt;
      }
    };
    rt_.run(in_time(whole()));
  }

 private:
  const nodes how_;
  runtime rt_;
  std::optional<supervised_process> agent_;
  std::unique_ptr<detail::node_source> source_;
  const std::string address_;
};

}  // namespace manyworlds::spmd_tests
