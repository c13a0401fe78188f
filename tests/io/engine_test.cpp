#include "io/engine.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "io/poll_budget.hpp"
#include "io/reactor_fixture.hpp"
#include "support/pattern.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("engine");

namespace {

/// A request that counts its ends.
class counted : public io_request {
 public:
  counted(io_kind k, int fd)
      : io_request([](io_request& r) noexcept { ++static_cast<counted&>(r).ends; }) {
    kind = k;
    socket = static_cast<socket_handle>(fd);
  }
  int ends = 0;
};

class pipe_ends {
 public:
  pipe_ends() { REQUIRE(::pipe2(fds_, O_NONBLOCK | O_CLOEXEC) == 0); }
  ~pipe_ends() {
    ::close(fds_[0]);
    ::close(fds_[1]);
  }
  int reading() const { return fds_[0]; }
  void write() const { REQUIRE(::write(fds_[1], "x", 1) == 1); }

 private:
  int fds_[2]{};
};

class socket_pair {
 public:
  socket_pair() {
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds_) == 0);
  }
  ~socket_pair() {
    ::close(fds_[0]);
    ::close(fds_[1]);
  }
  int left() const { return fds_[0]; }
  int right() const { return fds_[1]; }

 private:
  int fds_[2]{};
};

/// A file that has lost its name, of bytes that tell their place.
class scratch_file {
 public:
  explicit scratch_file(std::size_t size) : bytes_(pattern(size)) {
    char name[] = "/tmp/mw-engine-XXXXXX";
    fd_ = ::mkostemp(name, O_CLOEXEC);
    REQUIRE(fd_ >= 0);
    ::unlink(name);
    REQUIRE(::write(fd_, bytes_.data(), size) == static_cast<ssize_t>(size));
  }
  scratch_file(const scratch_file&) = delete;
  scratch_file& operator=(const scratch_file&) = delete;
  ~scratch_file() { ::close(fd_); }
  int fd() const { return fd_; }
  bool has(const void* memory, std::size_t offset, std::size_t count) const {
    return count > 0 && std::memcmp(memory, bytes_.data() + offset, count) == 0;
  }

 private:
  std::vector<std::uint8_t> bytes_;
  int fd_ = -1;
};

template <class Condition>
void poll_until(engine& e, Condition condition) {
  for (const time_limit limit; !condition() && !limit.passed();) e.poll();
  REQUIRE(condition());
}

bool all_have_ended(const std::vector<std::unique_ptr<counted>>& requests) {
  return std::all_of(requests.begin(), requests.end(),
                     [](const auto& each) { return each->ends > 0; });
}

}  // namespace

TEST_CASE("a request ends from poll alone, once per submission") {
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    const pipe_ends p;
    counted r(io_kind::readable, p.reading());
    p.write();
    e->submit(r);
    CHECK(r.ends == 0);
    poll_until(*e, [&] { return r.ends > 0; });
    for (int n = 0; n < 10; ++n) e->poll();
    CHECK(r.ends == 1);
    CHECK(r.result.ok());
    CHECK(r.result.count() == 0);
    e->submit(r);
    poll_until(*e, [&] { return r.ends == 2; });
  }
}

TEST_CASE("a request ends once whenever its cancellation comes") {
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    for (int n = 0; n < 32; ++n) {
      const pipe_ends p;
      counted r(io_kind::readable, p.reading());
      e->submit(r);
      if (n & 1) e->poll();
      if (n & 2) p.write();
      if (n & 4) e->poll();
      if (r.ends == 0) e->cancel(r);
      CHECK(r.ends <= 1);
      if ((n & 8) && r.ends == 0) e->cancel(r);
      if (n & 16) p.write();
      poll_until(*e, [&] { return r.ends > 0; });
      for (int more = 0; more < 4; ++more) e->poll();
      CHECK(r.ends == 1);
      CHECK((r.result.ok() || r.result.error() == ECANCELED));
    }
  }
}

TEST_CASE("starting what cannot start is an end like any other") {
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    const pipe_ends p;
    char byte = 0;
    const iovec buffer{&byte, 1};
    counted not_open(io_kind::readable, 1'000'000);
    counted not_a_socket(io_kind::receive, p.reading());
    not_a_socket.buffers = &buffer;
    not_a_socket.buffer_count = 1;
    for (counted* r : {&not_open, &not_a_socket}) e->submit(*r);
    CHECK(not_open.ends + not_a_socket.ends == 0);
    poll_until(*e, [&] { return not_open.ends == 1 && not_a_socket.ends == 1; });
    CHECK(not_open.result.error() == EBADF);
    CHECK(not_a_socket.result.error() == ENOTSOCK);
  }
}

TEST_CASE(
    "a receive ends once, whether the engine attempts it or the kernel waits for it") {
  constexpr int several = 6;
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    for (const int polls : {0, 1, 3, 200}) {
      for (const int way : {0, 1, 2, 3}) {
        const bool sleeps = (way & 1) != 0;
        const bool gives_up = (way & 2) != 0;
        std::array<socket_pair, several> pairs;
        std::array<char, several> bytes{};
        std::array<iovec, several> buffers;
        std::vector<std::unique_ptr<counted>> requests;
        for (std::size_t i = 0; i < several; ++i) {
          buffers[i] = {&bytes[i], 1};
          requests.push_back(
              std::make_unique<counted>(io_kind::receive, pairs[i].left()));
          requests.back()->buffers = &buffers[i];
          requests.back()->buffer_count = 1;
          e->submit(*requests.back());
        }
        for (int n = 0; n < polls; ++n) e->poll();
        if (sleeps) e->wait(e->now() + std::chrono::milliseconds(1));
        for (std::size_t i = 0; i < several; ++i) {
          CHECK(requests[i]->ends == 0);
          if (gives_up && i % 2 == 0) {
            e->cancel(*requests[i]);
          } else {
            REQUIRE(::write(pairs[i].right(), "x", 1) == 1);
          }
        }
        // A sleep from here on would last if a request were forgotten.
        for (const time_limit limit; !all_have_ended(requests) && !limit.passed();) {
          if (!e->poll()) e->wait(e->now() + std::chrono::seconds(5));
        }
        for (int n = 0; n < 4; ++n) e->poll();
        for (std::size_t i = 0; i < several; ++i) {
          CHECK(requests[i]->ends == 1);
          const bool is_given_up = gives_up && i % 2 == 0;
          CHECK(requests[i]->result.error() == (is_given_up ? ECANCELED : 0));
          CHECK(bytes[i] == (is_given_up ? 0 : 'x'));
        }
      }
    }
  }
}

TEST_CASE("a send and a receive wait on one socket without disturbing each other") {
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    const socket_pair p;
    std::vector<char> filler(1 << 16);
    while (::send(p.left(), filler.data(), filler.size(), MSG_DONTWAIT) > 0) {}
    std::array<char, 8> in{};
    const iovec to{in.data(), in.size()};
    const iovec from{filler.data(), filler.size()};
    counted receiving(io_kind::receive, p.left());
    receiving.buffers = &to;
    receiving.buffer_count = 1;
    counted sending(io_kind::send, p.left());
    sending.buffers = &from;
    sending.buffer_count = 1;
    e->submit(receiving);
    e->submit(sending);
    for (int n = 0; n < 10; ++n) e->poll();
    CHECK(receiving.ends == 0);
    CHECK(sending.ends == 0);
    REQUIRE(::send(p.right(), "hi", 2, 0) == 2);
    poll_until(*e, [&] { return receiving.ends == 1; });
    CHECK(receiving.result.count() == 2);
    CHECK(sending.ends == 0);
    std::vector<char> drained(1 << 20);
    for (const time_limit limit; sending.ends == 0 && !limit.passed(); e->poll()) {
      [[maybe_unused]] const auto got =
          ::recv(p.right(), drained.data(), drained.size(), MSG_DONTWAIT);
    }
    CHECK(sending.ends == 1);
    CHECK(sending.result.ok());
    CHECK(sending.result.count() > 0);
  }
}

TEST_CASE("a read of a file starts where it is asked to, and gives what is there") {
  const scratch_file file(3 << 20);
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    std::vector<std::uint8_t> memory(3 << 20);
    const auto start = [&](counted& r, const iovec* buffers, std::size_t count,
                           std::uint64_t offset) {
      r.buffers = buffers;
      r.buffer_count = count;
      r.offset = offset;
      e->submit(r);
      CHECK(r.ends == 0);
    };
    const iovec few{memory.data(), 8};
    const iovec much{memory.data() + 100, 1 << 20};
    const std::array<iovec, 2> two{iovec{memory.data() + (2 << 20), 5000},
                                   iovec{memory.data() + (2 << 20) + 6000, 3}};
    const iovec beyond{memory.data() + 50, 10};
    counted small(io_kind::read_at, file.fd());
    counted large(io_kind::read_at, file.fd());
    counted scattered(io_kind::read_at, file.fd());
    counted at_end(io_kind::read_at, file.fd());
    counted over_end(io_kind::read_at, file.fd());
    const auto ends = [&] {
      return small.ends + large.ends + scattered.ends + at_end.ends + over_end.ends;
    };
    start(small, &few, 1, 1);
    start(large, &much, 1, 4097);
    start(scattered, two.data(), two.size(), 77);
    start(at_end, &beyond, 1, 3 << 20);
    start(over_end, &beyond, 1, (3 << 20) - 4);
    poll_until(*e, [&] { return ends() == 5; });
    for (int n = 0; n < 4; ++n) e->poll();
    CHECK(ends() == 5);
    CHECK(small.result.count() == 8);
    CHECK(file.has(memory.data(), 1, 8));
    CHECK(large.result.count() == 1 << 20);
    CHECK(file.has(memory.data() + 100, 4097, 1 << 20));
    CHECK(scattered.result.count() == 5003);
    CHECK(file.has(memory.data() + (2 << 20), 77, 5000));
    CHECK(file.has(memory.data() + (2 << 20) + 6000, 5077, 3));
    CHECK(at_end.result.count() == 0);
    CHECK(over_end.result.count() == 4);
  }
}

TEST_CASE("a read that cannot start is an end like any other") {
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    const int folder = ::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REQUIRE(folder >= 0);
    char byte = 0;
    const iovec buffer{&byte, 1};
    counted not_open(io_kind::read_at, 1'000'000);
    counted no_file(io_kind::read_at, folder);
    for (counted* r : {&not_open, &no_file}) {
      r->buffers = &buffer;
      r->buffer_count = 1;
      r->offset = 1;
      e->submit(*r);
      CHECK(r->ends == 0);
    }
    poll_until(*e, [&] { return not_open.ends == 1 && no_file.ends == 1; });
    CHECK(not_open.result.error() == EBADF);
    CHECK(no_file.result.error() == EISDIR);
    ::close(folder);
  }
}

TEST_CASE("law 4: reads that are cancelled end once, and touch no memory afterwards") {
  constexpr std::size_t bytes = 256 * 1024;
  constexpr std::size_t several = 24;
  const scratch_file file(1 << 20);
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    for (const int polls : {0, 1, 3}) {
      std::vector<std::vector<std::uint8_t>> memory(several);
      std::array<iovec, several> buffers;
      std::vector<std::unique_ptr<counted>> requests;
      for (std::size_t i = 0; i < several; ++i) {
        memory[i].resize(bytes);
        buffers[i] = {memory[i].data(), bytes};
        requests.push_back(std::make_unique<counted>(io_kind::read_at, file.fd()));
        requests[i]->buffers = &buffers[i];
        requests[i]->buffer_count = 1;
        requests[i]->offset = i * 100;
        e->submit(*requests[i]);
      }
      for (int n = 0; n < polls; ++n) e->poll();
      for (std::size_t i = 0; i < several; i += 2) {
        if (requests[i]->ends == 0) e->cancel(*requests[i]);
        if (i % 4 == 0 && requests[i]->ends == 0) e->cancel(*requests[i]);
      }
      std::array<bool, several> was_seen{};
      poll_until(*e, [&] {
        for (std::size_t i = 0; i < several; ++i) {
          if (requests[i]->ends == 0 || std::exchange(was_seen[i], true)) continue;
          if (requests[i]->result.ok()) {
            CHECK(file.has(memory[i].data(), i * 100, requests[i]->result.count()));
          } else {
            CHECK(i % 2 == 0);
            CHECK(requests[i]->result.error() == ECANCELED);
          }
          // The owner's again: what the kernel writes from here on is seen below.
          std::fill(memory[i].begin(), memory[i].end(), std::uint8_t{0x5a});
        }
        return all_have_ended(requests);
      });
      for (int n = 0; n < 4; ++n) e->poll();
      for (std::size_t i = 0; i < several; ++i) {
        CHECK(requests[i]->ends == 1);
        CHECK(all_are(memory[i], 0x5a));
      }
    }
  }
}

TEST_CASE("a wait ends when a read of a file has") {
  const scratch_file file(1 << 20);
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    std::vector<std::uint8_t> memory(1 << 20);
    const iovec all{memory.data(), memory.size()};
    counted r(io_kind::read_at, file.fd());
    r.buffers = &all;
    r.buffer_count = 1;
    for (int n = 1; n <= 20; ++n) {
      e->submit(r);
      const time_limit limit;
      while (r.ends < n && !limit.passed()) {
        if (!e->poll()) e->wait(limit.end());
      }
      // A notice that was lost would have cost the whole limit.
      REQUIRE(!limit.passed());
      CHECK(file.has(memory.data(), 0, r.result.count()));
    }
  }
}

TEST_CASE("many more reads than threads all end, and an engine's end waits for them") {
  const scratch_file file(1 << 20);
  FOR_EVERY_ENGINE(kind) {
    std::vector<std::uint8_t> memory(1 << 20);
    std::vector<iovec> buffers(300);
    std::vector<std::unique_ptr<counted>> requests;
    const auto start = [&](engine& on) {
      requests.clear();
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        buffers[i] = {memory.data() + i * 3000, i % 2 == 0 ? 3000u : 10u};
        requests.push_back(std::make_unique<counted>(io_kind::read_at, file.fd()));
        requests[i]->buffers = &buffers[i];
        requests[i]->buffer_count = 1;
        requests[i]->offset = i * 3000;
        on.submit(*requests[i]);
      }
    };
    {
      const auto e = make_engine(kind).engine;
      start(*e);
      poll_until(*e, [&] { return all_have_ended(requests); });
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        CHECK(requests[i]->ends == 1);
        CHECK(requests[i]->result.count() == buffers[i].iov_len);
        CHECK(file.has(buffers[i].iov_base, i * 3000, buffers[i].iov_len));
      }
      start(*e);
      e->poll();
    }
    std::fill(memory.begin(), memory.end(), std::uint8_t{0x5a});
    CHECK(all_are(memory, 0x5a));
  }
}

TEST_CASE("reads of files go on when an engine goes to another thread") {
  const scratch_file file(1 << 20);
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    std::vector<std::uint8_t> memory(1 << 20);
    std::array<iovec, 16> buffers;
    std::vector<std::unique_ptr<counted>> requests;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      buffers[i] = {memory.data() + (i << 16), 1 << 16};
      requests.push_back(std::make_unique<counted>(io_kind::read_at, file.fd()));
      requests[i]->buffers = &buffers[i];
      requests[i]->buffer_count = 1;
      requests[i]->offset = i << 16;
      e->submit(*requests[i]);
    }
    e->poll();
    e->release();
    std::thread([&] {
      e->take(next_poller::this_thread);
      poll_until(*e, [&] { return all_have_ended(requests); });
      e->release();
    }).join();
    e->take(next_poller::this_thread);
    for (const auto& each : requests) CHECK(each->result.count() == 1 << 16);
    CHECK(file.has(memory.data(), 0, memory.size()));
  }
}

TEST_CASE(
    "more requests than the kernel takes at a time all end, a bounded number per poll") {
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    const pipe_ends p;
    p.write();
    constexpr std::size_t count = 6000;
    std::vector<std::unique_ptr<counted>> all;
    for (std::size_t n = 0; n < count; ++n) {
      all.push_back(std::make_unique<counted>(io_kind::readable, p.reading()));
      e->submit(*all.back());
    }
    std::size_t ended = 0;
    std::size_t most = 0;
    for (const time_limit limit; ended < count && !limit.passed();) {
      e->poll();
      std::size_t now = 0;
      for (const auto& r : all) now += static_cast<std::size_t>(r->ends);
      most = std::max(most, now - ended);
      ended = now;
    }
    CHECK(ended == count);
    CHECK(most <= 256);
    for (const auto& r : all) CHECK(r->ends == 1);
  }
}

TEST_CASE("law 9: a stream that is always full does not keep another from its receive") {
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    const socket_pair full, quiet;
    const std::vector<char> much(256 * 1024);
    const auto fill = [&] {
      while (::send(full.left(), much.data(), much.size(), MSG_DONTWAIT) > 0) continue;
    };
    const int room = 1 << 20;
    REQUIRE(::setsockopt(full.left(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
    fill();
    std::vector<char> bulk(128 * 1024);
    const iovec into_bulk{bulk.data(), bulk.size()};
    char byte = 0;
    const iovec into_byte{&byte, 1};
    counted large(io_kind::receive, full.right());
    large.buffers = &into_bulk;
    counted small(io_kind::receive, quiet.right());
    small.buffers = &into_byte;
    large.buffer_count = small.buffer_count = 1;
    e->submit(large);
    e->submit(small);
    e->poll();
    REQUIRE(::send(quiet.left(), "x", 1, 0) == 1);
    for (int polls = 0; small.ends == 0 && polls < 2000; ++polls) {
      fill();
      if (large.ends > 0) {
        large.ends = 0;
        e->submit(large);
      }
      e->poll();
    }
    CHECK(small.ends == 1);
    CHECK(byte == 'x');
    if (large.ends == 0) e->cancel(large);
    poll_until(*e, [&] { return large.ends > 0; });
  }
}

TEST_CASE(
    "many that send much at once send a bounded part of it per poll, each in turn") {
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    const std::vector<char> much(64 * 1024);
    const iovec from{const_cast<char*>(much.data()), much.size()};
    const std::vector<socket_pair> pairs(16);
    std::vector<std::unique_ptr<counted>> all;
    for (const socket_pair& p : pairs) {
      all.push_back(std::make_unique<counted>(io_kind::send, p.left()));
      all.back()->buffers = &from;
      all.back()->buffer_count = 1;
      e->submit(*all.back());
    }
    std::size_t ended = 0;
    std::size_t bytes = 0;
    for (const time_limit limit; ended < all.size() && !limit.passed();) {
      e->poll();
      const auto is_open = [](const auto& r) { return r->ends == 0; };
      const auto first_open = std::find_if(all.begin(), all.end(), is_open);
      const auto in_turn = static_cast<std::size_t>(first_open - all.begin());
      std::size_t now = 0;
      std::size_t bytes_now = 0;
      for (const auto& r : all) {
        now += static_cast<std::size_t>(r->ends);
        if (r->ends > 0) bytes_now += r->result.count();
      }
      // What was sent when it was submitted ends beside what was sent in this poll. A
      // kernel that is short of memory sends less at a time, so bytes are counted.
      CHECK(bytes_now - bytes <= 2 * (poll_budget::bytes + much.size()));
      CHECK(now - in_turn <= 8);
      ended = now;
      bytes = bytes_now;
    }
    CHECK(ended == all.size());
  }
}

TEST_CASE(
    "law 9: behind what others send in bulk no small send waits, and none that is given "
    "up") {
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    e->poll();
    const std::vector<char> much(64 * 1024);
    const iovec from{const_cast<char*>(much.data()), much.size()};
    const std::vector<socket_pair> pairs(16);
    std::vector<std::unique_ptr<counted>> all;
    for (const socket_pair& p : pairs) {
      all.push_back(std::make_unique<counted>(io_kind::send, p.left()));
      all.back()->buffers = &from;
      all.back()->buffer_count = 1;
      e->submit(*all.back());
    }

    const socket_pair other;
    std::array<char, 8> word{};
    const iovec few{word.data(), word.size()};
    counted small(io_kind::send, other.left());
    small.buffers = &few;
    small.buffer_count = 1;
    e->submit(small);
    CHECK(::recv(other.right(), word.data(), word.size(), MSG_DONTWAIT) == 8);

    e->cancel(*all.back());
    e->poll();
    CHECK(all.back()->ends == 1);
    CHECK(all.back()->result.error() == ECANCELED);
    CHECK(all[all.size() - 2]->ends == 0);
    poll_until(*e, [&] {
      return small.ends == 1 && std::all_of(all.begin(), all.end(),
                                            [](const auto& r) { return r->ends == 1; });
    });
    CHECK(small.ends == 1);
  }
}

TEST_CASE("thousands of waiting requests are all cancelled, and keep out no other") {
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    const pipe_ends idle;
    const pipe_ends busy;
    std::vector<std::unique_ptr<counted>> all;
    for (std::size_t n = 0; n < 6000; ++n) {
      all.push_back(std::make_unique<counted>(io_kind::readable, idle.reading()));
      e->submit(*all.back());
      if (n % 100 == 0) e->poll();
    }
    counted last(io_kind::readable, busy.reading());
    e->submit(last);
    busy.write();
    poll_until(*e, [&] { return last.ends == 1; });
    for (const auto& r : all) e->cancel(*r);
    poll_until(*e, [&] {
      return std::all_of(all.begin(), all.end(),
                         [](const auto& r) { return r->ends > 0; });
    });
    for (const auto& r : all) CHECK(r->ends == 1);
    for (const auto& r : all) CHECK(r->result.error() == ECANCELED);
  }
}

TEST_CASE(
    "a wait ends at its time, by a completion, or by a wake-up given before or during "
    "it") {
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    const time_limit limit(10s);
    const time_point start = e->now();
    while (e->now() < start + 5ms) e->wait(start + 5ms);

    e->wake();
    e->poll();
    e->wait(limit.end());
    CHECK(!limit.passed());

    std::thread waker([&] { e->wake(); });
    e->wait(limit.end());
    waker.join();
    CHECK(!limit.passed());

    const pipe_ends p;
    counted r(io_kind::readable, p.reading());
    e->submit(r);
    std::thread writer([&] { p.write(); });
    while (r.ends == 0 && !limit.passed()) {
      e->wait(limit.end());
      e->poll();
    }
    writer.join();
    CHECK(r.ends == 1);
    CHECK(!limit.passed());
  }
}

TEST_CASE("a wait without a reason lasts") {
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    e->wake();
    e->wait(e->now() + 10s);
    e->poll();
    const time_point start = e->now();
    int waits = 0;
    for (; e->now() < start + 50ms; ++waits) e->wait(start + 50ms);
    CHECK(waits <= 3);
  }
}

TEST_CASE(
    "an engine that is destroyed leaves no request behind that could touch a buffer") {
  FOR_EVERY_ENGINE(kind) {
    const socket_pair p;
    char byte = 'a';
    const iovec buffer{&byte, 1};
    counted r(io_kind::receive, p.left());
    r.buffers = &buffer;
    r.buffer_count = 1;
    {
      const auto e = make_engine(kind).engine;
      e->submit(r);
      e->poll();
    }
    REQUIRE(::send(p.right(), "b", 1, 0) == 1);
    char got = 0;
    CHECK(::recv(p.left(), &got, 1, 0) == 1);
    CHECK(got == 'b');
    CHECK(byte == 'a');
    CHECK(r.ends == 0);
  }
}

TEST_CASE("a thread releases an engine with all its requests, and another one takes it") {
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    constexpr std::size_t count = 100;
    std::vector<std::unique_ptr<pipe_ends>> pipes;
    std::vector<std::unique_ptr<counted>> waiting;
    const auto write_each_fourth = [&](std::size_t from) {
      for (std::size_t n = from; n < count; n += 4) pipes[n]->write();
    };
    for (std::size_t n = 0; n < count; ++n) {
      pipes.push_back(std::make_unique<pipe_ends>());
      waiting.push_back(
          std::make_unique<counted>(io_kind::readable, pipes.back()->reading()));
      e->submit(*waiting.back());
    }
    e->poll();
    e->wait(e->now() + std::chrono::milliseconds(1));
    write_each_fourth(0);
    e->release();
    write_each_fourth(1);
    for (std::size_t n = 2; n < count; n += 4) e->cancel(*waiting[n]);
    std::thread([&] {
      e->take(next_poller::this_thread);
      e->poll();
      write_each_fourth(3);
      poll_until(*e, [&] { return all_have_ended(waiting); });
      e->release();
    }).join();
    e->take(next_poller::this_thread);
    for (int more = 0; more < 4; ++more) e->poll();
    for (std::size_t n = 0; n < count; ++n) {
      CHECK(waiting[n]->ends == 1);
      CHECK(waiting[n]->result.ok() == (n % 4 != 2));
    }
  }
}

TEST_CASE("... also with streams that connect") {
  FOR_EVERY_ENGINE(kind) {
    const auto e = make_engine(kind).engine;
    network& sockets = e->sockets();
    // The queue of connections holds one, and the other waits until that was taken.
    const io_result listener = sockets.listen(socket_address::loopback(0), 0);
    REQUIRE(listener.ok());
    const socket_address there = sockets.local_address(listener.handle());
    std::vector<std::unique_ptr<counted>> connecting;
    for (int n = 0; n < 2; ++n) {
      const io_result stream = sockets.open_stream(there);
      REQUIRE(stream.ok());
      connecting.push_back(
          std::make_unique<counted>(io_kind::connect, static_cast<int>(stream.handle())));
      connecting.back()->address = there;
      e->submit(*connecting.back());
    }
    e->poll();
    e->release();
    CHECK_FALSE(all_have_ended(connecting));
    std::thread([&] {
      e->take(next_poller::this_thread);
      for (std::size_t n = 0; n < connecting.size(); ++n) {
        counted accepting(io_kind::accept, static_cast<int>(listener.handle()));
        e->submit(accepting);
        poll_until(*e, [&] { return accepting.ends > 0; });
        REQUIRE(accepting.result.ok());
        sockets.close(accepting.result.handle());
      }
      poll_until(*e, [&] { return all_have_ended(connecting); });
      e->release();
    }).join();
    for (const auto& each : connecting) {
      CHECK(each->ends == 1);
      CHECK(each->result.ok());
      sockets.close(each->socket);
    }
    sockets.close(listener.handle());
  }
}

TEST_CASE("an engine may be made and given requests on one thread and run on another") {
  FOR_EVERY_ENGINE(kind) {
    auto e = make_engine(kind).engine;
    const pipe_ends p;
    p.write();
    counted r(io_kind::readable, p.reading());
    e->submit(r);
    std::thread runner([&] {
      for (const time_limit limit; r.ends == 0 && !limit.passed();) e->poll();
      e.reset();
    });
    runner.join();
    CHECK(r.ends == 1);
  }
}

TEST_SUITE_END();
