// Verdict: the records of all members told again in the order of time, and checked.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "simulation/history.hpp"
#include "soak/director.hpp"
#include "soak/records.hpp"

namespace manyworlds_tests::soak {

/// Counted on the way.
struct figures {
  std::size_t operations = 0;
  std::size_t messages = 0;
  std::size_t bytes = 0;
  std::size_t epochs = 0;  ///< of all worlds together
  std::size_t views = 0;   ///< of an epoch by one member
  std::size_t kills = 0;
  std::size_t stops = 0;
  std::size_t fails = 0;
  std::map<std::string, std::size_t> errors;  ///< by cause
  /// From a kill to the break of a world at another member.
  std::vector<mw::duration> notices;
  /// Between two messages of a world with undisturbed members.
  mw::duration longest_gap{};
};

/// Passes a chronicle on to the history, and adds what only a soak asks.
class verdict final : public chronicle, record_listener {
 public:
  verdict(const plan& p, const course& c);
  void judge();
  [[nodiscard]] const std::vector<std::string>& complaints() const {
    return story_.complaints();
  }
  [[nodiscard]] const figures& counted() const { return figures_; }

  void complain(std::string what) override { story_.complain(std::move(what)); }
  void formed(world_entry entry) override;
  void leaving(std::size_t process, std::uint64_t instance,
               mw::time_point when) override {
    story_.leaving(process, instance, when);
  }
  void broke(std::size_t process, std::uint64_t instance, const mw::failure& f,
             mw::time_point when) override;
  std::size_t started(op_entry op) override {
    process_of_operation_.push_back(op.process);
    return story_.started(std::move(op));
  }
  void done(std::size_t op, mw::time_point when) override { story_.done(op, when); }
  void failed(std::size_t op, const mw::failure& f, mw::time_point when) override;
  void unwound(std::size_t op, mw::time_point when) override {
    ++figures_.errors["given up"];
    story_.unwound(op, when);
  }
  void sent(const message_key& key, std::size_t op) override { story_.sent(key, op); }
  void received(const message_key& key, std::uint64_t number, std::size_t bytes,
                mw::time_point when) override;

 private:
  [[nodiscard]] std::size_t process_of(pid_t pid) const override;
  void failing(const std::string& world, mw::time_point when) override;
  void ended(std::size_t process) override { has_ended_[process] = true; }

  void check_cause(std::size_t process, const mw::failure& f);
  void tell(const noted_event& e);
  void tell_all();
  void check_gaps();
  void check_notices();
  /// The worlds of others that one fault of a process must have broken by then.
  void check_notice(const noted_event& e, mw::time_point limit);
  void check_last_epochs();
  /// Of one that could not look all the time.
  [[nodiscard]] bool was_away(std::size_t process, mw::time_point from,
                              mw::time_point to) const;
  [[nodiscard]] std::string name_of(std::size_t process) const;

  const plan& plan_;
  const course& course_;
  fault_log faults_;
  history story_;
  std::map<pid_t, std::size_t> by_pid_;
  std::map<std::size_t, std::size_t> open_stops_;  ///< in the fault log, by process
  std::vector<bool> has_ended_;
  std::vector<std::pair<std::size_t, std::uint64_t>> views_;  ///< process and instance
  std::vector<std::size_t> process_of_operation_;
  std::map<std::string, mw::time_point> last_message_;  ///< of undisturbed worlds
  figures figures_;
};

}  // namespace manyworlds_tests::soak
