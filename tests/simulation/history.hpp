// History: what every operation of every simulated process asked for and came to, and
// the laws it is checked against.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "manyworlds/failure.hpp"
#include "simulation/fault_log.hpp"

namespace manyworlds_tests {

enum class op_fate : unsigned char { pending, done, failed, given_up };

struct op_entry {
  std::size_t process = 0;
  std::uint64_t instance = 0;
  mw::operation_kind kind = mw::operation_kind::none;
  mw::rank_t peer = mw::no_rank;
  std::uint64_t lane = 0;
  /// Of a message to send, or of a barrier.
  std::uint64_t number = 0;
  bool delivered = false;
  /// The caller may give it up: a stop token, or a cancelled task.
  bool may_be_given_up = false;
  bool may_disagree_in_size = false;
  std::optional<mw::duration> limit;
  mw::time_point started{};
  mw::time_point ended{};
  op_fate fate = op_fate::pending;
  mw::cause cause = mw::cause::none;
};

/// One member's end of one incarnation of a world.
struct world_entry {
  std::size_t process = 0;
  std::uint64_t instance = 0;
  std::string name;
  std::uint64_t epoch = 0;
  std::uint64_t id = 0;
  mw::rank_t rank = 0;
  std::vector<std::size_t> members;  ///< processes, by rank
  mw::time_point formed{};
  std::optional<mw::time_point> left;
  std::optional<mw::time_point> broken;
  mw::failure first_cause;
};

/// A message, as both sides see it.
struct message_key {
  std::string world;
  std::uint64_t epoch = 0;
  std::uint64_t id = 0;
  mw::rank_t source = 0;
  mw::rank_t target = 0;
  std::uint64_t lane = 0;
  friend auto operator<=>(const message_key&, const message_key&) = default;
};

class history {
 public:
  explicit history(fault_log& faults) : faults_(faults) {}

  void complain(std::string what);
  /// What to note beside the first complaint, at that moment.
  void at_first_complaint(std::function<std::string()> describe) {
    describe_ = std::move(describe);
  }
  [[nodiscard]] const std::string& scene() const { return scene_; }
  [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }

  void formed(world_entry entry);
  void leaving(std::size_t process, std::uint64_t instance, mw::time_point when);
  /// The first cause, as any operation or `broken()` gives it.
  void broke(std::size_t process, std::uint64_t instance, const mw::failure& f,
             mw::time_point when);
  [[nodiscard]] const world_entry* find(std::size_t process,
                                        std::uint64_t instance) const;

  std::size_t started(op_entry op);
  void done(std::size_t op, mw::time_point when);
  void failed(std::size_t op, const mw::failure& f, mw::time_point when);
  void unwound(std::size_t op, mw::time_point when);
  [[nodiscard]] const op_entry& entry(std::size_t op) const { return ops_[op]; }

  void sent(const message_key& key, std::size_t op) { sends_[key].push_back(op); }
  void received(const message_key& key, std::uint64_t number, mw::time_point when);

  /// Law 9: who has waited longer than its deadline, or than a dead peer can be missed.
  void check_waiting(mw::time_point now);
  /// What can only be said once all is over.
  void check_everything();
  /// `member` is suspect there: it must have been unwell lately.
  void check_suspicion(std::size_t process, const std::string& world, std::size_t member,
                       mw::time_point now);

  /// Formed somewhere since then, all its members alive.
  [[nodiscard]] bool was_up_after(const std::string& world, mw::time_point when) const;
  [[nodiscard]] std::size_t operations() const { return ops_.size(); }
  [[nodiscard]] std::size_t messages() const { return received_count_; }
  [[nodiscard]] std::size_t worlds_formed() const { return worlds_.size(); }
  [[nodiscard]] std::string waiting_text() const;

 private:
  struct arrival {
    std::uint64_t number;
    mw::time_point when;
  };

  /// All members' ends of the same incarnation.
  [[nodiscard]] std::vector<const world_entry*> ends_of(const world_entry& view) const;
  [[nodiscard]] world_entry* entry_of(std::size_t process, std::uint64_t instance);
  [[nodiscard]] std::string text(const op_entry& op) const;
  void check_failure(op_entry& op, const mw::failure& f);
  void check_deliveries();
  void check_barriers();
  void check_farewells();
  void check_root_causes();
  void end(std::size_t op, op_fate fate, mw::time_point when);

  fault_log& faults_;
  std::vector<std::string> complaints_;
  std::function<std::string()> describe_;
  std::string scene_;
  std::vector<op_entry> ops_;
  std::set<std::size_t> waiting_;
  std::map<std::pair<std::size_t, std::uint64_t>, world_entry> worlds_;
  /// Who the members of an epoch are, as the first of them saw it.
  std::map<std::pair<std::string, std::uint64_t>, world_entry> views_;
  std::map<std::pair<std::string, std::size_t>, std::uint64_t> last_epoch_;
  std::map<message_key, std::vector<std::size_t>> sends_;
  std::map<message_key, std::vector<arrival>> receipts_;
  std::size_t received_count_ = 0;
};

/// Records one operation; one that is destroyed before it was told how it ended was
/// unwound.
class op_watch {
 public:
  template <class Clock>
  op_watch(history& h, op_entry op, Clock&& clock)
      : history_(h), op_(h.started(std::move(op))), clock_(std::forward<Clock>(clock)) {}
  op_watch(const op_watch&) = delete;
  op_watch& operator=(const op_watch&) = delete;
  ~op_watch() {
    if (!ended_) history_.unwound(op_, clock_());
  }
  void done() {
    ended_ = true;
    history_.done(op_, clock_());
  }
  void failed(const mw::failure& f) {
    ended_ = true;
    history_.failed(op_, f, clock_());
  }
  [[nodiscard]] std::size_t number() const { return op_; }

 private:
  history& history_;
  std::size_t op_;
  std::function<mw::time_point()> clock_;
  bool ended_ = false;
};

}  // namespace manyworlds_tests
