// The memory of the model checker: what a word holds, and what each thread may see of it.
//
// `tso` is x86: a store waits in its thread's own buffer and reaches memory in order;
// fences and read-modify-writes empty the buffer.
//
// `weak` is C++'s own memory model (its view semantics): each word keeps the history of
// its values, and a load may see any that its thread has no reason to know to be
// overwritten; acquire takes over what the release it met knew; full fences are in one
// order and pass on all that was known before. It is weaker than any hardware that
// reorders loads and stores of different words, except that no load sees a store that is
// later in its own thread's future, and stores to one word take effect in the order they
// are made.
#pragma once

#include <setjmp.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "link/interleaving_state.hpp"

namespace interleaving {

enum class memory_model { tso, weak };

/// What a test takes away from the code it runs, to see that it is missed.
struct mutation {
  int without_fences = -1;  ///< this thread's full fences do nothing
  bool relaxed_release = false;
  bool relaxed_acquire = false;
  bool split_exchange =
      false;  ///< compare_exchange and exchange are a load, then a store
};

enum class step_status { moved, blocked, ended, failed };

class machine {
 public:
  machine(memory_model model, mutation planted) : model_(model), planted_(planted) {}

  static machine*& current() {
    thread_local machine* one = nullptr;
    return one;
  }

  // ---- the explorer's side -----------------------------------------------------------

  void add_thread() { state_.threads.emplace_back(); }

  std::size_t add_word(std::uint64_t value) {
    if (names_.size() == most_words) std::abort();
    names_.push_back("word " + std::to_string(names_.size()));
    frozen_.push_back(false);
    initial_.push_back(value);
    state_.words.push_back({{value, view{}}});
    return names_.size() - 1;
  }

  void name_word(std::size_t word, std::string name) { names_[word] = std::move(name); }
  void freeze(std::size_t word) { frozen_[word] = true; }
  /// Whether deeds are described.
  void record(bool on) { recording_ = on; }

  [[nodiscard]] state save() const { return state_; }
  void restore(const state& to) { state_ = to; }
  void reset() {
    for (auto& thread : state_.threads) thread = {};
    for (std::size_t at = 0; at != initial_.size(); ++at)
      state_.words[at] = {{initial_[at], view{}}};
    state_.fenced = {};
  }

  [[nodiscard]] state_key key() const { return key_of(state_); }

  void begin_step(std::size_t thread, unsigned choice) {
    thread_ = thread;
    choice_ = choice;
    choices_ = 1;
    replayed_ = 0;
    acted_ = false;
    status_ = step_status::moved;
    complaint_.clear();
    deed_.clear();
  }
  [[nodiscard]] jmp_buf& exit() { return exit_; }
  [[nodiscard]] step_status status() const { return status_; }
  [[nodiscard]] bool acted() const { return acted_; }
  [[nodiscard]] unsigned choices() const { return choices_; }
  [[nodiscard]] const std::string& complaint() const { return complaint_; }
  [[nodiscard]] const std::string& last_deed() const { return deed_; }
  /// From here on claims are of the end, outside of any thread.
  void forgive() {
    complaint_.clear();
    thread_ = outside;
  }

  [[nodiscard]] unsigned drains(std::size_t thread) const {
    return state_.threads[thread].buffer.empty() ? 0 : 1;
  }
  bool drain(std::size_t thread, unsigned) {
    auto& buffer = state_.threads[thread].buffer;
    if (buffer.empty()) return false;
    const auto oldest = buffer.front();
    buffer.erase(buffer.begin());
    state_.words[oldest.word].back().value = oldest.value;
    if (recording_)
      deed_ =
          "(in memory now) " + names_[oldest.word] + " " + std::to_string(oldest.value);
    return true;
  }

  // ---- the threads' side -------------------------------------------------------------

  void fail(const char* claim) {
    complaint_ = claim;
    // A claim about results that are all known has been judged when they were new.
    if (thread_ != outside) leave(step_status::failed);
  }

  std::uint64_t load(std::size_t word, std::memory_order order) {
    if (frozen_[word]) return initial_[word];
    if (const auto* known = replay()) return *known;
    return finish(look(word, order, 0, nullptr), "sees", word);
  }

  template <class Holds>
  std::uint64_t wait(std::size_t word, Holds holds) {
    if (const auto* known = replay()) return *known;
    const auto newest = visible(word);
    if (!holds(newest)) leave(step_status::blocked);
    auto& self = state_.threads[thread_];
    self.now[word] = static_cast<std::uint8_t>(state_.words[word].size() - 1);
    return finish(newest, "has waited for", word);
  }

  void store(std::size_t word, std::uint64_t value, std::memory_order order) {
    if (replay()) return;
    if (model_ == memory_model::tso) {
      state_.threads[thread_].buffer.push_back({word, value});
      finish(value, "stores", word);
      return;
    }
    append(word, value, releases(order), nullptr);
    finish(value, "stores", word);
  }

  /// Reads the newest value and replaces it by what `change` makes of it; `change` says
  /// whether to.
  template <class Change>
  std::uint64_t read_modify_write(std::size_t word, std::memory_order order,
                                  Change change) {
    if (const auto* known = replay()) return *known;
    empty_buffer();
    auto& history = state_.words[word];
    const auto newest = history.size() - 1;
    const auto old = history[newest].value;
    look(word, order, newest, &history);
    std::uint64_t made = old;
    if (change(made)) {
      const auto read = history[newest];
      append(word, made, releases(order), &read.knows);
    }
    return finish(old, "changes", word);
  }

  void fence() {
    if (planted_.without_fences == static_cast<int>(thread_)) return;
    if (replay()) return;
    empty_buffer();
    auto& self = state_.threads[thread_];
    join(self.now, self.acquired);
    join(self.now, state_.fenced);
    state_.fenced = self.now;
    self.released = self.now;
    finish(0, "fences", names_.size());
  }

  [[nodiscard]] const mutation& planted() const { return planted_; }

 private:
  static constexpr std::size_t outside = ~std::size_t{0};

  const std::uint64_t* replay() {
    auto& results = state_.threads[thread_].results;
    if (replayed_ < results.size()) return &results[replayed_++];
    // One new deed a step.
    if (acted_) leave(step_status::moved);
    return nullptr;
  }

  std::uint64_t finish(std::uint64_t result, const char* verb, std::size_t word) {
    acted_ = true;
    ++replayed_;
    state_.threads[thread_].results.push_back(result);
    if (!recording_) return result;
    deed_ = verb;
    if (word != names_.size()) deed_ += " " + names_[word] + " " + std::to_string(result);
    return result;
  }

  [[noreturn]] void leave(step_status how) {
    status_ = how;
    _longjmp(exit_, 1);
  }

  std::uint64_t visible(std::size_t word) const {
    const auto& buffer = state_.threads[thread_].buffer;
    for (auto at = buffer.rbegin(); at != buffer.rend(); ++at)
      if (at->word == word) return at->value;
    return state_.words[word].back().value;
  }

  // With `history`, the value at `at` is meant; else any that may be seen, by choice.
  std::uint64_t look(std::size_t word, std::memory_order order, std::size_t at,
                     const std::vector<message>* history) {
    if (model_ == memory_model::tso) return visible(word);
    auto& self = state_.threads[thread_];
    if (history == nullptr) {
      history = &state_.words[word];
      const auto newest = history->size() - 1;
      choices_ = static_cast<unsigned>(newest - self.now[word] + 1);
      at = newest - choice_;
    }
    const auto& seen = (*history)[at];
    self.now[word] = static_cast<std::uint8_t>(at);
    join(self.acquired, seen.knows);
    if (acquires(order)) join(self.now, seen.knows);
    return seen.value;
  }

  void append(std::size_t word, std::uint64_t value, bool release, const view* read) {
    if (model_ == memory_model::tso) {
      state_.words[word].back().value = value;
      return;
    }
    auto& self = state_.threads[thread_];
    self.now[word] = static_cast<std::uint8_t>(state_.words[word].size());
    message made{value, release ? self.now : self.released};
    made.knows[word] = self.now[word];
    if (read != nullptr) join(made.knows, *read);
    state_.words[word].push_back(made);
  }

  void empty_buffer() {
    auto& buffer = state_.threads[thread_].buffer;
    for (const auto& entry : buffer) state_.words[entry.word].back().value = entry.value;
    buffer.clear();
  }

  static void join(view& into, const view& other) {
    for (std::size_t at = 0; at != into.size(); ++at)
      into[at] = std::max(into[at], other[at]);
  }

  bool acquires(std::memory_order order) const {
    return !planted_.relaxed_acquire &&
           (order == std::memory_order_acquire || order == std::memory_order_acq_rel);
  }
  bool releases(std::memory_order order) const {
    return !planted_.relaxed_release &&
           (order == std::memory_order_release || order == std::memory_order_acq_rel);
  }

  memory_model model_;
  mutation planted_;
  std::vector<std::string> names_;
  std::vector<std::uint64_t> initial_;
  std::vector<bool> frozen_;
  state state_;
  std::size_t thread_ = outside;
  unsigned choice_ = 0, choices_ = 1;
  std::size_t replayed_ = 0;
  bool acted_ = false;
  bool recording_ = false;
  step_status status_ = step_status::moved;
  std::string complaint_, deed_;
  jmp_buf exit_{};
};

}  // namespace interleaving
