// Calls site: an instance that asks, and those that answer, each on a runtime of its own.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../world/world_fixture.hpp"
#include "manyworlds/mpmd.hpp"
#include "support/eventually.hpp"

namespace manyworlds::calls_edge_tests {

using namespace std::chrono_literals;
using world_tests::node;

inline std::string name_of_pair(std::uint32_t index) {
  return "ask/router.0-decode." + std::to_string(index);
}

/// Adds methods to those of the instance of that index.
using more_methods = std::function<void(role_methods& to, std::uint32_t index)>;

/// An instance that answers, on a runtime of its own.
class answerer {
 public:
  answerer(memory_store& store, std::uint32_t index, const more_methods& more)
      : store_(store), index_(index) {
    add_methods();
    if (more) more(methods, index);
    serving_ = own.rt.start(serve());
  }
  ~answerer() {
    own.rt.stop();
    own.finish(*serving_);
  }

  void break_once() { breaks_ = true; }
  [[nodiscard]] std::vector<std::uint64_t> ids() {
    const std::lock_guard lock(mutex_);
    return ids_;
  }

  node own;
  role_methods methods;
  std::atomic<bool> was_stopped = false;
  std::atomic<bool> is_holding = false;
  std::atomic<bool> fails = false;

 private:
  void add_methods() {
    methods
        .on("who",
            [this](role_call& call) -> task<std::string> {
              co_return std::to_string(index_) + ":" + std::string(call.data());
            })
        .on("fail",
            [](role_call&) -> task<std::string> {
              throw std::runtime_error("out of luck");
              co_return "";
            })
        .on("break",
            [this](role_call& call) -> task<std::string> {
              note(call.id());
              if (breaks_.exchange(false)) {
                world_->fail("for this test");
                co_await sleep_for(20s);
              }
              co_return "mended";
            })
        .on("may fail",
            [this](role_call& call) -> task<std::string> {
              if (fails.load()) throw std::runtime_error("out of luck");
              co_return std::string(call.data());
            })
        .on("hold",
            [this](role_call&) -> task<std::string> {
              while (is_holding.load()) co_await sleep_for(1ms);
              co_return "let go";
            })
        .on("slow", [this](role_call& call) -> task<std::string> {
          const bool is_bounded = call.deadline().has_value();
          const auto cancelled = [this] { was_stopped = true; };
          const std::stop_callback told(call.stop_token(), cancelled);
          co_await sleep_for(20s);
          co_return is_bounded ? "late" : "unbounded";
        });
  }
  void note(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    ids_.push_back(id);
  }
  task<void> serve() {
    const auto in_world = [this](world& w) -> task<void> {
      world_ = &w;
      return methods.serve(w);
    };
    const world_name name(name_of_pair(index_));
    co_await keep(own.rt, store_, {.name = name, .rank = 1, .size = 2}, in_world,
                  after_close::form_again);
  }

  memory_store& store_;
  const std::uint32_t index_;
  world* world_ = nullptr;
  std::atomic<bool> breaks_ = false;
  std::mutex mutex_;
  std::vector<std::uint64_t> ids_;
  std::optional<started<void>> serving_;
};

/// The asking instance, and a number of those that answer.
class site {
 public:
  explicit site(std::uint32_t count, role_group::options options = {},
                more_methods more = {})
      : group(options), more_(std::move(more)) {
    for (std::uint32_t n = 0; n < count; ++n) add(n);
    asking_ = own.rt.start(ask());
  }
  ~site() {
    own.rt.stop();
    own.finish(*asking_);
  }
  void add(std::uint32_t index) {
    answerers.push_back(std::make_unique<answerer>(store, index, more_));
  }
  template <class T>
  T run(task<T> asked) {
    return own.run(std::move(asked));
  }
  /// Waits until that many are there.
  void until(std::size_t count) {
    const auto wait = [&]() -> task<void> {
      while (group.members().size() < count) co_await sleep_for(1ms);
    };
    own.run(wait());
  }
  /// Returns why a call ends.
  template <class T>
  failure why(task<T> asked) {
    const auto ask_it = [](task<T> one) -> task<failure> {
      try {
        static_cast<void>(co_await std::move(one));
      } catch (const world_error& e) {
        co_return e.failure();
      }
      co_return failure();
    };
    return own.run(ask_it(std::move(asked)));
  }

  memory_store store;
  node own;
  role_group group;
  std::vector<std::unique_ptr<answerer>> answerers;

 private:
  task<void> ask() {
    const auto body = [this](scope& s) -> task<void> {
      for (std::uint32_t n = 0; n < 4; ++n) s.spawn(ask_one(n));
      co_return;
    };
    co_await scope::run(body);
  }
  task<void> ask_one(std::uint32_t index) {
    const auto in_world = [this, index](world& w) -> task<void> {
      const instance_id peer{"decode", index};
      return group.reach(w, peer);
    };
    const world_name name(name_of_pair(index));
    co_await keep(own.rt, store, {.name = name, .rank = 0, .size = 2}, in_world,
                  after_close::form_again);
  }

  const more_methods more_;
  std::optional<started<void>> asking_;
};

}  // namespace manyworlds::calls_edge_tests
