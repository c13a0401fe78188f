// Session user: calls of all kinds on one session, one after the other, as the seed says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "manyworlds/spmd.hpp"
#include "simulation/session_ledger.hpp"

namespace manyworlds_tests {

/// Several of them use one session. Thread: the controller's reactor. Lifetime: session
/// and ledger outlive it.
class session_user {
 public:
  session_user(cluster& all, session_ledger& ledger, const mw::session& s)
      : all_(all), ledger_(ledger), s_(s) {}

  /// Makes that many calls, and drops what it holds.
  [[nodiscard]] mw::task<void> use(std::size_t calls);

  /// Makes values that are made again on a worker that is replaced, one of another, and
  /// reads them on all workers. Returns whether they were made.
  [[nodiscard]] mw::task<bool> make_replayable();
  [[nodiscard]] mw::task<void> check_replayable();
  /// Replaces a worker that is lost, or any.
  [[nodiscard]] mw::task<bool> respawn(int worker);
  /// Takes the errors that are untold, until there is none. Returns false if it cannot
  /// since a worker is not there.
  [[nodiscard]] mw::task<bool> hear_all();
  /// All workers take part in one call.
  [[nodiscard]] mw::task<bool> all_take_part();
  void drop_all() { held_.clear(); }
  /// Says what it does, for people who look for a hang.
  [[nodiscard]] const std::string& doing() const { return doing_; }

 private:
  struct held_value {
    mw::dref<kept_value> ref;
    std::vector<int> workers;
    /// What it should be on all of them, and the calls that made it so.
    std::uint64_t number = 0;
    std::vector<std::uint64_t> made_by;
  };

  [[nodiscard]] std::size_t below(std::size_t limit) {
    return static_cast<std::size_t>(all_.sim.random().below(limit));
  }
  [[nodiscard]] bool one_in(std::size_t n) { return below(n) == 0; }
  [[nodiscard]] int any_of(const std::vector<int>& workers) {
    return workers[below(workers.size())];
  }
  [[nodiscard]] std::vector<int> any_workers();
  [[nodiscard]] held_value* any_held();
  session_op& add(const std::vector<int>& workers, bool is_alone = true);
  /// The same for those that take what is held.
  session_op& add(const held_value& taken);
  void may_fail(session_op& op, std::size_t once_in);
  void keep(mw::dref<kept_value> ref, const session_op& op, std::uint64_t number);
  void drop(const held_value& which);

  [[nodiscard]] mw::task<void> one_call();
  [[nodiscard]] mw::task<void> make();
  [[nodiscard]] mw::task<void> make_next();
  [[nodiscard]] mw::task<void> make_there_again();
  [[nodiscard]] mw::task<void> read();
  [[nodiscard]] mw::task<void> change();
  [[nodiscard]] mw::task<void> together();
  [[nodiscard]] mw::task<void> wait();
  [[nodiscard]] mw::task<void> wait_and_go_away();
  [[nodiscard]] mw::task<void> send_much();
  [[nodiscard]] mw::task<void> use_dropped();
  [[nodiscard]] mw::task<void> await_held();
  [[nodiscard]] mw::task<void> sync();

  cluster& all_;
  session_ledger& ledger_;
  const mw::session& s_;
  std::vector<held_value> held_;
  std::string doing_;
};

}  // namespace manyworlds_tests
