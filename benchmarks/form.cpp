#include <fmt/format.h>

#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

struct span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// One member's side: it tells the other when it began and when all its worlds were up.
class former {
 public:
  former(mw::runtime& rt, mw::store& st, mw::rank_t rank)
      : runtime_(rt), store_(st), rank_(rank), control_(describe("control")) {}

  mw::task<void> begin() { co_await control_; }
  mw::task<void> end() { co_await control_.leave(); }

  /// Milliseconds from the later beginning to the later end of both members.
  mw::task<double> once(std::string prefix, int count) {
    std::vector<mw::world> worlds;
    for (int i = 0; i < count; ++i) {
      worlds.push_back(describe(fmt::format("{}/{}", prefix, i)));
    }
    co_await control_.barrier();
    span mine{now_ns(), 0};
    co_await form_all(worlds);
    mine.end = now_ns();
    co_await control_.send_message(mine, mw::to{1 - rank_});
    const auto theirs = co_await control_.recv_message<span>(mw::from{1 - rank_});
    co_await leave_all(worlds);
    const auto took =
        std::max(mine.end, theirs.head.end) - std::max(mine.begin, theirs.head.begin);
    co_return static_cast<double>(took) / 1e6;
  }

  mw::task<samples> repeat(std::string prefix, int count, int times) {
    samples took;
    for (int i = 0; i < times; ++i) {
      took.add(co_await once(fmt::format("{}/{}", prefix, i), count));
    }
    co_return took;
  }

 private:
  [[nodiscard]] mw::world describe(std::string_view name) {
    return mw::world(runtime_, store_, {.name = name, .rank = rank_, .size = 2});
  }

  mw::runtime& runtime_;
  mw::store& store_;
  const mw::rank_t rank_;
  mw::world control_;
};

struct both {
  samples one;
  samples many;
};

mw::task<both> take_part(mw::runtime& rt, mw::store& st, mw::rank_t rank,
                         form_options o) {
  former f(rt, st, rank);
  co_await f.begin();
  // The first forming of a process pays for page faults that later ones do not have.
  co_await f.once("warm", 1);
  samples one = co_await f.repeat("one", 1, o.repeat);
  samples many;
  if (o.worlds > 1) many = co_await f.repeat("many", o.worlds, std::max(1, o.repeat / 4));
  co_await f.end();
  co_return both{std::move(one), std::move(many)};
}

void print(report& out, std::string_view store, int worlds, const samples& took) {
  if (took.empty()) return;
  out.row({
      {"bench", "form"},
      {"transport", out.transport()},
      {"store", store},
      {"worlds", worlds},
      {"repeats", took.count()},
      {"form_ms", took.median()},
      {"form_p99_ms", took.p99()},
  });
}

void print(report& out, std::string_view store, const form_options& o, const both& took) {
  print(out, store, 1, took.one);
  print(out, store, o.worlds, took.many);
}

}  // namespace

void form(const common_options& common, const form_options& options) {
  report out(common.json, common.transport());
  {
    member m(common);
    if (!common.leads()) {
      m.runtime().run(take_part(m.runtime(), m.store(), 1, options));
      return;
    }
    out.machine(m.engine());
    const child peer = m.start();
    out.progress("forming through a store over tcp");
    const both took = m.runtime().run(take_part(m.runtime(), m.store(), 0, options));
    print(out, "tcp", options, took);
  }
  // Two members in one process, through memory: the rest of the cost when the store
  // costs nothing.
  mw::memory_store store;
  mw::runtime here(runtime_options_of(common));
  mw::runtime there(runtime_options_of(common));
  auto other = there.start(take_part(there, store, 1, options));
  out.progress("forming through a store in memory");
  const both took = here.run(take_part(here, store, 0, options));
  other.get();
  print(out, "memory", options, took);
}

}  // namespace mwbench
