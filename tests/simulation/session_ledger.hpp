// Session ledger: what a session's calls were asked for, what the workers did for them
// and what their callers were told, and the rules S-a to S-e that this is checked
// against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "manyworlds/mw.hpp"
#include "manyworlds/spmd.hpp"
#include "simulation/world_cluster.hpp"

namespace manyworlds_tests {

/// One incarnation of one worker.
using worker_place = std::pair<int, std::uint64_t>;

/// One call of a scenario. Functions are given its number, and say it.
struct session_op {
  std::uint64_t number = 0;
  std::vector<int> workers;
  bool is_alone = true;
  /// Fails by itself on that worker; -1 on none.
  int thrower = -1;
  /// May be told `timed_out` or `cancelled`.
  bool is_limited = false;
  /// Its awaiter went away: it is told of nothing.
  bool was_cancelled = false;
  /// The calls that made what it takes.
  std::vector<std::uint64_t> takes_from;
  mw::time_point issued{};
  bool has_failed = false;
  /// The session's number for it, once it has begun anywhere.
  std::uint64_t call = 0;
  std::set<worker_place> begun;
  std::set<int> completed;
  bool has_thrown = false;
  /// How often its error reached the user: at its own await, or later.
  int told = 0;
};

/// Thread: the simulation's.
class session_ledger {
 public:
  session_ledger(cluster& all, std::size_t workers) : all_(all), hurt_(workers) {}
  session_ledger(const session_ledger&) = delete;
  session_ledger& operator=(const session_ledger&) = delete;

  session_op& add(std::vector<int> workers, bool is_alone);
  [[nodiscard]] session_op& at(std::uint64_t number) { return ops_.at(number); }
  [[nodiscard]] std::size_t size() const { return ops_.size(); }
  void complain(std::string what) { all_.story.complain(std::move(what)); }

  // --- what is done to workers
  /// Told when it begins and when it ends.
  void note_hurt(int worker) { hurt_[static_cast<std::size_t>(worker)] = all_.sim.now(); }
  /// Whether one of them was hurt since then, or a little before, or is lost since.
  [[nodiscard]] bool were_hurt_since(const std::vector<int>& workers,
                                     mw::time_point when) const;
  /// Looks there which workers are lost.
  void look_at(const mw::session* session) { session_ = session; }
  void watch(const mw::world& w) { all_.watch(w); }
  [[nodiscard]] mw::time_point now() const { return all_.sim.now(); }

  // --- what workers do
  void begin(const mw::worker& me, session_op& op);
  void end(const mw::worker& me);
  void note_value(int more, const worker_place& where) { values_[where] += more; }
  /// How many values of registers live there.
  [[nodiscard]] int values(const worker_place& where) { return values_[where]; }
  [[nodiscard]] int all_values() const;

  // --- what callers are told
  /// It has ended well, on that worker at least, or on all.
  void note_success(const session_op& op, int at = -1);
  /// Of its own await. Complains unless there is a reason.
  void note_failure(session_op& op, const mw::call_error& e);
  /// Of a sync, or of an await on a dref.
  void note_late_failure(const std::vector<int>& workers, mw::time_point since,
                         const mw::call_error& e);

  /// What can only be said once all is quiet: also that no error is left untold.
  void check_everything();
  [[nodiscard]] std::size_t successes() const { return successes_; }

 private:
  [[nodiscard]] bool has_reason(const session_op& op, mw::cause why) const;
  [[nodiscard]] bool lacks_argument(const session_op& op) const;
  [[nodiscard]] bool shared_a_failure(const session_op& op) const;
  [[nodiscard]] session_op* find_call(std::uint64_t call);
  void note_told(session_op& op, const mw::call_error& e);

  cluster& all_;
  std::map<std::uint64_t, session_op> ops_;
  std::vector<std::optional<mw::time_point>> hurt_;
  const mw::session* session_ = nullptr;
  std::map<worker_place, std::uint64_t> last_call_;
  std::map<worker_place, std::uint64_t> running_;
  std::map<worker_place, int> values_;
  std::set<std::uint64_t> told_late_;
  std::size_t successes_ = 0;
};

/// What the workers' registers hold: it says what it is and where it was made.
class kept_value {
 public:
  kept_value(session_ledger& ledger, const mw::worker& me, std::uint64_t number)
      : where_(me.id(), me.incarnation()), number_(number), ledger_(&ledger) {
    ledger.note_value(1, where_);
  }
  kept_value(kept_value&& other) noexcept
      : where_(other.where_),
        number_(other.number_),
        ledger_(std::exchange(other.ledger_, nullptr)) {}
  kept_value& operator=(kept_value&&) = delete;
  ~kept_value() {
    if (ledger_ != nullptr) ledger_->note_value(-1, where_);
  }

  [[nodiscard]] std::uint64_t number() const { return number_; }
  void change(std::uint64_t to) { number_ = to; }
  /// S-d: it is what the caller thinks that it is.
  void check(const mw::worker& me, std::uint64_t expected) const;

 private:
  worker_place where_;
  std::uint64_t number_;
  session_ledger* ledger_;
};

/// What `together` is to do: it travels as one value.
struct together_plan {
  std::int32_t steps = 1;
  std::int32_t thrower = -1;
  std::int32_t throws_at = 0;
  /// The ways of the steps, two bits each.
  std::uint32_t ways = 0;
  /// Microseconds before each step, more on some ranks.
  std::int32_t pause = 0;
};

}  // namespace manyworlds_tests

template <>
inline constexpr bool manyworlds::is_plain_record<manyworlds_tests::together_plan> = true;

namespace manyworlds_tests {

/// Each is given the number of its call. What it makes is `number`, and it fails on
/// `thrower`.
inline constexpr mw::remote_function<kept_value(std::uint64_t op, std::uint64_t number,
                                                int thrower)>
    make_value{"make", mw::alone};
inline constexpr mw::remote_function<kept_value(const kept_value&, std::uint64_t op,
                                                std::uint64_t expected, int thrower)>
    next_value{"next", mw::alone};
inline constexpr mw::remote_function<void(kept_value&, std::uint64_t op,
                                          std::uint64_t expected)>
    change_value{"change", mw::alone};
inline constexpr mw::remote_function<std::uint64_t(const kept_value&, std::uint64_t op,
                                                   std::uint64_t expected)>
    read_value{"read", mw::alone};
inline constexpr mw::remote_function<void(std::uint64_t op, int milliseconds,
                                          int thrower)>
    wait_alone{"wait", mw::alone};
inline constexpr mw::remote_function<std::uint64_t(std::uint64_t op, mw::tensor)> sum_of{
    "sum_of", mw::alone};
inline constexpr mw::remote_function<std::uint64_t(std::uint64_t op, together_plan)>
    do_together{"together"};

/// What `together` gives on a worker.
[[nodiscard]] constexpr std::uint64_t given_together(std::uint64_t op, int worker) {
  return op * 64 + static_cast<std::uint64_t>(worker);
}

/// The functions of all workers of one scenario. Lifetime: the ledger outlives them.
[[nodiscard]] mw::function_table session_functions(session_ledger& ledger);

}  // namespace manyworlds_tests
