#include "mpmd/role_group_core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <utility>

#include "duration_text.hpp"
#include "io/current_reactor.hpp"
#include "io/reactor.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"
#include "mpmd/call_head.hpp"
#include "mpmd/spoken_text.hpp"
#include "world/runtime_core.hpp"
#include "world/world_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr duration between_looks_at_members = std::chrono::milliseconds(5);

// An instance is slow from this time on, and from this multiple of the others' time.
constexpr duration least_slow_time = std::chrono::seconds(1);
constexpr int least_slow_multiple = 3;

/// Calls that a batch makes at once, as long as each instance has one: at most half of
/// those that may wait, so that others find room.
constexpr std::size_t most_calls_at_once = 512;

/// Slow instances that a warning names; a role may have thousands.
constexpr std::size_t most_slow_names = 8;

dispatch_options dispatch_once(const role_group::options& options) {
  dispatch_options how;
  how.tries = 1;
  how.ask_again = 0;
  how.in_flight_per_worker = options.at_once;
  how.patience = options.patience;
  return how;
}

/// Ids of several instances, and of one that was started again, do not meet.
std::uint64_t drawn_id() {
  std::random_device draw;
  return (std::uint64_t{draw()} << 32U) | draw();
}

time_point time_on_reactor() {
  reactor* const home = current_reactor();
  if (home == nullptr) throw std::logic_error("a role group is asked by tasks");
  return home->now();
}

void check_method(const std::string& method) {
  if (method.empty() || method.size() > longest_method)
    throw std::invalid_argument(
        fmt::format("a method's name has 1 to {} bytes, and {} "
                    "has not",
                    longest_method, in_quotes(method)));
}

/// Gives each member a part of the calls: the first ones have one more.
std::vector<instance_part> even_parts(std::size_t calls,
                                      const std::vector<instance_id>& members) {
  std::vector<instance_part> all;
  std::size_t next = 0;
  for (std::size_t n = 0; n < members.size(); ++n) {
    const bool has_one_more = n < calls % members.size();
    std::size_t count = calls / members.size() + (has_one_more ? 1 : 0);
    if (count == 0) break;
    instance_part& part = all.emplace_back();
    part.whom = members[n];
    while (count-- > 0) part.calls.push_back(next++);
  }
  return all;
}

bool has_ended(const instance_part& part) noexcept {
  return part.running == 0 && part.begun == part.calls.size();
}

}  // namespace

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
  least_ = least;
}

task<void> role_group_core::reach(world& w, instance_id peer) {
  runtime_ = access::core(w).runtime_ptr();
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

task<std::vector<instance_id>> role_group_core::enough_members(
    const group_question& asked, std::size_t least) {
  const auto wait = [this, least]() -> task<void> {
    // That an instance takes calls is known from its first word, of which none is told.
    while (members().size() < least) co_await sleep_for(between_looks_at_members);
  };
  try {
    co_await within(wait(), asked.how.within);
  } catch (const timed_out&) {
    // What is missing is said below.
  }
  std::vector<instance_id> all = members();
  if (all.size() < least) {
    failure f(cause::timed_out,
              fmt::format("{} of {} instances were there in time", all.size(), least));
    throw world_error(described(std::move(f), one_call(), asked.method));
  }
  co_return all;
}

// --- one call -------------------------------------------------------------------------

std::optional<std::size_t> role_group_core::choose(
    one_call& which, std::span<const worker_status> workers) const {
  if (!which.index) {
    const std::optional<std::size_t> least = least_depth()(workers);
    if (!least) return std::nullopt;
    const auto at = peers_.find(workers[*least].world.view());
    if (at != peers_.end()) which.chosen = at->second.index;
    return least;
  }
  for (std::size_t n = 0; n < workers.size(); ++n) {
    const auto at = peers_.find(workers[n].world.view());
    if (at != peers_.end() && at->second.index == *which.index) return n;
  }
  return std::nullopt;
}

task<std::string> role_group_core::attempt(one_call& which, const std::string& head,
                                           const std::string& argument, duration limit) {
  const auto pick = [this, &which](std::span<const worker_status> workers) {
    return choose(which, workers);
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

failure role_group_core::described(failure f, const one_call& which,
                                   const std::string& method) const {
  const std::optional<std::uint32_t> index = which.index ? which.index : which.chosen;
  const std::string who = index ? fmt::format(" of instance {}", *index) : std::string();
  f.operation = operation_kind::call;
  f.call = fmt::format("{}{} at edge \"{}\"", method, who, edge_);
  return f;
}

task<std::string> role_group_core::call(const group_question& asked, one_call& which) {
  const bool have_all_one = asked.whom == asked_ones::all;
  const std::string& argument = asked.arguments.at(have_all_one ? 0 : which.number);
  const time_point until = later(time_on_reactor(), asked.how.within);
  call_head parts;
  parts.id = ++next_id_;
  parts.method = asked.method;
  parts.from = self_;
  parts.form = asked.has_values ? call_form::values : call_form::bytes;
  const std::string head = bytes_of(parts);
  for (int tried = 1;; ++tried) {
    failure lost;
    try {
      std::string result =
          co_await attempt(which, head, argument, until - time_on_reactor());
      co_return result;
    } catch (const world_error& e) {
      lost = described(e.failure(), which, asked.method);
    }
    // A call that was closed without a world was never sent: the runtime stops.
    const bool was_sent = lost.cause == cause::closed && !lost.world.view().empty();
    if (!lost.breaks_world() && !was_sent) throw world_error(lost);
    if (!asked.how.may_repeat) throw unknown_outcome(lost);
    if (tried >= options_.tries || time_on_reactor() >= until) throw world_error(lost);
  }
}

task<void> role_group_core::take_call(const group_question& asked,
                                      const result_taker& take, one_call which) {
  const std::string result = co_await call(asked, which);
  try {
    take(which.number, result);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    // A type of the user's may throw anything.
    failure f(cause::invalid_argument, fmt::format("the result: {}", e.what()));
    throw world_error(described(std::move(f), which, asked.method));
  }
}

task<void> role_group_core::ask_one(group_question asked, result_taker take) {
  check_method(asked.method);
  one_call which;
  which.index = asked.index;
  co_await take_call(asked, take, which);
}

// --- several calls --------------------------------------------------------------------

std::vector<instance_part> role_group_core::parts_by_index(std::size_t count) const {
  const std::string role = peers_.empty() ? "instance" : peers_.begin()->second.role;
  std::vector<instance_part> all(count);
  for (std::size_t n = 0; n < count; ++n) {
    all[n].whom = {role, static_cast<std::uint32_t>(n)};
    all[n].calls = {n};
  }
  return all;
}

task<std::vector<instance_part>> role_group_core::parts_of(const group_question& asked) {
  const std::size_t arguments = asked.arguments.size();
  if (asked.whom == asked_ones::by_index) co_return parts_by_index(arguments);
  if (arguments == 0) co_return std::vector<instance_part>();
  if (asked.whom == asked_ones::all) {
    const std::vector<instance_id> members = co_await enough_members(asked, least_);
    co_return even_parts(members.size(), members);
  }
  const std::size_t least = std::max<std::size_t>(1, least_);
  const std::vector<instance_id> members = co_await enough_members(asked, least);
  co_return even_parts(arguments, members);
}

task<void> role_group_core::make_calls(joint_call& all, instance_part& own,
                                       bool ends_by_first_error) {
  while (own.begun < own.calls.size()) {
    one_call which;
    which.index = own.whom.index;
    which.number = own.calls[own.begun++];
    try {
      co_await take_call(all.asked, all.take, which);
    } catch (const world_error& e) {
      if (ends_by_first_error) throw;
      all.endings[which.number].why = e.failure();
    }
  }
  if (--own.running > 0) co_return;
  ++all.ended;
  all.last_end = time_on_reactor() - all.began;
  all.changed.set();
}

task<std::vector<call_ending>> role_group_core::ask_several(group_question asked,
                                                            result_taker take,
                                                            bool ends_by_first_error) {
  check_method(asked.method);
  joint_call all(std::move(asked), std::move(take));
  const time_point until = later(time_on_reactor(), all.asked.how.within);
  all.parts = co_await parts_of(all.asked);
  all.began = time_on_reactor();
  all.asked.how.within = until - all.began;
  for (const instance_part& part : all.parts) {
    for (const std::size_t number : part.calls) {
      if (all.endings.size() <= number) all.endings.resize(number + 1);
      all.endings[number].from = part.whom;
    }
  }
  const auto body = [&](scope& s) -> task<void> {
    if (all.parts.empty()) co_return;
    const std::size_t share =
        std::max<std::size_t>(1, most_calls_at_once / all.parts.size());
    for (instance_part& part : all.parts) {
      part.running = std::min({part.calls.size(), options_.at_once, share});
      for (std::size_t n = part.running; n > 0; --n)
        s.spawn(make_calls(all, part, ends_by_first_error));
    }
    if (all.parts.size() > 1) s.spawn(name_slow_ones(all));
    co_return;
  };
  co_await scope::run(body);
  co_return std::move(all.endings);
}

// --- slow ones ------------------------------------------------------------------------

task<void> role_group_core::name_slow_ones(joint_call& all) {
  const auto change = [&all]() -> task<void> { co_await all.changed; };
  while (all.ended < all.parts.size()) {
    all.changed.reset();
    if (2 * all.ended < all.parts.size()) {
      co_await all.changed;
      continue;
    }
    const duration limit = std::max(least_slow_time, least_slow_multiple * all.last_end);
    const duration lasted = time_on_reactor() - all.began;
    if (lasted >= limit) {
      tell_slow_ones(all, lasted);
      co_return;
    }
    try {
      co_await within(change(), limit - lasted);
    } catch (const timed_out&) {
      // Then the limit is over, unless one has ended in this turn.
    }
  }
}

void role_group_core::tell_slow_ones(const joint_call& all, duration lasted) const {
  const std::shared_ptr<const runtime_core> rt = runtime_.lock();
  if (!rt || !rt->logs(log_level::warning)) return;
  std::vector<std::string> names;
  for (const instance_part& part : all.parts)
    if (!has_ended(part)) names.push_back(part.whom.text());
  const std::size_t slow = names.size();
  names.resize(std::min(slow, most_slow_names));
  const std::string others =
      slow > names.size() ? fmt::format(" and {} others", slow - names.size()) : "";
  rt->log(log_level::warning,
          fmt::format("{} at edge \"{}\": {}{} {} not ended after {}; the other {} of {} "
                      "instances had after {}",
                      all.asked.method, edge_, fmt::join(names, ", "), others,
                      slow == 1 ? "has" : "have", duration_text(lasted), all.ended,
                      all.parts.size(), duration_text(all.last_end)));
}

}  // namespace manyworlds::inline v0::detail
