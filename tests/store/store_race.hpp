// A key that is set just as the limit of a wait for it ends, over and over.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/seeded_random.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/store/store_error.hpp"

namespace manyworlds_tests {

/// Races of a store's operations against their own limits. What is checked of each: it
/// ends with what it waited for or as timed out; what was set is there; a value of a
/// queue was taken once or lies there; later replies belong to later questions.
class store_race {
 public:
  using duration = manyworlds::duration;

  /// The set comes within `spread` before or after the limit.
  store_race(manyworlds::store& waiting, manyworlds::store& setting, duration limit,
             duration spread, std::uint64_t seed)
      : waiting_(waiting),
        setting_(setting),
        limit_(limit),
        spread_(spread),
        random_(seed) {}

  /// Runs that number of races, a few at a time.
  manyworlds::task<void> run(int races) {
    constexpr int lanes = 8;
    const auto all = [&](manyworlds::scope& s) -> manyworlds::task<void> {
      for (int lane = 0; lane < lanes; ++lane)
        s.spawn(run_lane("lane" + std::to_string(lane), (races + lanes - 1) / lanes));
      co_return;
    };
    co_await manyworlds::scope::run(all);
  }

  [[nodiscard]] int in_time() const noexcept { return in_time_; }
  [[nodiscard]] int too_late() const noexcept { return too_late_; }
  /// Those in which this machine was so busy that the server did not answer in time.
  [[nodiscard]] int unanswered() const noexcept { return unanswered_; }

 private:
  enum class end { in_time, too_late, unanswered, may_have_happened };
  using strings = std::vector<std::string>;
  static constexpr duration long_enough = std::chrono::seconds(60);

  manyworlds::task<void> run_lane(std::string lane, int races) {
    for (int i = 0; i < races; ++i) {
      const std::string key = lane + "/" + std::to_string(i);
      // One after the other, so that each kind of operation comes behind each other.
      switch (random_.below(5)) {
        case 0:
          co_await race_wait(key);
          break;
        case 1:
          co_await race_compare_set(key);
          break;
        case 2:
          co_await race_get(key);
          break;
        case 3:
          co_await race_pop(key);
          break;
        default:
          co_await race_barrier(key);
      }
      const std::int64_t count = co_await waiting_.add(lane, 1, long_enough);
      CHECK(count == i + 1);
    }
  }

  manyworlds::task<void> race_wait(const std::string& key) {
    const strings keys{key, key};
    co_await beside(waiting_.wait(keys, limit_), setting_.set(key, key, long_enough));
    co_await look_at(key);
  }

  manyworlds::task<void> race_compare_set(const std::string& key) {
    const strings keys{key};
    co_await beside(waiting_.wait(keys, limit_),
                    without_result(setting_.compare_set(key, "", key, long_enough)));
    co_await look_at(key);
  }

  manyworlds::task<void> race_get(const std::string& key) {
    std::optional<std::string> got;
    co_await beside(keep(waiting_.get(key, limit_), got),
                    setting_.set(key, key, long_enough));
    CHECK(got.value_or(key) == key);
    co_await look_at(key);
  }

  manyworlds::task<void> race_pop(const std::string& queue) {
    std::optional<std::string> got;
    const end ended = co_await beside(keep(waiting_.pop(queue, limit_), got),
                                      setting_.push(queue, queue, long_enough));
    const std::optional<std::string> left = co_await waiting_.try_pop(queue, long_enough);
    // It was taken for a reply that came too late, and the error says so.
    const int places = int{got.has_value()} + int{left.has_value()};
    CHECK(places >= (ended == end::may_have_happened ? 0 : 1));
    CHECK(places <= 1);
    CHECK(got.value_or(queue) == queue);
    CHECK(left.value_or(queue) == queue);
  }

  /// The other passes at once, whether it comes first or not.
  manyworlds::task<void> race_barrier(const std::string& key) {
    co_await beside(waiting_.barrier(key, 2, limit_),
                    setting_.barrier(key, 1, long_enough));
    const bool was_there = co_await waiting_.erase(key, long_enough);
    CHECK(was_there);
  }

  /// The key holds its own name; erased, it is none of the next races'.
  manyworlds::task<void> look_at(const std::string& key) {
    const std::optional<std::string> value = co_await waiting_.try_get(key, long_enough);
    CHECK(value == key);
    const bool was_there = co_await waiting_.erase(key, long_enough);
    CHECK(was_there);
  }

  manyworlds::task<end> beside(manyworlds::task<void> wait, manyworlds::task<void> set) {
    const std::uint64_t way = static_cast<std::uint64_t>(2 * spread_.count());
    const duration pause =
        limit_ - spread_ + duration(static_cast<std::int64_t>(random_.below(way)));
    end ended = end::in_time;
    const auto both = [&](manyworlds::scope& s) -> manyworlds::task<void> {
      s.spawn(note_end(std::move(wait), ended));
      co_await manyworlds::sleep_for(pause);
      co_await std::move(set);
    };
    co_await manyworlds::scope::run(both);
    co_return ended;
  }

  manyworlds::task<void> note_end(manyworlds::task<void> operation, end& ended) {
    try {
      co_await std::move(operation);
    } catch (const manyworlds::store_error& e) {
      if (e.kind() == manyworlds::store_error_kind::timed_out) {
        ended = end::too_late;
      } else {
        ended = e.failure().may_have_happened ? end::may_have_happened : end::unanswered;
      }
      if (e.kind() == manyworlds::store_error_kind::protocol) throw;
    }
    in_time_ += ended == end::in_time;
    too_late_ += ended == end::too_late;
    unanswered_ += ended > end::too_late;
  }

  static manyworlds::task<void> keep(manyworlds::task<std::string> operation,
                                     std::optional<std::string>& got) {
    std::string value = co_await std::move(operation);
    got = std::move(value);
  }
  static manyworlds::task<void> without_result(manyworlds::task<std::string> operation) {
    const std::string value = co_await std::move(operation);
  }

  manyworlds::store& waiting_;
  manyworlds::store& setting_;
  const duration limit_;
  const duration spread_;
  manyworlds::detail::seeded_random random_;
  int in_time_ = 0;
  int too_late_ = 0;
  int unanswered_ = 0;
};

}  // namespace manyworlds_tests
