#include "io/process_tree.hpp"

namespace manyworlds::inline v0::detail {

std::size_t process_tree::signal_each(const std::vector<listed_process>& living,
                                      int number) {
  std::size_t count = 0;
  for (const listed_process& each : living) {
    told_.emplace(each.pid, each.started);
    if (signal_process(each, number)) ++count;
  }
  return count;
}

std::size_t process_tree::signal_orphans(const std::vector<listed_process>& living,
                                         int number) {
  std::set<pid_t> obeying;
  for (bool grows = true; grows;) {
    grows = false;
    for (const listed_process& each : living) {
      const bool is_told = told_.contains({each.pid, each.started});
      if (each.is_alive() && (is_told || obeying.contains(each.parent)) &&
          obeying.insert(each.pid).second)
        grows = true;
    }
  }
  std::vector<listed_process> missed;
  for (const listed_process& each : living) {
    if (each.is_alive() && !obeying.contains(each.pid)) missed.push_back(each);
  }
  return signal_each(missed, number);
}

}  // namespace manyworlds::inline v0::detail
