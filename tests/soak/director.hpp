// Director: starts a soak's processes, does to them what the plan says, and starts
// successors.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "soak/plan.hpp"

namespace manyworlds_tests::soak {

enum class event : unsigned char { killed, stopped, resumed };

struct noted_event {
  mw::time_point when{};
  event what = event::killed;
  std::size_t process = 0;
};

/// One process of a slot, from its start to its end.
struct noted_process {
  std::size_t slot = 0;
  pid_t pid = -1;
  std::string records;
};

/// What was done, as it was done; times are a little early for what may have
/// consequences, and a little late for what ends them.
struct course {
  mw::time_point begin{};
  std::vector<noted_process> processes;
  std::vector<noted_event> events;  ///< in their order
  /// Ends that were not wanted.
  std::vector<std::string> complaints;
};

class director {
 public:
  /// Records and the like go to `folder`.
  director(const settings& s, std::string folder);
  director(const director&) = delete;
  director& operator=(const director&) = delete;
  /// Kills what still runs.
  ~director();

  [[nodiscard]] course run();

 private:
  struct slot_state {
    std::size_t process = 0;
    bool is_running = false;
    std::size_t lives = 0;
  };

  void start_store();
  void start(std::size_t slot);
  void kill(std::size_t slot);
  void signal(std::size_t slot, int number, event what);
  void plan_actions();
  /// Complains if the process of `slot` has come to an end that was not wanted.
  void look_after(std::size_t slot);
  void wait_for_all();
  [[nodiscard]] pid_t pid_of(std::size_t slot) const {
    return course_.processes[slots_[slot].process].pid;
  }

  settings settings_;
  plan plan_;
  std::string folder_;
  pid_t store_ = -1;
  std::string store_address_;
  std::vector<slot_state> slots_;
  std::multimap<mw::duration, std::function<void()>> actions_;
  course course_;
};

}  // namespace manyworlds_tests::soak
