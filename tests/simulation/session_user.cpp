#include "simulation/session_user.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <stop_token>
#include <utility>

namespace manyworlds_tests {

namespace {

template <class Call>
auto limited(Call call, const session_op& op, mw::duration limit,
             const std::stop_token& token) {
  if (op.is_limited && token.stop_possible()) return std::move(call).stop(token);
  if (op.is_limited) return std::move(call).within(limit);
  return call;
}

}  // namespace

// --- choices
// ----------------------------------------------------------------------------

std::vector<int> session_user::any_workers() {
  std::vector<int> all(s_.size());
  std::iota(all.begin(), all.end(), 0);
  if (one_in(3)) return all;
  for (std::size_t at = all.size(); at > 1; --at) std::swap(all[at - 1], all[below(at)]);
  all.resize(1 + below(all.size()));
  return all;
}

session_user::held_value* session_user::any_held() {
  return held_.empty() ? nullptr : &held_[below(held_.size())];
}

session_op& session_user::add(const std::vector<int>& workers, bool is_alone) {
  session_op& op = ledger_.add(workers, is_alone);
  doing_ = fmt::format("op {} on {}", op.number, fmt::join(workers, ","));
  return op;
}

session_op& session_user::add(const held_value& taken) {
  session_op& op = add(taken.workers);
  op.takes_from = taken.made_by;
  return op;
}

void session_user::may_fail(session_op& op, std::size_t once_in) {
  if (one_in(once_in)) op.thrower = any_of(op.workers);
  if (one_in(once_in)) op.is_limited = true;
}

void session_user::keep(mw::dref<kept_value> ref, const session_op& op,
                        std::uint64_t number) {
  std::vector<std::uint64_t> made_by(1, op.number);
  held_.push_back({std::move(ref), op.workers, number, std::move(made_by)});
}

void session_user::drop(const held_value& which) {
  held_.erase(held_.begin() + (&which - held_.data()));
}

// --- calls
// ------------------------------------------------------------------------------

mw::task<void> session_user::make() {
  session_op& op = add(any_workers());
  may_fail(op, 12);
  const mw::mesh on = s_.mesh(op.workers);
  const bool waits = one_in(2);
  try {
    mw::dref<kept_value> made;
    auto call = waits ? on.call(make_value, op.number, op.number, op.thrower)
                      : on.issue(make_value, op.number, op.number, op.thrower);
    made = co_await limited(std::move(call), op, mw::duration(below(400'000)), {});
    if (waits) ledger_.note_success(op);
    keep(std::move(made), op, op.number);
  } catch (const mw::call_error& e) {
    ledger_.note_failure(op, e);
  }
}

/// What it is made of is often dropped at once, before it was taken.
mw::task<void> session_user::make_next() {
  held_value* const from = any_held();
  if (from == nullptr) co_return;
  session_op& op = add(*from);
  may_fail(op, 12);
  const mw::mesh on = s_.mesh(op.workers);
  held_value given = std::move(*from);
  drop(*from);
  const bool is_kept = one_in(2);
  try {
    mw::dref<kept_value> made;
    auto call = on.issue(next_value, given.ref, op.number, given.number, op.thrower);
    made = co_await limited(std::move(call), op, mw::duration(below(400'000)), {});
    keep(std::move(made), op, op.number);
  } catch (const mw::call_error& e) {
    ledger_.note_failure(op, e);
  }
  if (is_kept) held_.push_back(std::move(given));
}

/// On one worker, as after a respawn: with the same content, by another call.
mw::task<void> session_user::make_there_again() {
  held_value* const there = any_held();
  if (there == nullptr) co_return;
  std::vector<int> one(1, any_of(there->workers));
  session_op& op = add(one);
  if (one_in(6)) op.thrower = one[0];
  held_value given = std::move(*there);
  drop(*there);
  try {
    co_await s_.call(make_value, op.number, given.number, op.thrower)
        .on(one[0])
        .into(given.ref);
    ledger_.note_success(op);
  } catch (const mw::call_error& e) {
    ledger_.note_failure(op, e);
  }
  given.made_by.push_back(op.number);
  held_.push_back(std::move(given));
}

mw::task<void> session_user::read() {
  held_value* const from = any_held();
  if (from == nullptr) co_return;
  session_op& op = add(*from);
  const mw::mesh on = s_.mesh(op.workers);
  const std::uint64_t expected = from->number;
  const bool asks_all = one_in(2);
  const int one = any_of(op.workers);
  std::vector<std::uint64_t> found;
  try {
    auto call = on.call(read_value, from->ref, op.number, expected);
    if (asks_all) {
      found = co_await std::move(call).all();
      ledger_.note_success(op);
    } else {
      const std::uint64_t value = co_await std::move(call).from(one);
      ledger_.note_success(op, one);
      found.push_back(value);
    }
  } catch (const mw::call_error& e) {
    ledger_.note_failure(op, e);
    co_return;
  }
  const std::size_t wanted = asks_all ? op.workers.size() : 1;
  if (found != std::vector<std::uint64_t>(wanted, expected))
    ledger_.complain(
        fmt::format("S-d: op {} read another value than {}", op.number, expected));
}

mw::task<void> session_user::change() {
  held_value* const there = any_held();
  if (there == nullptr) co_return;
  session_op& op = add(*there);
  const mw::mesh on = s_.mesh(op.workers);
  held_value given = std::move(*there);
  drop(*there);
  try {
    co_await on.call(change_value, given.ref, op.number, given.number);
    ledger_.note_success(op);
    given.number = op.number;
    held_.push_back(std::move(given));
  } catch (const mw::call_error& e) {
    // Some workers may have it: it is dropped.
    ledger_.note_failure(op, e);
  }
}

mw::task<void> session_user::together() {
  session_op& op = add(any_workers(), false);
  may_fail(op, 5);
  const mw::mesh on = s_.mesh(op.workers);
  together_plan plan;
  plan.steps = static_cast<std::int32_t>(1 + below(4));
  plan.thrower = op.thrower;
  plan.throws_at = static_cast<std::int32_t>(below(static_cast<std::size_t>(plan.steps)));
  plan.ways = static_cast<std::uint32_t>(below(256));
  if (one_in(2)) plan.pause = static_cast<std::int32_t>(below(2'000));
  const mw::duration limit = mw::duration(below(3'000'000));
  std::stop_source stop;
  const bool stops = op.is_limited && one_in(2);
  if (stops) all_.sim.after(limit, [stop]() mutable { stop.request_stop(); });
  const std::stop_token token = stops ? stop.get_token() : std::stop_token();
  const int one = any_of(op.workers);
  std::vector<std::uint64_t> found;
  const std::size_t how = below(4);
  try {
    if (how == 0) {
      // An error is told later.
      mw::dref<std::uint64_t> made;
      auto call = on.issue(do_together, op.number, plan);
      made = co_await limited(std::move(call), op, limit, token);
    } else if (how == 1) {
      auto call = on.call(do_together, op.number, plan).from(one);
      const std::uint64_t value = co_await limited(std::move(call), op, limit, token);
      ledger_.note_success(op, one);
      if (value != given_together(op.number, one))
        ledger_.complain(fmt::format("S-d: op {} is answered by another", op.number));
    } else {
      auto call = on.call(do_together, op.number, plan).all();
      found = co_await limited(std::move(call), op, limit, token);
      ledger_.note_success(op);
      for (std::size_t rank = 0; rank < found.size(); ++rank) {
        if (found[rank] == given_together(op.number, op.workers[rank])) continue;
        ledger_.complain(fmt::format("S-d: op {} is answered by another", op.number));
      }
    }
  } catch (const mw::call_error& e) {
    ledger_.note_failure(op, e);
  }
}

mw::task<void> session_user::wait() {
  session_op& op = add(any_workers());
  may_fail(op, 3);
  const mw::mesh on = s_.mesh(op.workers);
  const int time = static_cast<int>(below(20));
  const bool waits = one_in(2);
  try {
    auto call = waits ? on.call(wait_alone, op.number, time, op.thrower)
                      : on.issue(wait_alone, op.number, time, op.thrower);
    co_await limited(std::move(call), op, mw::duration(below(10'000'000)), {});
    if (waits) ledger_.note_success(op);
  } catch (const mw::call_error& e) {
    ledger_.note_failure(op, e);
  }
}

/// Its task is cancelled, and hears no more of it.
mw::task<void> session_user::wait_and_go_away() {
  const bool is_alone = one_in(2);
  session_op& op = add(any_workers(), is_alone);
  const mw::mesh on = s_.mesh(op.workers);
  auto waiting = [&]() -> mw::task<void> {
    if (is_alone) {
      co_await on.call(wait_alone, op.number, 20, -1);
    } else {
      const together_plan plan{.steps = 4, .pause = 2'000};
      mw::dref<std::uint64_t> made;
      made = co_await on.call(do_together, op.number, plan);
    }
  };
  op.was_cancelled = true;
  try {
    co_await mw::within(waiting(), mw::duration(below(10'000'000)));
    op.was_cancelled = false;
    ledger_.note_success(op);
  } catch (const mw::timed_out&) {
    // As it was meant.
  } catch (const mw::call_error& e) {
    op.was_cancelled = false;
    ledger_.note_failure(op, e);
  }
}

/// Law 4: what it refers to is the caller's again when it has ended.
mw::task<void> session_user::send_much() {
  session_op& op = add(any_workers());
  op.is_limited = one_in(4);
  const mw::mesh on = s_.mesh(op.workers);
  const auto count = static_cast<std::int64_t>(1 + below(20'000));
  mw::tensor given = mw::tensor::zeros(count, mw::dtype::uint64);
  for (std::uint64_t& each : given.as<std::uint64_t>()) each = op.number;
  const std::uint64_t wanted = op.number * static_cast<std::uint64_t>(count);
  const int one = any_of(op.workers);
  try {
    auto call = on.call(sum_of, op.number, given).from(one);
    const std::uint64_t sum =
        co_await limited(std::move(call), op, mw::duration(below(2'000'000)), {});
    ledger_.note_success(op, one);
    if (sum != wanted)
      ledger_.complain(
          fmt::format("S-d: op {} adds up {} to {}", op.number, wanted, sum));
  } catch (const mw::call_error& e) {
    ledger_.note_failure(op, e);
  }
  for (std::uint64_t& each : given.as<std::uint64_t>()) each = ~std::uint64_t{0};
}

/// Describes a call, drops what that takes, makes another value, and makes the call then.
mw::task<void> session_user::use_dropped() {
  held_value* const from = any_held();
  if (from == nullptr) co_return;
  session_op& op = add(*from);
  const mw::mesh on = s_.mesh(op.workers);
  auto call = on.call(read_value, from->ref, op.number, from->number);
  drop(*from);
  session_op& other = add(op.workers);
  try {
    mw::dref<kept_value> made;
    made = co_await on.issue(make_value, other.number, other.number, -1);
    keep(std::move(made), other, other.number);
  } catch (const mw::call_error& e) {
    ledger_.note_failure(other, e);
  }
  try {
    (void)co_await std::move(call);
    ledger_.complain(fmt::format("S-d: op {} takes what was dropped", op.number));
  } catch (const mw::call_error& e) {
    op.has_failed = true;
    const bool was_hurt = ledger_.were_hurt_since(op.workers, op.issued);
    if (e.cause() != mw::cause::register_lost && !was_hurt)
      ledger_.complain(fmt::format("S-d: op {} takes what was dropped, and is told: {}",
                                   op.number, e.what()));
  }
}

mw::task<void> session_user::await_held() {
  held_value* const from = any_held();
  if (from == nullptr) co_return;
  held_value given = std::move(*from);
  drop(*from);
  doing_ = fmt::format("await of what {} made", given.number);
  const mw::time_point begun = ledger_.now();
  try {
    co_await given.ref;
    held_.push_back(std::move(given));
  } catch (const mw::call_error& e) {
    ledger_.note_late_failure(given.workers, begun, e);
  }
}

mw::task<void> session_user::sync() {
  const std::vector<int> workers = any_workers();
  const mw::mesh on = s_.mesh(workers);
  doing_ = fmt::format("sync of {}", fmt::join(workers, ","));
  const mw::time_point begun = ledger_.now();
  try {
    co_await on.sync();
  } catch (const mw::call_error& e) {
    ledger_.note_late_failure(workers, begun, e);
  }
}

mw::task<void> session_user::one_call() {
  switch (below(16)) {
    case 0:
    case 1:
      return make();
    case 2:
    case 3:
      return make_next();
    case 4:
      return read();
    case 5:
      return change();
    case 6:
    case 7:
    case 8:
    case 9:
      return together();
    case 10:
      return wait();
    case 11:
      return wait_and_go_away();
    case 12:
      return send_much();
    case 13:
      return one_in(2) ? use_dropped() : await_held();
    case 14:
      return make_there_again();
    default:
      return sync();
  }
}

mw::task<void> session_user::use(std::size_t calls) {
  for (std::size_t i = 0; i < calls; ++i) {
    co_await one_call();
    if (held_.size() > 6) drop(held_.front());
    for (std::size_t worker = 0; worker < s_.size(); ++worker) {
      const bool is_lost =
          s_.describe(static_cast<int>(worker)).state == mw::worker_state::lost;
      if (one_in(is_lost ? 3 : 400)) (void)co_await respawn(static_cast<int>(worker));
    }
    if (one_in(3)) co_await mw::sleep_for(mw::duration(below(3'000'000)));
  }
  held_.clear();
  doing_ = "nothing";
}

// --- all of it
// --------------------------------------------------------------------------

mw::task<bool> session_user::respawn(int worker) {
  ledger_.note_hurt(worker);
  doing_ = fmt::format("respawn of worker {}", worker);
  bool is_there = true;
  try {
    co_await s_.respawn(worker);
  } catch (const mw::call_error& e) {
    is_there = false;
    // Of what is made again: the worker is there, or was hurt anew.
    if (!ledger_.were_hurt_since(std::vector<int>(1, worker), ledger_.now()) ||
        e.cause() == mw::cause::handler_failed)
      ledger_.complain(
          fmt::format("worker {} makes nothing again: {}", worker, e.what()));
  } catch (const mw::world_error&) {
    is_there = false;
  }
  ledger_.note_hurt(worker);
  co_return is_there;
}

mw::task<bool> session_user::hear_all() {
  for (int tries = 0; tries < 1'000; ++tries) {
    const mw::time_point begun = ledger_.now();
    doing_ = "sync of all";
    try {
      co_await s_.sync();
      co_return true;
    } catch (const mw::call_error& e) {
      ledger_.note_late_failure(s_.workers(), begun, e);
      if (e.function().empty() && e.call() != 0) co_return false;
    }
  }
  co_return false;
}

mw::task<bool> session_user::all_take_part() {
  session_op& op = add(s_.workers(), false);
  const together_plan plan{.steps = 4, .ways = 0b11'10'01'00};
  std::vector<std::uint64_t> found;
  try {
    found = co_await s_.call(do_together, op.number, plan).all();
  } catch (const mw::call_error& e) {
    ledger_.note_failure(op, e);
    co_return false;
  }
  ledger_.note_success(op);
  co_return true;
}

mw::task<bool> session_user::make_replayable() {
  // So that the later ones have the lower indices.
  mw::dref<kept_value> unused[3];
  std::vector<session_op*> ops;
  for (int i = 0; i < 6; ++i) ops.push_back(&add(s_.workers()));
  try {
    for (std::size_t i = 0; i < 3; ++i) {
      unused[i] = co_await s_.call(make_value, ops[i]->number, ops[i]->number, -1);
    }
    for (mw::dref<kept_value>& each : unused) each = {};
    mw::dref<kept_value> made;
    made = co_await s_.call(make_value, ops[3]->number, ops[3]->number, -1).replayable();
    keep(std::move(made), *ops[3], ops[3]->number);
    for (std::size_t i = 4; i < 6; ++i) {
      const held_value& from = held_.back();
      made = co_await s_.call(next_value, from.ref, ops[i]->number, from.number, -1)
                 .replayable();
      keep(std::move(made), *ops[i], ops[i]->number);
    }
  } catch (const mw::call_error&) {
    held_.clear();
    co_return false;
  }
  co_return true;
}

mw::task<void> session_user::check_replayable() {
  for (const held_value& each : held_) {
    session_op& op = add(each.workers);
    try {
      (void)co_await s_.call(read_value, each.ref, op.number, each.number).all();
      ledger_.note_success(op);
    } catch (const mw::call_error& e) {
      ledger_.complain(
          fmt::format("what is replayable is not there again: {}", e.what()));
    }
  }
}

}  // namespace manyworlds_tests
