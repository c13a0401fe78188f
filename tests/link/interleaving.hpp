// A model checker for code over shm's memory policy: small threads, all interleavings,
// all that memory may show them.
//
// Threads are plain functions of what they read. To take one step of a thread it is run
// from its start with the results of its earlier steps; at the first new one it acts on
// the model and is left by longjmp. So nothing it holds may need a destructor, and what
// it writes into plain variables of the scenario must be assigned, never added to.
#pragma once

#include <setjmp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "link/interleaving_atomic.hpp"
#include "link/interleaving_memory.hpp"

namespace interleaving {

struct verdict {
  /// Empty if every schedule went well; else what failed, and the schedule.
  std::string failure;
  std::size_t states = 0;
  /// All schedules were seen, none was cut off by the bound.
  bool complete = false;
};

/// Runs all schedules of `threads` over one scenario.
class explorer {
 public:
  explicit explorer(memory_model model, mutation planted = {})
      : machine_(model, planted) {
    machine::current() = &machine_;
  }
  ~explorer() { machine::current() = nullptr; }
  explorer(const explorer&) = delete;

  void add_thread(std::string name, std::function<void()> body) {
    machine_.add_thread();
    threads_.push_back({std::move(name), std::move(body)});
  }
  /// Runs when all threads have ended, on what they have assigned.
  void at_the_end(std::function<void()> check) { at_the_end_ = std::move(check); }

  verdict run(std::size_t most_states = 4'000'000) {
    most_states_ = most_states;
    result_ = {};
    result_.complete = true;
    seen_.clear();
    visit();
    result_.states = seen_.size();
    return result_;
  }

 private:
  struct thread {
    std::string name;
    std::function<void()> body;
  };
  struct action {
    std::size_t thread;
    unsigned choice;
    bool drain;
  };

  void visit() {
    if (!result_.failure.empty() || !seen_.insert(machine_.key()).second) return;
    if (seen_.size() > most_states_) {
      result_.complete = false;
      return;
    }
    bool moved = false;
    bool waiting = false;
    const auto before = machine_.save();
    for (std::size_t at = 0; at != threads_.size(); ++at) {
      for (unsigned choice = 0, choices = 1; choice < choices; ++choice) {
        const auto status = step(at, choice);
        choices = machine_.choices();
        if (status == step_status::ended) break;
        if (status == step_status::blocked) {
          waiting = true;
          break;
        }
        moved = true;
        follow({at, choice, false}, status == step_status::failed);
        machine_.restore(before);
      }
      for (unsigned entry = 0; entry < machine_.drains(at); ++entry) {
        if (!machine_.drain(at, entry)) continue;
        moved = true;
        follow({at, entry, true}, false);
        machine_.restore(before);
      }
    }
    if (!moved) ended(waiting);
  }

  void follow(action taken, bool failed) {
    path_.push_back(taken);
    if (failed)
      report(machine_.complaint());
    else
      visit();
    path_.pop_back();
  }

  void ended(bool waiting) {
    if (waiting) return report("a thread waits without end");
    if (!at_the_end_) return;
    // Once more with all results known, so that plain variables hold this schedule's end.
    for (std::size_t at = 0; at != threads_.size(); ++at) step(at, 0);
    machine_.forgive();
    at_the_end_();
    if (!machine_.complaint().empty()) report(machine_.complaint());
  }

  step_status step(std::size_t at, unsigned choice) {
    machine_.begin_step(at, choice);
    if (_setjmp(machine_.exit()) == 0) {
      threads_[at].body();
      return machine_.acted() ? step_status::moved : step_status::ended;
    }
    return machine_.status();
  }

  void report(std::string what) {
    if (!result_.failure.empty()) return;
    result_.failure = std::move(what);
    // Replayed from the start, now with a record of every step.
    const auto last = machine_.save();
    machine_.reset();
    machine_.record(true);
    for (const auto& taken : path_) {
      result_.failure += "\n  " + threads_[taken.thread].name + ": ";
      if (taken.drain)
        machine_.drain(taken.thread, taken.choice);
      else
        step(taken.thread, taken.choice);
      result_.failure += machine_.last_deed();
    }
    machine_.record(false);
    machine_.restore(last);
  }

  machine machine_;
  std::vector<thread> threads_;
  std::function<void()> at_the_end_;
  std::unordered_set<state_key, state_key::hash> seen_;
  std::vector<action> path_;
  verdict result_;
  std::size_t most_states_ = 0;
};

/// A claim of a thread or of the end.
inline void require(bool holds, const char* claim) {
  if (!holds) machine::current()->fail(claim);
}

/// Waits until a thread can see a value of `word` that `holds`; what it sees, it has
/// read.
template <class T, class Holds>
T wait_until(atomic<T>& word, Holds holds) {
  return static_cast<T>(machine::current()->wait(
      word.id(), [&](std::uint64_t value) { return holds(static_cast<T>(value)); }));
}

/// For the printed schedule.
template <class T>
void name(const atomic<T>& word, std::string text) {
  machine::current()->name_word(word.id(), std::move(text));
}

/// The scenario never changes this word: to look at it is no step.
template <class T>
void freeze(const atomic<T>& word) {
  machine::current()->freeze(word.id());
}

/// The kernel's part of waking: a byte in a socket.
class socket_bytes {
 public:
  socket_bytes() { name(bytes_, "socket"); }
  void write() { bytes_.fetch_add(1, std::memory_order_acq_rel); }
  void sleep() {
    wait_until(bytes_, [](std::uint32_t bytes) { return bytes != 0; });
    bytes_.exchange(0, std::memory_order_acq_rel);
  }

 private:
  atomic<std::uint32_t> bytes_;
};

/// shm's memory policy, with the model in the hardware's place.
struct memory {
  template <class T>
  using atomic = interleaving::atomic<T>;
  static void full_fence() { machine::current()->fence(); }
};

}  // namespace interleaving
