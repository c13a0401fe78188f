// Mesh keys: the store through which one of a mesh's worlds forms, at the controller.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "spmd/store_question.hpp"
#include "store/key_value_table.hpp"

namespace manyworlds::inline v0::detail {

/// Holds what the members say to each other while they form it, and goes with it. Waits
/// are numbers here, and no tasks. Thread: the session's reactor.
class mesh_keys {
 public:
  /// Each member waits for one key at a time, and may be late to withdraw some.
  static constexpr std::size_t most_waits = 16;
  /// Each member makes a key, and the first one another. One that makes more is refused,
  /// and takes no room of the others'.
  static constexpr std::size_t most_keys = 8;

  /// Returns the answers that are due now: to this question, and to those that waited for
  /// what it sets. Errors: value_error for what no member does.
  [[nodiscard]] std::vector<store_answer> serve(int worker, std::uint64_t question,
                                                store_question q) {
    std::vector<store_answer> due;
    const std::string* const found = keys_.find(q.key);
    switch (q.kind) {
      case question_kind::get:
        if (found == nullptr) {
          if (waits_of(worker) >= most_waits)
            throw value_error("it waits for too many keys");
          waits_.push_back({worker, question, std::move(q.key)});
          break;
        }
        [[fallthrough]];
      case question_kind::try_get:
        due.push_back({worker, question, {}});
        if (found != nullptr) due.back().value = *found;
        break;
      case question_kind::compare_set:
        if (found == nullptr && keys_of(worker) >= most_keys)
          throw value_error("it sets too many keys");
        due.push_back(
            {worker, question, keys_.compare_set(q.key, q.expected, std::move(q.value))});
        if (const std::string* const set = keys_.find(q.key)) {
          makers_.emplace(q.key, worker);
          release(q.key, *set, due);
        }
        break;
      case question_kind::erase:
        due.push_back({worker, question, {}});
        if (found != nullptr) due.back().value = *found;
        static_cast<void>(keys_.erase(q.key));
        makers_.erase(q.key);
        break;
      case question_kind::withdraw:
        std::erase_if(waits_, [&](const wait& w) {
          return w.worker == worker && w.question == question;
        });
    }
    return due;
  }
  /// Drops what a worker waits for that is lost.
  void forget(int worker) noexcept {
    std::erase_if(waits_, [worker](const wait& w) { return w.worker == worker; });
  }
  [[nodiscard]] std::size_t keys() const noexcept { return keys_.key_count(); }
  [[nodiscard]] std::size_t waits() const noexcept { return waits_.size(); }

 private:
  struct wait {
    int worker;
    std::uint64_t question;
    std::string key;
  };

  [[nodiscard]] std::size_t waits_of(int worker) const noexcept {
    return static_cast<std::size_t>(std::ranges::count(waits_, worker, &wait::worker));
  }
  [[nodiscard]] std::size_t keys_of(int worker) const noexcept {
    const auto is_own = [worker](const auto& each) { return each.second == worker; };
    return static_cast<std::size_t>(std::ranges::count_if(makers_, is_own));
  }
  void release(const std::string& key, const std::string& value,
               std::vector<store_answer>& due) {
    std::erase_if(waits_, [&](const wait& w) {
      if (w.key != key) return false;
      due.push_back({w.worker, w.question, value});
      return true;
    });
  }

  key_value_table keys_;
  std::map<std::string, int> makers_;
  std::vector<wait> waits_;
};

}  // namespace manyworlds::inline v0::detail
