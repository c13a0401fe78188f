#include "soak/member.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/serve/keep.hpp"
#include "simulation/conversation.hpp"
#include "simulation/registration.hpp"
#include "soak/ensemble.hpp"
#include "support/entries.hpp"
#include "support/eventually.hpp"

namespace manyworlds_tests::soak {

namespace {

using manyworlds::testing::entries;
using manyworlds::testing::open_descriptors;

/// What they are, for a complaint.
std::string descriptors_text() {
  std::string all;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(each.path(), gone);
    if (!gone) all += " " + target.string();
  }
  return all;
}

std::size_t threads() { return entries("/proc/self/task"); }

mw::runtime_options options_of(const planned_runtime& p) {
  mw::runtime_options o;
  if (p.epoll) o.engine = mw::engine_kind::epoll;
  o.shared_memory = p.shared_memory;
  o.read_peers = p.read_peers;
  // What breaks by plan is no news.
  o.log_from = mw::log_level::error;
  return o;
}

// So that their number says whether something is left.
mw::tcp_store_options one_connection() {
  mw::tcp_store_options o;
  o.idle_connections = 1;
  return o;
}

}  // namespace

member::member(const member_settings& s, record_writer& story)
    : settings_(s),
      plan_(plan_of(s.of)),
      story_(story),
      random_(mixed(s.of.seed ^ mixed(s.slot << 16 | s.life))),
      memory_([] { return mw::time_point(std::chrono::steady_clock::now()); },
              [this](std::string what) { story_.complain(std::move(what)); }),
      site_{story,
            memory_,
            random_,
            [] { return mw::time_point(std::chrono::steady_clock::now()); },
            static_cast<std::size_t>(::getpid()),
            [](std::int64_t pid) { return static_cast<std::size_t>(pid); }},
      runtime_(options_of(plan_.runtimes.at(s.slot))),
      store_(runtime_, s.store, one_connection()) {}

void member::run() { runtime_.run(attend_all()); }

mw::task<void> member::attend_all() {
  co_await store_.set("here", "");
  const std::size_t descriptors = open_descriptors();
  auto worlds = [this](mw::scope& s) -> mw::task<void> {
    for (const planned_world& p : plan_.worlds) {
      for (std::size_t r = 0; r < p.talk.members.size(); ++r) {
        if (p.talk.members[r] == settings_.slot)
          s.spawn(attend(p, static_cast<mw::rank_t>(r)));
      }
    }
    co_return;
  };
  auto everything = [&](mw::scope& s) -> mw::task<void> {
    s.spawn(watch());
    s.spawn(tell_if_late());
    for (const planned_fault& f : plan_.faults) {
      if (f.what == deed::fail && f.slot == settings_.slot) s.spawn(fail_when_planned(f));
    }
    co_await mw::scope::run(worlds);
    s.cancel();
  };
  co_await mw::scope::run(everything);
  co_await nothing_is_left(descriptors);
}

// Links are kept for a while after their last world.
mw::task<void> member::nothing_is_left(std::size_t descriptors) {
  const mw::time_point limit = site_.now() + 15s;
  while (open_descriptors() > descriptors && site_.now() < limit) {
    co_await mw::sleep_for(50ms);
  }
  const std::size_t left = open_descriptors();
  if (left <= descriptors) co_return;
  story_.complain(
      fmt::format("law 6: slot {} has {} descriptors after all worlds were "
                  "left, and had {} before:{}",
                  settings_.slot, left, descriptors, descriptors_text()));
}

mw::task<void> member::watch() {
  for (;;) {
    co_await mw::sleep_for(500ms);
    memory_.look();
  }
}

mw::task<void> member::tell_if_late() {
  co_await mw::sleep_until(at(plan_.quiet) + 25s);
  std::fputs(
      fmt::format("slot {} is late:\n{}\n", settings_.slot, runtime_.dump()).c_str(),
      stderr);
}

mw::task<void> member::fail_when_planned(const planned_fault& f) {
  if (at(f.at) < site_.now()) co_return;
  co_await mw::sleep_until(at(f.at));
  const auto found = worlds_.find(f.world);
  if (found == worlds_.end()) co_return;
  story_.failing(f.world);
  found->second->fail("the plan wants it so");
}

// --- one world -------------------------------------------------------------------------

mw::task<void> member::attend(const planned_world& p, mw::rank_t rank) {
  mw::world_options options;
  options.name = mw::world_name(p.talk.name);
  options.rank = rank;
  options.size = static_cast<mw::rank_t>(p.talk.members.size());
  options.form = 12s;
  options.collective_break = 20s;
  while (!is_over()) {
    if (p.how == repair::kept) {
      co_await keep(p, options);
    } else {
      co_await mend(p, options);
    }
  }
}

mw::task<void> member::keep(const planned_world& p, mw::world_options options) {
  auto body = [this, &p](mw::world& w) -> mw::task<void> { co_await talk(p, w); };
  const auto kept =
      co_await mw::outcome(mw::keep(runtime_, store_, options, std::move(body)));
  if (!kept) story_.complain("law 1: keep threw: " + kept.error().text());
}

mw::task<void> member::mend(const planned_world& p, mw::world_options options) {
  mw::world w(runtime_, store_, options);
  while (!is_over()) {
    const mw::failure f = co_await live(p, w);
    if (is_over() && !f) co_return;
    co_await mw::sleep_for(random_.at_most(200ms));
    mw::world next = co_await mended(p, w, f);
    w = next ? std::move(next) : mw::world(runtime_, store_, options);
  }
}

mw::task<mw::failure> member::live(const planned_world& p, mw::world& w) {
  const auto formed = co_await mw::outcome(w);
  if (!formed) co_return formed.error();
  const auto talked = co_await mw::outcome(talk(p, w));
  if (w.state() == mw::world_state::up) (void)co_await mw::outcome(w.leave());
  co_return talked.error();
}

mw::task<mw::world> member::mended(const planned_world& p, mw::world& w,
                                   const mw::failure& f) {
  // Who was never in it has nothing to mend.
  if (w.epoch() == 0) co_return mw::world();
  const auto full = static_cast<mw::rank_t>(p.talk.members.size());
  if (f && p.how == repair::shrunk && w.size() == full) {
    auto shrunk = co_await mw::outcome(w.shrink());
    if (shrunk) co_return std::move(*shrunk);
    co_return mw::world();
  }
  auto again = p.how == repair::shrunk ? w.grow() : w.reform();
  auto next = co_await mw::outcome(std::move(again));
  if (next) co_return std::move(*next);
  co_return mw::world();
}

// A shrunk world soon makes room for the full one.
mw::time_point member::end_of(const planned_world& p, const mw::world& w) const {
  const mw::time_point now = site_.now();
  mw::time_point end = at(p.ends.back());
  for (const mw::duration each : p.ends) {
    if (at(each) < now + 1s) continue;
    end = at(each);
    break;
  }
  if (static_cast<std::size_t>(w.size()) == p.talk.members.size()) return end;
  return std::min(end, now + 2s);
}

mw::task<void> member::talk(const planned_world& p, mw::world& w) {
  world_plan mine = p.talk;
  mine.members.resize(static_cast<std::size_t>(w.size()));
  conversation c(site_, mine, w);
  ensemble together(site_, w);
  mine.quiet = end_of(p, w);
  co_await together.agree_on(mine.quiet);
  mine.calm = mine.quiet;
  const registration found(worlds_, mine.name, w);
  co_await c.hold(together.perform(mine.quiet));
}

// --- the process -----------------------------------------------------------------------

int run_member(const member_settings& s) {
  record_writer story(s.records);
  const std::size_t descriptors = open_descriptors();
  const std::size_t before = threads();
  {
    member m(s, story);
    m.run();
  }
  const bool is_clean = manyworlds::testing::eventually(
      [&] { return open_descriptors() <= descriptors && threads() <= before; }, 5s);
  if (!is_clean) {
    story.complain(
        fmt::format("law 6: slot {} ended with {} descriptors and {} threads, and began "
                    "with {} and {}",
                    s.slot, open_descriptors(), threads(), descriptors, before));
  }
  story.ended();
  return 0;
}

}  // namespace manyworlds_tests::soak
