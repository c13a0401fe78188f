#include "launch/guarded_trees.hpp"

#include <errno.h>
#include <sys/socket.h>

#include <chrono>
#include <list>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "io/process_list.hpp"
#include "io/process_tree.hpp"

namespace manyworlds::inline v0::detail {

namespace {

using namespace std::chrono_literals;

struct ending_tree {
  ending_tree(const std::string& variable, std::shared_ptr<process_census> census,
              std::string its_group)
      : listed(variable, std::move(census)), group(std::move(its_group)) {}

  listed_tree listed;
  std::string group;
};

/// Kills what is left. Returns whether nothing was.
bool end_once(ending_tree& tree) {
  bool is_over = true;
  if (!tree.group.empty()) {
    group_tree grouped(tree.group, group_tree::existing{});
    if (!grouped.is_empty()) {
      grouped.kill();
      is_over = false;
    }
  }
  if (!tree.listed.is_empty()) {
    tree.listed.kill();
    is_over = false;
  }
  return is_over;
}

/// Goes once through all that are left, with one walk through /proc.
void end_all_once(std::list<ending_tree>& left) {
  for (ending_tree& each : left) each.listed.ask();
  for (auto each = left.begin(); each != left.end();) {
    if (!end_once(*each)) {
      ++each;
      continue;
    }
    if (!each->group.empty()) remove_group(each->group);
    each = left.erase(each);
  }
}

}  // namespace

/// A message: 'b' or 'e', the variable, a zero, the group.
void guarded_trees::take(std::string_view message) {
  const std::size_t zero = message.find('\0');
  if (message.empty() || zero == std::string_view::npos) return;
  const std::string variable(message.substr(1, zero - 1));
  if (message.front() == 'b') {
    groups_[variable] = std::string(message.substr(zero + 1));
  } else {
    groups_.erase(variable);
  }
}

bool guarded_trees::take_messages(int socket) {
  std::string message(longest_guard_message, '\0');
  for (;;) {
    const ssize_t got = ::recv(socket, message.data(), message.size(), MSG_DONTWAIT);
    if (got > 0) {
      take(std::string_view(message.data(), static_cast<std::size_t>(got)));
    } else if (got == 0 || errno != EINTR) {
      return got < 0 && errno == EAGAIN;
    }
  }
}

void guarded_trees::end_all() {
  const auto census = std::make_shared<process_census>(tree_variable);
  std::list<ending_tree> left;
  for (const auto& [variable, group] : std::exchange(groups_, {}))
    left.emplace_back(variable, census, group);
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (!left.empty() && std::chrono::steady_clock::now() < until) {
    try {
      end_all_once(left);
    } catch (const std::system_error&) {
      // There is no descriptor to look with now.
    }
    if (!left.empty()) std::this_thread::sleep_for(1ms);
  }
  for (const ending_tree& each : left) {
    if (!each.group.empty()) remove_group(each.group);
  }
}

}  // namespace manyworlds::inline v0::detail
