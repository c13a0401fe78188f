// Fault log: what was done to whom and when, so that every break can be asked for its
// reason.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/testing/simulation.hpp"

namespace manyworlds_tests {

namespace mw = manyworlds;
using namespace std::chrono_literals;

/// Hurts one process, the link between two, or one world.
struct fault {
  std::string what;
  std::optional<std::size_t> process;
  std::optional<std::size_t> other;
  std::string world;
  mw::time_point begin{};
  /// Open while it lasts.
  std::optional<mw::time_point> end;
};

struct process_life {
  std::string name;
  std::optional<mw::time_point> killed;
  bool stopped = false;
  mw::time_point resumed{};
};

class fault_log {
 public:
  std::size_t begin(fault f) {
    faults_.push_back(std::move(f));
    return faults_.size() - 1;
  }
  void end(std::size_t number, mw::time_point when) { faults_[number].end = when; }
  [[nodiscard]] const std::vector<fault>& all() const { return faults_; }

  std::vector<process_life> processes;
  /// From then on everything may end.
  std::optional<mw::time_point> closing;
  /// A process that knows no epoch finds none in the store either.
  bool store_was_emptied = false;

  /// Whether something happened to a world of these members that can have broken it at
  /// `when`: to two of them, to one of them, or to the world itself.
  [[nodiscard]] bool explains(const std::string& world,
                              const std::vector<std::size_t>& members,
                              mw::time_point when,
                              mw::duration aftermath = longest_aftermath) const {
    return (closing && when >= *closing) ||
           !concerning(world, members, when, aftermath).empty();
  }
  [[nodiscard]] std::vector<const fault*> concerning(
      const std::string& world, const std::vector<std::size_t>& members,
      mw::time_point when, mw::duration aftermath = longest_aftermath) const {
    std::vector<const fault*> found;
    for (const fault& f : faults_) {
      const bool timely = f.begin <= when && (!f.end || when <= *f.end + aftermath);
      if (timely && concerns(f, world, members)) found.push_back(&f);
    }
    return found;
  }
  /// Two of them cannot reach each other, and could not for so long.
  [[nodiscard]] bool are_apart(const std::vector<std::size_t>& members,
                               mw::time_point when, mw::duration so_long) const {
    return std::any_of(faults_.begin(), faults_.end(), [&](const fault& f) {
      return f.what == partitioned && !f.end && when - f.begin > so_long &&
             concerns(f, {}, members);
    });
  }
  static constexpr const char* partitioned = "partitioned";
  static constexpr const char* killed = "killed";

 private:
  // The longest way from a fault's end to a break: the silence limit, or a begun
  // transfer's.
  static constexpr mw::duration longest_aftermath = 11s;

  [[nodiscard]] static bool concerns(const fault& f, const std::string& world,
                                     const std::vector<std::size_t>& members) {
    const auto is_member = [&](std::size_t p) {
      return std::find(members.begin(), members.end(), p) != members.end();
    };
    if (!f.world.empty()) return f.world == world;
    return is_member(*f.process) && (!f.other || is_member(*f.other));
  }

  std::vector<fault> faults_;
};

}  // namespace manyworlds_tests
