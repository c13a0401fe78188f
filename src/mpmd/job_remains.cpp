#include "mpmd/job_remains.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace manyworlds::inline v0::detail {

namespace {

const char* const key_of_seat = "seat";
const char* const key_of_status = "status";
// etcd takes 128 operations in a transaction by default.
constexpr std::size_t most_erased_at_once = 100;

bool says_that_it_is_over(const std::string& status) {
  const auto all = nlohmann::json::parse(status, nullptr, false);
  return all.is_object() && all.contains("stage") && all["stage"] == "stopped";
}

/// Returns how many keys were erased; nothing if that key was there, or came meanwhile.
task<std::optional<std::size_t>> erase_all_but(etcd_store& at, std::string kept,
                                               bool is_kept_expected) {
  const etcd_listing listing = co_await at.list("");
  std::vector<std::string> keys;
  for (const etcd_entry& entry : listing.entries)
    if (entry.key != kept) keys.push_back(entry.key);
  for (std::size_t first = 0; first < keys.size(); first += most_erased_at_once) {
    etcd_transaction erasing;
    if (!is_kept_expected) erasing.when(etcd_target::create_revision, kept, 0);
    const std::size_t end = std::min(keys.size(), first + most_erased_at_once);
    for (std::size_t n = first; n < end; ++n) erasing.then_erase(keys[n]);
    const etcd_outcome done = co_await at.commit(std::move(erasing));
    if (!done.succeeded) co_return std::nullopt;
  }
  co_return keys.size();
}

}  // namespace

etcd_store_options meeting_of_job_options(std::string_view job) {
  // A meeting's keys stand under the prefix of stores, as those of any world.
  etcd_store_options options;
  options.prefix += fmt::format("manyworlds/graph/{}/", job);
  return options;
}

task<erased_remains> erase_job_remains(etcd_store& context, etcd_store& meeting) {
  erased_remains done;
  const std::optional<etcd_entry> status = co_await meeting.entry(key_of_status);
  if (!status) {
    const etcd_listing left = co_await context.list("");
    if (left.entries.empty()) done.state = remains_state::erased;
    co_return done;
  }
  if (!says_that_it_is_over(status->value)) co_return done;
  done.state = remains_state::has_master;
  if (co_await context.entry(key_of_seat)) co_return done;
  // The meeting first: once the context is gone, a master may begin another job of this
  // name there. One that comes meanwhile finds the old context, or a damaged one, and
  // begins nothing.
  const auto of_meeting = co_await erase_all_but(meeting, key_of_status, true);
  const auto of_context = co_await erase_all_but(context, key_of_seat, false);
  if (!of_context) co_return done;
  etcd_transaction last;
  last.then_erase(key_of_status);
  static_cast<void>(co_await meeting.commit(std::move(last)));
  done.state = remains_state::erased;
  done.keys = *of_context + of_meeting.value_or(0) + 1;
  co_return done;
}

}  // namespace manyworlds::inline v0::detail
