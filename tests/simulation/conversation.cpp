#include "simulation/conversation.hpp"

#include <fmt/format.h>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/world/outcome.hpp"
#include "world/world_core.hpp"

namespace manyworlds_tests {

conversation::conversation(const talk_site& site, const world_plan& plan, mw::world& w)
    : site_(site),
      plan_(plan),
      world_(w),
      instance_(mw::access::core(w).instance()),
      epoch_(w.epoch()),
      formed_(site.now()) {
  world_entry e;
  e.process = site.process;
  e.instance = instance_;
  e.name = plan.name;
  e.epoch = epoch_;
  e.id = w.view().id;
  e.rank = w.rank();
  for (const auto& m : w.view().members) {
    e.members.push_back(site.process_of(m.identity.pid));
  }
  e.formed = formed_;
  site_.story.formed(std::move(e));
}

bool conversation::is_over() const { return world_.state() == mw::world_state::broken; }

// --- choices ---------------------------------------------------------------------------

mw::duration conversation::pause() {
  const mw::duration chosen =
      random().at_most(now() < plan_.calm ? plan_.pause : 20 * plan_.pause);
  return std::clamp<mw::duration>(plan_.quiet - now(), 1ms, chosen + 1ms);
}

std::size_t conversation::any_size() {
  const std::uint64_t kind = random().below(24);
  if (kind == 0) return static_cast<std::size_t>(random().below(600'000));
  if (kind < 4) return static_cast<std::size_t>(random().below(120'000));
  if (kind < 6) return 64 * 1024 - 8 + static_cast<std::size_t>(random().below(16));
  if (kind == 6) return 0;
  return static_cast<std::size_t>(random().below(3000));
}

conversation::patience conversation::any_patience() {
  patience p;
  const std::uint64_t kind = random().below(16);
  if (kind >= 5) return p;
  const mw::duration span =
      random().one_in(4) ? mw::duration(0)
                         : random().at_most(random().one_in(2) ? mw::duration(300us)
                                                               : mw::duration(30ms));
  if (kind < 2) p.limit = span;
  if (kind == 2) p.stop_after = span;
  if (kind > 2) p.cancel_after = span;
  return p;
}

message_key conversation::key(mw::rank_t source, mw::rank_t target,
                              std::uint64_t lane) const {
  return {plan_.name, epoch_, world_.view().id, source, target, lane};
}

op_entry conversation::entry(mw::operation_kind kind, mw::rank_t peer, std::uint64_t lane,
                             const patience& p) const {
  op_entry e;
  e.process = site_.process;
  e.instance = instance_;
  e.kind = kind;
  e.peer = peer;
  e.lane = lane;
  e.limit = p.limit;
  e.may_be_given_up = p.stop_after.has_value();
  e.started = now();
  return e;
}

conversation::step conversation::judged(op_watch& watch, const mw::failure& f) {
  if (!f) {
    watch.done();
    return step::done;
  }
  watch.failed(f);
  const bool over = f.breaks_world() || f.cause == mw::cause::closed ||
                    f.cause == mw::cause::invalid_argument;
  return over ? step::over : step::again;
}

mw::task<conversation::step> conversation::patiently(mw::task<step> attempt, patience p) {
  if (!p.cancel_after) co_return co_await std::move(attempt);
  step how = step::again;
  try {
    how = co_await mw::within(std::move(attempt), *p.cancel_after);
  } catch (const mw::timed_out&) {
    how = step::again;
  }
  co_return is_over() ? step::over : how;
}

// --- sending ---------------------------------------------------------------------------

mw::task<conversation::step> conversation::send_one(mw::rank_t peer, lane_style style,
                                                    message_word word, std::size_t size,
                                                    patience p) {
  const auto lane = static_cast<std::uint64_t>(style);
  const message_key to = key(world_.rank(), peer, lane);
  const std::uint64_t tag = tag_of(to, word.number);
  watched_buffer buffer(site_.memory, size, "sent");
  fill_pattern(buffer.bytes(), tag);
  op_entry e = entry(mw::operation_kind::send, peer, lane, p);
  e.number = word.number;
  e.delivered = random().one_in(4);
  const bool delivered = e.delivered;
  op_watch watch(site_.story, std::move(e), clock());
  site_.story.sent(to, watch.number());

  mw::gather_list data;
  std::vector<mw::const_buffer_view> pieces;
  if (size > 8 && random().one_in(3)) {
    const std::span<const std::byte> bytes = buffer.bytes();
    const std::size_t middle = static_cast<std::size_t>(random().below(size));
    const std::size_t first = static_cast<std::size_t>(random().below(middle + 1));
    pieces.emplace_back(bytes.first(first));
    pieces.emplace_back(bytes.subspan(first, middle - first));
    pieces.emplace_back(bytes.subspan(middle));
    data = mw::gather_list(pieces);
  } else {
    data = mw::gather_list(buffer.bytes());
  }
  const head announced{tag, size};
  auto op =
      style == lane_style::headed
          ? world_.send_message(announced, std::move(data), mw::to{peer}, mw::lane{lane},
                                word.packed())
          : world_.send(std::move(data), mw::to{peer}, mw::lane{lane}, word.packed());
  if (delivered) op = std::move(op).delivered();
  op = modified(std::move(op), p);
  const auto r = co_await mw::outcome(std::move(op));
  co_return judged(watch, r.error());
}

mw::task<void> conversation::send_all(mw::rank_t peer, lane_style style) {
  const bool alike = style == lane_style::paired || style == lane_style::any;
  message_word word{epoch_, 0, false};
  while (!word.last) {
    // Now and then as fast as the window allows.
    const bool hurries = style == lane_style::paired && !random().one_in(4);
    if (!hurries) co_await mw::sleep_for(pause());
    word.last = now() >= plan_.quiet;
    ++word.number;
    const patience p = word.last ? patience{} : any_patience();
    const std::size_t size = alike ? plan_.like_size : any_size();
    if (style == lane_style::paired) {
      const message_word first = word;
      ++word.number;
      // Both of a pair come, or the receiver cannot know how many to wait for.
      const auto [a, b] =
          co_await mw::when_all(send_one(peer, style, first, size, patience{}),
                                send_one(peer, style, word, small_size, patience{}));
      if (a == step::over || b == step::over) co_return;
      continue;
    }
    if (co_await patiently(send_one(peer, style, word, size, p), p) == step::over) {
      co_return;
    }
  }
}

mw::task<void> conversation::take_part() {
  for (std::uint64_t i = 1; i <= plan_.collectives; ++i) {
    co_await mw::sleep_for(random().at_most(2s));
    op_entry e = entry(mw::operation_kind::barrier, mw::no_rank, 0, {});
    e.number = i;
    {
      op_watch watch(site_.story, std::move(e), clock());
      const auto r = co_await mw::outcome(world_.barrier());
      if (judged(watch, r.error()) == step::over) co_return;
    }
    if (!co_await reduce_with_all(i)) co_return;
  }
}

// Some small enough to go at once, some of several parts; each element tells the number
// and, in its sum, that all ranks are in it once.
mw::task<bool> conversation::reduce_with_all(std::uint64_t number) {
  std::vector<std::uint64_t> values(number % 2 == 1 ? 3 : 20'000);
  const auto size = static_cast<std::uint64_t>(world_.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = number * 1'000'000 + i + (std::uint64_t{1} << (40 + world_.rank()));
  }
  op_entry e = entry(mw::operation_kind::all_reduce, mw::no_rank, 0, {});
  e.number = number;
  op_watch watch(site_.story, std::move(e), clock());
  const auto r = co_await mw::outcome(world_.all_reduce(values, mw::sum));
  if (judged(watch, r.error()) == step::over) co_return false;
  for (std::size_t i = 0; i < values.size() && r; ++i) {
    const std::uint64_t all_ranks = ((std::uint64_t{1} << size) - 1) << 40;
    if (values[i] == (number * 1'000'000 + i) * size + all_ranks) continue;
    site_.story.complain("law 1: an all_reduce that succeeded has a wrong sum");
    break;
  }
  co_return true;
}

}  // namespace manyworlds_tests
