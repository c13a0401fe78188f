#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <coroutine>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "bridge.hpp"
#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

/// Work that no compiler omits or calls in another way.
[[gnu::noinline]] int called(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

mw::task<int> returning(int value) { co_return called(value); }
mw::task<void> ending() { co_return; }

/// The smallest coroutine: resumed by hand, it suspends at once.
class bare_coroutine {
 public:
  struct promise_type {
    bare_coroutine get_return_object() {
      return bare_coroutine(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
  explicit bare_coroutine(std::coroutine_handle<promise_type> of) noexcept : of_(of) {}
  // clang 14 moves what get_return_object gives.
  bare_coroutine(bare_coroutine&& other) noexcept : of_(std::exchange(other.of_, {})) {}
  bare_coroutine& operator=(const bare_coroutine&) = delete;
  ~bare_coroutine() {
    if (of_) of_.destroy();
  }
  void resume() const { of_.resume(); }

 private:
  std::coroutine_handle<promise_type> of_;
};

bare_coroutine suspending() {
  for (;;) co_await std::suspend_always{};
}

double each_ns(std::int64_t begin, int count) {
  return static_cast<double>(now_ns() - begin) / count;
}

// --- each kind of await, and its counterpart without the library

mw::task<double> ready(int count) {
  mw::event happened;
  happened.set();
  const auto begin = now_ns();
  for (int i = 0; i < count; ++i) co_await happened;
  co_return each_ns(begin, count);
}

double ready_bare(int count) {
  mw::event happened;
  happened.set();
  int found = 0;
  const auto begin = now_ns();
  for (int i = 0; i < count; ++i) {
    // Force a read each time, as an await does.
    asm volatile("" ::"r"(&happened) : "memory");
    found += happened.is_set() ? 1 : 0;
  }
  called(found);
  return each_ns(begin, count);
}

/// A task that is suspended, queued at the reactor, and resumed in one of its turns.
mw::task<double> yielding(int count) {
  const auto begin = now_ns();
  for (int i = 0; i < count; ++i) co_await mw::yield();
  co_return each_ns(begin, count);
}

/// Two tasks that wake each other: a switch is a set and a suspension.
mw::task<double> switching(int count) {
  mw::event ours, theirs;
  auto turn = [count](mw::event& mine, mw::event& other) -> mw::task<void> {
    for (int i = 0; i < count / 2; ++i) {
      co_await mine;
      mine.reset();
      other.set();
    }
  };
  const auto begin = now_ns();
  ours.set();
  co_await mw::when_all(turn(ours, theirs), turn(theirs, ours));
  co_return each_ns(begin, count);
}

double resuming_bare(int count) {
  const bare_coroutine c = suspending();
  const auto begin = now_ns();
  for (int i = 0; i < count; ++i) c.resume();
  return each_ns(begin, count);
}

mw::task<double> calling(int count) {
  unsigned sum = 0;
  const auto begin = now_ns();
  for (int i = 0; i < count; ++i) sum += static_cast<unsigned>(co_await returning(i));
  called(static_cast<int>(sum));
  co_return each_ns(begin, count);
}

double calling_bare(int count) {
  unsigned sum = 0;
  const auto begin = now_ns();
  for (int i = 0; i < count; ++i) sum += static_cast<unsigned>(called(i));
  called(static_cast<int>(sum));
  return each_ns(begin, count);
}

/// Children of a scope, started and ended side by side, several at a time.
mw::task<double> spawning(int count) {
  constexpr int at_a_time = 100;
  const auto begin = now_ns();
  for (int done = 0; done < count; done += at_a_time) {
    auto body = [](mw::scope& s) -> mw::task<void> {
      for (int i = 0; i < at_a_time; ++i) s.spawn(ending());
      co_return;
    };
    co_await mw::scope::run(body);
  }
  co_return each_ns(begin, count);
}

double function_bare(int count) {
  std::function<int(int)> f = called;
  unsigned sum = 0;
  const auto begin = now_ns();
  for (int i = 0; i < count; ++i) {
    const std::function<int(int)> copy = f;
    sum += static_cast<unsigned>(copy(i));
  }
  called(static_cast<int>(sum));
  return each_ns(begin, count);
}

struct kind_of_await {
  std::string_view what;
  mw::task<double> (*awaited)(int);
  std::string_view bare_what;
  double (*bare)(int);
};

constexpr kind_of_await kinds[] = {
    {"ready event", ready, "is_set()", ready_bare},
    {"yield", yielding, "handle.resume()", resuming_bare},
    {"event of a task", switching, "handle.resume()", resuming_bare},
    {"task", calling, "function call", calling_bare},
    {"child of a scope", spawning, "std::function", function_bare},
};

void tell(report& out, std::string_view what, const samples& ns, std::string_view bare,
          const samples& bare_ns) {
  out.row({
      {"bench", "await"},
      {"what", what},
      {"ns", ns.median()},
      {"p99_ns", ns.p99()},
      {"spread", ns.spread()},
      {"bare", bare},
      {"bare_ns", bare_ns.median()},
      {"over_ns", rounded(ns.median() - bare_ns.median())},
  });
}

mw::task<void> ask_each(const await_options& o, report& out) {
  for (const kind_of_await& kind : kinds) {
    out.progress(kind.what);
    samples ns, bare_ns;
    for (int round = 0; round <= o.rounds; ++round) {
      const double bare = kind.bare(o.count);
      const double awaited = co_await kind.awaited(o.count);
      // The first round warms up.
      if (round == 0) continue;
      ns.add(awaited);
      bare_ns.add(bare);
    }
    tell(out, kind.what, ns, kind.bare_what, bare_ns);
  }
}

// --- a message between two members on one thread: the cost of the software alone

/// What a message is made of, and as many as are worth their time in a round of `count`
/// awaits.
struct message_size {
  std::size_t bytes;
  std::string_view name;
  [[nodiscard]] int most(int count) const {
    constexpr std::size_t round_bytes = std::size_t{256} << 20;
    return std::clamp(static_cast<int>(round_bytes / bytes), 1, std::max(1, count));
  }
};

constexpr std::size_t largest_unasked = 65536;

/// 80 KiB are offered, and read by their receiver alone.
constexpr message_size message_sizes[] = {
    {8, "8 B"}, {1024, "1 KiB"}, {8192, "8 KiB"}, {65536, "64 KiB"}, {81920, "80 KiB"}};

/// How far copies lie apart, which all begin at the same place within their pages: just
/// behind the source's, a copy takes ten times as long on Zen 3 (is_slow_by_string).
constexpr std::size_t whole_pages(std::size_t bytes) noexcept {
  return (bytes + 4095) / 4096 * 4096;
}

/// Nanoseconds of `copies` copies, or of a call in place of what is hardly a copy.
double copying_bare(std::size_t bytes, int copies, int count) {
  if (bytes <= sizeof(std::uint64_t)) return calling_bare(count);
  const std::size_t stride = whole_pages(bytes);
  std::vector<std::byte> memory(stride * static_cast<std::size_t>(copies + 1),
                                std::byte{1});
  const auto begin = now_ns();
  for (int i = 0; i < count; ++i) {
    for (int copy = 1; copy <= copies; ++copy) {
      std::byte* const to = memory.data() + stride * static_cast<std::size_t>(copy);
      std::memcpy(to, memory.data(), bytes);
      asm volatile("" ::"r"(to) : "memory");
    }
  }
  return each_ns(begin, count);
}

bool may_read_itself() {
  char from = 'x';
  char into = 0;
  const iovec there{&from, 1};
  const iovec here{&into, 1};
  return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == 1;
}

/// Nanoseconds of a read by process_vm_readv, as of what is offered.
double reading_bare(std::size_t bytes, int count) {
  std::vector<std::byte> memory(2 * whole_pages(bytes), std::byte{1});
  const iovec there{memory.data(), bytes};
  const iovec here{memory.data() + whole_pages(bytes), bytes};
  const pid_t self = ::getpid();
  const auto begin = now_ns();
  for (int i = 0; i < count; ++i) {
    if (::process_vm_readv(self, &here, 1, &there, 1, 0) < 0) {
      throw std::system_error(errno, std::generic_category(), "process_vm_readv");
    }
  }
  return each_ns(begin, count);
}

constexpr std::string_view bare_name(std::size_t bytes) {
  return bytes <= sizeof(std::uint64_t) ? "function call" : "memcpy";
}

mw::task<void> say(mw::world& w, std::size_t bytes, int count) {
  std::vector<std::byte> payload(bytes, std::byte{1});
  const std::span<std::byte> data(payload);
  const mw::rank_t peer = 1 - w.rank();
  for (int i = 0; i < count; ++i) {
    if (w.rank() == 0) co_await w.send(data, mw::to{peer});
    co_await w.recv(data, mw::from{peer});
    if (w.rank() == 1) co_await w.send(data, mw::to{peer});
  }
}

mw::task<void> form(mw::world& w) { co_await w; }
mw::task<void> leave(mw::world& w) { co_await w.leave(); }

/// Two runtimes that one thread turns by turns.
class one_thread {
 public:
  explicit one_thread(const common_options& common)
      : here_(runtime_options_of(common)),
        there_(runtime_options_of(common)),
        near_(here_, store_, {.name = "one thread", .rank = 0, .size = 2}),
        far_(there_, store_, {.name = "one thread", .rank = 1, .size = 2}) {}

  void begin() { both(form); }
  void end() { both(leave); }

  /// Nanoseconds of each message.
  double messages(std::size_t bytes, int count) {
    const auto begin = now_ns();
    both([bytes, count](mw::world& w) { return say(w, bytes, count); });
    return each_ns(begin, 2 * count);
  }

 private:
  template <class Start>
  void both(Start start) {
    // This thread turns them before a task could start another.
    here_.poll();
    there_.poll();
    auto near_task = here_.start(start(near_));
    auto far_task = there_.start(start(far_));
    while (!near_task.is_ready() || !far_task.is_ready()) {
      here_.poll();
      there_.poll();
    }
    near_task.get();
    far_task.get();
  }

  mw::memory_store store_;
  mw::runtime here_;
  mw::runtime there_;
  mw::world near_;
  mw::world far_;
};

// --- one send to eight members on the same thread: what it costs the controller

constexpr mw::rank_t workers = 8;

/// A controller and its workers. Only the send itself is timed, not how it is received.
class controller {
 public:
  explicit controller(const common_options& common) {
    for (mw::rank_t rank = 0; rank <= workers; ++rank) {
      members_.emplace_back(common, store_, rank);
    }
  }
  void begin() {
    each([](mw::world& w) { return form(w); });
  }
  void end() {
    each([](mw::world& w) { return leave(w); });
  }

  /// Nanoseconds of each send.
  double sends(std::size_t bytes, int count) {
    std::int64_t spent = 0;
    each([&spent, bytes, count](mw::world& w) {
      return w.rank() == 0 ? command(w, bytes, count, spent) : obey(w, bytes, count);
    });
    return static_cast<double>(spent) / count;
  }

 private:
  struct one {
    one(const common_options& common, mw::store& store, mw::rank_t rank)
        : rt(runtime_options_of(common)),
          w(rt, store, {.name = "eight", .rank = rank, .size = workers + 1}) {}
    mw::runtime rt;
    mw::world w;
  };

  static mw::task<void> command(mw::world& w, std::size_t bytes, int count,
                                std::int64_t& spent) {
    const std::vector<std::byte> payload(bytes, std::byte{1});
    std::uint64_t done = 0;
    for (int i = 0; i < count; ++i) {
      const auto begin = now_ns();
      co_await w.send_to_all(std::span(payload));
      spent += now_ns() - begin;
      for (mw::rank_t peer = 1; peer <= workers; ++peer) {
        co_await w.recv(mw::object(done), mw::from{peer});
      }
    }
  }
  static mw::task<void> obey(mw::world& w, std::size_t bytes, int count) {
    std::vector<std::byte> payload(bytes);
    const std::uint64_t done = 0;
    for (int i = 0; i < count; ++i) {
      co_await w.recv(std::span(payload), mw::from{0});
      co_await w.send(mw::object(done), mw::to{0});
    }
  }
  template <class Start>
  void each(Start start) {
    std::vector<mw::started<void>> all;
    for (one& m : members_) {
      m.rt.poll();
      all.push_back(m.rt.start(start(m.w)));
    }
    const auto are_ready = [&all] {
      return std::all_of(all.begin(), all.end(),
                         [](const auto& task) { return task.is_ready(); });
    };
    while (!are_ready()) {
      for (one& m : members_) m.rt.poll();
    }
    for (auto& task : all) task.get();
  }

  mw::memory_store store_;
  std::deque<one> members_;
};

void ask_sends_to_all(const common_options& common, const await_options& o, report& out) {
  out.progress("one send to eight members");
  controller c(common);
  c.begin();
  for (const message_size& size : message_sizes) {
    // The send of an offered message ends when its receiver has read it.
    if (size.bytes > largest_unasked) continue;
    samples ns, bare_ns;
    // What eight read is no part of the figure, but of the time that it takes.
    const int count = size.most(o.count / 100);
    for (int round = 0; round <= o.rounds; ++round) {
      const double each = c.sends(size.bytes, count);
      if (round > 0) ns.add(each);
      bare_ns.add(copying_bare(size.bytes, workers, count));
    }
    tell(out, fmt::format("{} sent to 8 members", size.name), ns, bare_name(size.bytes),
         bare_ns);
  }
  c.end();
}

void ask_messages(one_thread& pair, const await_options& o, bool read_peers,
                  report& out) {
  out.progress("messages on one thread");
  for (const message_size& size : message_sizes) {
    samples ns, bare_ns;
    const int count = size.most(o.count / 10);
    const bool is_read = read_peers && size.bytes > largest_unasked && may_read_itself();
    for (int round = 0; round <= o.rounds; ++round) {
      const double each = pair.messages(size.bytes, count);
      if (round > 0) ns.add(each);
      bare_ns.add(is_read ? reading_bare(size.bytes, count)
                          : copying_bare(size.bytes, 1, count));
    }
    tell(out, fmt::format("{} sent and received", size.name), ns,
         is_read ? "process_vm_readv" : bare_name(size.bytes), bare_ns);
  }
}

}  // namespace

void await(const common_options& common, const await_options& options) {
  report out(common.json, common.transport());
  mw::runtime rt(runtime_options_of(common));
  one_thread pair(common);
  out.machine(rt.engine());
  pair.begin();
  // Do not pin earlier: the service threads would inherit it.
  std::optional<pinned_thread> pinned;
  if (options.pin) pinned.emplace(0);
  rt.run(ask_each(options, out));
  ask_messages(pair, options, common.read_peers, out);
  pair.end();
  pinned.reset();
  ask_sends_to_all(common, options, out);
  out.progress("replies to another thread");
  for (const bridge_figures& b : measure_bridges(common, options.count, options.rounds))
    tell(out, b.what, b.by_feed, "a task for each", b.by_tasks);
}

}  // namespace mwbench
