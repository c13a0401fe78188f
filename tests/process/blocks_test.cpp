// Blocks are asked for on a lane of its own each, and half of the requests are given up.
// MANYWORLDS_BLOCKS_SECONDS=600 runs each case for ten minutes; a second without it.
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <fstream>
#include <random>

#include "block_orders.hpp"
#include "process_fixture.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

constexpr std::uint32_t block_bytes = 16 * 1024;
constexpr std::uint32_t blocks = 4;
constexpr int at_a_time = 8;

struct asking {
  bool discards = true;
  clock::time_point end;
  std::uint64_t last_lane = 0;
  std::uint64_t whole = 0;
  std::uint64_t given_up = 0;
  std::uint64_t wrong = 0;
  std::uint64_t touched = 0;
  std::string failure;
  std::mt19937_64 dice{7};
};

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t size = 0;
  std::size_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

using page = std::vector<std::uint64_t>;
constexpr std::uint64_t canary = 0xCA9A29CA9A29CA9A;

/// Pages that came back from a request that was given up, and must stay as they are.
class returned_pages {
 public:
  explicit returned_pages(asking& a) : asking_(a) {}
  page take() {
    if (pages_.size() < 64) return page(block_bytes / 8);
    page p = std::move(pages_.front());
    pages_.pop_front();
    const auto whole = std::count(p.begin(), p.end(), canary);
    if (whole != static_cast<std::ptrdiff_t>(p.size())) ++asking_.touched;
    return p;
  }
  void give_back(page p) {
    p.assign(p.size(), canary);
    pages_.push_back(std::move(p));
  }

 private:
  asking& asking_;
  std::deque<page> pages_;
};

task<bool> fetch(world& w, asking& a, page& into, bool gives_up) {
  const block_request request{++a.last_lane, block_bytes, blocks};
  const lane on(request.lane);
  co_await w.send_message(request, to{1}).within(20s);
  // Some before anything has come, some after that, some in the midst of it.
  const std::uint32_t wanted =
      gives_up ? static_cast<std::uint32_t>(a.dice() % blocks) : blocks;
  for (std::uint32_t i = 0; i < wanted; ++i) {
    co_await w.recv(into, from{1}, on).within(20s);
    for (const std::uint64_t word : into) {
      if (word == request.lane) continue;
      ++a.wrong;
      break;
    }
  }
  if (!gives_up) co_return true;
  const duration patience = std::chrono::microseconds(a.dice() % 300);
  auto last = w.recv(into, from{1}, on).within(patience);
  if (a.discards) {
    (void)co_await outcome(std::move(last).discarding());
  } else {
    (void)co_await outcome(std::move(last));
  }
  co_return false;
}

task<void> fetch_in_turn(world& w, asking& a, returned_pages& pages) {
  while (clock::now() < a.end && a.failure.empty()) {
    page into = pages.take();
    const bool gives_up = a.dice() % 2 == 0;
    const auto got = co_await outcome(fetch(w, a, into, gives_up));
    if (!got) {
      a.failure = got.error().text();
    } else {
      ++(*got ? a.whole : a.given_up);
    }
    pages.give_back(std::move(into));
  }
}

task<void> fetch_all(world& w, asking& a) {
  returned_pages pages(a);
  auto all = [&](scope& s) -> task<void> {
    for (int i = 0; i < at_a_time; ++i) s.spawn(fetch_in_turn(w, a, pages));
    co_return;
  };
  co_await scope::run(all);
}

std::chrono::seconds seconds_of_a_case() {
  const char* wanted = std::getenv("MANYWORLDS_BLOCKS_SECONDS");
  return std::chrono::seconds(wanted ? std::strtol(wanted, nullptr, 10) : 1);
}

void fetch_over(const std::string& transport, bool discards) {
  CAPTURE(transport);
  CAPTURE(discards);
  site here(engine_kind::automatic);
  std::vector<std::string> settings;
  if (transport == "tcp") settings.push_back("shm=off");
  process other = here.worker("blocks", settings);
  other.order("give_blocks blocks");
  leader us(here, 200ms, nullptr, transport != "shm, not read");
  world w = us.form("blocks");
  CHECK_THROWS_AS(w.discard(from{7}), world_error);
  CHECK_THROWS_AS(w.discard(from{0}), world_error);
  CHECK_THROWS_AS(w.discard(from{1}, lane(lane::reserved | 1)), world_error);
  // From another thread than the reactor's.
  w.discard(from{1}, lane(1));
  asking a;
  a.discards = discards;
  const auto run_for = [&](duration span) {
    a.end = clock::now() + span;
    us.run(fetch_all(w, a), std::chrono::duration_cast<std::chrono::seconds>(span) + 60s);
  };
  // At least what has filled the window twice, whatever the machine's speed.
  run_for(seconds_of_a_case() / 4);
  const std::size_t before = resident_bytes();
  while (a.given_up < 300 && a.failure.empty()) run_for(200ms);
  run_for(seconds_of_a_case() - seconds_of_a_case() / 4);
  const std::string how = transport + (discards ? ", discarding: " : ": ");
  MESSAGE(how << a.whole << " whole, " << a.given_up << " given up");
  CHECK(a.failure == "");
  CHECK(a.wrong == 0);
  CHECK(a.touched == 0);
  CHECK(a.whole > 0);
  const std::size_t after = resident_bytes();
  CHECK(after < before + (std::size_t{48} << 20));
  auto leave = [](world& left) -> task<void> { co_await left.leave(); };
  us.run(leave(w));
}

}  // namespace

TEST_CASE("half of all requests are given up, and discarded: the rest comes whole") {
  for (const char* transport : {"shm", "shm, not read", "tcp"})
    fetch_over(transport, true);
}

TEST_CASE("and the rest also comes whole if nothing is discarded") {
  for (const char* transport : {"shm", "shm, not read", "tcp"}) {
    fetch_over(transport, false);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
