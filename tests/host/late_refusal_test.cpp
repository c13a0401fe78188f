// Reading that was allowed when two processes met, and is refused in the midst of a
// message: by a filter that came later, or since its process may no longer be traced.
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>

#include "cluster.hpp"
#include "support/refused_calls.hpp"
#include "support/refused_here.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;

namespace {

constexpr std::size_t large = std::size_t{8} << 20;

bool reads(member& m) {
  for (const std::string& line : m.events.warnings) {
    if (line.find("may not be read") != std::string::npos) return false;
  }
  return true;
}

/// Runs `body` on a thread of its own, unless this machine refuses to read in any case.
template <class Body>
void where_reading_is_allowed(Body body) {
  if (!testing::reading_is_refused_here()) testing::on_own_thread(body);
}

void refuse_reading(int error) { testing::refuse(SYS_process_vm_readv, error); }

bool is_half_done(const receive_op& r) {
  return !r.ended() && r.bytes_moved > 0 && r.bytes_moved < large;
}

/// A message from member 0 of which member 1 has read a part.
struct half_read {
  half_read() {
    receive(c, r, 1, 0, got);
    send(c, s, 0, 1, sent);
    check_half_done();
  }
  void check_half_done() {
    CHECK(c.until([&] { return is_half_done(r) || r.ended(); }));
    REQUIRE(is_half_done(r));
  }

  cluster c{2, ground::shared};
  std::vector<std::uint8_t> sent = pattern(large);
  std::vector<std::uint8_t> got = std::vector<std::uint8_t>(large);
  send_op s;
  receive_op r;
};

}  // namespace

TEST_SUITE("host late refusal") {
  TEST_CASE("law 1: a message arrives whole though its reading is refused half way") {
    for (const int error : {EPERM, EACCES, ENOSYS}) {
      where_reading_is_allowed([error] {
        CAPTURE(error);
        half_read m;
        refuse_reading(error);
        CHECK(m.c.until([&] { return m.s.ended() && m.r.ended(); }));
        CHECK(m.s.done());
        CHECK(m.r.done());
        CHECK(m.got == m.sent);
        CHECK(m.r.bytes_moved == large);
        CHECK(m.c[1].events.warnings.size() == 1);
        CHECK_FALSE(reads(m.c[1]));
        CHECK(m.c[0].events.quiet());
        CHECK(m.c[1].events.quiet());
      });
    }
  }

  TEST_CASE("law 1: so do many messages at once, some of them lists") {
    where_reading_is_allowed([] {
      cluster c(2, ground::shared);
      constexpr std::size_t count = 12;
      constexpr std::size_t each = 700'001;
      std::deque<std::vector<std::uint8_t>> sent;
      std::deque<std::vector<const_buffer_view>> lists(count);
      std::vector<std::vector<std::uint8_t>> got(count, std::vector<std::uint8_t>(each));
      std::deque<send_op> sends(count);
      std::deque<receive_op> receives(count);
      for (std::size_t i = 0; i < count; ++i) {
        sent.push_back(pattern(each, static_cast<unsigned>(i)));
        receive(c, receives[i], 1, 0, got[i], i % 5);
        for (std::size_t at = 0; at < each; at += 999) {
          lists[i].emplace_back(sent[i].data() + at,
                                std::min<std::size_t>(999, each - at), dtype::uint8);
        }
        if (i % 2 == 0) {
          send(c, sends[i], 0, 1, lists[i], i % 5);
        } else {
          send(c, sends[i], 0, 1, sent[i], i % 5);
        }
      }
      const auto ended = [&] {
        return std::count_if(receives.begin(), receives.end(),
                             [](const receive_op& r) { return r.ended(); });
      };
      CHECK(c.until([&] { return receives[0].bytes_moved > 0; }));
      CHECK(ended() < static_cast<std::ptrdiff_t>(count));
      refuse_reading(EPERM);
      CHECK(c.until([&] {
        return ended() == static_cast<std::ptrdiff_t>(count) &&
               std::all_of(sends.begin(), sends.end(),
                           [](const send_op& s) { return s.ended(); });
      }));
      for (std::size_t i = 0; i < count; ++i) {
        CAPTURE(i);
        CHECK(sends[i].done());
        CHECK(receives[i].done());
        CHECK(got[i] == sent[i]);
      }
      CHECK(c[1].events.warnings.size() == 1);
      CHECK(c[1].events.quiet());
    });
  }

  TEST_CASE("law 10: giving up such a message leaves it whole for the next receive") {
    where_reading_is_allowed([] {
      half_read m;
      refuse_reading(EPERM);
      // Asked for, and partly there.
      CHECK(m.c.until([&] { return !reads(m.c[1]); }));
      m.check_half_done();
      if (!m.c.at(1).withdraw(m.r)) CHECK(m.c.until([&] { return m.r.withdrawn(); }));
      std::fill(m.got.begin(), m.got.end(), std::uint8_t{0x5a});
      CHECK(next_received(m.c, large) == m.sent);
      CHECK(m.c.until([&] { return m.s.ended(); }));
      CHECK(m.s.done());
      // Law 4: nothing came into what was given back.
      CHECK(all_are(m.got, 0x5a));
      CHECK(m.c[1].events.quiet());
    });
  }

  TEST_CASE("law 10: a send that is given up as its reading is refused gives nothing") {
    where_reading_is_allowed([] {
      half_read m;
      refuse_reading(EPERM);
      if (!m.c.at(0).withdraw(m.s)) CHECK(m.c.until([&] { return m.s.withdrawn(); }));
      // The receive is told, or it had begun anew and gets the next message whole.
      const auto next = pattern(large, 2);
      send_op after;
      send(m.c, after, 0, 1, next);
      CHECK(m.c.until([&] { return m.r.ended(); }));
      if (m.r.done()) {
        CHECK(m.got == next);
      } else {
        CHECK(m.r.failed(cause::cancelled_by_peer));
        CHECK(m.c.at(0).withdraw(after));
      }
      CHECK(m.c[0].events.quiet());
      CHECK(m.c[1].events.quiet());
    });
  }
}
