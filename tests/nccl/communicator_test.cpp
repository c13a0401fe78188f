#include "nccl/communicator.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <semaphore>
#include <thread>

#include "nccl/device_fixture.hpp"
#include "nccl/members.hpp"
#include "nccl/own_process.hpp"
#include "support/entries.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("nccl communicator");

namespace {

bool all_reduce_works(nccl_members& ranks) {
  device_number left(3);
  device_number right(4);
  if (!ranks[0].all_reduce(left.get()) || !ranks[1].all_reduce(right.get())) return false;
  ranks.await([&] { return ranks[0].has_reached_all() && ranks[1].has_reached_all(); });
  return *left.get() == 7 && *right.get() == 7;
}

}  // namespace

TEST_CASE("a communicator made by either way carries data and frees itself") {
  NEEDS_OWN_DEVICES(2);
  for (const creation_by way : {creation_by::split, creation_by::direct}) {
    for (const completion_by by : {completion_by::words, completion_by::events}) {
      CAPTURE(static_cast<int>(way));
      CAPTURE(static_cast<int>(by));
      device_options options = quick_options();
      options.creation = way;
      options.completion = by;
      nccl_members ranks(2, options);
      ranks.form();
      const bool has_words = cuda().write_word != nullptr;
      CHECK(ranks[0]->completions()->by() == (has_words ? by : completion_by::events));
      CHECK(all_reduce_works(ranks));
      CHECK(ranks[0]->poll() == ncclSuccess);
      CHECK(ranks[0]->costs().time > 0ns);
      CHECK(ranks[0]->costs().version >= 21800);
    }
  }
}

TEST_CASE("a world of one rank has a communicator too") {
  NEEDS_DEVICE();
  nccl_members alone(1);
  alone.form();
  device_number number(5);
  CHECK(alone[0].all_reduce(number.get()));
  alone.await([&] { return alone[0].has_reached_all(); });
  CHECK(*number.get() == 5);
}

// NCCL keeps no copy (2.27.3 to 2.30.7 src/init.cc, parseCommConfig).
TEST_CASE("a communicator's name lives as long as the communicator") {
  NEEDS_OWN_DEVICES(2);
  auto* const name_of = nccl::shared_library("libnccl.so.2")
                            .find<const char*(ncclComm_t)>("ncclEmulatedName");
  if (!name_of) return;
  for (const creation_by way : {creation_by::split, creation_by::direct}) {
    CAPTURE(static_cast<int>(way));
    device_options options = quick_options();
    options.creation = way;
    nccl_members ranks(2, options);
    ranks.form();
    CHECK(all_reduce_works(ranks));
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(std::string(name_of(ranks[rank]->handle())) == "tested");
    }
  }
}

TEST_CASE(
    "a missing rank ends the creation at its deadline and leaves no thread behind") {
  NEEDS_OWN_DEVICES(2);
  device_options options = quick_options();
  options.create = 200ms;
  // The id is asked for with more time: only the creation has none.
  nccl_members asks(1);
  const ncclUniqueId id = asks.make_id();
  nccl_members ranks(2, options);
  ranks[1]->create(id, 1, 2, ranks[1].done);
  ranks.home().run_until([&] { return ranks[1].done.times == 1; });
  CHECK(ranks[1]->error().why == cause::overdue);
  CHECK_FALSE(ranks[1]->is_ready());
  ranks.await([&] { return !ranks[1].device().has_lifecycle(); });
  CHECK(ranks[1].device().stuck() == 0);
}

TEST_CASE("a blocking creation that is stuck is counted until NCCL lets it go") {
  NEEDS_OWN_DEVICES(2);
  device_options options = quick_options();
  options.create = 200ms;
  options.release = 300ms;
  options.creation = creation_by::direct;
  // The id is asked for with more time: only the creation has none.
  nccl_members asks(1);
  const ncclUniqueId id = asks.make_id();
  nccl_members ranks(2, options);
  ranks[1]->create(id, 1, 2, ranks[1].done);
  ranks.home().run_until([&] { return ranks[1].done.times == 1; });
  CHECK(ranks[1]->error().why == cause::overdue);
  ranks.await([&] { return ranks[1].device().stuck() == 1; });
  // The missing rank comes after all, and finds that no other is left.
  const int before = ranks[0].done.times;
  ranks[0]->create(id, 0, 2, ranks[0].done);
  ranks.home().run_until([&] { return ranks[0].done.times > before; });
  CHECK(ranks[0]->error());
  ranks.await([&] { return ranks[1].device().stuck() == 0; });
}

TEST_CASE("a blocking creation that is given up is waited for no longer than a release") {
  NEEDS_OWN_DEVICES(2);
  device_options options = quick_options();
  options.create = 2s;
  nccl_members ranks(2, options);
  options.create = 1h;
  options.release = 100ms;
  options.creation = creation_by::direct;
  ranks[1].make(1, options);
  const ncclUniqueId id = ranks.make_id();
  ranks[1]->create(id, 1, 2, ranks[1].done);
  ranks[1].drop_communicator();
  ranks.await([&] { return ranks[1].device().stuck() == 1; });
  const int before = ranks[0].done.times;
  ranks[0]->create(id, 0, 2, ranks[0].done);
  ranks.home().run_until([&] { return ranks[0].done.times > before; });
  ranks.await([&] { return ranks[1].device().stuck() == 0; });
}

TEST_CASE("a communicator that is dropped while it is made frees itself") {
  NEEDS_OWN_DEVICES(2);
  device_options options = quick_options();
  options.create = 500ms;
  nccl_members ranks(2, options);
  // At whatever point of being made. The first rank stays, since NCCL's thread that
  // introduces them to each other ends only after one of them has come.
  for (int times = 0; times < 8; ++times) {
    const ncclUniqueId id = ranks.make_id();
    const int before = ranks[0].done.times;
    done_work done;
    ranks[0]->create(id, 0, 2, ranks[0].done);
    ranks[1]->create(id, 1, 2, done);
    const auto until = std::chrono::steady_clock::now() + times * 300us;
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    ranks[1].drop_communicator();
    ranks.home().run_until([&] { return ranks[0].done.times > before; });
    CHECK(done.times == 0);
    ranks[0].drop_communicator();
    ranks.await([&] {
      return !ranks[0].device().has_lifecycle() && !ranks[1].device().has_lifecycle();
    });
    for (int rank = 0; rank < 2; ++rank) ranks[rank].make(rank, options);
  }
}

TEST_CASE("a world that breaks while its communicator is made is quiet at once") {
  NEEDS_OWN_DEVICES(2);
  device_options options = quick_options();
  options.create = 150ms;
  // The id is asked for with more time: only the creation has none.
  nccl_members asks(1);
  const ncclUniqueId id = asks.make_id();
  nccl_members ranks(2, options);
  const int before = ranks[0].done.times;
  done_work made;
  done_work quiet;
  ranks[0]->create(id, 0, 2, ranks[0].done);
  ranks[1]->create(id, 1, 2, made);
  ranks[1]->quiesce(quiet);
  ranks.home().run_until([&] { return quiet.times == 1; });
  CHECK_FALSE(ranks[1]->is_lost());
  ranks.home().run_until([&] { return ranks[0].done.times > before; });
  CHECK(ranks[0]->error());
  ranks.await([&] { return !ranks[1].device().has_lifecycle(); });
  CHECK(made.times == 0);
}

TEST_CASE(
    "an operation that no peer answers is got off the stream when the world breaks") {
  NEEDS_OWN_DEVICES(2);
  nccl_members ranks(2);
  ranks.form();
  device_number number(3);
  CHECK(ranks[0].all_reduce(number.get()));
  ranks.quiesce();
  CHECK_FALSE(ranks[0]->is_lost());
  CHECK_FALSE(ranks[1]->is_lost());
  // The stream has got there: it is for the world to know that it is broken. Events are
  // asked no longer once the communicator is being freed.
  if (ranks[0]->completions()->by() == completion_by::words) {
    CHECK(ranks[0].has_reached_all());
  }
  CHECK_FALSE(ranks[0].all_reduce(number.get()));
}

TEST_CASE("a stream that does not drain in time is lost, and frees itself later") {
  NEEDS_DEVICE();
  device_options options = quick_options();
  options.quiesce = 100ms;
  nccl_members alone(1, options);
  alone.form();
  const gate held(device_stream(alone[0]->stream()));
  alone.quiesce();
  CHECK(alone[0]->is_lost());
}

TEST_CASE("a call that is stuck holds up its own world only") {
  NEEDS_DEVICE();
  device_options options = quick_options();
  options.quiesce = 300ms;
  options.release = 100ms;
  options.blocked_call = 20ms;
  nccl_members alone(1, options);
  alone.form();

  // Stands for a call that NCCL does not return from.
  struct stuck_call final : work {
    stuck_call() : work([](work& w) noexcept { static_cast<stuck_call&>(w).stay(); }) {}
    void stay() {
      entered = into->enter();
      may_leave.acquire();
      into->leave();
    }
    std::shared_ptr<nccl::call_gate> into;
    std::atomic<bool> entered{false};
    std::binary_semaphore may_leave{0};
  } stuck;
  stuck.into = alone[0]->gate();
  nccl::launcher& launcher = alone[0].device().launching();
  launcher.post(stuck);
  alone.await([&] { return stuck.entered.load(); });
  alone.await([&] { return stuck.into->blocked_for(alone.home().get().now()) > 1ms; });

  struct marked_work final : work {
    marked_work()
        : work([](work& w) noexcept { static_cast<marked_work&>(w).ran = true; }) {}
    std::atomic<bool> ran{false};
  } behind;
  launcher.post(behind);
  alone.quiesce();
  CHECK(alone[0]->is_lost());
  alone.await([&] { return behind.ran.load(); });

  alone[0].drop_communicator();
  alone.await([&] { return alone[0].device().stuck() == 1; });
  stuck.may_leave.release();
  alone.await([&] { return alone[0].device().stuck() == 0; });
}

TEST_CASE("twenty worlds are made and freed at once and leave nothing behind") {
  NEEDS_OWN_DEVICES(2);
  constexpr int worlds = 20;
  nccl_members first(2);
  const auto descriptors = open_descriptors();
  {
    std::vector<std::unique_ptr<nccl::communicator>> all;
    std::vector<std::unique_ptr<done_work>> done;
    const auto all_are_done = [&](int times, std::size_t step) {
      for (std::size_t i = 0; i < done.size(); i += step) {
        if (done[i]->times != times) return false;
      }
      return true;
    };
    for (int i = 0; i < 2 * worlds; ++i) {
      auto opened = first[i % 2].registry().open(i % 2, quick_options());
      REQUIRE(std::holds_alternative<std::shared_ptr<nccl::device>>(opened));
      all.push_back(std::make_unique<nccl::communicator>(
          std::get<0>(opened), first.home(), quick_options(), "one of many", 1));
      done.push_back(std::make_unique<done_work>());
    }
    for (std::size_t i = 0; i < all.size(); i += 2) all[i]->make_unique_id(*done[i]);
    first.home().run_until([&] { return all_are_done(1, 2); });
    for (std::size_t i = 0; i < all.size(); ++i) {
      done[i]->times = 0;
      all[i]->create(all[i - i % 2]->unique_id(), static_cast<int>(i % 2), 2, *done[i]);
    }
    first.home().run_until([&] { return all_are_done(1, 1); });
    for (const auto& each : all) CHECK(each->error().text == "");
    CHECK(first[0].device().reserved() >= worlds * quick_options().most_multiprocessors);
  }
  first.await([&] {
    return !first[0].device().has_lifecycle() && !first[1].device().has_lifecycle();
  });
  CHECK(first[0].device().stuck() == 0);
  // The last holder gives it back.
  first.await([&] {
    return first[0].device().reserved() == quick_options().most_multiprocessors;
  });
  first.await([&] { return open_descriptors() <= descriptors; });
}

TEST_CASE("a creation is refused where its device is used by another rank of its world") {
  NEEDS_DEVICE();
  nccl_members ranks(1);
  ranks[0].done.times = 0;
  nccl_member other(ranks.home(), 0, quick_options());
  const ncclUniqueId id = ranks.make_id();
  const int before = ranks[0].done.times;
  ranks[0]->create(id, 0, 2, ranks[0].done);
  other->create(id, 1, 2, other.done);
  ranks.home().run_until(
      [&] { return ranks[0].done.times > before && other.done.times == 1; });
  CHECK(ranks[0]->error().why == cause::nccl_failed);
  CHECK(other->error().why == cause::nccl_failed);
  CHECK(other->error().text.find("nccl") != std::string::npos);
}

namespace {

/// Communicators that the application made, each with a stream.
class foreign_communicators {
 public:
  explicit foreign_communicators(int count, int blocking = 1) {
    const auto& nccl = nccl::nccl_library::get();
    ncclUniqueId id;
    REQUIRE(nccl.ncclGetUniqueId(&id) == ncclSuccess);
    each_.resize(static_cast<std::size_t>(count));
    std::vector<std::thread> making;
    for (int rank = 0; rank < count; ++rank) {
      making.emplace_back([&, rank] {
        const nccl::device_scope here(rank);
        one& own = each_[static_cast<std::size_t>(rank)];
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = blocking;
        (void)nccl.ncclCommInitRankConfig(&own.communicator, count, id, rank, &config);
        (void)eventually([&] {
          ncclResult_t state = ncclInProgress;
          (void)nccl.ncclCommGetAsyncError(own.communicator, &state);
          return state == ncclSuccess;
        });
        (void)cuda().cudaStreamCreateWithFlags(&own.stream, cudaStreamNonBlocking);
      });
    }
    for (auto& each : making) each.join();
  }
  foreign_communicators(const foreign_communicators&) = delete;
  foreign_communicators& operator=(const foreign_communicators&) = delete;
  ~foreign_communicators() {
    std::vector<std::thread> ending;
    for (const one& each : each_) {
      ending.emplace_back([&each] {
        if (each.communicator) {
          (void)nccl::nccl_library::get().ncclCommAbort(each.communicator);
        }
        (void)cuda().cudaStreamDestroy(each.stream);
      });
    }
    for (auto& each : ending) each.join();
  }

  device_options options(int rank) {
    device_options options = quick_options();
    options.communicator = each_[static_cast<std::size_t>(rank)].communicator;
    options.stream = each_[static_cast<std::size_t>(rank)].stream;
    return options;
  }
  void forget(int rank) { each_[static_cast<std::size_t>(rank)].communicator = nullptr; }

 private:
  struct one {
    ncclComm_t communicator = nullptr;
    cudaStream_t stream = nullptr;
  };
  std::vector<one> each_;
};

void adopt(nccl_members& ranks) {
  ranks.for_each_done(
      [&](nccl_member& each, int rank) { each->adopt(rank, ranks.count(), each.done); });
}

}  // namespace

TEST_CASE("what was adopted carries data, and is left as it was") {
  NEEDS_OWN_DEVICES(2);
  foreign_communicators theirs(2);
  for (int times = 0; times < 2; ++times) {
    nccl_members ranks(2);
    for (int rank = 0; rank < 2; ++rank) ranks[rank].make(rank, theirs.options(rank));
    adopt(ranks);
    for (int rank = 0; rank < 2; ++rank) REQUIRE(ranks[rank]->error().text == "");
    CHECK(ranks[0]->handle() == theirs.options(0).communicator);
    CHECK(ranks[0]->stream() == theirs.options(0).stream);
    CHECK(all_reduce_works(ranks));
  }
}

TEST_CASE("what was adopted and is owned is freed") {
  NEEDS_OWN_DEVICES(2);
  foreign_communicators theirs(2);
  nccl_members ranks(2);
  for (int rank = 0; rank < 2; ++rank) {
    device_options options = theirs.options(rank);
    options.owns_communicator = true;
    ranks[rank].make(rank, options);
    theirs.forget(rank);
  }
  adopt(ranks);
  CHECK(all_reduce_works(ranks));
}

TEST_CASE("the owner of an adopted communicator quiesces it when the world breaks") {
  NEEDS_OWN_DEVICES(2);
  foreign_communicators theirs(2);
  nccl_members ranks(2);
  struct owner {
    int called = 0;
    ncclComm_t with = nullptr;
  } owners[2];
  for (int rank = 0; rank < 2; ++rank) {
    device_options options = theirs.options(rank);
    options.on_break = [](ncclComm* communicator, void* context) {
      auto& self = *static_cast<owner*>(context);
      ++self.called;
      self.with = communicator;
      (void)nccl::nccl_library::get().ncclCommRevoke(communicator, 0);
    };
    options.on_break_context = &owners[rank];
    ranks[rank].make(rank, options);
  }
  adopt(ranks);
  device_number number(3);
  CHECK(ranks[0].all_reduce(number.get()));
  ranks.quiesce();
  CHECK_FALSE(ranks[0]->is_lost());
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(owners[rank].called == 1);
    CHECK(owners[rank].with == theirs.options(rank).communicator);
  }
}

TEST_CASE("what does not fit the world is not adopted, and what differs is named") {
  NEEDS_OWN_DEVICES(2);
  foreign_communicators theirs(2);
  nccl_members ranks(2);
  const auto refused = [&](int device, int rank, int size) {
    ranks[0].make(device, theirs.options(0));
    const int before = ranks[0].done.times;
    ranks[0]->adopt(rank, size, ranks[0].done);
    ranks.home().run_until([&] { return ranks[0].done.times > before; });
    return ranks[0]->error().text;
  };
  CHECK(refused(0, 0, 3).find("size 2") != std::string::npos);
  CHECK(refused(0, 1, 2).find("rank 0") != std::string::npos);
  CHECK(refused(1, 0, 2).find("device 0") != std::string::npos);
}

TEST_CASE("a non-blocking communicator is not adopted") {
  NEEDS_OWN_DEVICES(2);
  foreign_communicators theirs(2, 0);
  nccl_members ranks(2);
  for (int rank = 0; rank < 2; ++rank) ranks[rank].make(rank, theirs.options(rank));
  adopt(ranks);
  CHECK(ranks[0]->error().why == cause::unsupported);
  CHECK(ranks[0]->error().text.find("blocking = 1") != std::string::npos);
}
