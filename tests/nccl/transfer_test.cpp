// Sends and receives of device memory.
#include <semaphore>

#include "gpu_worlds.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;

TEST_SUITE("gpu transfers") {
  TEST_CASE("what is sent from a device arrives on another, and tells what it is") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      if (m.rank == 0) {
        auto x = co_await m.on_device(ramp(10'000, 1));
        co_await w.send(x, to{1}, lane{7}, user_word{42});
      } else {
        auto x = co_await m.on_device(std::vector<float>(10'000));
        const message_info info = co_await w.recv(x, from{0}, lane{7});
        CHECK(info.source == 0);
        CHECK(info.user.value() == 42);
        CHECK(info.count == 10'000);
        CHECK(info.on_device);
        CHECK((co_await m.read(x)) == ramp(10'000, 1));
      }
    });
  }

  TEST_CASE("devices of one process reach each other's pools, as an old NCCL needs") {
    NEEDS_OWN_DEVICES(2);
    if (!testing::runs_alone({"EMULATED_NCCL_VERSION=22105"})) return;
    in_world(2, [](member& m, world& w) -> task<void> {
      auto x = co_await m.on_device(std::vector<float>(100, 1));
      co_await w.all_reduce(x, sum);
      if (m.rank == 0) {
        co_await w.send(x, to{1});
      } else {
        co_await w.recv(x, from{0});
      }
      CHECK((co_await m.read(x))[99] == 2);
    });
  }

  TEST_CASE("lists of unequal layouts meet, if their bytes are as many") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      std::vector<float> values(1200);
      if (m.rank == 0) values = ramp(1200, 5);
      auto x = co_await m.on_device(values);
      if (m.rank == 0) {
        std::vector<device_view> blocks;
        for (std::size_t i = 0; i < 12; ++i) blocks.push_back(x.slice(i * 100, 100));
        co_await w.send(blocks, to{1});
      } else {
        co_await w.recv({x.slice(0, 7), x.slice(7, 993), x.slice(1000, 200)}, from{0});
        CHECK((co_await m.read(x)) == ramp(1200, 5));
      }
    });
  }

  TEST_CASE("a head tells the receiver which blocks to choose") {
    NEEDS_DEVICES(2);
    struct ask {
      std::size_t count;
    };
    in_world(2, [](member& m, world& w) -> task<void> {
      if (m.rank == 0) {
        auto x = co_await m.on_device(ramp(64, 2));
        const ask head{64};
        co_await w.send_message(head, x, to{1}, lane{3});
      } else {
        auto got = co_await w.recv_message<ask>(from{0});
        CHECK(got.info.on.number() == 3);
        CHECK(got.info.bytes == 256);
        auto x = co_await m.on_device(std::vector<float>(got.head.count));
        co_await w.recv(x, from{0}, got.info.on);
        CHECK((co_await m.read(x)) == ramp(64, 2));
      }
    });
  }

  TEST_CASE("both members send first, large, and neither hangs") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      auto out = co_await m.on_device(ramp(500'000, static_cast<float>(m.rank)));
      auto in = co_await m.on_device(std::vector<float>(500'000));
      const rank_t peer = 1 - m.rank;
      co_await when_all(w.send(out, to{peer}), w.recv(in, from{peer}));
      CHECK((co_await m.read(in)) == ramp(500'000, static_cast<float>(peer)));
    });
  }

  TEST_CASE(
      "law 5: operations that members start in opposite orders do not wait for each "
      "other") {
    NEEDS_DEVICES(3);
    in_world(3, [](member& m, world& w) -> task<void> {
      auto x = co_await m.on_device(ramp(1000, static_cast<float>(m.rank)));
      auto y = co_await m.on_device(std::vector<float>(1000));
      auto z = co_await m.on_device(std::vector<float>(1000, 1.0F));
      const rank_t next = (m.rank + 1) % 3;
      const rank_t before = (m.rank + 2) % 3;
      // Rank 0 enters the collective first, the others last.
      if (m.rank == 0) {
        co_await when_all(w.all_reduce(z, sum), w.recv(y, from{before}),
                          w.send(x, to{next}));
      } else {
        co_await when_all(w.send(x, to{next}), w.recv(y, from{before}));
        co_await w.all_reduce(z, sum);
      }
      CHECK((co_await m.read(y)) == ramp(1000, static_cast<float>(before)));
      CHECK((co_await m.read(z)) == std::vector<float>(1000, 3.0F));
    });
  }

  TEST_CASE("messages of a lane arrive in order, many at a time") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      constexpr int count = 200;
      std::vector<device_buffer<float>> all;
      for (int i = 0; i < count; ++i) {
        std::vector<float> values(16, m.rank == 0 ? static_cast<float>(i) : -1);
        all.push_back(co_await m.on_device(values));
      }
      const auto one = [&](int i) -> task<void> {
        device_buffer<float>& x = all[static_cast<std::size_t>(i)];
        if (m.rank == 0) {
          co_await w.send(x, to{1});
        } else {
          co_await w.recv(x, from{0});
          CHECK((co_await m.read(x))[3] == static_cast<float>(i));
        }
      };
      co_await scope::run([&](scope& s) -> task<void> {
        for (int i = 0; i < count; ++i) s.spawn(one(i));
        co_return;
      });
    });
  }

  TEST_CASE("a receive from any takes what any member has sent") {
    NEEDS_DEVICES(3);
    in_world(3, [](member& m, world& w) -> task<void> {
      auto x = co_await m.on_device(std::vector<float>(8, static_cast<float>(m.rank)));
      if (m.rank != 0) {
        co_await w.send(x, to{0});
        co_return;
      }
      float total = 0;
      for (int i = 0; i < 2; ++i) {
        const message_info info = co_await w.recv(x, any);
        const float got = (co_await m.read(x))[0];
        CHECK(got == static_cast<float>(info.source));
        total += got;
      }
      CHECK(total == 3);
    });
  }

  TEST_CASE("host memory goes over the same world, and neither is taken for the other") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      std::vector<int> host(64, m.rank);
      auto x = co_await m.on_device(std::vector<float>(64));
      if (m.rank == 0) {
        co_await w.send(host, to{1});
        co_await w.send(x, to{1});
      } else {
        auto wrong = co_await outcome(w.recv(x, from{0}));
        REQUIRE_FALSE(wrong);
        CHECK(wrong.error().cause == cause::memory_mismatch);
        co_await w.recv(host, from{0});
        CHECK(host == std::vector<int>(64, 0));
        auto wrong_again = co_await outcome(w.recv(host, from{0}));
        REQUIRE_FALSE(wrong_again);
        CHECK(wrong_again.error().cause == cause::memory_mismatch);
        co_await w.recv(x, from{0});
      }
      co_await w.barrier();
    });
  }

  TEST_CASE("sizes and types that differ are errors, and the message stays") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      auto x = co_await m.on_device(ramp(64, 9));
      if (m.rank == 0) {
        co_await w.send(x, to{1});
      } else {
        auto less = co_await outcome(w.recv(x.slice(0, 63), from{0}));
        REQUIRE_FALSE(less);
        CHECK(less.error().cause == cause::size_mismatch);
        const device_view as_ints(x.data(), 64, dtype::int32, m.stream);
        auto other = co_await outcome(w.recv(as_ints, from{0}));
        REQUIRE_FALSE(other);
        CHECK(other.error().cause == cause::type_mismatch);
        co_await w.recv(x, from{0});
      }
    });
  }

  TEST_CASE(
      "law 10: a parked receive and an untaken send are withdrawn, and the world is "
      "up") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      auto x = co_await m.on_device(ramp(64, 9));
      cause ended = cause::none;
      if (m.rank == 0) {
        auto late = co_await outcome(w.send(x, to{1}, lane{1}).within(20ms));
        if (!late) ended = late.error().cause;
      } else {
        auto late = co_await outcome(w.recv(x, from{0}, lane{2}).within(20ms));
        if (!late) ended = late.error().cause;
      }
      CHECK(ended == cause::timed_out);
      co_await w.barrier();
      if (m.rank == 0) {
        co_await w.send(x, to{1}, lane{2});
      } else {
        co_await w.recv(x, from{0}, lane{2});
      }
      co_await w.barrier();
      CHECK(w.state() != world_state::broken);
    });
  }

  TEST_CASE("unmatched operations of a group go on together") {
    NEEDS_DEVICES(3);
    in_world(3, [](member& m, world& w) -> task<void> {
      co_await w.device_ready();
      auto x = co_await m.on_device(ramp(300'000, static_cast<float>(m.rank)));
      auto y = co_await m.on_device(std::vector<float>(300'000));
      const rank_t next = (m.rank + 1) % 3;
      const rank_t before = (m.rank + 2) % 3;
      for (int i = 0; i < 3; ++i) {
        co_await w.group(w.send(x, to{next}).unmatched(),
                         w.recv(y, from{before}).unmatched());
      }
      CHECK((co_await m.read(y)) == ramp(300'000, static_cast<float>(before)));
    });
  }

  TEST_CASE("a group of which one cannot be started starts none") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      auto x = co_await m.on_device(ramp(64, 1));
      const auto wrong = [&]() -> task<void> {
        co_await w.group(
            w.send(x, to{1 - m.rank}).unmatched(),
            w.recv(device_view(x.data(), 64, device_stream()), from{1 - m.rank})
                .unmatched());
      };
      bool failed = false;
      try {
        co_await wrong();
      } catch (const world_error& e) {
        failed = e.cause() == cause::invalid_argument;
      }
      CHECK(failed);
      co_await w.barrier();
      co_await w.all_reduce(x, sum);
      CHECK((co_await m.read(x))[0] == 2);
    });
  }

  TEST_CASE(
      "an unmatched receive tells whom it named, and a list that is too fine is "
      "refused") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      co_await w.device_ready();
      auto x = co_await m.on_device(ramp(60'000, 1));
      if (m.rank == 0) {
        co_await w.send(x, to{1}).unmatched();
      } else {
        const message_info info = co_await w.recv(x, from{0}).unmatched();
        CHECK(info.source == 0);
        CHECK(info.count == 60'000);
        CHECK(info.on_device);
      }
      std::vector<device_view> fine;
      std::size_t begin = 0;
      for (std::size_t i = 1; i <= 337; begin += i++) fine.push_back(x.slice(begin, i));
      auto refused = co_await outcome(w.send(fine, to{1 - m.rank}));
      REQUIRE_FALSE(refused);
      CHECK(refused.error().cause == cause::invalid_argument);
      CHECK(w.state() != world_state::broken);
      // Who has left makes it another error.
      co_await w.barrier();
    });
  }

  TEST_CASE(
      "law 10: a receive with views that wait to be looked at is given up, or its lane "
      "discarded, at once") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      co_await w.device_ready();
      auto x = co_await m.on_device(ramp(64, 1));
      std::binary_semaphore held{0};
      std::binary_semaphore may_go{0};
      const auto hold_launches = [&]() -> task<void> {
        const auto holds = [&](ncclComm*, CUstream_st*) {
          held.release();
          may_go.acquire();
        };
        co_await w.native(holds);
      };
      const auto receive = [&]() -> task<void> {
        auto r = co_await outcome(w.recv(x, from{1}, lane(8)));
        REQUIRE_FALSE(r);
        CHECK(r.error().cause == cause::cancelled);
      };
      const auto discard = [&]() -> task<void> {
        co_await yield();
        w.discard(from{1}, lane(8));
      };
      const auto try_receives = [&]() -> task<void> {
        while (!held.try_acquire()) co_await yield();
        auto late = co_await outcome(w.recv(x, from{1}, lane(7)).within(20ms));
        REQUIRE_FALSE(late);
        CHECK(late.error().cause == cause::timed_out);
        co_await when_all(receive(), discard());
        may_go.release();
      };
      if (m.rank == 0) co_await when_all(hold_launches(), try_receives());
      co_await w.barrier();
      co_await w.all_reduce(x, sum);
      CHECK((co_await m.read(x))[0] == 2);
    });
  }

  TEST_CASE(
      "law 4: a leave that is late gives no buffer back that the stream still uses") {
    NEEDS_DEVICES(2);
    if (!testing::is_emulated()) return;
    world_options base;
    base.drain = 400ms;
    run_members(
        2,
        [](member& m, world_options options) -> task<void> {
          world w(m.rt, m.st, options);
          co_await w;
          co_await w.device_ready();
          auto x = co_await m.on_device(ramp(1000, 1));
          if (m.rank == 1) {
            CHECK((co_await w.broken()).cause != cause::none);
            co_return;
          }
          // No other member enters it: it is on the stream when the leave begins.
          const ticket launched = co_await w.all_reduce(x, sum).unmatched().enqueue();
          bool left = true;
          try {
            co_await w.leave();
          } catch (const world_error&) {
            left = false;
          }
          CHECK_FALSE(left);
          auto ended = co_await outcome(w.settled(launched));
          CHECK_FALSE(ended);
          co_await w.drained();
          const std::vector<float> fives(1000, 5);
          co_await copy(x.view(), fives);
          CHECK((co_await m.read(x)) == fives);
        },
        base);
  }

  TEST_CASE("a world of host memory moves no device memory, and says so") {
    NEEDS_DEVICES(2);
    run_members(2, [](member& m, world_options options) -> task<void> {
      options.backend = backend_kind::host;
      options.device = -1;
      world w(m.rt, m.st, options);
      co_await w;
      auto x = co_await m.on_device(ramp(8, 1));
      auto r = co_await outcome(w.send(x, to{1 - m.rank}));
      REQUIRE_FALSE(r);
      CHECK(r.error().cause == cause::unsupported);
      co_await w.barrier();
      co_await w.leave();
    });
  }
}
