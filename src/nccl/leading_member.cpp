#include "nccl/leading_member.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace manyworlds::inline v0::detail::nccl {

leading_member::leading_member(membership& of, order_mail& mail,
                               const member_turns& turns)
    : member_(of),
      mail_(mail),
      turns_(turns),
      leader_(of.size, static_cast<launch_leader::office&>(*this)) {}

leading_member::~leading_member() { member_.home.timers().disarm(timer_); }

void leading_member::hear(rank_t from, const pair_request& m) {
  leader_.place_pair(from, m, member_.home.now());
}

void leading_member::hear(rank_t from, const enter_message& m) {
  leader_.enter(from, m.number, m.terms, member_.home.now());
}

void leading_member::hear(rank_t from, const made_message&) {
  leader_.hear_made(from, member_.home.now());
}

void leading_member::hear(rank_t, const crowded_message&) { leader_.use_places(); }

void leading_member::hear(rank_t from, const promise_message& m) {
  leader_.hear_promise(from, m, member_.home.now());
}

void leading_member::open() { leader_.open(member_.home.now()); }

void leading_member::note_left(rank_t who) { leader_.leave(who, member_.home.now()); }

void leading_member::stop() noexcept {
  member_.home.timers().disarm(timer_);
  leader_.stop();
}

void leading_member::tell(rank_t whom, const order_message& message) {
  if (member_.is_over) return;
  if (std::holds_alternative<propose_message>(message)) call_at(leader_.due());
  mail_.decide(whom, message);
}

void leading_member::accuse(rank_t whom, enum cause why, std::string detail) {
  member_.break_world(whom, why, std::move(detail));
}

bool leading_member::is_credible(std::uint64_t time) const {
  return turns_.is_credible(time);
}

void leading_member::call_at(std::optional<time_point> due) noexcept {
  if (!due || (timer_.is_armed() && timer_.when() <= *due)) return;
  member_.home.timers().arm(timer_, *due);
}

void leading_member::timer_expired() noexcept {
  if (member_.is_over) return;
  member_.guarded([this] { leader_.tick(member_.home.now()); });
  if (!member_.is_over) call_at(leader_.due());
}

void leading_member::watch(time_point now) noexcept {
  watch_collectives(now);
  if (member_.is_over) return;
  const duration limit = member_.options.host.collective_break;
  if (const auto late = leader_.oldest_unplaced(now, limit)) {
    member_.break_world(
        late->silent, cause::stalled,
        fmt::format(
            "rank {} has not said for {} s when an operation can be launched",
            late->silent,
            std::chrono::duration_cast<std::chrono::seconds>(late->since).count()));
  }
}

void leading_member::watch_collectives(time_point now) noexcept {
  collective_table& table = leader_.collectives();
  const auto* late = table.oldest(now, member_.options.host.collective_log);
  if (!late) return;
  std::string absent;
  for (const rank_t r : late->absent) {
    absent += fmt::format("{}{}", absent.empty() ? "" : ", ", r);
  }
  const std::string text = fmt::format(
      "{}: absent after {} s: rank {}", late->terms.text(),
      std::chrono::duration_cast<std::chrono::seconds>(late->since).count(), absent);
  if (late->since >= member_.options.host.collective_break) {
    return member_.break_world(late->absent.empty() ? no_rank : late->absent.front(),
                               cause::overdue, text);
  }
  if (late->is_logged) return;
  table.set_logged();
  member_.events.log(log_level::warning, text);
}

}  // namespace manyworlds::inline v0::detail::nccl
