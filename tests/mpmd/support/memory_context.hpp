// Memory context: a context store of tests. Masters of one simulation share its content,
// each over a connection of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "mpmd/context_store.hpp"

namespace manyworlds::testing {

/// What becomes of a change that is about to have its effect, or has just had it.
enum class change_fate : std::uint8_t {
  goes_on,
  never_answers,  ///< the caller waits without end, as one that dies here
  unreachable,    ///< the caller is told so, and knows nothing of the effect
};

enum class change_moment : std::uint8_t { before_effect, after_effect };

/// The content that all connections share.
struct shared_context {
  std::uint64_t term = 0;
  context_values values;
  /// How many changes were asked for; a taken term is one, too.
  std::uint64_t changes = 0;
  /// How long a question takes to arrive, and again its answer.
  duration step = std::chrono::microseconds(100);
  /// Is asked twice for each change, with its number from 1. It may kill the caller's
  /// process in the simulation: then it says `never_answers`.
  std::function<change_fate(change_moment, std::uint64_t)> decide = {};
  /// How long a connection that reaches nothing waits until it says so.
  duration patience = std::chrono::seconds(5);
};

/// One master's connection. Lifetime: the shared content outlives it.
class memory_context final : public context_store {
 public:
  explicit memory_context(shared_context& shared) noexcept : shared_(shared) {}

  /// Cuts the connection off: operations end as `unreachable`, without effect.
  void set_reachable(bool is_reachable) noexcept { is_reachable_ = is_reachable; }
  /// Lets every operation of it, also one that is under way, have no effect and no end.
  /// It is for a master that was killed: its frames may be turned once more to end.
  void die() noexcept { is_dead_ = true; }

  task<std::uint64_t> term() override {
    co_await travel();
    const std::uint64_t known = shared_.term;
    co_await travel();
    co_return known;
  }
  task<std::uint64_t> take_term(std::uint64_t seen) override {
    co_await travel();
    const std::uint64_t number = ++shared_.changes;
    co_await meet(change_moment::before_effect, number);
    if (shared_.term != seen) refuse(seen);
    const std::uint64_t taken = ++shared_.term;
    co_await meet(change_moment::after_effect, number);
    co_await travel();
    co_return taken;
  }
  task<context_values> load() override {
    co_await travel();
    context_values all = shared_.values;
    co_await travel();
    co_return all;
  }
  task<void> write(std::uint64_t term, std::vector<context_write> changes) override {
    check_context_write(changes);
    co_await travel();
    const std::uint64_t number = ++shared_.changes;
    co_await meet(change_moment::before_effect, number);
    if (shared_.term != term) refuse(term);
    for (context_write& change : changes) {
      if (change.value) {
        shared_.values.insert_or_assign(std::move(change.key), std::move(*change.value));
      } else {
        shared_.values.erase(change.key);
      }
    }
    co_await meet(change_moment::after_effect, number);
    co_await travel();
  }
  [[nodiscard]] std::string where() const override { return "memory"; }

 private:
  task<void> travel() {
    co_await sleep_for(shared_.step);
    if (is_dead_) co_await never_.wait();
    if (is_reachable_) co_return;
    co_await sleep_for(shared_.patience);
    throw context_error(context_trouble::unreachable, "memory: it is cut off");
  }
  task<void> meet(change_moment moment, std::uint64_t number) {
    const change_fate fate =
        shared_.decide ? shared_.decide(moment, number) : change_fate::goes_on;
    if (fate == change_fate::never_answers || is_dead_) co_await never_.wait();
    if (fate == change_fate::goes_on) co_return;
    co_await sleep_for(shared_.patience);
    throw context_error(context_trouble::unreachable, "memory: the answer was lost");
  }
  [[noreturn]] void refuse(std::uint64_t term) const {
    if (shared_.term > term)
      throw context_error(
          context_trouble::deposed,
          "memory: another master has taken term " + std::to_string(shared_.term));
    throw context_error(context_trouble::damaged,
                        "memory: term " + std::to_string(term) + " was never taken");
  }

  shared_context& shared_;
  event never_;
  bool is_reachable_ = true;
  bool is_dead_ = false;
};

}  // namespace manyworlds::testing
