// What dumps and the log say of calls that last, in virtual time.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>

#include "manyworlds/mw.hpp"
#include "manyworlds/spmd.hpp"
#include "simulation/scenario.hpp"
#include "simulation/simulated_workers.hpp"
#include "simulation/world_cluster.hpp"
#include "spmd/mesh_name.hpp"
#include "spmd/received_command.hpp"
#include "spmd/session_core.hpp"

using namespace manyworlds_tests;

namespace {

constexpr mw::remote_function<void(int)> meet_late{"meet_late"};
constexpr mw::remote_function<void(int)> naps{"naps", mw::alone};

/// Worker 2 comes late to what all do together.
const mw::function_table& lasting_functions() {
  static const mw::function_table all{
      {meet_late,
       [](mw::worker& me, int seconds) -> mw::task<void> {
         if (me.id() == 2) co_await mw::sleep_for(std::chrono::seconds(seconds));
         std::vector<int> x{1};
         co_await me.world().all_reduce(x, mw::sum);
       }},
      {naps,
       [](int seconds) -> mw::task<void> {
         co_await mw::sleep_for(std::chrono::seconds(seconds));
       }},
  };
  return all;
}

std::size_t count_of(const std::string& words, const std::string& text) {
  std::size_t count = 0;
  for (auto at = text.find(words); at != text.npos; at = text.find(words, at + 1))
    ++count;
  return count;
}

/// A controller, and what its dumps and its log say.
struct watched_session {
  explicit watched_session(std::unique_ptr<mw::detail::worker_source> made = nullptr)
      : controller(all.add("controller")), source(std::move(made)) {
    all.lines_kept = 100'000;
    limits.suspect_after = 20s;
    limits.lost_after = 30s;
  }

  /// Runs `body(session&)` at the controller.
  template <class Body>
  void run(int workers, Body body) {
    if (!source) {
      source = std::make_unique<simulated_workers>(all, placement::apart,
                                                   lasting_functions(), limits);
    }
    bool is_over = false;
    controller.start(
        [](watched_session& self, int count, Body use, bool& over) -> mw::task<void> {
          mw::session s = co_await mw::detail::start_session(
              self.controller.runtime(), std::move(self.source), count, self.limits);
          co_await use(s);
          co_await s.close();
          // The handle is still there.
          CHECK(self.says("session ") == 0);
          over = true;
        }(*this, workers, std::move(body), is_over));
    CHECK(all.run_until([&] { return is_over; }, 120s));
    controller.check();
    const seed_report report = finished(all);
    for (const std::string& each : report.complaints) FAIL_CHECK(each);
  }

  [[nodiscard]] std::size_t says(const std::string& words) {
    return count_of(words, controller.runtime().dump());
  }
  [[nodiscard]] std::size_t logged(const std::string& words) const {
    return count_of(words, all.last_lines());
  }

  cluster all{7};
  member_process& controller;
  mw::session_options limits;
  std::unique_ptr<mw::detail::worker_source> source;
};

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE("a dump says which worker is in which call, and which wait for it in what") {
  watched_session at;
  at.run(4, [&at](mw::session& s) -> mw::task<void> {
    auto looking = [&]() -> mw::task<void> {
      co_await mw::sleep_for(3500ms);
      const std::string text = at.controller.runtime().dump();
      INFO(text);
      CHECK(count_of("4 workers, 1 calls open", text) == 1);
      CHECK(count_of("\n  worker 2 in meet_late (call 1) for 3.", text) == 1);
      CHECK(count_of("; workers 0, 1, 3 in meet_late (call 1) for 3.", text) == 1);
      CHECK(count_of(" s: all_reduce, waits for worker 2\n", text) == 1);
      CHECK(count_of("incarnation 1): ready; was sent ", text) == 4);
      const std::string json = at.controller.runtime().dump_json();
      CHECK(count_of("\"doing\":\"all_reduce, waits for worker 2\"", json) == 3);
    };
    co_await mw::when_all(s.call(meet_late, 9), looking());
    CHECK(at.says("4 workers, 0 calls open") == 1);
    CHECK(at.says("meet_late (call") == 0);
  });
}

TEST_CASE("a call without a limit is named in the log after 5 s, once") {
  watched_session at;
  at.run(3, [&at](mw::session& s) -> mw::task<void> {
    const std::string late =
        "has not ended after 5 s: worker 2 in meet_late (call 1) for";
    auto looking = [&]() -> mw::task<void> {
      co_await mw::sleep_for(4900ms);
      CHECK(at.logged("has not ended after") == 0);
      co_await mw::sleep_for(2s);
      CHECK(at.logged("call 1 of meet_late " + late) == 1);
      CHECK(at.logged(": all_reduce, waits for worker 2") == 1);
    };
    co_await mw::when_all(s.call(meet_late, 20), looking());
    CHECK(at.logged("has not ended after") == 1);
    // Each of these ends by itself: the first has a limit, the others are short, however
    // long they wait for each other.
    co_await s.call(naps, 15).within(30s);
    for (int i = 0; i < 10; ++i) (void)co_await s.issue(naps, 2);
    co_await s.sync();
    CHECK(at.logged("has not ended after") == 1);
  });
}

TEST_CASE("a worker that does not answer is said to be silent, and is asked once") {
  watched_session at;
  at.run(1, [&at](mw::session& s) -> mw::task<void> {
    const auto sent = [&at] {
      const std::string text = at.controller.runtime().dump();
      const auto from = text.find("lane 0 with rank 1: ");
      REQUIRE(from != text.npos);
      return text.substr(from, text.find(" sent", from) - from);
    };
    auto looking = [&]() -> mw::task<void> {
      co_await mw::sleep_for(3s);
      CHECK(at.says("worker 0 in naps (call 1) for 3") +
                at.says("worker 0 in naps (call 1) for 2.") ==
            1);
      at.all.stop(at.all.at(1), 4s);
      co_await mw::sleep_for(3s);
      const std::string before = sent();
      for (int i = 0; i < 50; ++i) {
        CHECK(at.says(", silent for ") == 1);
        co_await mw::sleep_for(5ms);
      }
      CHECK(sent() == before);
      co_await mw::sleep_for(3s);
      CHECK(at.says("worker 0 in naps (call 1) for 9") == 1);
      CHECK(at.says(", silent for ") == 0);
    };
    co_await mw::when_all(s.call(naps, 12), looking());
  });
}

TEST_CASE("a dump says which workers wait until their mesh has a world") {
  watched_session at;
  at.run(2, [&at](mw::session& s) -> mw::task<void> {
    for (std::size_t i = 0; i < at.all.size(); ++i) {
      if (at.all.at(i).name() == "worker1.1") at.all.stop(at.all.at(i), 6s);
    }
    auto looking = [&]() -> mw::task<void> {
      co_await mw::sleep_for(4500ms);
      const std::string text = at.controller.runtime().dump();
      INFO(text);
      CHECK(count_of("\n  worker 1 to do meet_late (call 1), silent for ", text) == 1);
      CHECK(count_of("; worker 0 in meet_late (call 1) for ", text) == 1);
      CHECK(count_of(": its mesh's world is being formed\n", text) == 1);
    };
    co_await mw::when_all(s.call(meet_late, 0), looking());
  });
}

namespace {

/// A worker that answers each command by a status, and no other way.
class chatty_worker final : public mw::detail::worker_source {
 public:
  chatty_worker(cluster& all, std::string says) : all_(all), says_(std::move(says)) {}

  void name_session(const std::string& name, int) override { session_ = name; }
  [[nodiscard]] mw::store& meeting() noexcept override { return all_.shared_store; }
  [[nodiscard]] mw::task<void> start(int, std::uint64_t) override {
    self_ = &all_.add("worker");
    self_->start(chat());
    co_return;
  }
  [[nodiscard]] mw::task<std::string> ended(int) override {
    co_await over_.wait();
    co_return std::string("it has said enough\n\x1b[2Jsession forged");
  }
  [[nodiscard]] mw::task<void> end(int, mw::duration) override { co_return; }
  [[nodiscard]] std::int64_t pid(int) const noexcept override { return 0; }

 private:
  mw::task<void> chat() {
    mw::world control(
        self_->runtime(), all_.shared_store,
        {.name = mw::detail::control_name(session_, 0, 1), .rank = 1, .size = 2});
    std::uint64_t call = 0;
    try {
      co_await control;
      for (;;) {
        const auto told = co_await control.recv_message<
            mw::detail::head_and_block<mw::detail::command_wire::command_head>>(
            mw::from{0}, mw::lane(0));
        std::vector<std::byte> rest(told.info.bytes);
        if (told.info.has_payload) co_await control.recv(rest, mw::from{0}, mw::lane(0));
        call = std::max(call, told.head.head.call);
        mw::value_writer values;
        values.integer(std::numeric_limits<std::int64_t>::max());
        values.text(says_);
        mw::detail::command_wire::reply_head head{};
        head.kind = mw::detail::command_wire::reply_kind::status;
        head.call = call;
        const mw::detail::sent_block block(values.written());
        head.values_bytes = static_cast<std::uint32_t>(block.size());
        co_await mw::detail::send_with_block(control, head, block, mw::to{0});
      }
    } catch (const mw::world_error&) {
      // The controller has gone, or had enough of it.
    }
    over_.set();
  }

  cluster& all_;
  const std::string says_;
  std::string session_;
  member_process* self_ = nullptr;
  mw::detail::notice over_;
};

}  // namespace

TEST_CASE("what a worker says of itself is cut, and commands no terminal") {
  watched_session at;
  at.source = std::make_unique<chatty_worker>(
      at.all, "\x1b[2J\nsession forged: " + std::string(3000, 'x'));
  at.run(1, [&at](mw::session& s) -> mw::task<void> {
    auto looking = [&]() -> mw::task<void> {
      co_await mw::sleep_for(2s);
      const std::string text = at.controller.runtime().dump();
      INFO(text);
      // Its time is beyond all bounds, too.
      CHECK(count_of(" s: \\x1b[2J session forged: xxx", text) == 1);
      CHECK(count_of("\x1b", text) == 0);
      CHECK(count_of("\nsession ", text) == 1);
      CHECK(count_of(std::string(300, 'x'), text) == 0);
      CHECK(count_of("\x1b", at.controller.runtime().dump_json()) == 0);
    };
    auto calling = [&]() -> mw::task<void> {
      try {
        co_await s.call(naps, 1).within(3s);
      } catch (const mw::call_error&) {
        // It never ends it.
      }
    };
    co_await mw::when_all(calling(), looking());
  });
}

TEST_CASE("a status that is none ends its worker, and is shown nowhere") {
  watched_session at;
  // Longer than all that a worker may say.
  at.source = std::make_unique<chatty_worker>(at.all, std::string(5000, 'x'));
  at.run(1, [&at](mw::session& s) -> mw::task<void> {
    bool has_failed = false;
    try {
      co_await s.call(naps, 1);
    } catch (const mw::call_error&) {
      has_failed = true;
    }
    CHECK(has_failed);
    const std::string text = at.controller.runtime().dump();
    INFO(text);
    CHECK(count_of(
              "): lost: it has said enough \\x1b[2Jsession forged; was sent 0 commands",
              text) == 1);
    CHECK(count_of("xxx", text) == 0);
  });
}

TEST_SUITE_END();
