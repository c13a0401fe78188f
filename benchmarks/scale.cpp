#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "costs.hpp"
#include "scale_parts.hpp"

namespace mwbench {

namespace {

/// A role is "worlds", or a size and a rank: "8/3".
constexpr std::string_view second_of_two = "worlds";

void lead(const common_options& common, const scale_options& o, report& out) {
  member m(common);
  out.machine(m.engine());
  if (!o.worlds.empty()) {
    const child other = m.start(std::string(second_of_two));
    m.runtime().run(scale_worlds(m, o, 0, out));
  }
}

/// Each size has processes of its own: lingering links would send heartbeats too.
void lead_members(const common_options& common, const scale_options& o, mw::rank_t size,
                  report& out) {
  member m(common);
  std::vector<child> others;
  for (mw::rank_t r = 1; r < size; ++r)
    others.push_back(m.start(fmt::format("{}/{}", size, r)));
  m.runtime().run(scale_members(m, o, 0, size, out));
  let_end(others);
}

/// Over tcp each world has a connection to each peer. So do worlds between two
/// processes of one host that find no slot in the memory they share: half of its slots
/// are there at once, the others are ceded gradually.
void make_room(const common_options& common, const scale_options& o) {
  constexpr int least_slots_of_a_link = 128;
  const int without = common.shared_memory ? least_slots_of_a_link : 0;
  int most = 0;
  for (const int count : o.worlds) most = std::max(most, count - without);
  if (!common.shared_memory) {
    for (const int count : o.members) most = std::max(most, 2 * count);
  }
  allow_open_files(static_cast<std::size_t>(most), common.leads());
}

}  // namespace

void scale(const common_options& common, const scale_options& options) {
  make_room(common, options);
  report out(common.json, common.transport(), common.plot);
  if (common.has_launcher()) {
    member m(common);
    if (common.leads()) out.machine(m.engine());
    m.runtime().run(scale_members(m, options, common.job.rank, common.job.size, out));
  } else if (common.leads()) {
    lead(common, options, out);
    for (const int size : options.members) lead_members(common, options, size, out);
  } else if (common.role == second_of_two) {
    member m(common);
    m.runtime().run(scale_worlds(m, options, 1, out));
  } else {
    member m(common);
    const std::size_t slash = common.role.find('/');
    m.runtime().run(scale_members(m, options, std::stoi(common.role.substr(slash + 1)),
                                  std::stoi(common.role.substr(0, slash)), out));
  }
  out.end();
}

}  // namespace mwbench
