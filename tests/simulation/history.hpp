// History: what every operation of every simulated process asked for and came to, and
// the laws it is checked against.
#pragma once

#include <chrono>
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
#include "simulation/chronicle.hpp"
#include "simulation/fault_log.hpp"

namespace manyworlds_tests {

/// What an operation may take beyond its limit: a send that was given up late asks for up
/// to a second whether it was taken, and may end without knowing.
inline constexpr mw::duration settling = std::chrono::seconds(1);

/// How exact the clocks are that the history was written by: of a simulation they are.
struct tolerance {
  /// What an operation on a broken world may take.
  mw::duration at_once = 1ms;
  /// By which a limit may seem to have passed too early.
  mw::duration early{0};
  /// What an ending may take beyond the limits of the library.
  mw::duration slack = 500ms;
};

class history final : public chronicle {
 public:
  explicit history(fault_log& faults, tolerance allowed = {})
      : faults_(faults), allowed_(allowed) {}

  void complain(std::string what) override;
  /// What to note beside the first complaint, at that moment.
  void at_first_complaint(std::function<std::string()> describe) {
    describe_ = std::move(describe);
  }
  [[nodiscard]] const std::string& scene() const { return scene_; }
  [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }

  void formed(world_entry entry) override;
  void leaving(std::size_t process, std::uint64_t instance, mw::time_point when) override;
  void broke(std::size_t process, std::uint64_t instance, const mw::failure& f,
             mw::time_point when) override;
  [[nodiscard]] const world_entry* find(std::size_t process,
                                        std::uint64_t instance) const;

  std::size_t started(op_entry op) override;
  void done(std::size_t op, mw::time_point when) override;
  void failed(std::size_t op, const mw::failure& f, mw::time_point when) override;
  void unwound(std::size_t op, mw::time_point when) override;
  /// The process is no more, and nothing that it waits for ends.
  void lost(std::size_t process);

  void sent(const message_key& key, std::size_t op) override {
    sends_[key].push_back(op);
  }
  void received(const message_key& key, std::uint64_t number, std::size_t bytes,
                mw::time_point when) override;

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
  [[nodiscard]] std::size_t bytes() const { return received_bytes_; }
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
  tolerance allowed_;
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
  std::size_t received_bytes_ = 0;
};

}  // namespace manyworlds_tests
