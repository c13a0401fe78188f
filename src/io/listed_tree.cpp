#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "io/process_tree.hpp"

namespace manyworlds::inline v0::detail {

void listed_tree::began(pid_t first) {
  first_ = first;
  // It is not reaped before the tree is told of it, so that it still has its number.
  if (const auto seen = look_at_process(first)) first_started_ = seen->started;
}

bool listed_tree::is_empty() {
  // One that lives is enough, and is looked at without a walk through /proc.
  const bool one_lives =
      std::any_of(seen_.begin(), seen_.end(), [](const listed_process& each) {
        const auto now = look_at_process(each.pid);
        return now && now->is_alive() && now->started == each.started;
      });
  return !one_lives && living().empty();
}

std::vector<listed_process> listed_tree::living() {
  const std::vector<marked_process>& all = census_->answer(question_.load());
  // The number is another process's only when the session is empty.
  const bool session_is_ours =
      first_ > 0 && std::none_of(all.begin(), all.end(), [&](const auto& each) {
        return each.pid == first_ && each.started != first_started_;
      });
  const pid_t self = ::getpid();
  std::set<pid_t> found;
  // What was found once stays, also when the ancestor has ended that led to it.
  std::set<std::pair<pid_t, std::uint64_t>> before;
  for (const listed_process& each : seen_) before.emplace(each.pid, each.started);
  for (const marked_process& each : all) {
    if (each.pid == self || each.started < first_started_) continue;
    if (before.contains({each.pid, each.started}) ||
        (session_is_ours && (each.session == first_ || each.pid == first_)) ||
        each.mark == variable_)
      found.insert(each.pid);
  }
  for (bool grows = true; grows;) {
    grows = false;
    for (const listed_process& each : all) {
      if (each.pid != self && found.contains(each.parent) &&
          found.insert(each.pid).second)
        grows = true;
    }
  }
  std::vector<listed_process> living;
  for (const listed_process& each : all) {
    if (each.is_alive() && found.contains(each.pid)) living.push_back(each);
  }
  seen_ = living;
  return living;
}

std::size_t listed_tree::signal(int number) { return signal_each(living(), number); }

std::size_t listed_tree::signal_missed(int number) {
  return signal_orphans(living(), number);
}

std::size_t listed_tree::kill() {
  // First all are stopped, so that none starts another and no chain of parents breaks. A
  // call that finds no new ones kills them.
  constexpr int most_rounds = 64;
  const std::vector<listed_process> seen = living();
  bool has_new = false;
  for (const listed_process& each : seen) {
    if (!stopped_.emplace(each.pid, each.started).second) continue;
    has_new = true;
    signal_process(each, SIGSTOP);
  }
  if (has_new && ++rounds_ < most_rounds) return seen.size();
  for (const listed_process& each : seen) signal_process(each, SIGKILL);
  return seen.size();
}

}  // namespace manyworlds::inline v0::detail
