// The life of GPU worlds: forming, breaking, leaving, forming again.
#include <fmt/format.h>

#include <atomic>
#include <list>

#include "freeing_thread.hpp"
#include "gpu_worlds.hpp"
#include "manyworlds/world/graph_hold.hpp"
#include "nccl/nccl_library.hpp"
#include "nccl/shared_library.hpp"
#include "world/world_fixture.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;

namespace {

using floats = std::vector<float>;

/// Rank 0 tells rank 1 that it has got so far.
task<void> send_word(world& w) {
  const int word = 1;
  co_await w.send_message(word, to{1});
}
task<void> receive_word(world& w) { co_await w.recv_message<int>(from{0}); }

void use_device(int device) {
  auto* choose = testing::find_in_cudart<cudaError_t(int)>("cudaSetDevice");
  REQUIRE((choose != nullptr));
  REQUIRE(choose(device) == cudaSuccess);
}
void* allocate_on(int device) {
  use_device(device);
  auto* allocate =
      testing::find_in_cudart<cudaError_t(void**, std::size_t)>("cudaMalloc");
  void* memory = nullptr;
  REQUIRE((allocate != nullptr));
  REQUIRE(allocate(&memory, 4096) == cudaSuccess);
  return memory;
}
/// On the calling thread, when the device has done all that it was given.
void free_on(int device, void* memory) {
  use_device(device);
  auto* release = testing::find_in_cudart<cudaError_t(void*)>("cudaFree");
  REQUIRE((release != nullptr));
  CHECK(release(memory) == cudaSuccess);
}

int most_occupied(int device) {
  const nccl::shared_library library("libnccl.so.2");
  auto* asked = library.find<int(int)>("ncclEmulatedMostOccupied");
  return asked == nullptr ? -1 : asked(device);
}

/// Seven worlds of two multiprocessors wait for rank 1 in their kernels; one of four is
/// to get its sum nevertheless.
task<void> run_beside_seven(member& m, world_options options) {
  constexpr int waiting = 7;
  std::list<world> worlds;
  std::list<owned_stream> streams;
  std::vector<device_buffer<float>> sums;
  for (int i = 0; i <= waiting; ++i) {
    options.name = "world " + std::to_string(i);
    options.on_device.most_multiprocessors = i < waiting ? 2 : 4;
    world& w = worlds.emplace_back(m.rt, m.st, options);
    co_await w;
    co_await w.device_ready();
    sums.emplace_back(m.pool, 16, streams.emplace_back(m.device));
  }
  std::vector<ticket> begun(waiting);
  const auto begin = [&]() -> task<void> {
    auto w = worlds.begin();
    for (std::size_t i = 0; i < waiting; ++i, ++w) {
      begun[i] = co_await w->all_reduce(sums[i], sum).unmatched().enqueue();
    }
  };
  if (m.rank == 0) {
    co_await begin();
    const auto until_resident = [&]() -> task<void> {
      while (most_occupied(m.device) < 2 * waiting) co_await sleep_for(1ms);
    };
    co_await within(until_resident(), 10s);
  }
  co_await within(worlds.back().all_reduce(sums.back(), sum), 10s);
  if (m.rank == 1) co_await begin();
  auto w = worlds.begin();
  for (std::size_t i = 0; i < waiting; ++i, ++w) co_await w->settled(begun[i]);
  for (world& each : worlds) co_await each.leave();
}

/// A thread of the application waits in cudaFree for a stream that stands still.
task<void> reduce_while_freeing(member& m, world& w, device_buffer<float>& x) {
  const owned_stream another(m.device);
  testing::freeing_thread application;
  testing::gate busy(another);
  application.begin();
  CHECK_FALSE(application.has_ended_after(100ms));
  const auto reduce = [&]() -> task<void> { co_await w.all_reduce(x, sum); };
  const auto open_late = [&]() -> task<void> {
    co_await sleep_for(1500ms);
    CHECK_FALSE(application.has_ended_after(0ms));
    busy.open();
  };
  co_await when_all(reduce(), open_late());
}

/// All that touches a device: memory, copies, waits, messages, sums, a break.
task<void> use_and_break(member& m, world_options options) {
  world w(m.rt, m.st, options);
  co_await w;
  auto x = co_await m.on_device(floats(1000, 1));
  auto y = co_await m.on_device(floats(1000, 2));
  co_await w.all_reduce(x, sum);
  const rank_t peer = 1 - m.rank;
  co_await when_all(w.send(x, to{peer}), w.recv(y, from{peer}));
  const owned_stream other(m.device);
  co_await copy(x.view(other), y.view());
  co_await on(other);
  pinned_pool_options at_device;
  at_device.device = m.device;
  const pinned_pool pinned(at_device);
  pinned_buffer<float> numbers(pinned, 1000);
  co_await copy(numbers, x.view());
  CHECK(numbers[3] == 2);
  (void)m.pool.used();
  m.pool.trim();
  auto met = co_await outcome(w.barrier());
  CHECK((met || w.state() == world_state::broken));
  if (m.rank == 0) w.fail("enough");
  co_await w.broken();
  co_await w.drained();
}

}  // namespace

TEST_SUITE("gpu worlds") {
  TEST_CASE("the device is ready after the world is up, and tells what it cost") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      std::vector<int> word(1, m.rank);
      const rank_t peer = 1 - m.rank;
      // Host traffic need not wait for the communicator.
      std::vector<int> got(1);
      co_await when_all(w.send(word, to{peer}), w.recv(got, from{peer}));
      CHECK(got[0] == peer);
      const device_costs costs = co_await w.device_ready();
      CHECK(costs.time > duration::zero());
      CHECK(costs.version == nccl::nccl_library::get().version);
      CHECK(static_cast<bool>(w.stream()));
      CHECK(w.transport().starts_with("nccl"));
    });
  }

  TEST_CASE("each way to make, to launch and to complete serves") {
    NEEDS_DEVICES(2);
    for (const launch_on launch : {launch_on::own_thread, launch_on::reactor}) {
      for (const completion_by by : {completion_by::words, completion_by::events}) {
        for (const creation_by how : {creation_by::split, creation_by::direct}) {
          CAPTURE(static_cast<int>(launch));
          CAPTURE(static_cast<int>(by));
          CAPTURE(static_cast<int>(how));
          world_options base;
          base.on_device.launch = launch;
          base.on_device.completion = by;
          base.on_device.creation = how;
          in_world(
              2,
              [](member& m, world& w) -> task<void> {
                auto x = co_await m.on_device(floats(1000, 1));
                for (int i = 0; i < 4; ++i) co_await w.all_reduce(x, sum);
                CHECK((co_await m.read(x))[1] == 16);
                if (m.rank == 0) {
                  co_await w.send(x, to{1});
                } else {
                  co_await w.recv(x, from{0});
                }
              },
              base);
        }
      }
    }
  }

  TEST_CASE(
      "law 3: on a broken GPU world each operation fails with the first cause, and its "
      "buffers are back") {
    NEEDS_DEVICES(2);
    run_members(2, [](member& m, world_options options) -> task<void> {
      world w(m.rt, m.st, options);
      co_await w;
      co_await w.device_ready();
      auto x = co_await m.on_device(floats(1000, 1));
      if (m.rank == 0) {
        // The peer never enters: NCCL waits in its kernel.
        const ticket launched = co_await w.all_reduce(x, sum).unmatched().enqueue();
        co_await send_word(w);
        auto hung = co_await outcome(w.settled(launched));
        REQUIRE_FALSE(hung);
        CHECK(hung.error().cause == cause::broken_by_user);
      } else {
        co_await receive_word(w);
        w.fail("enough");
      }
      auto after = co_await outcome(w.all_reduce(x, sum));
      REQUIRE_FALSE(after);
      CHECK(after.error().cause == cause::broken_by_user);
      co_await w.drained();
      const floats fives(1000, 5);
      co_await copy(x.view(), fives);
      CHECK((co_await m.read(x)) == fives);
    });
  }

  TEST_CASE("law 6: a world that broke is formed again under its name") {
    NEEDS_DEVICES(2);
    run_members(2, [](member& m, world_options options) -> task<void> {
      world w(m.rt, m.st, options);
      co_await w;
      auto x = co_await m.on_device(floats(100, 1));
      for (int i = 0; i < 3; ++i) {
        co_await w.all_reduce(x, sum);
        // Done here does not mean done there.
        auto met = co_await outcome(w.barrier());
        CHECK((met || w.state() == world_state::broken));
        if (m.rank == 0) w.fail("again");
        co_await w.broken();
        w = co_await w.reform();
      }
      CHECK(w.epoch() == 4);
      co_await w.all_reduce(x, sum);
      CHECK((co_await m.read(x))[0] == 16);
      co_await w.leave();
    });
  }

  // Rank 1 learns what rank 0 launches from a message, which may wait behind another that
  // is being sent: until the reactor goes on.
  TEST_CASE("law 2: cudaFree on a reactor that has just begun a sum waits for no hang") {
    NEEDS_DEVICES(2);
    runtime_options over_tcp;
    over_tcp.shared_memory = false;
    in_world(
        2,
        [](member& m, world& w) -> task<void> {
          const int word = 1;
          auto sum_here = co_await m.on_device(floats(64, 1));
          const auto add = [&]() -> task<void> { co_await w.all_reduce(sum_here, sum); };
          const auto tell = [&]() -> task<void> {
            co_await w.send_message(word, to{1 - m.rank});
          };
          // What is known of the view is not asked again.
          co_await add();
          void* const memory = allocate_on(m.device);
          const auto stand_still = [&]() -> task<void> {
            // The launching thread has time to launch it.
            std::this_thread::sleep_for(50ms);
            free_on(m.device, memory);
            co_return;
          };
          if (m.rank == 0) {
            // It enters last, and so decides in the same step.
            co_await w.recv_message<int>(from{1});
            co_await when_all(tell(), add(), stand_still());
          } else {
            co_await when_all(add(), tell(), w.recv_message<int>(from{0}));
            free_on(m.device, memory);
          }
          CHECK((co_await m.read(sum_here)) == floats(64, 4));
        },
        {}, over_tcp);
  }

  // With EMULATED_CUDA_DRIVER_LOCK, and on a GPU, the launching thread stands in a call
  // of NCCL's meanwhile.
  TEST_CASE("NCCL is not accused of a call that waits for another's in the driver") {
    NEEDS_OWN_DEVICES(2);
    world_options base;
    base.on_device.blocked_call = 300ms;
    in_world(
        2,
        [](member& m, world& w) -> task<void> {
          auto x = co_await m.on_device(floats(1000, 1));
          // The first of its kind and size may take longer.
          co_await w.all_reduce(x, sum);
          if (m.rank == 0) {
            co_await reduce_while_freeing(m, w, x);
          } else {
            co_await w.all_reduce(x, sum);
          }
          CHECK((co_await m.read(x))[0] == 4);
        },
        base);
  }

  TEST_CASE("law 13: a world says what its device is, and how far its operations are") {
    if (testing::skips_without_device()) return;
    world_tests::kept_log log;
    runtime_options how;
    how.log = &log;
    how.log_from = log_level::info;
    runtime rt(how);
    memory_store st;
    const device_pool pool(0);
    const owned_stream stream(0);
    const auto alone = [&]() -> task<void> {
      world_options options;
      options.name = "alone";
      options.size = 1;
      options.device = 0;
      options.backend = backend_kind::nccl;
      world w(rt, st, options);
      co_await w;
      co_await w.device_ready();
      CHECK(log.has("alone@1: device 0 is ready after"));
      ncclComm_t called = nullptr;
      const auto asks = [&](ncclComm_t on, cudaStream_t) { called = on; };
      // Behind it nothing is in flight.
      co_await w.settled(co_await w.native(asks).enqueue());
      // As NCCL's own lines have it, by which those of one world are found.
      CHECK(log.has(fmt::format("; NCCL calls it comm {}", fmt::ptr(called))));
      device_buffer<float> x(pool, 100, stream);
      testing::gate busy(stream);
      const ticket launched = co_await w.all_reduce(x, sum).enqueue();
      const auto settles = [&]() -> task<void> { co_await w.settled(launched); };
      const auto looks = [&]() -> task<void> {
        co_await yield();
        const std::string dump = rt.dump();
        INFO(dump);
        CHECK(dump.find("on device 0: ready") != std::string::npos);
        CHECK(dump.find("1 handed over and 1 of them launched; 1 tickets awaited") !=
              std::string::npos);
        busy.open();
      };
      co_await when_all(settles(), looks());
      co_await w.leave();
    };
    rt.run(alone());
  }

  TEST_CASE(
      "law 2: a world that breaks with its stream hung leaves another on the device "
      "alone") {
    NEEDS_DEVICES(2);
    run_members(2, [](member& m, world_options options) -> task<void> {
      options.name = "bad";
      world bad(m.rt, m.st, options);
      options.name = "good";
      world good(m.rt, m.st, options);
      co_await bad;
      co_await good;
      co_await bad.device_ready();
      auto x = co_await m.on_device(floats(1000, 1));
      auto y = co_await m.on_device(floats(1000, 0));
      const auto hangs = [&]() -> task<void> {
        if (m.rank == 0) {
          const ticket launched = co_await bad.all_reduce(x, sum).unmatched().enqueue();
          co_await send_word(bad);
          auto r = co_await outcome(bad.settled(launched));
          CHECK_FALSE(r);
        } else {
          co_await receive_word(bad);
          bad.fail("on purpose");
        }
      };
      const auto works = [&]() -> task<void> {
        for (int i = 0; i < 100; ++i) co_await good.all_reduce(y, max);
      };
      co_await when_all(hangs(), works());
      CHECK(good.state() != world_state::broken);
      CHECK(bad.state() == world_state::broken);
      co_await good.leave();
    });
  }

  TEST_CASE("sixty-four worlds of one member share a device") {
    NEEDS_DEVICE();
    run_members(1, [](member& m, world_options options) -> task<void> {
      std::vector<world> worlds;
      options.on_device.most_multiprocessors = 1;
      for (int i = 0; i < 64; ++i) {
        options.name = world_name(("w" + std::to_string(i)).c_str());
        worlds.emplace_back(m.rt, m.st, options);
      }
      for (world& w : worlds) co_await w;
      auto x = co_await m.on_device(floats(64, 3));
      const auto use = [&](world& w, std::size_t i) -> task<void> {
        co_await w.all_reduce(x.slice(i, 1), sum);
      };
      co_await scope::run([&](scope& s) -> task<void> {
        for (std::size_t i = 0; i < 64; ++i) s.spawn(use(worlds[i], i));
        co_return;
      });
      CHECK((co_await m.read(x)) == floats(64, 3));
      for (world& w : worlds) co_await w.leave();
    });
  }

  TEST_CASE("devices that cannot be had are named before any member is kept waiting") {
    NEEDS_DEVICE();
    run_members(1, [](member& m, world_options options) -> task<void> {
      options.form = 20s;
      const auto why = [&](world_options o) -> task<failure> {
        world w(m.rt, m.st, o);
        failure f;
        try {
          co_await w;
        } catch (const world_error& e) {
          f = e.failure();
        }
        co_return f;
      };
      world_options o = options;
      o.device = 99;
      failure f = co_await why(o);
      CHECK(f.cause == cause::device_unavailable);
      CHECK(f.detail.find("99") != std::string::npos);
      o = options;
      o.on_device.most_multiprocessors = 100'000;
      f = co_await why(o);
      CHECK(f.cause == cause::device_busy);
      o = options;
      o.device = -1;
      f = co_await why(o);
      CHECK(f.cause == cause::invalid_argument);
    });
  }

  TEST_CASE("members that chose different backends are told so") {
    NEEDS_DEVICES(2);
    run_members(2, [](member& m, world_options options) -> task<void> {
      if (m.rank == 1) {
        options.backend = backend_kind::host;
        options.device = -1;
      }
      options.form = 20s;
      world w(m.rt, m.st, options);
      cause why = cause::none;
      try {
        co_await w;
      } catch (const world_error& e) {
        why = e.cause();
      }
      CHECK(why == cause::backend_disagrees);
    });
  }

  TEST_CASE("two members on one GPU break with both named, where NCCL refuses it") {
    NEEDS_DEVICE();
    if (!testing::is_emulated()) {
      MESSAGE("skipped: whether NCCL refuses it depends on its version and settings");
      return;
    }
    run_members(2, [](member& m, world_options options) -> task<void> {
      options.device = 0;
      world w(m.rt, m.st, options);
      co_await w;
      auto r = co_await outcome(w.device_ready());
      REQUIRE_FALSE(r);
      CHECK(r.error().cause == cause::nccl_failed);
      CHECK(r.error().detail.find("share a GPU") != std::string::npos);
    });
  }

  TEST_CASE(
      "a suspended device serves again when it is resumed, where NCCL can do that") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      auto x = co_await m.on_device(floats(100, 1));
      co_await w.all_reduce(x, sum);
      auto suspended = co_await outcome(w.suspend_device());
      if (!suspended) {
        CHECK(suspended.error().cause == cause::unsupported);
        CHECK(nccl::nccl_library::get().version < 22907);
        co_return;
      }
      auto refused = co_await outcome(w.all_reduce(x, sum));
      REQUIRE_FALSE(refused);
      CHECK(refused.error().cause == cause::invalid_argument);
      co_await w.barrier();
      co_await w.resume_device();
      co_await w.all_reduce(x, sum);
      CHECK((co_await m.read(x))[0] == 4);
    });
  }

  TEST_CASE(
      "native calls run in launch order, with the world's communicator and stream") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      auto x = co_await m.on_device(floats(100, 1));
      co_await w.device_ready();
      const auto reduces = [&](ncclComm_t comm, cudaStream_t stream) {
        const auto& nccl = nccl::nccl_library::get();
        CHECK(nccl.ncclAllReduce(x.data(), x.data(), 100, ncclFloat, ncclSum, comm,
                                 stream) == ncclSuccess);
      };
      co_await w.native(reduces);
      co_await on(w.stream());
      CHECK((co_await m.read(x))[5] == 2);
      const auto throws = [](ncclComm_t, cudaStream_t) {
        throw std::runtime_error("mine");
      };
      std::string said;
      try {
        co_await w.native(throws);
      } catch (const std::runtime_error& e) {
        said = e.what();
      }
      CHECK(said == "mine");
    });
  }

  TEST_CASE("a graph that holds the communicator is dropped before it is freed") {
    NEEDS_DEVICES(2);
    run_members(2, [](member& m, world_options options) -> task<void> {
      world w(m.rt, m.st, options);
      co_await w;
      co_await w.device_ready();
      int drops = 0;
      const auto drop = [&] { ++drops; };
      graph_hold hold(w, drop);
      {
        graph_hold gone(w, [] { FAIL("its hold is gone"); });
      }
      auto met = co_await outcome(w.barrier());
      CHECK((met || w.state() == world_state::broken));
      if (m.rank == 0) w.fail("done");
      co_await w.drained();
      CHECK(drops == 1);
    });
  }

  TEST_CASE("a communicator of the user's is used, and stays the user's") {
    NEEDS_DEVICES(2);
    const auto& nccl = nccl::nccl_library::get();
    run_members(2, [&](member& m, world_options options) -> task<void> {
      ncclUniqueId id;
      if (m.rank == 0) {
        REQUIRE(nccl.ncclGetUniqueId(&id) == ncclSuccess);
        co_await m.st.set("id", std::string(id.internal, sizeof id.internal));
      } else {
        const std::string told = co_await m.st.get("id", patience);
        std::copy(told.begin(), told.end(), id.internal);
      }
      const nccl::device_scope here(m.device);
      ncclComm_t comm = nullptr;
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      const auto made = [&] {
        return nccl.ncclCommInitRankConfig(&comm, 2, id, m.rank, &config);
      };
      REQUIRE(made() == ncclSuccess);
      options.on_device.communicator = comm;
      options.on_device.stream = m.stream.handle();
      options.on_device.on_break = [](ncclComm* broken, void* self) {
        *static_cast<ncclComm_t*>(self) = broken;
      };
      ncclComm_t told = nullptr;
      options.on_device.on_break_context = &told;
      {
        world w(m.rt, m.st, options);
        co_await w;
        auto x = co_await m.on_device(floats(100, 1));
        co_await w.all_reduce(x, sum);
        CHECK((co_await m.read(x))[5] == 2);
        CHECK(w.stream() == m.stream);
        auto met = co_await outcome(w.barrier());
        CHECK((met || w.state() == world_state::broken));
        if (m.rank == 0) w.fail("enough");
        co_await w.drained();
        CHECK(told == comm);
      }
      CHECK(nccl.ncclCommAbort(comm) == ncclSuccess);
    });
  }

  TEST_CASE("a world occupies no more multiprocessors than it was allowed") {
    NEEDS_OWN_DEVICES(2);
    if (!testing::runs_alone({"EMULATED_NCCL_SEND=rendezvous"})) return;
    world_options base;
    base.on_device.most_multiprocessors = 6;
    in_world(
        2,
        [](member& m, world& w) -> task<void> {
          auto x = co_await m.on_device(floats(1000, 1));
          auto y = co_await m.on_device(floats(1000, 1));
          const rank_t peer = 1 - m.rank;
          co_await when_all(w.send(x, to{peer}), w.recv(y, from{peer}));
          co_await w.all_reduce(x, sum);
          CHECK(most_occupied(m.device) >= 2);
          CHECK(most_occupied(m.device) <= 6);
        },
        base);
  }

  TEST_CASE("what has as many free multiprocessors as it needs runs, wherever they are") {
    NEEDS_OWN_DEVICES(2);
    // A GPC of 16 and one of 2, on each of which two are left.
    // What is unmatched has no order, and would hold up shared connections.
    if (!testing::runs_alone({"EMULATED_CUDA_SMS=18", "EMULATED_CUDA_CONNECTIONS=0"})) {
      return;
    }
    run_members(2, run_beside_seven);
  }

  TEST_CASE("no context is made on a GPU that no world of the process is on") {
    NEEDS_OWN_DEVICES(3);
    if (!testing::runs_alone({"MANYWORLDS_TEST_DEVICE=1"})) return;
    REQUIRE_FALSE(testing::has_context(0));
    for (const launch_on launch : {launch_on::own_thread, launch_on::reactor}) {
      for (const completion_by by : {completion_by::words, completion_by::events}) {
        world_options base;
        base.on_device.launch = launch;
        base.on_device.completion = by;
        run_members(2, use_and_break, base);
      }
    }
    CHECK(testing::has_context(1));
    CHECK(testing::has_context(2));
    CHECK_FALSE(testing::has_context(0));
  }
}
