#include "mpmd/start_order.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <queue>
#include <string>
#include <string_view>

namespace manyworlds::inline v0 {

namespace detail {

namespace {

/// Returns the shortest way from an element back to itself; an empty one if there is
/// none.
std::vector<std::size_t> way_back(const std::vector<std::vector<std::size_t>>& lists,
                                  std::size_t start) {
  constexpr auto unseen = static_cast<std::size_t>(-1);
  std::vector<std::size_t> came_from(lists.size(), unseen);
  std::deque<std::size_t> waiting{start};
  while (!waiting.empty()) {
    const std::size_t at = waiting.front();
    waiting.pop_front();
    for (const std::size_t next : lists[at]) {
      if (next == start) {
        std::vector<std::size_t> way{at};
        while (way.back() != start) way.push_back(came_from[way.back()]);
        std::reverse(way.begin(), way.end());
        return way;
      }
      if (came_from[next] != unseen) continue;
      came_from[next] = at;
      waiting.push_back(next);
    }
  }
  return {};
}

/// Returns which elements can be reached from there, itself included.
std::vector<bool> reached_from(const std::vector<std::vector<std::size_t>>& lists,
                               std::size_t start) {
  std::vector<bool> is_reached(lists.size());
  std::vector<std::size_t> waiting{start};
  is_reached[start] = true;
  while (!waiting.empty()) {
    const std::size_t at = waiting.back();
    waiting.pop_back();
    for (const std::size_t next : lists[at]) {
      if (is_reached[next]) continue;
      is_reached[next] = true;
      waiting.push_back(next);
    }
  }
  return is_reached;
}

}  // namespace

std::vector<std::vector<std::size_t>> after_lists(const job_graph& graph) {
  std::map<std::string_view, std::size_t> index;
  for (std::size_t i = 0; i < graph.roles().size(); ++i)
    index.emplace(graph.roles()[i].name, i);
  std::vector<std::vector<std::size_t>> lists(graph.roles().size());
  for (std::size_t i = 0; i < lists.size(); ++i) {
    for (const std::string& name : graph.roles()[i].after_roles)
      if (const auto found = index.find(name); found != index.end())
        lists[i].push_back(found->second);
  }
  return lists;
}

std::vector<std::vector<std::size_t>> cycles_of(
    const std::vector<std::vector<std::size_t>>& lists) {
  std::vector<std::vector<std::size_t>> turned(lists.size());
  for (std::size_t i = 0; i < lists.size(); ++i)
    for (const std::size_t to : lists[i]) turned[to].push_back(i);
  std::vector<std::vector<std::size_t>> found;
  std::vector<bool> is_told(lists.size());
  for (std::size_t i = 0; i < lists.size(); ++i) {
    if (is_told[i]) continue;
    std::vector<std::size_t> cycle = way_back(lists, i);
    if (cycle.empty()) continue;
    // Another cycle through any of these is told once this one is mended.
    const std::vector<bool> after = reached_from(lists, i);
    const std::vector<bool> before = reached_from(turned, i);
    for (std::size_t j = 0; j < lists.size(); ++j)
      if (after[j] && before[j]) is_told[j] = true;
    found.push_back(std::move(cycle));
  }
  return found;
}

}  // namespace detail

std::vector<std::string> job_graph::start_order() const {
  const auto lists = detail::after_lists(*this);
  std::vector<std::size_t> missing(lists.size());
  std::vector<std::vector<std::size_t>> waits_for_me(lists.size());
  // The smallest index first: roles that may start stay as they stand.
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> can_start;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    missing[i] = lists[i].size();
    for (const std::size_t on : lists[i]) waits_for_me[on].push_back(i);
    if (missing[i] == 0) can_start.push(i);
  }
  std::vector<std::string> order;
  while (!can_start.empty()) {
    const std::size_t next = can_start.top();
    can_start.pop();
    order.push_back(roles_[next].name);
    for (const std::size_t i : waits_for_me[next])
      if (--missing[i] == 0) can_start.push(i);
  }
  return order;
}

}  // namespace manyworlds::inline v0
