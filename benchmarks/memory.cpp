#include <fmt/format.h>

#include "costs.hpp"
#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

/// Memory of one process, by the stage of its worlds.
struct stages {
  memory_use formed;
  memory_use used;
  memory_use left;
};

class weighing {
 public:
  weighing(member& m, mw::rank_t rank, report& out)
      : member_(m), rank_(rank), out_(out), first_(m.describe("first", rank)) {}

  /// The first world pays for the link between the two; the cost of each other world is
  /// measured.
  mw::task<void> run(const memory_options& o) {
    before_ = memory_use::now();
    co_await first_;
    stages link;
    link.formed = co_await since_before();
    co_await use(first_);
    link.used = co_await since_before();
    co_await tell("first and link", 1, first_.transport() == "shm" ? 1 : 0, link);
    before_ = memory_use::now();
    for (const int count : o.worlds) co_await weigh(count);
    co_await first_.leave();
  }

 private:
  mw::task<memory_use> since_before() {
    co_await mw::sleep_for(settling);
    co_return memory_use::now() - before_;
  }

  /// Messages and collectives: the first ones of a world agree to go through pages, which
  /// a later one has.
  mw::task<void> use(mw::world& w) {
    constexpr int until_pages = 20;
    co_await exchange(w, 1 - rank_);
    for (int n = 0; n < until_pages; ++n) co_await w.barrier();
  }

  mw::task<void> weigh(int count) {
    if (rank_ == 0) out_.progress(fmt::format("{} worlds", count));
    std::vector<mw::world> worlds;
    for (int i = 0; i < count; ++i)
      worlds.push_back(member_.describe(fmt::format("of/{}/{}", count, i), rank_));
    stages found;
    co_await form_all(worlds);
    const std::size_t on_shm = on_shared_memory(worlds);
    found.formed = co_await since_before();
    for (mw::world& w : worlds) co_await use(w);
    found.used = co_await since_before();
    co_await leave_all(worlds);
    worlds.clear();
    found.left = co_await since_before();
    co_await tell("each more", count, on_shm, found);
  }

  mw::task<void> tell(std::string_view what, int count, std::size_t on_shm, stages own) {
    co_await first_.send_message(own, mw::to{1 - rank_});
    const auto theirs = co_await first_.recv_message<stages>(mw::from{1 - rank_});
    if (rank_ != 0) co_return;
    row(what, "0", count, on_shm, own);
    row(what, "1", count, on_shm, theirs.head);
  }

  void row(std::string_view what, std::string_view rank, int count, std::size_t on_shm,
           const stages& s) {
    out_.row({
        {"bench", "memory"},
        {"transport", out_.transport()},
        {"what", what},
        {"rank", rank},
        {"worlds", count},
        {"on_shm", on_shm},
        {"formed_own_kib", rounded(s.formed.own / count)},
        {"formed_shared_kib", rounded(s.formed.shared / count)},
        {"used_own_kib", rounded(s.used.own / count)},
        {"used_shared_kib", rounded(s.used.shared / count)},
        {"left_own_kib", rounded(s.left.own / count)},
        {"left_shared_kib", rounded(s.left.shared / count)},
    });
  }

  member& member_;
  const mw::rank_t rank_;
  report& out_;
  mw::world first_;
  memory_use before_;
};

}  // namespace

void memory(const common_options& common, const memory_options& options) {
  for (const int count : options.worlds) {
    if (!common.shared_memory)
      allow_open_files(static_cast<std::size_t>(count), common.leads());
  }
  member m(common);
  report out(common.json, common.transport());
  if (common.leads()) out.machine(m.engine());
  const std::vector<child> others = m.start_others(2);
  weighing both(m, common.leads() ? 0 : 1, out);
  m.runtime().run(both.run(options));
}

}  // namespace mwbench
