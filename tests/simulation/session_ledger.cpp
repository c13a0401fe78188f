#include "simulation/session_ledger.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

namespace manyworlds_tests {

namespace {

/// The longest way from the end of a worker's trouble to what is told of it: silence, and
/// what its parent takes to notice its end.
constexpr mw::duration aftermath = 3s;

}  // namespace

// --- what is asked for
// ------------------------------------------------------------------

session_op& session_ledger::add(std::vector<int> workers, bool is_alone) {
  const std::uint64_t number = ops_.size() + 1;
  session_op& op = ops_[number];
  op.number = number;
  op.workers = std::move(workers);
  op.is_alone = is_alone;
  op.issued = all_.sim.now();
  return op;
}

bool session_ledger::were_hurt_since(const std::vector<int>& workers,
                                     mw::time_point when) const {
  return std::ranges::any_of(workers, [&](int worker) {
    const auto& last = hurt_[static_cast<std::size_t>(worker)];
    if (!last) return false;
    return *last + aftermath >= when ||
           (session_ != nullptr &&
            session_->describe(worker).state != mw::worker_state::ready);
  });
}

// --- what workers do
// --------------------------------------------------------------------

void session_ledger::begin(const mw::worker& me, session_op& op) {
  const worker_place here(me.id(), me.incarnation());
  const auto name = [&] {
    return fmt::format("call {} (op {}) at worker {}.{}", me.call(), op.number,
                       here.first, here.second);
  };
  if (running_[here] != 0)
    complain(fmt::format("S-a: {} begins inside op {}", name(), running_[here]));
  running_[here] = op.number;
  if (me.call() <= last_call_[here])
    complain(fmt::format("S-a: {} begins behind call {}", name(), last_call_[here]));
  last_call_[here] = me.call();
  if (!op.begun.insert(here).second)
    complain(fmt::format("S-b: {} has begun before", name()));
  if (std::ranges::count(op.workers, me.id()) == 0)
    complain(fmt::format("S-b: {} was not asked for there", name()));
  if (op.call == 0) op.call = me.call();
}

void session_ledger::end(const mw::worker& me) {
  running_[{me.id(), me.incarnation()}] = 0;
}

int session_ledger::all_values() const {
  int all = 0;
  for (const auto& [where, count] : values_) all += count;
  return all;
}

void kept_value::check(const mw::worker& me, std::uint64_t expected) const {
  if (number_ == expected && where_ == worker_place(me.id(), me.incarnation())) return;
  ledger_->complain(
      fmt::format("S-d: call {} at worker {}.{} took the value {} of worker {}.{}, and "
                  "asked for {}",
                  me.call(), me.id(), me.incarnation(), number_, where_.first,
                  where_.second, expected));
}

namespace {

/// One function while it runs.
class session_body {
 public:
  session_body(session_ledger& ledger, const mw::worker& me, std::uint64_t number)
      : ledger_(ledger), me_(me), op_(ledger.at(number)) {
    ledger_.begin(me_, op_);
  }
  session_body(const session_body&) = delete;
  session_body& operator=(const session_body&) = delete;
  ~session_body() { ledger_.end(me_); }

  void fail_if(bool must) {
    if (!must) return;
    op_.has_thrown = true;
    throw std::runtime_error(fmt::format("op {} was asked to fail", op_.number));
  }
  void complete() { op_.completed.insert(me_.id()); }

 private:
  session_ledger& ledger_;
  const mw::worker& me_;
  session_op& op_;
};

enum class together_way : std::uint32_t { reduction, ring, from_first, barrier };

/// Each member says in which call it is: the others must be in the same one.
mw::task<bool> take_step(mw::worker& me, together_way way) {
  mw::world& w = me.world();
  const std::uint64_t call = me.call();
  std::uint64_t theirs = call;
  switch (way) {
    case together_way::reduction: {
      std::array<std::uint64_t, 2> both;
      both[0] = call;
      both[1] = ~call;
      co_await w.all_reduce(both, mw::max);
      co_return both[0] == call&& both[1] == ~call;
    }
    case together_way::ring: {
      if (w.size() == 1) break;
      const mw::to next((me.rank() + 1) % me.size());
      const mw::from before((me.rank() + me.size() - 1) % me.size());
      co_await mw::when_all(w.send(mw::object(call), next),
                            w.recv(mw::object(theirs), before));
      break;
    }
    case together_way::from_first:
      // It does not wait for the others, and may end long before them.
      if (me.rank() == 0) {
        for (mw::rank_t other = 1; other < me.size(); ++other)
          co_await w.send(mw::object(call), mw::to(other));
      } else {
        co_await w.recv(mw::object(theirs), mw::from(0));
      }
      break;
    case together_way::barrier:
      co_await w.barrier();
      break;
  }
  co_return theirs == call;
}

mw::task<std::uint64_t> run_together(session_ledger& ledger, mw::worker& me,
                                     std::uint64_t op, together_plan plan) {
  session_body here(ledger, me, op);
  ledger.watch(me.world());
  for (int step = 0; step < plan.steps; ++step) {
    here.fail_if(me.id() == plan.thrower && step == plan.throws_at);
    if (plan.pause > 0) {
      co_await mw::sleep_for(
          std::chrono::microseconds(plan.pause * ((me.rank() + step) % 3)));
    }
    const auto way = static_cast<together_way>(plan.ways >> (2 * step) & 3);
    const bool is_same = co_await take_step(me, way);
    if (!is_same)
      ledger.complain(
          fmt::format("S-d: call {} met another one in its mesh's world", me.call()));
  }
  here.complete();
  co_return given_together(op, me.id());
}

}  // namespace

mw::function_table session_functions(session_ledger& ledger) {
  return {
      {make_value,
       [&ledger](const mw::worker& me, std::uint64_t op, std::uint64_t number,
                 int thrower) {
         session_body here(ledger, me, op);
         here.fail_if(me.id() == thrower);
         here.complete();
         return kept_value(ledger, me, number);
       }},
      {next_value,
       [&ledger](const mw::worker& me, const kept_value& from, std::uint64_t op,
                 std::uint64_t expected, int thrower) {
         session_body here(ledger, me, op);
         from.check(me, expected);
         here.fail_if(me.id() == thrower);
         here.complete();
         return kept_value(ledger, me, op);
       }},
      {change_value,
       [&ledger](const mw::worker& me, kept_value& value, std::uint64_t op,
                 std::uint64_t expected) {
         session_body here(ledger, me, op);
         value.check(me, expected);
         value.change(op);
         here.complete();
       }},
      {read_value,
       [&ledger](const mw::worker& me, const kept_value& value, std::uint64_t op,
                 std::uint64_t expected) {
         session_body here(ledger, me, op);
         value.check(me, expected);
         here.complete();
         return value.number();
       }},
      {wait_alone,
       [&ledger](const mw::worker& me, std::uint64_t op, int time,
                 int thrower) -> mw::task<void> {
         session_body here(ledger, me, op);
         co_await mw::sleep_for(std::chrono::milliseconds(time));
         here.fail_if(me.id() == thrower);
         here.complete();
       }},
      {sum_of,
       [&ledger](const mw::worker& me, std::uint64_t op, const mw::tensor& given) {
         session_body here(ledger, me, op);
         std::uint64_t sum = 0;
         for (const std::uint64_t each : given.as<std::uint64_t>()) sum += each;
         here.complete();
         return sum;
       }},
      {do_together,
       [&ledger](mw::worker& me, std::uint64_t op, together_plan plan) {
         return run_together(ledger, me, op, plan);
       }},
  };
}

// --- what callers are told
// --------------------------------------------------------------

void session_ledger::note_success(const session_op& op, int at) {
  ++successes_;
  for (const int worker : op.workers) {
    if ((at >= 0 && worker != at) || op.completed.contains(worker)) continue;
    complain(fmt::format("S-b: op {} (call {}) ended well, and not on worker {}",
                         op.number, op.call, worker));
  }
}

void session_ledger::note_failure(session_op& op, const mw::call_error& e) {
  note_told(op, e);
}

void session_ledger::note_told(session_op& op, const mw::call_error& e) {
  op.has_failed = true;
  if (++op.told > 1)
    complain(fmt::format("S-c: op {} is told again: {}", op.number, e.what()));
  if (!has_reason(op, e.cause()))
    complain(fmt::format("S-e: op {} (on {}) fails without a reason: {}", op.number,
                         fmt::join(op.workers, ","), e.what()));
}

void session_ledger::note_late_failure(const std::vector<int>& workers,
                                       mw::time_point since, const mw::call_error& e) {
  if (e.function().empty()) {
    // Its own, or of a register that was told before.
    if (e.cause() != mw::cause::register_lost && !were_hurt_since(workers, since))
      complain(fmt::format("S-e: a sync fails without a reason: {}", e.what()));
    return;
  }
  if (!told_late_.insert(e.call()).second)
    complain(fmt::format("S-c: call {} is told again: {}", e.call(), e.what()));
  if (session_op* const op = find_call(e.call())) note_told(*op, e);
}

session_op* session_ledger::find_call(std::uint64_t call) {
  const auto at =
      std::ranges::find_if(ops_, [&](auto& each) { return each.second.call == call; });
  return at == ops_.end() ? nullptr : &at->second;
}

bool session_ledger::has_reason(const session_op& op, mw::cause why) const {
  switch (why) {
    case mw::cause::handler_failed:
      return op.has_thrown;
    case mw::cause::timed_out:
    case mw::cause::cancelled:
      return op.is_limited;
    case mw::cause::register_lost:
      return lacks_argument(op);
    default:
      // A mesh's world that breaks between two calls is formed again behind the next one.
      return were_hurt_since(op.workers, op.is_alone ? op.issued : mw::time_point()) ||
             shared_a_failure(op);
  }
}

bool session_ledger::lacks_argument(const session_op& op) const {
  return std::ranges::any_of(op.takes_from, [&](std::uint64_t number) {
    const session_op& maker = ops_.at(number);
    // One that was given up may have failed, and was not told of it.
    return maker.has_failed || maker.has_thrown || maker.is_limited ||
           maker.was_cancelled || lacks_argument(maker) ||
           were_hurt_since(op.workers, maker.issued);
  });
}

/// Another call of its mesh has taken the world with it in which this one was: one before
/// it that was left in different places, or one behind it that some workers were in.
bool session_ledger::shared_a_failure(const session_op& op) const {
  return std::ranges::any_of(ops_, [&](const auto& each) {
    const session_op& other = each.second;
    const bool has_failed =
        other.has_failed || other.has_thrown || other.is_limited || other.was_cancelled;
    return has_failed && !other.is_alone && other.number != op.number &&
           other.workers == op.workers;
  });
}

void session_ledger::check_everything() {
  for (const auto& [number, op] : ops_) {
    if (op.has_thrown && op.told == 0 && !op.was_cancelled)
      complain(fmt::format("S-c: op {} (call {}) has failed, and that was not told",
                           number, op.call));
  }
}

}  // namespace manyworlds_tests
