#include "manyworlds/mpmd/role_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <utility>

#include "io/current_reactor.hpp"
#include "io/reactor.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"
#include "mpmd/call_head.hpp"
#include "mpmd/role_group_core.hpp"
#include "mpmd/spoken_text.hpp"

namespace manyworlds::inline v0 {

namespace detail {

constexpr duration between_looks_at_members = std::chrono::milliseconds(5);

static dispatch_options dispatch_once(const role_group::options& options) {
  dispatch_options how;
  how.tries = 1;
  how.ask_again = 0;
  how.in_flight_per_worker = options.at_once;
  how.patience = options.patience;
  return how;
}

/// Ids of several instances, and of one that was started again, do not meet.
static std::uint64_t drawn_id() {
  std::random_device draw;
  return (std::uint64_t{draw()} << 32U) | draw();
}

static time_point now_here() {
  reactor* const home = current_reactor();
  if (home == nullptr) throw std::logic_error("a role group is asked by tasks");
  return home->now();
}

role_group_core::role_group_core(role_group::options options)
    : options_(options), dispatcher_(dispatch_once(options)), next_id_(drawn_id()) {
  if (options.tries < 1 || options.at_once < 1)
    throw std::invalid_argument("a role group tries once at least, with a call at once");
}

void role_group_core::begin(std::string edge, instance_id self, std::size_t least) {
  if (!edge_.empty() && edge_ != edge)
    throw std::logic_error(
        fmt::format("a role group asks at one edge, and this one asks at {} already",
                    in_quotes(edge_)));
  edge_ = std::move(edge);
  self_ = std::move(self);
  least_ = std::max<std::size_t>(1, least);
}

task<void> role_group_core::reach(world& w, instance_id peer) {
  peers_.insert_or_assign(w.name().str(), std::move(peer));
  co_await dispatcher_.serve(w);
}

std::vector<instance_id> role_group_core::members() const {
  std::vector<instance_id> all;
  for (const worker_status& each : dispatcher_.workers()) {
    const auto at = peers_.find(each.world.view());
    // One that drains is given nothing new.
    if (at != peers_.end() && !each.is_draining) all.push_back(at->second);
  }
  std::sort(all.begin(), all.end());
  return all;
}

task<std::vector<instance_id>> role_group_core::enough_members(duration limit) {
  const auto wait = [this]() -> task<void> {
    // That an instance takes calls is known from its first word, of which none is told.
    while (members().size() < least_) co_await sleep_for(between_looks_at_members);
  };
  try {
    co_await within(wait(), limit);
  } catch (const timed_out&) {
    // What is missing is said below.
  }
  std::vector<instance_id> all = members();
  if (all.size() < least_) {
    failure f(cause::timed_out,
              fmt::format("{} of {} instances were there in time", all.size(), least_));
    throw world_error(described(std::move(f), {}, "all"));
  }
  co_return all;
}

// --- one call -------------------------------------------------------------------------

std::optional<std::size_t> role_group_core::choose(
    std::optional<std::uint32_t> index, std::span<const worker_status> workers) const {
  if (!index) return least_depth()(workers);
  for (std::size_t n = 0; n < workers.size(); ++n) {
    const auto at = peers_.find(workers[n].world.view());
    if (at != peers_.end() && at->second.index == *index) return n;
  }
  return std::nullopt;
}

task<std::string> role_group_core::attempt(std::optional<std::uint32_t> index,
                                           const std::string& head,
                                           const std::string& argument, duration limit) {
  const auto pick = [this, index](std::span<const worker_status> workers) {
    return choose(index, workers);
  };
  reply_stream replies = co_await dispatcher_.call({head, argument}, pick).within(limit);
  const std::optional<std::vector<std::byte>> result = co_await replies.next();
  if (!result)
    throw world_error(failure(cause::protocol_error, "the answer has no result"));
  const std::optional<std::vector<std::byte>> more = co_await replies.next();
  if (more)
    throw world_error(failure(cause::protocol_error, "the answer has two results"));
  co_return std::string(reinterpret_cast<const char*>(result->data()), result->size());
}

failure role_group_core::described(failure f, std::optional<std::uint32_t> index,
                                   const std::string& method) const {
  const std::string who = index ? fmt::format(" of instance {}", *index) : std::string();
  f.call = fmt::format("{}{} at edge \"{}\"", method, who, edge_);
  return f;
}

task<std::string> role_group_core::call(std::optional<std::uint32_t> index,
                                        std::string method, std::string argument,
                                        role_call_options how) {
  if (method.empty() || method.size() > longest_method)
    throw std::invalid_argument(
        fmt::format("a method's name has 1 to {} bytes, and {} "
                    "has not",
                    longest_method, in_quotes(method)));
  const time_point until = later(now_here(), how.within);
  const std::string head = bytes_of({++next_id_, method, self_});
  for (int tried = 1;; ++tried) {
    failure lost;
    try {
      std::string result = co_await attempt(index, head, argument, until - now_here());
      co_return result;
    } catch (const world_error& e) {
      lost = described(e.failure(), index, method);
    }
    // A call that was closed without a world was never sent: the runtime stops.
    const bool was_sent = lost.cause == cause::closed && !lost.world.view().empty();
    if (!lost.breaks_world() && !was_sent) throw world_error(lost);
    if (!how.may_repeat) throw unknown_outcome(lost);
    if (tried >= options_.tries || now_here() >= until) throw world_error(lost);
  }
}

task<role_group::outcome> role_group_core::outcome_of(instance_id member,
                                                      std::string method,
                                                      std::string argument,
                                                      role_call_options how) {
  role_group::outcome own;
  own.from = member;
  try {
    std::string result =
        co_await call(member.index, std::move(method), std::move(argument), how);
    own.result = std::move(result);
  } catch (const world_error& e) {
    own.why = e.failure();
  }
  co_return own;
}

// --- several calls --------------------------------------------------------------------

task<std::vector<std::string>> role_group_core::call_all(std::string method,
                                                         std::vector<part> parts,
                                                         role_call_options how) {
  std::vector<std::string> results(parts.size());
  std::size_t next = 0;
  const auto some = [&]() -> task<void> {
    while (next < parts.size()) {
      const std::size_t n = next++;
      std::string result =
          co_await call(parts[n].index, method, std::move(parts[n].argument), how);
      results[n] = std::move(result);
    }
  };
  const auto body = [&](scope& s) -> task<void> {
    const std::size_t at_once = std::min(parts.size(), options_.at_once);
    for (std::size_t n = 0; n < at_once; ++n) s.spawn(some());
    co_return;
  };
  co_await scope::run(body);
  co_return results;
}

}  // namespace detail

using detail::role_group_core;

role_group::role_group() : role_group(options()) {}
role_group::role_group(options how) : core_(std::make_unique<role_group_core>(how)) {}
role_group::~role_group() = default;

task<std::string> role_group::any(std::string method, std::string argument,
                                  role_call_options how) {
  return core_->call({}, std::move(method), std::move(argument), how);
}

task<std::string> role_group::at(std::uint32_t index, std::string method,
                                 std::string argument, role_call_options how) {
  return core_->call(index, std::move(method), std::move(argument), how);
}

task<std::vector<std::string>> role_group::all(std::string method, std::string argument,
                                               role_call_options how) {
  const time_point until = later(detail::now_here(), how.within);
  const std::vector<instance_id> there = co_await core_->enough_members(how.within);
  std::vector<role_group_core::part> parts;
  for (const instance_id& each : there) parts.push_back({each.index, argument});
  how.within = until - detail::now_here();
  auto results = co_await core_->call_all(std::move(method), std::move(parts), how);
  co_return results;
}

task<std::vector<role_group::outcome>> role_group::outcomes(std::string method,
                                                            std::string argument,
                                                            role_call_options how) {
  const time_point until = later(detail::now_here(), how.within);
  const std::vector<instance_id> there = co_await core_->enough_members(how.within);
  how.within = until - detail::now_here();
  std::vector<role_group::outcome> all(there.size());
  const auto one = [&](std::size_t n) -> task<void> {
    role_group::outcome own = co_await core_->outcome_of(there[n], method, argument, how);
    all[n] = std::move(own);
  };
  const auto body = [&](scope& s) -> task<void> {
    for (std::size_t n = 0; n < there.size(); ++n) s.spawn(one(n));
    co_return;
  };
  co_await scope::run(body);
  co_return all;
}

task<std::vector<std::string>> role_group::scatter(std::string method,
                                                   std::vector<std::string> arguments,
                                                   role_call_options how) {
  std::vector<role_group_core::part> parts;
  for (std::string& each : arguments)
    parts.push_back({static_cast<std::uint32_t>(parts.size()), std::move(each)});
  return core_->call_all(std::move(method), std::move(parts), how);
}

task<std::vector<std::string>> role_group::batch(std::string method,
                                                 std::vector<std::string> arguments,
                                                 role_call_options how) {
  std::vector<role_group_core::part> parts;
  for (std::string& each : arguments) parts.push_back({{}, std::move(each)});
  return core_->call_all(std::move(method), std::move(parts), how);
}

std::vector<instance_id> role_group::members() const { return core_->members(); }

task<void> role_group::reach(world& w, instance_id peer) {
  return core_->reach(w, std::move(peer));
}

}  // namespace manyworlds::inline v0
