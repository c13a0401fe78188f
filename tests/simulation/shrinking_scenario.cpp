#include "simulation/shrinking_scenario.hpp"

#include <fmt/format.h>

#include <set>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/world/outcome.hpp"

namespace manyworlds_tests {

namespace {

// About what the shrinking takes without trouble.
constexpr std::size_t steps_of_shrinking = 250;
constexpr mw::duration silence = 2s;
constexpr mw::duration form = 8s;
constexpr mw::duration time_of_shrinking = 100ms;

}  // namespace

void shrinking_scenario::note_formed(std::size_t self, const mw::world& w) {
  place& p = places_[self];
  const auto known = ids_.emplace(w.epoch(), w.view().id).first;
  if (known->second != w.view().id)
    all_.story.complain(fmt::format("law 6: two worlds are epoch {}", w.epoch()));
  if (w.epoch() <= p.epoch)
    all_.story.complain(fmt::format("law 6: p{} has seen epoch {}", self, w.epoch()));
  p.epoch = w.epoch();
  p.id = w.view().id;
  all_.watch(w);
}

void shrinking_scenario::check_successor(const mw::world& before,
                                         const mw::world& after) {
  mw::rank_t last = mw::no_rank;
  for (mw::rank_t r = 0; r < after.size(); ++r) {
    const mw::rank_t was = after.previous_rank_of(r);
    if (was <= last || was >= before.size() ||
        before.view().member(was).id != after.view().member(r).id) {
      all_.story.complain("shrink: ranks are not those of before, in order");
    }
    last = was;
  }
}

mw::task<mw::world> shrinking_scenario::shrunk_in_time(mw::world& from,
                                                       mw::duration limit) {
  try {
    co_return co_await mw::within(from.shrink(), limit);
  } catch (const mw::timed_out&) {
    // That it can be called again is what is looked at.
  } catch (const mw::world_error&) {
    // Said again then.
  }
  co_return mw::world();
}

// Until it succeeds, or never again can.
mw::task<mw::world> shrinking_scenario::shrunk(std::size_t self, mw::world& from) {
  if (kind_ == trouble::give_up && self == second_) {
    const mw::duration limit = all_.sim.random().at_most(time_of_shrinking);
    mw::world early = co_await shrunk_in_time(from, limit);
    if (early) {
      check_successor(from, early);
      co_return std::move(early);
    }
  }
  while (!over_) {
    auto r = co_await mw::outcome(from.shrink());
    if (r) {
      check_successor(from, *r);
      co_return std::move(*r);
    }
    if (places_[self].is_over) break;
    if (r.error().cause == mw::cause::expelled) {
      places_[self].is_expelled = true;
      break;
    }
    if (r.error().cause != mw::cause::not_joined && !over_)
      all_.story.complain("shrink: failed of itself: " + r.error().text());
  }
  co_return mw::world();
}

mw::task<void> shrinking_scenario::survive(std::size_t self) {
  member_process& m = all_.at(self);
  mw::world_options options;
  options.name = "survivors";
  options.rank = static_cast<mw::rank_t>(self);
  options.size = static_cast<mw::rank_t>(size_);
  options.form = form;
  options.suspect_after = silence / 2;
  options.broken_after = silence;
  mw::world w(m.runtime(), *m.rendezvous, options);
  struct forgotten {
    explicit forgotten(member_process& who) : m(who) {}
    ~forgotten() { m.worlds.clear(); }
    member_process& m;
  } with_the_handle(m);
  const auto formed = co_await mw::outcome(w);
  if (!formed) co_return all_.story.complain("formation: " + formed.error().text());
  while (w) {
    note_formed(self, w);
    m.worlds["survivors"] = &w;
    // A member that is up can be spoken to.
    const auto passed = co_await mw::outcome(w.barrier());
    if (!passed && w.state() == mw::world_state::up)
      all_.story.complain("law 2: a barrier failed alone: " + passed.error().text());
    (void)co_await w.broken();
    m.worlds.clear();
    places_[self].id = 0;
    const bool is_absent = kind_ == trouble::absent || kind_ == trouble::late;
    if (is_absent && self == second_) {
      co_await w.drained();
      while (!over_) co_await mw::sleep_for(100ms);
      co_return;
    }
    w = co_await shrunk(self, w);
  }
}

void shrinking_scenario::set_apart(std::optional<std::size_t> bridge) {
  for (std::size_t a = 0; a < size_; a += 2) {
    for (std::size_t b = 1; b < size_; b += 2) {
      if (a != bridge && b != bridge) all_.partition(all_.at(a), all_.at(b), 9s);
    }
  }
}

void shrinking_scenario::at_the_step() {
  member_process& one = all_.at(second_);
  switch (kind_) {
    case trouble::kill:
      return all_.kill(one);
    case trouble::stop:
      return all_.stop(one, all_.sim.random().at_most(6s));
    case trouble::cut:
      return all_.cut(one, all_.at((second_ + 1) % size_));
    case trouble::bridge:
      set_apart(second_);
      return all_.cut(one, all_.at((second_ + 1) % size_));
    case trouble::late:
      return all_.cut(all_.at(third_), all_.at(fourth_));
    case trouble::leave:
      places_[second_].is_over = true;
      return one.runtime().stop();
    default:
      return;
  }
}

void shrinking_scenario::wait_for_the_step() {
  all_.sim.at_step(all_.sim.steps() + 1 + chosen(4, steps_of_shrinking),
                   [this] { at_the_step(); });
}

void shrinking_scenario::begin_trouble() {
  switch (kind_) {
    case trouble::hang:
      return all_.stop(all_.at(second_), 4s + all_.sim.random().at_most(4s));
    case trouble::apart:
      return set_apart({});
    case trouble::fail:
      return all_.fail_world("survivors");
    case trouble::late:
      all_.kill(all_.at(first_));
      return all_.sim.after(form / 2, [this] { wait_for_the_step(); });
    default:
      all_.kill(all_.at(first_));
      wait_for_the_step();
  }
}

void shrinking_scenario::check_the_end() {
  std::set<std::uint64_t> worlds;
  std::size_t alive = 0;
  std::size_t up = 0;
  for (std::size_t i = 0; i < size_; ++i) {
    const place& p = places_[i];
    if (!all_.at(i).is_alive()) continue;
    if (p.is_expelled || p.is_over) continue;
    if (kind_ == trouble::late && i == second_) continue;
    ++alive;
    if (p.id == 0) continue;
    ++up;
    worlds.insert(p.id);
  }
  if (worlds.size() > 1) all_.story.complain("shrink: the survivors are split");
  const bool all_go_on = kind_ == trouble::kill || kind_ == trouble::cut ||
                         kind_ == trouble::fail || kind_ == trouble::give_up ||
                         kind_ == trouble::late || kind_ == trouble::leave;
  for (const place& p : places_) {
    if (all_go_on && p.is_expelled)
      all_.story.complain("shrink: a member is expelled that was always well");
  }
  if (all_go_on && up != alive) {
    all_.story.complain(fmt::format("law 9: {} live, {} of them are in it", alive, up));
  }
  // The absent one may be as many as the rest.
  if (kind_ != trouble::absent && alive > 0 && up == 0)
    all_.story.complain("law 9: no member goes on");
}

seed_report shrinking_scenario::run() {
  // What needs the right step comes more often.
  constexpr trouble mix[] = {
      trouble::kill,   trouble::stop,    trouble::cut,  trouble::hang, trouble::cut,
      trouble::apart,  trouble::absent,  trouble::kill, trouble::fail, trouble::cut,
      trouble::bridge, trouble::give_up, trouble::late, trouble::leave};
  kind_ = mix[seed_ % std::size(mix)];
  // Without the dead and the absent one two must be left, and outweigh the latter.
  size_ = kind_ == trouble::late ? 4 + chosen(0, 2) : 2 + chosen(0, 4);
  first_ = chosen(1, size_);
  second_ = (first_ + 1 + chosen(2, size_ - 1)) % size_;
  if (kind_ == trouble::late) {
    third_ = after_both(first_);
    fourth_ = after_both(third_);
  }
  places_.resize(size_);
  for (std::size_t i = 0; i < size_; ++i) {
    const bool is_alone = where_ == placement::apart || i == 0;
    is_alone ? all_.add(fmt::format("p{}", i))
             : all_.add(fmt::format("p{}", i), all_.at(0));
    all_.at(i).start(survive(i));
  }
  const auto all_up = [this] {
    return std::all_of(places_.begin(), places_.end(),
                       [](const place& p) { return p.id != 0; });
  };
  if (!all_.run_until(all_up, 1s)) all_.story.complain("formation: not up in time");
  all_.empty_store();
  begin_trouble();
  all_.run_for(15s);
  // Once more, of what is left.
  const std::size_t last = chosen(3, size_);
  if (chosen(5, 2) == 0) all_.kill(all_.at(last));
  all_.run_for(15s);
  check_the_end();
  over_ = true;
  return finished(all_);
}

seed_report run_shrinking_seed(std::uint64_t seed, std::size_t lines, placement where) {
  shrinking_scenario scenario(seed, lines, where);
  return scenario.run();
}

}  // namespace manyworlds_tests
