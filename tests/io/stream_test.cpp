#include "io/stream.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <string>
#include <system_error>
#include <vector>

#include "io/reactor_fixture.hpp"
#include "io/stream_helpers.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("stream");

namespace {

int option_of(int fd, int level, int name) {
  int value = 0;
  socklen_t length = sizeof value;
  REQUIRE(::getsockopt(fd, level, name, &value, &length) == 0);
  return value;
}

task<io_result> accept_once(listener& l) { co_return co_await l.accept(); }

/// A descriptor limit that leaves no room for another one, for as long as it lives.
class no_descriptor_left {
 public:
  no_descriptor_left() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::fcntl(0, F_DUPFD_CLOEXEC, 0);
    ::close(next);
    rlimit now = before_;
    now.rlim_cur = static_cast<rlim_t>(next);
    ::setrlimit(RLIMIT_NOFILE, &now);
  }
  ~no_descriptor_left() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("a stream or listener that is not open gives an error, and does not crash") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    stream_pair p(f);
    stream moved_to = std::move(p.left);
    listener closed(f, socket_address::loopback(0));
    closed.close();
    listener never;
    stream opened_never;
    std::array<std::byte, 2> some{};
    for (stream* s : {&opened_never, &p.left}) {
      CHECK_FALSE(s->is_open());
      CHECK(f.run(receive_once(*s, some)).error() == EBADF);
      CHECK(f.run(send_once(*s, some)).error() == EBADF);
      CHECK(f.run(s->receive_exactly(some)).error() == EBADF);
      CHECK(f.run(s->send_all(some)).error() == EBADF);
      s->shut_down_sending();
      s->close();
      CHECK(s->peer_address() == socket_address{});
    }
    for (listener* l : {&closed, &never}) {
      CHECK(f.run(accept_once(*l)).error() == EBADF);
      CHECK(l->address() == socket_address{});
    }
    CHECK(f.run(moved_to.send_all(some)).count() == 2);
  }
}

TEST_CASE("what is sent is received, in pieces too") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    stream_pair p(f);
    CHECK(f.run(p.left.send_all(bytes_of("hello"))).count() == 5);
    std::array<std::byte, 2> first{};
    std::array<std::byte, 3> rest{};
    CHECK(f.run(p.right.receive_exactly(first)).count() == 2);
    CHECK(f.run(p.right.receive_exactly(rest)).count() == 3);
    CHECK(std::memcmp(first.data(), "he", 2) == 0);
    CHECK(std::memcmp(rest.data(), "llo", 3) == 0);
  }
}

TEST_CASE("a buffer of gigabytes is not taken for an empty one") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    stream_pair p(f);
    constexpr std::size_t size = std::size_t{1} << 32;
    constexpr int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, how, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    const std::span large(static_cast<std::byte*>(memory), size);
    f.run(p.left.send_all(bytes_of("hello")));
    CHECK(f.run(receive_once(p.right, large)).count() == 5);
    const io_result sent = f.run(send_once(p.left, large));
    CHECK((sent.ok() && sent.count() > 0));
    ::munmap(memory, size);
  }
}

TEST_CASE("megabytes cross in both directions at once, whole and in order") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    stream_pair p(f);
    const auto there = pattern(12'345'678, 1);
    const auto back = pattern(9'876'543, 2);
    running<io_result> send_there(f, p.left.send_all(there));
    running<io_result> send_back(f, p.right.send_all(back));
    std::vector<std::byte> got_there(there.size());
    running<io_result> receive_there(f, p.right.receive_exactly(got_there));
    running<std::vector<std::byte>> receive_back(f, receive_rest(p.left));
    f.run_until([&] { return send_there.ended() && send_back.ended(); });
    p.right.shut_down_sending();
    f.run_until([&] { return receive_there.ended() && receive_back.ended(); });
    CHECK(send_there.result().count() == there.size());
    CHECK(receive_there.result().count() == there.size());
    CHECK((got_there == there));
    CHECK((receive_back.result() == back));
  }
}

TEST_CASE("buffers are gathered and scattered in their order") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    stream_pair p(f);
    char one[] = "ab";
    char two[] = "cdef";
    const iovec from[] = {{one, 2}, {two, 4}};
    io_awaiter sending = p.left.send_some({});
    sending.with_buffers(from, 2);
    const auto await = [](io_awaiter& a) -> task<io_result> { co_return co_await a; };
    CHECK(f.run(await(sending)).count() == 6);
    char three[3]{};
    char four[3]{};
    const iovec to[] = {{three, 3}, {four, 3}};
    io_awaiter receiving = p.right.receive_some({});
    receiving.with_buffers(to, 2);
    CHECK(f.run(await(receiving)).count() == 6);
    CHECK(std::string(three, 3) + std::string(four, 3) == "abcdef");
  }
}

TEST_CASE("the end of the stream is a short receive, and the other direction goes on") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    stream_pair p(f);
    f.run(p.left.send_all(bytes_of("bye")));
    p.left.shut_down_sending();
    std::array<std::byte, 8> got{};
    CHECK(f.run(p.right.receive_exactly(got)).count() == 3);
    const io_result end = f.run(receive_once(p.right, got));
    CHECK(end.ok());
    CHECK(end.count() == 0);
    f.run(p.right.send_all(bytes_of("still")));
    CHECK(f.run(receive_once(p.left, got)).count() == 5);
  }
}

TEST_CASE("a reset ends a receive that waits with its errno") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    stream_pair p(f);
    std::array<std::byte, 8> got{};
    running<io_result> waiting(f, receive_once(p.right, got));
    f.get().turn();
    f.get().turn();
    CHECK(!waiting.ended());
    manyworlds::socket left = p.left.release();
    const linger reset{1, 0};
    ::setsockopt(descriptor_of(left), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    left.close();
    f.run_until([&] { return waiting.ended(); });
    CHECK(waiting.result().error() == ECONNRESET);
  }
}

TEST_CASE("sending to a peer that is gone is an errno, not a signal") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    stream_pair p(f);
    p.right.close();
    int error = 0;
    for (const time_limit limit; error == 0 && !limit.passed();) {
      error = f.run(p.left.send_all(bytes_of("a knock."))).error();
    }
    CHECK((error == EPIPE || error == ECONNRESET));
  }
}

TEST_CASE("connecting where no listener is left is refused and leaves nothing open") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    listener gone(f, socket_address::loopback(0));
    const socket_address unused = gone.address();
    gone.close();
    stream s;
    CHECK(f.run(stream::connect(f, unused, s)).error() == ECONNREFUSED);
    CHECK(!s.is_open());
    CHECK(f.run(stream::connect(f, socket_address(), s)).error() == EAFNOSUPPORT);
  }
}

TEST_CASE("listening on a port in use names the address") {
  reactor_fixture f(engine_kind::epoll);
  const listener first(f, socket_address::loopback(0));
  CHECK(first.address().port() != 0);
  try {
    const listener second(f, first.address());
    FAIL("two listeners on one port");
  } catch (const std::system_error& e) {
    CHECK(e.code().value() == EADDRINUSE);
    CHECK(std::string(e.what()).find(first.address().text()) != std::string::npos);
  }
}

TEST_CASE("both ends know each other's address, over IPv6 too") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    for (const char* any : {"127.0.0.1:0", "[::1]:0"}) {
      stream_pair p(f, listener(f, *socket_address::parse(any)));
      manyworlds::socket right = p.right.release();
      CHECK(p.left.peer_address() == right.net().local_address(right.handle()));
    }
  }
}

TEST_CASE(
    "sockets do not delay, do not block and are not inherited, dialled or accepted") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    stream_pair p(f);
    for (stream* s : {&p.left, &p.right}) {
      const manyworlds::socket owned = s->release();
      const int fd = descriptor_of(owned);
      CHECK(option_of(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
      CHECK(option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) > 0);
      // What is sent later waits for little that the socket holds back.
      CHECK(option_of(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT) > 0);
      CHECK(option_of(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT) <= 1024 * 1024);
      CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
      CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    }
  }
}

TEST_CASE(
    "accepting without a free descriptor says so, and works again when there is one") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    listener l(f, socket_address::loopback(0));
    stream dialled;
    REQUIRE(f.run(stream::connect(f, l.address(), dialled)).ok());
    stream accepted;
    {
      const no_descriptor_left exhausted;
      CHECK(f.run(stream_pair::accept(f, l, accepted)).error() == EMFILE);
      CHECK(f.get().sockets().open_stream(l.address()).error() == EMFILE);
    }
    CHECK(f.run(stream_pair::accept(f, l, accepted)).ok());
    CHECK(accepted.is_open());
  }
}

TEST_CASE("a stream given to another reactor goes on there") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture here(kind);
    reactor_fixture there(kind);
    stream_pair p(here);
    stream moved(there, p.right.release());
    CHECK(!p.right.is_open());
    here.run(p.left.send_all(bytes_of("over")));
    std::array<std::byte, 4> got{};
    CHECK(there.run(moved.receive_exactly(got)).count() == 4);
  }
}

TEST_CASE("five hundred connections are served side by side") {
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    constexpr std::size_t count = 500;
    struct connection {
      stream client;
      stream server;
      std::array<std::byte, 8> asked{};
      std::array<std::byte, 8> answered{};
    };
    std::deque<connection> all(count);
    listener l(f, socket_address::loopback(0));
    std::deque<running<io_result>> opening;
    for (connection& c : all) {
      opening.emplace_back(f, stream::connect(f, l.address(), c.client));
      opening.emplace_back(f, stream_pair::accept(f, l, c.server));
    }
    f.run_until([&] {
      return std::all_of(opening.begin(), opening.end(),
                         [](auto& o) { return o.ended(); });
    });
    for (auto& o : opening) REQUIRE(o.result().ok());

    const auto echo = [](connection& c) -> task<io_result> {
      const io_result got = co_await c.server.receive_exactly(c.asked);
      if (got.count() != c.asked.size()) co_return io_result::failure(EPROTO);
      co_return co_await c.server.send_all(c.asked);
    };
    const auto ask = [](connection& c, std::string_view text) -> task<io_result> {
      co_await c.client.send_all(bytes_of(text));
      co_return co_await c.client.receive_exactly(c.answered);
    };
    std::deque<running<io_result>> talks;
    for (connection& c : all) talks.emplace_back(f, echo(c));
    for (connection& c : all) talks.emplace_back(f, ask(c, "question"));
    f.run_until([&] {
      return std::all_of(talks.begin(), talks.end(), [](auto& t) { return t.ended(); });
    });
    for (auto& t : talks) CHECK(t.result().count() == 8);
    for (connection& c : all) CHECK(std::memcmp(c.answered.data(), "question", 8) == 0);
  }
}

TEST_SUITE_END();
