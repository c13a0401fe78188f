// The receiving part of a conversation.
#include <fmt/format.h>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/world/outcome.hpp"
#include "simulation/conversation.hpp"

namespace manyworlds_tests {

void conversation::check(const mw::message_info& info, std::span<const std::byte> bytes,
                         std::uint64_t lane, const head* announced) {
  const message_word word = message_word::unpacked(info.user);
  const message_key from = key(info.source, world_.rank(), lane);
  const std::string where =
      fmt::format("{}@{} rank {} from {} lane {} number {}", plan_.name, epoch_,
                  world_.rank(), info.source, lane, word.number);
  if (word.epoch != (epoch_ & 0xffffffff)) {
    site_.story.complain(
        fmt::format("law 6: a message of epoch {} in {}", word.epoch, where));
  }
  const std::uint64_t tag = tag_of(from, word.number);
  if (announced && announced->tag != tag) {
    site_.story.complain("law 5: another message's payload follows a head: " + where);
  }
  if (info.bytes != bytes.size() || info.on.number() != lane) {
    site_.story.complain("law 1: the size or lane told is wrong: " + where);
  }
  if (!has_pattern(bytes, tag)) {
    site_.story.complain("law 1: success with wrong data: " + where);
  }
  site_.story.received(from, word.number, bytes.size(), now());
}

mw::task<conversation::step> conversation::look(mw::rank_t peer, lane_style style,
                                                patience p, mw::message_info& next) {
  const auto lane = static_cast<std::uint64_t>(style);
  op_watch watch(site_.story, entry(mw::operation_kind::arrival, peer, lane, p), clock());
  auto op = modified(world_.arrival(mw::from{peer}, mw::lane{lane}), p);
  const auto r = co_await mw::outcome(std::move(op));
  if (r) next = *r;
  co_return judged(watch, r.error());
}

mw::task<conversation::step> conversation::take_head(mw::rank_t peer, patience p,
                                                     mw::message<head>& taken) {
  const auto lane = static_cast<std::uint64_t>(lane_style::headed);
  op_watch watch(site_.story, entry(mw::operation_kind::receive, peer, lane, p), clock());
  auto op = world_.recv_message<head>(mw::from{peer}, mw::lane{lane});
  if (p.limit) op = std::move(op).within(*p.limit);
  const auto r = co_await mw::outcome(std::move(op));
  if (r) taken = *r;
  co_return judged(watch, r.error());
}

mw::task<conversation::step> conversation::take(mw::rank_t peer, lane_style style,
                                                std::size_t size, patience p,
                                                const head* announced, message_word& came,
                                                mw::rank_t& from, mw::cause* why) {
  const auto lane = static_cast<std::uint64_t>(style);
  watched_buffer buffer(site_.memory, size, "received into");
  op_entry e = entry(mw::operation_kind::receive, peer, lane, p);
  e.may_disagree_in_size = style == lane_style::sized;
  op_watch watch(site_.story, std::move(e), clock());
  const mw::from source = peer == mw::no_rank ? mw::from(mw::any) : mw::from(peer);
  auto op = modified(world_.recv(buffer.bytes(), source, mw::lane{lane}), p);
  const auto r = co_await mw::outcome(std::move(op));
  if (r) {
    check(*r, buffer.bytes(), lane, announced);
    came = message_word::unpacked(r->user);
    from = r->source;
  }
  if (why) *why = r.error().cause;
  co_return judged(watch, r.error());
}

mw::task<conversation::step> conversation::receive_sized(mw::rank_t peer,
                                                         message_word& came) {
  mw::message_info next;
  const patience looking = any_patience();
  step how = co_await patiently(look(peer, lane_style::sized, looking, next), looking);
  if (how != step::done) co_return how;
  if (random().one_in(8)) co_await mw::sleep_for(random().at_most(5ms));
  const patience p = any_patience();
  mw::rank_t from = peer;
  const std::size_t size = random().one_in(16) ? next.bytes + 1 : next.bytes;
  came.last = false;
  // A value that wins the race with its cancellation comes back here all the same.
  how =
      co_await patiently(take(peer, lane_style::sized, size, p, nullptr, came, from), p);
  co_return how;
}

mw::task<conversation::step> conversation::receive_headed(mw::rank_t peer,
                                                          message_word& came) {
  mw::message<head> taken{};
  patience looking = any_patience();
  looking.stop_after.reset();
  step how = co_await patiently(take_head(peer, looking, taken), looking);
  if (how != step::done) co_return how;
  mw::rank_t from = peer;
  if (taken.info.bytes != taken.head.bytes) {
    site_.story.complain(fmt::format("law 1: a head tells of {} bytes, its message of {}",
                                     taken.head.bytes, taken.info.bytes));
  }
  if (!taken.info.has_payload) {
    site_.story.complain("law 1: data was given behind a head, and none is told of");
  }
  // What has no bytes may be received, or passed over.
  if (taken.info.bytes == 0 && random().one_in(2)) {
    check(taken.info, {}, static_cast<std::uint64_t>(lane_style::headed), &taken.head);
    came = message_word::unpacked(taken.info.user);
    co_return step::done;
  }
  // Once the head is taken the payload is owed: until it comes, or its sender gives it
  // up.
  for (;;) {
    const patience p = any_patience();
    mw::cause why = mw::cause::none;
    how = co_await patiently(take(peer, lane_style::headed, taken.head.bytes, p,
                                  &taken.head, came, from, &why),
                             p);
    if (how != step::again) co_return how;
    if (why == mw::cause::cancelled_by_peer) co_return step::again;
  }
}

mw::task<void> conversation::receive_pairs(mw::rank_t peer) {
  constexpr auto style = lane_style::paired;
  for (bool last = false; !last;) {
    message_word a;
    message_word b;
    mw::rank_t from = peer;
    const auto [first, second] =
        co_await mw::when_all(take(peer, style, plan_.like_size, {}, nullptr, a, from),
                              take(peer, style, small_size, {}, nullptr, b, from));
    if (first == step::over || second == step::over) co_return;
    if (b.number != a.number + 1) {
      site_.story.complain(
          fmt::format("law 5: two receives in order got {} and {}", a.number, b.number));
    }
    last = b.last;
    if (random().one_in(8)) co_await mw::sleep_for(random().at_most(plan_.pause));
  }
}

mw::task<void> conversation::receive_all(mw::rank_t peer, lane_style style) {
  if (style == lane_style::paired) co_return co_await receive_pairs(peer);
  message_word came;
  while (!came.last) {
    const step how = style == lane_style::sized ? co_await receive_sized(peer, came)
                                                : co_await receive_headed(peer, came);
    if (how == step::over) co_return;
    if (how == step::again) co_await mw::sleep_for(random().at_most(1ms));
  }
}

mw::task<void> conversation::receive_from_any() {
  std::size_t missing = plan_.members.size() - 1;
  while (missing > 0) {
    message_word came;
    mw::rank_t from = mw::no_rank;
    const patience p = any_patience();
    const step how = co_await patiently(
        take(mw::no_rank, lane_style::any, plan_.like_size, p, nullptr, came, from), p);
    if (how == step::over) co_return;
    if (came.last) --missing;
    if (how == step::again) co_await mw::sleep_for(random().at_most(1ms));
  }
}

}  // namespace manyworlds_tests
