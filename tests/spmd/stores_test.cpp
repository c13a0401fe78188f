// The stores through which meshes' worlds form: at the controller, over the control
// worlds.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <functional>
#include <limits>
#include <map>
#include <memory>

#include "manyworlds/detail/notice.hpp"
#include "session_fixture.hpp"
#include "spmd/controller_store.hpp"
#include "spmd/mesh_book.hpp"
#include "spmd/mesh_name.hpp"
#include "spmd/thread_source.hpp"

namespace manyworlds::spmd_tests {

using detail::command_wire::command_head;
using detail::command_wire::reply_head;
using detail::command_wire::reply_kind;

namespace {

detail::session_core& controller_of(const session& s) {
  return *detail::access::core_ptr(s);
}

std::size_t keys_of_meshes(const session& s) {
  std::size_t all = 0;
  for (const detail::session_mesh& each : controller_of(s).meshes().all())
    all += each.keys->keys();
  return all;
}

std::size_t waits_of_meshes(const session& s) {
  std::size_t all = 0;
  for (const detail::session_mesh& each : controller_of(s).meshes().all())
    all += each.keys->waits();
  return all;
}

/// A store that can be shut: nothing reaches it from then on.
class shutting_store final : public store {
 public:
  ~shutting_store() override { end_users(); }

  void shut(bool is_shut) noexcept { is_shut_.store(is_shut); }
  /// Returns how often it was asked while it was shut.
  [[nodiscard]] int missed() const noexcept { return missed_.load(); }
  [[nodiscard]] std::string address() const override { return "of this test"; }
  [[nodiscard]] task<store_reply> perform(store_request request) override {
    if (!is_shut_.load()) return under_.perform(std::move(request));
    ++missed_;
    throw store_error(store_failure(store_error_kind::unreachable, address(),
                                    request.operation, request.keys, 0s, "it is shut"));
  }

 private:
  std::atomic<bool> is_shut_{false};
  std::atomic<int> missed_{0};
  memory_store under_;
};

/// Runs `body(session&)` with workers that are threads and meet at `meeting`.
template <class Body>
void in_threads_at(store& meeting, int workers, Body body) {
  runtime rt;
  auto whole = [&]() -> task<void> {
    auto source = std::make_unique<detail::thread_source>(rt, test_functions(),
                                                          session_options(), &meeting);
    session s =
        co_await detail::start_session(rt, std::move(source), workers, session_options());
    co_await body(s);
    co_await s.close();
  };
  rt.run(in_time(whole()));
}

/// A worker's desk, its store, and a controller that answers, as tasks of one home.
class desk_and_controller {
 public:
  desk_and_controller() {
    book_.find_or_add(ints(0, 1));
    for (int worker = 0; worker < 2; ++worker) {
      desks_.push_back(std::make_shared<detail::store_desk>(rt_.home()));
      stores_.push_back(
          std::make_unique<detail::controller_store>(desks_.back(), 1, 1, 2));
    }
  }

  [[nodiscard]] store& at(std::size_t worker) noexcept { return *stores_[worker]; }
  [[nodiscard]] detail::store_desk& desk(std::size_t worker) noexcept {
    return *desks_[worker];
  }
  [[nodiscard]] detail::session_mesh& mesh() noexcept { return book_[1]; }

  /// Answers all until the body has ended.
  void run(std::function<task<void>()> body) {
    auto whole = [&]() -> task<void> { co_await when_any(body(), answer(0), answer(1)); };
    rt_.run(in_time(whole()));
  }
  void tell(int worker, std::uint64_t question, const std::optional<std::string>& value) {
    value_writer out;
    argument<std::optional<std::string>>::write(out, value);
    const auto written = out.written();
    detail::received_command c{command_head(), detail::received_block(written.size())};
    c.head.call = question;
    c.head.values_bytes = static_cast<std::uint32_t>(written.size());
    std::ranges::copy(written, c.block.bytes_at(0, written.size()).begin());
    desks_[static_cast<std::size_t>(worker)]->take(c);
  }

 private:
  task<void> answer(int worker) {
    detail::store_desk& own = *desks_[static_cast<std::size_t>(worker)];
    for (;;) {
      co_await own.until_asked();
      const detail::store_desk::outgoing next = own.take_next();
      const auto written = next.values.written();
      detail::received_block block(written.size());
      std::ranges::copy(written, block.bytes_at(0, written.size()).begin());
      reply_head head{};
      head.values_bytes = static_cast<std::uint32_t>(written.size());
      for (const detail::store_answer& each :
           book_.serve(worker, next.number, detail::store_question::read(head, block)))
        tell(each.worker, each.question, each.value);
    }
  }

  runtime rt_;
  detail::mesh_book book_;
  std::vector<std::shared_ptr<detail::store_desk>> desks_;
  std::vector<std::unique_ptr<detail::controller_store>> stores_;
};

/// What an operation on a store threw.
template <class Operation>
task<std::optional<store_failure>> failure_of(Operation what) {
  try {
    static_cast<void>(co_await std::move(what));
  } catch (const store_error& e) {
    co_return e.failure();
  }
  co_return std::nullopt;
}

}  // namespace

TEST_CASE(
    "worlds of meshes form, and form again, with the store shut where workers meet") {
  shutting_store meeting;
  in_threads_at(meeting, 3, [&](session& s) -> task<void> {
    meeting.shut(true);
    CHECK(co_await s.call(fails_on, 1000).all() == ints(3, 3, 3));
    const mesh turned = s.mesh({2, 0});
    CHECK(co_await turned.call(fails_on, 1000).all() == ints(2, 2));
    for (int round = 0; round < 5; ++round) {
      const refusal told = co_await refusal_of(s.call(fails_on, round % 3));
      CHECK(told.cause == cause::handler_failed);
      CHECK(co_await s.call(fails_on, 1000).all() == ints(3, 3, 3));
    }
    CHECK(co_await turned.call(fails_on, 1000).all() == ints(2, 2));
    CHECK(meeting.missed() == 0);
    // A worker that is replaced meets its controller there, and its meshes do not.
    meeting.shut(false);
    co_await s.respawn(1);
    meeting.shut(true);
    CHECK(co_await s.call(fails_on, 1000).all() == ints(3, 3, 3));
    CHECK(meeting.missed() == 0);
  });
}

TEST_CASE("meshes leave no key where workers meet, of whatever kind these are") {
  in_each_kind(2, [](session& s) -> task<void> {
    CHECK(co_await s.call(fails_on, 1000).all() == ints(2, 2));
    const mesh turned = s.mesh({1, 0});
    CHECK(co_await turned.call(fails_on, 1000).all() == ints(2, 2));
    store& meeting = controller_of(s).source().meeting();
    const std::vector<std::string> keys = co_await meeting.keys();
    CHECK(!keys.empty());
    for (const std::string& each : keys)
      CHECK_MESSAGE(each.find("/mesh-") == std::string::npos, each);
    // A view for each.
    CHECK(keys_of_meshes(s) == 2);
    CHECK(waits_of_meshes(s) == 0);
  });
}

TEST_CASE("disco A61: keys of meshes do not pile up over a hundred replacements") {
  in_session(worker_kind::threads, 2, [](session& s) -> task<void> {
    const mesh turned = s.mesh({1, 0});
    for (int round = 0; round < 100; ++round) {
      co_await s.respawn(round % 2);
      CHECK(co_await s.call(fails_on, 1000).all() == ints(2, 2));
      if (round % 10 != 0) continue;
      CHECK(co_await turned.call(fails_on, 1000).all() == ints(2, 2));
    }
    CHECK(co_await turned.call(fails_on, 1000).all() == ints(2, 2));
    CHECK(keys_of_meshes(s) == 2);
    CHECK(waits_of_meshes(s) == 0);
    CHECK(controller_of(s).meshes().all().size() == 2);
  });
}

TEST_CASE("a worker that is lost while its question waits is told nothing any longer") {
  in_session(worker_kind::processes, 2, [](session& s) -> task<void> {
    const auto pid = [&](int worker) {
      const auto found = static_cast<pid_t>(s.describe(worker).pid);
      REQUIRE(found > 0);
      return found;
    };
    const pid_t stopped = pid(1);
    ::kill(stopped, SIGSTOP);
    auto calling = [&]() -> task<refusal> {
      co_return co_await refusal_of(s.call(fails_on, 1000));
    };
    auto killing = [&]() -> task<void> {
      // Rank 0 waits for the record of the other.
      while (waits_of_meshes(s) == 0) co_await sleep_for(1ms);
      ::kill(pid(0), SIGKILL);
      while (s.describe(0).state != worker_state::lost) co_await sleep_for(1ms);
      CHECK(waits_of_meshes(s) == 0);
      ::kill(stopped, SIGCONT);
    };
    const auto [told, nothing] = co_await when_all(calling(), killing());
    CHECK(told.cause == cause::peer_died);
    co_await s.respawn(0);
    CHECK(co_await s.call(fails_on, 1000).all() == ints(2, 2));
    CHECK(waits_of_meshes(s) == 0);
  });
}

// --- the store ----------------------------------------------------------------------

TEST_CASE("a controller's store serves what worlds ask while they form") {
  desk_and_controller all;
  all.run([&]() -> task<void> {
    store& a = all.at(0);
    store& b = all.at(1);
    CHECK(!co_await a.try_get("x"));
    CHECK(co_await a.compare_set("x", "", "1") == "1");
    CHECK(co_await b.compare_set("x", "", "2") == "1");
    CHECK(co_await b.compare_set("x", "1", "2") == "2");
    CHECK(co_await b.compare_set("absent", "1", "2") == "1");
    CHECK(co_await a.get("x", 10s) == "2");
    CHECK(co_await a.erase("x"));
    CHECK(!co_await a.erase("x"));
    CHECK(all.mesh().keys->keys() == 0);
    auto waiting = [&]() -> task<std::string> { co_return co_await a.get("y", 10s); };
    auto setting = [&]() -> task<void> {
      while (all.mesh().keys->waits() == 0) co_await yield();
      co_await b.compare_set("y", "", "3");
    };
    const auto [found, nothing] = co_await when_all(waiting(), setting());
    CHECK(found == "3");
    CHECK(all.mesh().keys->waits() == 0);
  });
}

TEST_CASE(
    "a question that is given up, or late, is withdrawn; its answer is no other's") {
  desk_and_controller all;
  all.run([&]() -> task<void> {
    const auto late = co_await failure_of(all.at(0).get("x", 10ms));
    REQUIRE(late);
    CHECK(late->kind == store_error_kind::timed_out);
    CHECK(late->text().find("of the session's controller") != std::string::npos);
    auto waiting = [&]() -> task<void> { co_await all.at(0).get("x", 10s); };
    auto until_it_waits = [&]() -> task<void> {
      while (all.mesh().keys->waits() != 1) co_await yield();
    };
    co_await when_any(waiting(), until_it_waits());
    // In the order of asking.
    CHECK(!co_await all.at(0).try_get("x"));
    CHECK(all.mesh().keys->waits() == 0);
    // The numbers of both, and one that was never given.
    auto deceiving = [&]() -> task<void> {
      while (all.mesh().keys->waits() != 1) co_await yield();
      for (const std::uint64_t number : {1U, 2U, 3U, 1'000U})
        all.tell(0, number, "wrong");
      co_await all.at(1).compare_set("y", "", "right");
    };
    auto asking = [&]() -> task<std::string> {
      co_return co_await all.at(0).get("y", 10s);
    };
    const auto [found, nothing] = co_await when_all(asking(), deceiving());
    CHECK(found == "right");
  });
}

TEST_CASE("a world that is superseded has no keys, and can set none") {
  desk_and_controller all;
  all.run([&]() -> task<void> {
    store& a = all.at(0);
    co_await a.compare_set("x", "", "1");
    all.mesh().supersede();
    CHECK(!co_await a.try_get("x"));
    CHECK(co_await a.compare_set("x", "", "2") == "");
    CHECK(co_await a.compare_set("x", "1", "2") == "1");
    CHECK(!co_await a.erase("x"));
    // Its member is told of the next world, and withdraws.
    const auto late = co_await failure_of(a.get("x", 10ms));
    REQUIRE(late);
    CHECK(late->kind == store_error_kind::timed_out);
    CHECK(all.mesh().keys->keys() == 0);
    CHECK(all.mesh().keys->waits() == 0);
  });
}

TEST_CASE("what a controller does not serve is refused before it is sent") {
  desk_and_controller all;
  all.run([&]() -> task<void> {
    const auto pushed = co_await failure_of(all.at(0).num_keys());
    REQUIRE(pushed);
    CHECK(pushed->kind == store_error_kind::refused);
    const auto key = co_await failure_of(all.at(0).try_get(std::string(129, 'k')));
    REQUIRE(key);
    CHECK(key->kind == store_error_kind::too_large);
    const auto value = co_await failure_of(
        all.at(0).compare_set("x", "", std::string(1024 + 2 * 256 + 1, 'v')));
    REQUIRE(value);
    CHECK(value->kind == store_error_kind::too_large);
  });
}

TEST_CASE("a question to a controller that is gone ends, and says so") {
  desk_and_controller all;
  all.run([&]() -> task<void> {
    CHECK(all.at(0).trouble().empty());
    auto waiting = [&]() -> task<std::optional<store_failure>> {
      co_return co_await failure_of(all.at(0).get("x", 10s));
    };
    auto closing = [&]() -> task<void> {
      while (all.mesh().keys->waits() == 0) co_await yield();
      all.desk(0).close();
    };
    const auto [waited, nothing] = co_await when_all(waiting(), closing());
    REQUIRE(waited);
    CHECK(waited->kind == store_error_kind::unreachable);
    const auto after = co_await failure_of(all.at(0).try_get("x"));
    REQUIRE(after);
    CHECK(after->kind == store_error_kind::unreachable);
    CHECK(!all.at(0).trouble().empty());
  });
}

// --- workers that lie ----------------------------------------------------------------

namespace {

using lie = std::function<task<void>(world&)>;

/// Worker 0 is a thread; worker 1 joins, awaits its first command, and lies.
class lying_worker final : public detail::worker_source {
 public:
  lying_worker(runtime& rt, runtime& other, lie how)
      : honest_(rt, test_functions(), session_options()),
        other_(other),
        how_(std::move(how)) {}

  [[nodiscard]] store& meeting() noexcept override { return honest_.meeting(); }
  void name_session(const std::string& name, int workers) override {
    session_ = name;
    honest_.name_session(name, workers);
  }
  [[nodiscard]] task<void> start(int worker, std::uint64_t incarnation) override {
    if (worker == 0) co_return co_await honest_.start(worker, incarnation);
    (void)other_.start(join_and_lie(incarnation, over_));
  }
  [[nodiscard]] task<std::string> ended(int worker) override {
    if (worker == 0) co_return co_await honest_.ended(worker);
    const std::shared_ptr<detail::notice> over = over_;
    co_await over->wait();
    co_return std::string();
  }
  [[nodiscard]] task<void> end(int worker, duration patience) override {
    if (worker == 0) co_return co_await honest_.end(worker, patience);
    const std::shared_ptr<detail::notice> over = over_;
    co_await over->wait();
  }
  [[nodiscard]] std::int64_t pid(int) const noexcept override { return 0; }

 private:
  task<void> join_and_lie(std::uint64_t incarnation,
                          std::shared_ptr<detail::notice> over) {
    const struct teller {
      detail::notice& at;
      ~teller() { at.set(); }
    } at_last{*over};
    try {
      world control(
          other_, meeting(),
          {.name = detail::control_name(session_, 1, incarnation), .rank = 1, .size = 2});
      co_await control;
      const auto told =
          co_await control.recv_message<detail::head_and_block<command_head>>(from{0},
                                                                              lane(0));
      detail::received_block block(told.info.bytes);
      if (told.info.has_payload) co_await control.recv(block.view(), from{0}, lane(0));
      co_await how_(control);
      // Until the controller ends it.
      co_await control.recv_message<command_head>(from{0}, lane(1));
    } catch (const world_error&) {
      // By that.
    }
  }

  detail::thread_source honest_;
  runtime& other_;
  const lie how_;
  std::string session_;
  std::shared_ptr<detail::notice> over_ = std::make_shared<detail::notice>();
};

task<void> send_reply(world& over, reply_head head, std::vector<std::byte> block) {
  head.kind = reply_kind::question;
  const detail::sent_block sent(block);
  co_await detail::send_with_block(over, head, sent, to{0});
}

task<void> ask(world& over, std::uint64_t number, detail::store_question q) {
  value_writer out;
  q.write(out);
  const auto written = out.written();
  reply_head head{};
  head.call = number;
  head.values_bytes = static_cast<std::uint32_t>(written.size());
  co_await send_reply(over, head, {written.begin(), written.end()});
}

detail::store_question question(detail::question_kind kind, std::string key) {
  detail::store_question q;
  q.kind = kind;
  q.mesh = 1;
  q.number = 1;
  q.key = std::move(key);
  return q;
}

/// Runs a session with that worker, and returns how it was lost.
std::string lost_by(lie how) {
  std::string loss;
  runtime other;
  runtime rt;
  auto whole = [&]() -> task<void> {
    auto source = std::make_unique<lying_worker>(rt, other, std::move(how));
    session s =
        co_await detail::start_session(rt, std::move(source), 2, session_options());
    CHECK(co_await s.mesh(0).call(fails_on, 1000).all() == ints(1));
    const refusal told = co_await refusal_of(s.call(fails_on, 1000).within(30s));
    CHECK(told.says("worker 1"));
    while (s.describe(1).state != worker_state::lost) co_await sleep_for(1ms);
    loss = s.describe(1).loss;
    // S-e.
    CHECK(co_await s.mesh(0).call(fails_on, 1000).all() == ints(1));
    CHECK(s.describe(0).incarnation == 1);
    CHECK(waits_of_meshes(s) <= 1);
    co_await s.close();
  };
  rt.run(in_time(whole()));
  return loss;
}

void check_lost_by(const std::string& words, lie how) {
  const std::string loss = lost_by(std::move(how));
  CHECK_MESSAGE(loss.find(words) != std::string::npos, loss);
  CHECK_MESSAGE(loss.find("worker-1.1") != std::string::npos, loss);
}

}  // namespace

TEST_CASE("disco A64, S-e: a worker that asks nonsense is lost, and no other") {
  check_lost_by("a question that is none", [](world& over) -> task<void> {
    reply_head head{};
    head.values_bytes = 100;
    co_await send_reply(over, head, std::vector<std::byte>(100, std::byte(0xa5)));
  });
  check_lost_by("contradicts itself", [](world& over) -> task<void> {
    reply_head head{};
    head.beside_bytes = std::uint64_t{1} << 40;
    co_await send_reply(over, head, std::vector<std::byte>(16));
  });
  check_lost_by("contradicts itself", [](world& over) -> task<void> {
    reply_head head{};
    const std::size_t more = detail::command_wire::most_question_bytes + 1;
    head.values_bytes = static_cast<std::uint32_t>(more);
    co_await send_reply(over, head, std::vector<std::byte>(more));
  });
  // More values than stand in a message without a payload, and beside them as many that
  // the sum of all is the largest number.
  check_lost_by("contradicts itself", [](world& over) -> task<void> {
    detail::head_and_block<reply_head> whole{};
    whole.head.kind = reply_kind::ended;
    whole.head.values_bytes = static_cast<std::uint32_t>(whole.room + 1);
    whole.head.beside_bytes = std::numeric_limits<std::uint64_t>::max() - 128;
    co_await over.send_message(whole, to{0}, lane(0));
  });
  // A key of 2^40 bytes.
  check_lost_by("a question that is none", [](world& over) -> task<void> {
    value_writer out;
    question(detail::question_kind::get, "k").write(out);
    const auto written = out.written();
    std::vector<std::byte> block(written.begin(), written.end());
    const auto at = std::ranges::find(block, std::byte('k'));
    REQUIRE(at - block.begin() >= 8);
    *(at - 3) = std::byte(1);
    reply_head head{};
    head.values_bytes = static_cast<std::uint32_t>(block.size());
    co_await send_reply(over, head, std::move(block));
  });
}

TEST_CASE("S-e: a worker that asks what is not its own is lost, and no other") {
  check_lost_by("a mesh that it is not in", [](world& over) -> task<void> {
    // That of worker 0 alone.
    co_await ask(over, 1, question(detail::question_kind::erase, "k"));
  });
  check_lost_by("a mesh that it is not in", [](world& over) -> task<void> {
    detail::store_question q = question(detail::question_kind::erase, "k");
    q.mesh = 3;
    co_await ask(over, 1, std::move(q));
  });
  check_lost_by("not there yet", [](world& over) -> task<void> {
    detail::store_question q = question(detail::question_kind::erase, "k");
    q.mesh = 2;
    q.number = 1'000;
    co_await ask(over, 1, std::move(q));
  });
  check_lost_by("too long", [](world& over) -> task<void> {
    detail::store_question q =
        question(detail::question_kind::try_get, std::string(129, 'k'));
    q.mesh = 2;
    co_await ask(over, 1, std::move(q));
  });
}

TEST_CASE(
    "S-e: a worker that floods its controller with questions is lost, and no other") {
  check_lost_by("waits for too many keys", [](world& over) -> task<void> {
    for (std::uint64_t i = 1; i <= 1'000; ++i) {
      detail::store_question q =
          question(detail::question_kind::get, "k" + std::to_string(i));
      q.mesh = 2;
      co_await ask(over, i, std::move(q));
    }
  });
  check_lost_by("sets too many keys", [](world& over) -> task<void> {
    for (std::uint64_t i = 1; i <= 1'000; ++i) {
      detail::store_question q =
          question(detail::question_kind::compare_set, "k" + std::to_string(i));
      q.mesh = 2;
      q.value = "v";
      co_await ask(over, i, std::move(q));
    }
  });
  check_lost_by("does not read what it is told", [](world& over) -> task<void> {
    for (std::uint64_t i = 1; i <= 200'000; ++i) {
      detail::store_question q = question(detail::question_kind::try_get, "k");
      q.mesh = 2;
      co_await ask(over, i, std::move(q));
    }
  });
}

}  // namespace manyworlds::spmd_tests
