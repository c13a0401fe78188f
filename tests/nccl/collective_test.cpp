// Collectives on device memory.
#include "gpu_worlds.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;

namespace {

using floats = std::vector<float>;

floats rank_values(int rank, std::size_t count) {
  floats v(count);
  for (std::size_t i = 0; i < count; ++i)
    v[i] = static_cast<float>(rank * 100) + static_cast<float>(i);
  return v;
}

/// By every kind of collective that computes nothing.
task<void> move_float8(member& m, world& w) {
  const std::vector<f8_e5m2> mine(
      4, f8_e5m2::from_bits(static_cast<std::uint8_t>(m.rank + 1)));
  auto in = co_await m.on_device(mine);
  auto wide = co_await m.on_device(std::vector<f8_e5m2>(8));
  auto out = co_await m.on_device(std::vector<f8_e5m2>(8));
  co_await w.all_gather(in, wide);
  CHECK((co_await m.read(wide))[7].bits() == 2);
  co_await w.all_to_all(wide, out);
  CHECK((co_await m.read(out))[7].bits() == m.rank + 1);
  co_await w.broadcast(in, root{1});
  CHECK((co_await m.read(in))[3].bits() == 2);
}

task<void> refuse_float8(member& m, world& w, const char* says) {
  auto x = co_await m.on_device(std::vector<f8_e4m3>(16));
  const auto refused = co_await outcome(w.all_reduce(x, sum));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().cause == cause::unsupported);
  INFO(refused.error().detail);
  CHECK(refused.error().detail.find(says) != std::string::npos);
  co_await move_float8(m, w);
  auto y = co_await m.on_device(floats(16, 1));
  co_await w.all_reduce(y, sum);
  CHECK((co_await m.read(y))[15] == 2);
}

}  // namespace

TEST_SUITE("gpu collectives") {
  TEST_CASE("every collective gives what the others give, in place and out of place") {
    NEEDS_DEVICES(3);
    constexpr std::size_t n = 6;
    in_world(3, [](member& m, world& w) -> task<void> {
      const auto mine = rank_values(m.rank, n);
      auto in = co_await m.on_device(mine);
      auto out = co_await m.on_device(floats(n));
      auto wide = co_await m.on_device(floats(3 * n));

      co_await w.all_reduce(in, out, sum);
      CHECK((co_await m.read(out))[2] == 300 + 3 * 2);
      co_await w.all_reduce(in, out, max);
      CHECK((co_await m.read(out))[2] == 202);
      co_await w.all_reduce(in, out, min);
      CHECK((co_await m.read(out))[2] == 2);
      co_await w.all_reduce(in, out, avg);
      CHECK((co_await m.read(out))[2] == 102);
      co_await w.reduce(in, out, sum, root{1});
      if (m.rank == 1) CHECK((co_await m.read(out))[1] == 303);

      co_await w.all_gather(in, wide);
      auto all = co_await m.read(wide);
      for (int r = 0; r < 3; ++r) {
        CHECK(all[static_cast<std::size_t>(r) * n + 1] ==
              static_cast<float>(r * 100 + 1));
      }
      co_await w.gather(in, m.rank == 2 ? wide.view() : device_view(), root{2});
      if (m.rank == 2) CHECK((co_await m.read(wide)) == all);
      co_await w.scatter(m.rank == 2 ? wide.view() : device_view(), out, root{2});
      CHECK((co_await m.read(out)) == mine);
      co_await w.reduce_scatter(wide, out, sum);
      if (m.rank == 2) CHECK((co_await m.read(out))[0] == 3 * all[2 * n]);

      auto exchanged = co_await m.on_device(floats(3 * n));
      auto parts = co_await m.on_device(floats(3 * n, static_cast<float>(m.rank)));
      co_await w.all_to_all(parts, exchanged);
      all = co_await m.read(exchanged);
      for (std::size_t i = 0; i < all.size(); ++i) {
        CHECK(all[i] == static_cast<float>(i / n));
      }

      co_await w.broadcast(in, root{1});
      CHECK((co_await m.read(in)) == rank_values(1, n));
      co_await w.all_reduce(in, prod);
      co_await w.barrier();
    });
  }

  TEST_CASE("unmatched collectives are launched in the order of their start") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      co_await w.device_ready();
      auto x = co_await m.on_device(floats(100, 1));
      for (int i = 0; i < 5; ++i) co_await w.all_reduce(x, sum).unmatched();
      CHECK((co_await m.read(x))[7] == 32);
    });
  }

  TEST_CASE("a ticket settles when the stream has done what was enqueued") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      auto x = co_await m.on_device(floats(100'000, 1));
      ticket last;
      for (int i = 0; i < 10; ++i) last = co_await w.all_reduce(x, sum).enqueue();
      co_await w.settled(last);
      CHECK((co_await m.read(x))[99] == 1024);
      auto wrong = co_await outcome(w.settled(ticket(w.epoch() + 1, 1)));
      REQUIRE_FALSE(wrong);
      CHECK(wrong.error().cause == cause::invalid_argument);
    });
  }

  TEST_CASE("members that disagree get an error that names both, not a hang") {
    NEEDS_DEVICES(2);
    for (const int which : {0, 1, 2}) {
      CAPTURE(which);
      run_members(2, [&](member& m, world_options options) -> task<void> {
        world w(m.rt, m.st, options);
        co_await w;
        auto x = co_await m.on_device(floats(16, 1));
        const bool odd = m.rank == 1;
        failure why;
        if (which == 0) {
          auto r = co_await outcome(w.all_reduce(x.slice(0, odd ? 8 : 16), sum));
          if (!r) why = r.error();
        } else if (which == 1) {
          auto r = co_await outcome(w.all_reduce(x, odd ? max : sum));
          if (!r) why = r.error();
        } else {
          auto r = co_await outcome(w.broadcast(x, root{odd ? 1 : 0}));
          if (!r) why = r.error();
        }
        CHECK(why.cause == cause::mismatch);
        CHECK(why.detail.find("rank 0 ") != std::string::npos);
        CHECK(why.detail.find("rank 1 ") != std::string::npos);
        co_await w.drained();
        CHECK((co_await m.read(x)) == floats(16, 1));
      });
    }
  }

  TEST_CASE("8-bit floats are moved by every NCCL and device") {
    NEEDS_OWN_DEVICES(2);
    if (!testing::runs_alone({"EMULATED_NCCL_VERSION=22304"})) return;
    in_world(2, move_float8);
  }

  TEST_CASE("sums of 8-bit floats are refused before NCCL 2.24, and the world goes on") {
    NEEDS_OWN_DEVICES(2);
    if (!testing::runs_alone({"EMULATED_NCCL_VERSION=22304"})) return;
    in_world(2, [](member& m, world& w) -> task<void> {
      co_await refuse_float8(m, w, "2.24");
    });
  }

  TEST_CASE("sums of 8-bit floats are refused below sm90, and the world goes on") {
    NEEDS_OWN_DEVICES(2);
    if (!testing::runs_alone({"EMULATED_CUDA_CAPABILITY=89"})) return;
    in_world(2, [](member& m, world& w) -> task<void> {
      co_await refuse_float8(m, w, "8.9");
    });
  }

  TEST_CASE("one device below sm90 is enough for all members to refuse such a sum") {
    NEEDS_OWN_DEVICES(2);
    if (!testing::runs_alone({"EMULATED_CUDA_CAPABILITY=90,89"})) return;
    in_world(2, [](member& m, world& w) -> task<void> {
      co_await refuse_float8(m, w, "8.9");
    });
  }

  TEST_CASE("a first call that connects its peers for long breaks nothing") {
    NEEDS_OWN_DEVICES(2);
    if (!testing::runs_alone({"EMULATED_NCCL_CONNECT_MS=700"})) return;
    world_options base;
    base.on_device.blocked_call = 50ms;
    in_world(
        2,
        [](member& m, world& w) -> task<void> {
          auto x = co_await m.on_device(floats(1 << 18, 1));
          for (const std::size_t count : {1U << 10, 1U << 15, 1U << 18}) {
            co_await w.all_reduce(x.slice(0, count), sum);
          }
          CHECK((co_await m.read(x))[3] == 8);
        },
        base);
  }

  TEST_CASE("a call that NCCL does not return from breaks its world, and says so") {
    NEEDS_OWN_DEVICES(2);
    if (!testing::runs_alone({"EMULATED_NCCL_FIFO=4"})) return;
    world_options base;
    base.on_device.blocked_call = 100ms;
    run_members(
        2,
        [](member& m, world_options options) -> task<void> {
          world w(m.rt, m.st, options);
          co_await w;
          auto x = co_await m.on_device(floats(16, 1));
          co_await w.all_reduce(x, sum);
          // Only one member calls: nothing empties the queue.
          if (m.rank == 0) {
            for (int i = 0; i < 8; ++i) {
              auto enqueued =
                  co_await outcome(w.all_reduce(x, sum).unmatched().enqueue());
              if (!enqueued) break;
            }
          }
          co_await w.broken();
          if (m.rank == 0) {
            const auto why = co_await outcome(w.barrier());
            REQUIRE_FALSE(why);
            CHECK(why.error().cause == cause::nccl_failed);
            CHECK(why.error().detail.find("has blocked") != std::string::npos);
          }
          co_await w.drained();
        },
        base);
  }

  TEST_CASE("wrong arguments are named, and nothing was started") {
    NEEDS_DEVICES(2);
    in_world(2, [](member& m, world& w) -> task<void> {
      auto x = co_await m.on_device(floats(16, 1));
      auto y = co_await m.on_device(floats(31, 1));
      const auto error_of = [](auto&& r) {
        if (r) return std::string();
        CHECK(r.error().cause == cause::invalid_argument);
        return r.error().detail;
      };
      const auto says = [](const std::string& text, const char* part) {
        INFO(text);
        CHECK(text.find(part) != std::string::npos);
      };
      says(error_of(co_await outcome(w.all_gather(x, y))), "32 out are needed");
      says(error_of(co_await outcome(w.broadcast(x, root{2}))), "root 2");
      says(error_of(co_await outcome(w.all_to_all(y, y))), "cannot be divided");
      says(error_of(co_await outcome(w.all_to_all(x, x))), "in place");
      const device_view no_stream(x.data(), 16, device_stream());
      says(error_of(co_await outcome(w.all_reduce(no_stream, sum))), "no stream");
      floats host(16);
      const device_view in_host(host.data(), 16, m.stream);
      says(error_of(co_await outcome(w.all_reduce(in_host, sum))), "host memory");
      if (devices_here() > 1) {
        const int next = (m.device + 1) % devices_here();
        const device_pool other(next);
        const owned_stream stream(next);
        device_buffer<float> elsewhere(other, 16, stream);
        says(error_of(co_await outcome(w.all_reduce(elsewhere, sum))), "lies on device");
      }
      co_await w.all_reduce(x, sum);
      CHECK((co_await m.read(x))[0] == 2);
    });
  }

  TEST_CASE(
      "law 9: who is absent from a collective is named, and then the world breaks") {
    NEEDS_DEVICES(3);
    world_options base;
    base.collective_log = 100ms;
    base.collective_break = 600ms;
    run_members(
        3,
        [](member& m, world_options options) -> task<void> {
          world w(m.rt, m.st, options);
          co_await w;
          auto x = co_await m.on_device(floats(16, 1));
          if (m.rank == 2) {
            CHECK((co_await w.broken()).cause == cause::overdue);
            co_return;
          }
          auto r = co_await outcome(w.all_reduce(x, sum));
          REQUIRE_FALSE(r);
          CHECK(r.error().cause == cause::overdue);
          CHECK(r.error().rank == 2);
        },
        base);
  }

  TEST_CASE("a member that leaves ends the collectives it has not entered as closed") {
    NEEDS_DEVICES(3);
    for (const int leaver : {0, 2}) {
      CAPTURE(leaver);
      run_members(3, [&](member& m, world_options options) -> task<void> {
        world w(m.rt, m.st, options);
        co_await w;
        auto x = co_await m.on_device(floats(16, 1));
        co_await w.all_reduce(x, sum);
        if (m.rank != leaver) {
          auto r = co_await outcome(w.all_reduce(x, sum));
          REQUIRE_FALSE(r);
          CHECK(r.error().cause == cause::closed);
        }
        co_await w.leave();
      });
    }
  }
}
