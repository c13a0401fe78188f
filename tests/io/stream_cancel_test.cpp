#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "io/reactor_fixture.hpp"
#include "io/stream.hpp"
#include "io/stream_helpers.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("stream cancellation");

TEST_CASE("a cancelled receive takes nothing from the stream") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    stream_pair p(f);
    std::array<std::byte, 8> got{};
    running<io_result> waiting(f, receive_once(p.right, got));
    f.get().turn();
    f.get().turn();
    waiting.cancel();
    CHECK(!waiting.ended());
    f.run_until([&] { return waiting.ended(); });
    CHECK(waiting.cancelled());
    f.run(p.left.send_all(bytes_of("later")));
    CHECK(f.run(p.right.receive_exactly(std::span(got).first(5))).count() == 5);
  }
}

TEST_CASE(
    "a receive that is cancelled at each point of its life ends once and loses nothing") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    stream_pair p(f);
    std::size_t delivered = 0;
    const int rounds = 200;
    for (int n = 0; n < rounds; ++n) {
      std::array<std::byte, 1> got{};
      running<io_result> waiting(f, receive_once(p.right, got));
      const int turns_before = n % 4;
      for (int t = 0; t < turns_before; ++t) f.get().turn();
      running<io_result> sending(f, p.left.send_all(bytes_of("x")));
      const int turns_between = n / 4 % 4;
      for (int t = 0; t < turns_between; ++t) f.get().turn();
      waiting.cancel();
      f.run_until([&] { return waiting.ended() && sending.ended(); });
      if (!waiting.cancelled()) delivered += waiting.result().count();
    }
    p.left.shut_down_sending();
    const std::size_t kept = f.run(receive_rest(p.right)).size();
    CHECK(delivered + kept == rounds);
    CHECK(delivered > 0);
    CHECK(kept > 0);
  }
}

TEST_CASE("bytes that had moved when the cancellation came are delivered, not dropped") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    // More than a turn ends: the rest has completed in the kernel and is cancelled before
    // it is told.
    constexpr std::size_t count = 300;
    struct connection {
      stream ours;
      manyworlds::socket theirs;
      std::array<std::byte, 1> got{};
    };
    std::deque<connection> all;
    std::deque<running<io_result>> receiving;
    for (std::size_t n = 0; n < count; ++n) {
      int fds[2]{};
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) ==
              0);
      const auto owned = [&](int fd) {
        return manyworlds::socket(f.get().sockets(), static_cast<socket_handle>(fd));
      };
      all.push_back({stream(f, owned(fds[0])), owned(fds[1])});
    }
    for (connection& c : all) receiving.emplace_back(f, receive_once(c.ours, c.got));
    const auto ended = [&] {
      return static_cast<std::size_t>(std::count_if(
          receiving.begin(), receiving.end(), [](const auto& r) { return r.ended(); }));
    };
    while (f.get().turn()) {}
    for (connection& c : all) REQUIRE(::send(descriptor_of(c.theirs), "x", 1, 0) == 1);
    // Lets the kernel complete what it can, and ends nothing.
    [[maybe_unused]] const bool completed = f.get().io().prepare_foreign_wait();
    CHECK(ended() == 0);
    for (auto& r : receiving) r.cancel();
    f.run_until([&] { return ended() == count; });
    for (std::size_t n = 0; n < count; ++n) {
      const bool delivered = !receiving[n].cancelled();
      if (delivered) CHECK(receiving[n].result().count() == 1);
      std::byte left{};
      const auto kept = ::recv(descriptor_of(all[n].ours.release()), &left, 1, 0);
      CHECK((delivered ? kept != 1 : kept == 1));
    }
  }
}

TEST_CASE("a blocked send that is cancelled reports every byte that moved") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    stream_pair p(f);
    const auto bytes = pattern(64 << 20);
    std::size_t sent = 0;
    bool blocked = false;
    for (const time_limit limit; !blocked && !limit.passed();) {
      running<io_result> sending(f, send_once(p.left, std::span(bytes).subspan(sent)));
      for (const time_limit patience(100ms); !sending.ended() && !patience.passed();) {
        f.get().turn();
      }
      if (!sending.ended()) {
        sending.cancel();
        f.run_until([&] { return sending.ended(); });
        blocked = true;
      }
      if (!sending.cancelled()) sent += sending.result().count();
    }
    REQUIRE(blocked);
    p.left.shut_down_sending();
    const auto got = f.run(receive_rest(p.right));
    CHECK(got.size() == sent);
    CHECK(std::equal(got.begin(), got.end(), bytes.begin()));
  }
}

TEST_CASE("a connection attempt and an accept can be cancelled") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    listener l(f, socket_address::loopback(0));
    stream s;
    running<io_result> accepting(f, stream_pair::accept(f, l, s));
    f.get().turn();
    f.get().turn();
    accepting.cancel();
    f.run_until([&] { return accepting.ended(); });
    CHECK(accepting.cancelled());
    for (int turns = 0; turns < 3; ++turns) {
      running<io_result> dialling(f, stream::connect(f, l.address(), s));
      for (int n = 0; n < turns; ++n) f.get().turn();
      dialling.cancel();
      f.run_until([&] { return dialling.ended(); });
      CHECK((dialling.cancelled() || dialling.result().ok()));
    }
  }
}

TEST_CASE(
    "a descriptor number that is used again at once belongs to the new socket alone") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    int reused = 0;
    int last = -1;
    for (int n = 0; n < 50; ++n) {
      stream_pair p(f);
      std::array<std::byte, 4> old{};
      running<io_result> waiting(f, receive_once(p.right, old));
      f.get().turn();
      f.get().turn();
      waiting.cancel();
      f.run_until([&] { return waiting.ended(); });
      manyworlds::socket right = p.right.release();
      const int fd = descriptor_of(right);
      reused += fd == last;
      last = fd;
      right.close();

      stream_pair q(f);
      std::array<std::byte, 4> got{};
      running<io_result> receiving(f, q.right.receive_exactly(got));
      f.get().turn();
      f.run(q.left.send_all(bytes_of("mine")));
      f.run_until([&] { return receiving.ended(); });
      CHECK(receiving.result().count() == 4);
      CHECK(old[0] == std::byte{});
    }
    CHECK(reused > 0);
  }
}

TEST_SUITE_END();
