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
  std::set<pid_t> parents;
  for (const listed_process& each : living) {
    if (each.is_alive() && told_.contains({each.pid, each.started}))
      parents.insert(each.pid);
  }
  std::vector<listed_process> missed;
  for (const listed_process& each : living) {
    if (!told_.contains({each.pid, each.started}) && !parents.contains(each.parent))
      missed.push_back(each);
  }
  return signal_each(missed, number);
}

}  // namespace manyworlds::inline v0::detail
