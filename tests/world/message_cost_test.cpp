// What a small message costs that cannot creep back unseen: allocations, and calls
// through pointers.
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <limits>

#include "support/refused_memory.hpp"
#include "support/sanitizers.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

using word = std::uint64_t;

/// The world's backend and the way to the peer.
constexpr int most_of_a_send = 3;
/// Those of a whole turn. Of the arrival: its slot, what it makes ready, its coroutine.
/// Of the turn, without which nothing arrives: the clock and what libc asks for it, the
/// engine, the link. One is left over.
constexpr int most_of_a_turn = 8;

/// Stops a traced process; without effect where none is traced.
void mark() noexcept {
#if defined(__x86_64__)
  asm volatile("int3");
#endif
}

/// Two members that one thread turns by turns, over shared memory or tcp.
class one_thread {
 public:
  explicit one_thread(bool shares_memory = true)
      : here_({.shared_memory = shares_memory}),
        there_({.shared_memory = shares_memory}),
        near_(here_, store_, {.name = "one thread", .rank = 0, .size = 2, .form = 10s}),
        far_(there_, store_, {.name = "one thread", .rank = 1, .size = 2, .form = 10s}) {}

  /// Runs a task at each until both have ended.
  template <class Near, class Far>
  void run(Near near, Far far) {
    here_.poll();
    there_.poll();
    auto first = here_.start(near(near_));
    auto second = there_.start(far(far_));
    const auto until = clock::now() + 20s;
    while ((!first.is_ready() || !second.is_ready()) && clock::now() < until) {
      here_.poll();
      if (std::exchange(before_arrival, nullptr)) mark();
      there_.poll();
    }
    first.get();
    second.get();
  }
  /// Returns one end of another world of the same two.
  [[nodiscard]] world another(rank_t rank) {
    return {rank == 0 ? here_ : there_,
            store_,
            {.name = "another", .rank = rank, .size = 2, .form = 10s}};
  }
  void form() {
    const auto forming = [](world& w) -> task<void> { co_await w; };
    run(forming, forming);
  }
  /// If set, a mark stands before the next turn of the second.
  const char* before_arrival = nullptr;

  [[nodiscard]] std::string transport() {
    std::string found;
    auto ask = [&found](world& w) -> task<void> {
      found = w.transport();
      co_return;
    };
    run(ask, ask);
    return found;
  }

 private:
  memory_store store_;
  runtime here_;
  runtime there_;
  world near_;
  world far_;
};

task<void> say(world& w, int messages) {
  const word x = 1;
  for (int i = 0; i < messages; ++i) co_await w.send(object(x), to{1});
}
task<void> hear(world& w, int messages) {
  word x = 0;
  for (int i = 0; i < messages; ++i) co_await w.recv(object(x), from{0});
}

/// Enough that everything that grows once has grown.
void warm_up(one_thread& pair) {
  pair.run([](world& w) { return say(w, 3000); }, [](world& w) { return hear(w, 3000); });
}

#if defined(__x86_64__)

/// Counts the calls through pointers that a child makes between its marks: those of the
/// library, without the calls into shared libraries, which the linker's table makes.
class call_counter {
 public:
  /// Returns the count of each span between two marks, or nothing where tracing is
  /// refused.
  static std::vector<int> count(void (*child)()) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
      ::raise(SIGSTOP);
      ::alarm(60);
      child();
      ::_exit(0);
    }
    call_counter counter(pid);
    counter.follow();
    return counter.spans_;
  }

 private:
  explicit call_counter(pid_t pid) noexcept : pid_(pid) {}

  void follow() {
    bool is_within = false;
    for (;;) {
      int status = 0;
      if (::waitpid(pid_, &status, 0) != pid_ || !WIFSTOPPED(status)) return;
      const int signal = WSTOPSIG(status);
      if (signal != SIGTRAP) {
        ::ptrace(PTRACE_CONT, pid_, nullptr, signal == SIGSTOP ? 0 : signal);
        continue;
      }
      const std::uint64_t code = next_code();
      // A step ends before the next instruction; a mark is stepped onto, then passed.
      if (!is_within) {
        is_within = true;
        spans_.push_back(0);
      } else if ((code & 0xFF) == 0xCC) {
        is_within = false;
        skip_mark();
        ::ptrace(PTRACE_CONT, pid_, nullptr, 0);
        continue;
      }
      if (is_indirect_call(code)) ++spans_.back();
      ::ptrace(PTRACE_SINGLESTEP, pid_, nullptr, 0);
    }
  }
  [[nodiscard]] std::uint64_t next_code() const {
    return static_cast<std::uint64_t>(
        ::ptrace(PTRACE_PEEKTEXT, pid_, program_counter(), nullptr));
  }
  [[nodiscard]] std::uint64_t program_counter() const {
    return static_cast<std::uint64_t>(
        ::ptrace(PTRACE_PEEKUSER, pid_, counter_offset, nullptr));
  }
  void skip_mark() const {
    ::ptrace(PTRACE_POKEUSER, pid_, counter_offset, program_counter() + 1);
  }
  /// FF /2, perhaps behind a REX prefix; with a displacement from the instruction itself
  /// it is a call into a shared library.
  [[nodiscard]] static bool is_indirect_call(std::uint64_t code) {
    if ((code & 0xF0) == 0x40) code >>= 8;
    const std::uint64_t operand = code >> 8 & 0xFF;
    return (code & 0xFF) == 0xFF && (operand >> 3 & 7) == 2 && (operand & 0xC7) != 0x05;
  }

  static constexpr std::uint64_t counter_offset = 16 * 8;  // rip in user_regs_struct
  pid_t pid_;
  std::vector<int> spans_;
};

/// One send, then the turn that brings it to the task that waits for it.
void one_message() {
  one_thread pair;
  pair.form();
  warm_up(pair);
  auto marked_send = [&pair](world& w) -> task<void> {
    const word x = 1;
    word ready = 0;
    // The receive waits by then.
    co_await w.recv(object(ready), from{1}, lane{2});
    mark();
    co_await w.send(object(x), to{1});
    mark();
    pair.before_arrival = "the one just sent";
  };
  auto marked_receive = [](world& w) -> task<void> {
    word x = 0;
    co_await w.send(object(x), to{0}, lane{2});
    co_await w.recv(object(x), from{0});
    mark();
  };
  pair.run(marked_send, marked_receive);
}

#endif

}  // namespace

TEST_CASE("a small message allocates nothing, neither sent nor received") {
  one_thread pair;
  pair.form();
  REQUIRE(pair.transport() == "shm");
  warm_up(pair);
  constexpr int plenty = 1'000'000;
  constexpr int messages = 1000;
  int allocations = -1;
  auto ask = [&](world& w) -> task<void> {
    word x = 1;
    co_await w.recv(object(x), from{1});
    const testing::refused_memory counting(plenty);
    for (int i = 0; i < messages; ++i) {
      co_await w.send(object(x), to{1});
      co_await w.recv(object(x), from{1});
    }
    allocations = plenty - testing::refused_memory::left_before();
  };
  auto answer = [](world& w) -> task<void> {
    word x = 0;
    co_await w.send(object(x), to{0});
    for (int i = 0; i < messages; ++i) {
      co_await w.recv(object(x), from{0});
      co_await w.send(object(x), to{0});
    }
  };
  pair.run(ask, answer);
  CHECK(allocations == 0);
}

TEST_CASE("a receive of what is there needs no wait, whatever it takes") {
  one_thread pair;
  pair.form();
  warm_up(pair);
  constexpr lane on_one{2};
  constexpr lane on_any{3};
  auto tell = [=](world& w) -> task<void> {
    const std::array<word, 2> data{1, 2};
    word ready = 0;
    // The first of each names its lane.
    for (int i = 0; i < 2; ++i) {
      co_await w.send_message(word{7}, std::span(data), to{1}, on_one);
      co_await w.send(std::span(data), to{1}, on_any);
    }
    co_await w.recv(object(ready), from{1});
  };
  int without_wait = 0;
  auto take = [&](world& w) -> task<void> {
    std::array<word, 2> data{};
    word x = 0;
    const auto note = [&](auto operation) {
      auto awaiting = std::move(operation).operator co_await();
      if (!awaiting.await_ready()) return false;
      static_cast<void>(awaiting.await_resume());
      ++without_wait;
      return true;
    };
    static_cast<void>(co_await w.recv_message<word>(from{0}, on_one));
    co_await w.recv(std::span(data), from{0}, on_one);
    co_await w.recv(std::span(data), mw::any, on_any);
    // All of the second have come by then: what is sent is in order.
    static_cast<void>(co_await w.arrival(from{0}, on_any));
    CHECK(note(w.arrival(mw::any, on_any)));
    CHECK(note(w.recv_message<word>(from{0}, on_one)));
    const std::span all(data);
    CHECK(note(w.recv(scatter_list(all.first(1), all.last(1)), from{0}, on_one)));
    CHECK(note(w.recv(all, mw::any, on_any)));
    CHECK(data[1] == 2);
    co_await w.send(object(x), to{0});
  };
  pair.run(tell, take);
  CHECK(without_wait == 4);
}

TEST_CASE("over tcp a small send needs no wait either, until the stream is full") {
  constexpr int messages = 1000;
  constexpr std::size_t words = 128;
  one_thread pair(false);
  pair.form();
  REQUIRE(pair.transport() == "tcp");
  warm_up(pair);
  int without_wait = 0;
  int wrong = 0;
  auto tell = [&](world& w) -> task<void> {
    for (int i = 0; i < messages; ++i) {
      std::vector<word> data(words, static_cast<word>(i));
      auto sending = w.send(std::span(data), to{1});
      auto awaiting = std::move(sending).operator co_await();
      if (awaiting.await_ready()) {
        static_cast<void>(awaiting.await_resume());
        ++without_wait;
      } else {
        co_await awaiting;
      }
      // It was copied: what stands here now is not sent.
      std::fill(data.begin(), data.end(), ~word{0});
    }
  };
  auto take = [&](world& w) -> task<void> {
    std::vector<word> data(words);
    for (int i = 0; i < messages; ++i) {
      co_await w.recv(std::span(data), from{0});
      wrong += data.front() == static_cast<word>(i) && data == std::vector(words, data[0])
                   ? 0
                   : 1;
    }
  };
  pair.run(tell, take);
  CHECK(wrong == 0);
  CHECK(without_wait > 0);
  CHECK(without_wait < messages);
}

namespace {

constexpr int ready_messages = 1000;

/// A loop of operations that need no wait, beside a task that wants its turn.
struct ready_loop {
  task<void> other() {
    while (!over) {
      ++turns_of_other;
      in_a_row = 0;
      co_await yield();
    }
  }
  void count() { longest = std::max(longest, ++in_a_row); }
  void check() const {
    constexpr int most_in_a_row = 256;
    // The last of a turn ends with the next one.
    CHECK(longest <= most_in_a_row + 1);
    // All could be done at once: without a limit they would be, in one go.
    CHECK(longest > most_in_a_row / 2);
    CHECK(turns_of_other >= ready_messages / most_in_a_row);
  }

  int in_a_row = 0;
  int longest = 0;
  int turns_of_other = 0;
  bool over = false;
};

}  // namespace

TEST_CASE(
    "laws 5 and 9: a loop of receives that need no wait keeps no other task waiting") {
  one_thread pair;
  pair.form();
  warm_up(pair);
  ready_loop beside;
  auto hear_all = [&](world& w) -> task<void> {
    word x = 0;
    constexpr lane on{4};
    constexpr lane last{5};
    // The first names its lane, and when the last is here, all are.
    co_await w.recv(object(x), from{0}, on);
    co_await w.recv(object(x), from{0}, last);
    auto loop = [&]() -> task<void> {
      for (int i = 1; i < ready_messages; ++i) {
        co_await w.recv(object(x), from{0}, on);
        beside.count();
      }
      beside.over = true;
    };
    co_await when_all(beside.other(), loop());
  };
  auto tell_all = [&](world& w) -> task<void> {
    const word x = 1;
    for (int i = 0; i < ready_messages; ++i) co_await w.send(object(x), to{1}, lane{4});
    co_await w.send(object(x), to{1}, lane{5});
  };
  pair.run(tell_all, hear_all);
  beside.check();
}

TEST_CASE("law 9: a loop of sends that need no wait keeps no other task waiting") {
  // A ring of shared memory is full before that, unless another process reads.
  one_thread pair(false);
  pair.form();
  warm_up(pair);
  ready_loop beside;
  auto tell_all = [&](world& w) -> task<void> {
    const word x = 1;
    auto loop = [&]() -> task<void> {
      for (int i = 0; i < ready_messages; ++i) {
        co_await w.send(object(x), to{1});
        beside.count();
      }
      beside.over = true;
    };
    co_await when_all(beside.other(), loop());
  };
  auto hear_all = [&](world& w) -> task<void> {
    word x = 0;
    for (int i = 0; i < ready_messages; ++i) co_await w.recv(object(x), from{0});
  };
  pair.run(tell_all, hear_all);
  beside.check();
}

namespace {

constexpr std::size_t large_words = 1024;
constexpr int large_messages = 5;

}  // namespace

TEST_CASE("of large messages in many worlds each is copied once, as in one") {
  one_thread pair;
  pair.form();
  REQUIRE(pair.transport() == "shm");
  warm_up(pair);
  world other_near = pair.another(0);
  world other_far = pair.another(1);
  pair.run([&](world&) -> task<void> { co_await other_near; },
           [&](world&) -> task<void> { co_await other_far; });
  constexpr int plenty = 1'000'000;
  constexpr int rounds = 40;
  int allocations = -1;
  int messages = 0;
  auto tell_all = [&](world& w) -> task<void> {
    std::vector<word> data(large_words, 7);
    word ready = 0;
    for (int round = 0; round < 2 * rounds; ++round) {
      co_await w.recv(object(ready), from{1});
      const std::span all(data);
      co_await w.send(gather_list(all.first(1), all.subspan(1)), to{1});
      for (int i = 0; i < large_messages; ++i) co_await other_near.send(all, to{1});
    }
  };
  auto hear_all = [&](world& w) -> task<void> {
    std::vector<word> data(large_words);
    std::vector<word> more(large_words);
    const word ready = 1;
    // What is received into several places makes its task ready and is not gone on from.
    auto hear_list = [&]() -> task<void> {
      const std::span all(data);
      for (int round = 0; round < 2 * rounds; ++round) {
        co_await w.recv(scatter_list(all.first(1), all.subspan(1)), from{0});
        co_await w.send(object(ready), to{0});
      }
    };
    auto hear_many = [&]() -> task<void> {
      const auto hear_half = [&]() -> task<void> {
        for (int i = 0; i < rounds * large_messages; ++i) {
          co_await other_far.recv(std::span(more), from{0});
          ++messages;
        }
      };
      // The first half touches all memory once.
      co_await hear_half();
      const testing::refused_memory counting(plenty);
      co_await hear_half();
      allocations = plenty - testing::refused_memory::left_before();
    };
    co_await w.send(object(ready), to{0});
    co_await when_all(hear_list(), hear_many());
    CHECK(data.back() == 7);
    CHECK(more.back() == 7);
  };
  pair.run(tell_all, hear_all);
  CHECK(messages == 2 * rounds * large_messages);
  // The list's receiver may be a round behind.
  CHECK(allocations < rounds);
}

#if defined(__x86_64__)
TEST_CASE("a small send makes few calls through pointers, and so does an arrival") {
  if (testing::has_address_sanitizer || testing::has_thread_sanitizer) return;
  int of_a_send = std::numeric_limits<int>::max();
  int of_a_turn = of_a_send;
  // Tracing takes so long that a timer may be due in the turn.
  for (int children = 0; children < 5; ++children) {
    const std::vector<int> calls = call_counter::count(one_message);
    if (calls.size() < 2) {
      MESSAGE("skipped: this machine does not let a process be traced");
      return;
    }
    of_a_send = std::min(of_a_send, calls[0]);
    of_a_turn = std::min(of_a_turn, calls[1]);
  }
  CHECK(of_a_send <= most_of_a_send);
  CHECK(of_a_turn <= most_of_a_turn);
}
#endif

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
