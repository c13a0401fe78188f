#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>

#include <stdexcept>

#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

using namespace std::chrono_literals;

/// Before and after each fault, for the healthy world to show what it does anyway.
constexpr auto quiet = 200ms;
constexpr std::size_t message_bytes = 64 << 10;

/// Microseconds between two messages of the healthy world.
class gaps {
 public:
  void message_came() {
    const auto now = now_ns();
    if (last_ != 0) window_.add(static_cast<double>(now - last_) / 1e3);
    last_ = now;
  }
  /// What was seen since the last call.
  [[nodiscard]] samples take() { return std::exchange(window_, {}); }

 private:
  std::int64_t last_ = 0;
  samples window_;
};

struct fault_figures {
  samples detect_ms;
  samples suspect_ms;
  samples reform_ms;
  samples quiet_gap_us;
  samples fault_gap_us;
};

/// Takes what the bystander sends and counts on its numbering.
mw::task<void> take_stream(mw::world& w, gaps& seen) {
  std::vector<char> memory(message_bytes);
  for (std::uint64_t expected = 0;; ++expected) {
    const auto got = co_await w.recv(memory, mw::from{1});
    if (got.user.value() != expected)
      throw std::logic_error("the healthy world lost one");
    seen.message_came();
  }
}

mw::task<void> give_stream(member& m) {
  mw::world w = m.describe("healthy", 1);
  std::vector<char> memory(message_bytes, 'x');
  co_await w;
  for (std::uint64_t number = 0;; ++number) {
    co_await w.send(memory, mw::to{0}, {}, mw::user_word(number));
  }
}

/// Waits in the world until the fault hits it. A standby forms when it is told to.
mw::task<void> be_victim(member& m) {
  mw::world w = m.describe("victim", 1);
  co_await w;
  co_await park(w, 0, {});
}

/// Without blocking the reactor, on which the healthy world's messages are taken.
mw::task<void> until_ready(class line& from) {
  char byte = 0;
  for (;;) {
    const auto got = ::recv(from.fd(), &byte, 1, MSG_DONTWAIT);
    if (got == 1) co_return;
    if (got == 0) throw std::runtime_error("a member has died before its turn");
    co_await mw::sleep_for(1ms);
  }
}

class faults {
 public:
  faults(member& m, const fail_options& o, gaps& seen)
      : member_(m), options_(o), seen_(seen) {}

  mw::task<fault_figures> run() {
    victim_ = member_.start("victim");
    co_await until_ready(victim_.line());
    victim_.line().signal();
    world_ = member_.describe("victim", 0);
    co_await world_;
    for (int i = 0; i < options_.repeat; ++i) co_await once();
    co_return std::move(figures_);
  }

 private:
  bool kills() const noexcept { return options_.fault == "kill"; }

  mw::task<void> once() {
    child standby = member_.start("victim");
    co_await until_ready(standby.line());
    co_await mw::sleep_for(quiet);
    (void)seen_.take();
    co_await mw::sleep_for(quiet);
    figures_.quiet_gap_us.add_all(seen_.take());

    auto ended = co_await mw::when_all(wait_for_error(), strike());
    const std::int64_t noticed = std::get<0>(ended);
    standby.line().signal();
    world_ = member_.describe("victim", 0);
    co_await world_;
    figures_.reform_ms.add(ms_since(noticed));
    co_await mw::sleep_for(quiet);
    figures_.fault_gap_us.add_all(seen_.take());
    victim_ = std::move(standby);
  }

  /// When the waiter had its error.
  mw::task<std::int64_t> wait_for_error() {
    char byte = 0;
    const auto got = co_await mw::outcome(world_.recv(std::span(&byte, 1), mw::from{1}));
    const std::int64_t noticed = now_ns();
    const auto expected = kills() ? mw::cause::peer_died : mw::cause::silent_peer;
    if (got || got.error().cause != expected) {
      throw std::runtime_error("the waiter was told: " +
                               (got ? "a message came" : got.error().text()));
    }
    figures_.detect_ms.add(static_cast<double>(noticed - struck_) / 1e6);
    co_return noticed;
  }

  mw::task<void> strike() {
    struck_ = now_ns();
    ::kill(victim_.pid(), kills() ? SIGKILL : SIGSTOP);
    if (kills()) co_return;
    while (!world_.is_suspect(1)) co_await mw::sleep_for(1ms);
    figures_.suspect_ms.add(ms_since(struck_));
  }

  member& member_;
  const fail_options& options_;
  gaps& seen_;
  child victim_;
  mw::world world_;
  std::int64_t struck_ = 0;
  fault_figures figures_;
};

fields row_of(const fail_options& o, const fault_figures& f, std::string_view transport) {
  fields row{
      {"bench", "fail"},
      {"fault", o.fault},
      {"transport", transport},
      {"repeats", f.detect_ms.count()},
  };
  if (!f.suspect_ms.empty()) row["suspect_ms"] = f.suspect_ms.median();
  row[f.suspect_ms.empty() ? "detect_ms" : "broken_ms"] = f.detect_ms.median();
  if (f.suspect_ms.empty()) row["detect_p99_ms"] = f.detect_ms.p99();
  row["reform_ms"] = f.reform_ms.median();
  row["reform_p99_ms"] = f.reform_ms.p99();
  if (o.alone) return row;
  row["healthy_gap_us"] = f.fault_gap_us.median();
  row["healthy_max_gap_ms"] = rounded(f.fault_gap_us.largest() / 1e3);
  row["quiet_gap_us"] = f.quiet_gap_us.median();
  row["quiet_max_gap_ms"] = rounded(f.quiet_gap_us.largest() / 1e3);
  return row;
}

mw::task<void> lead(member& m, const fail_options& o, report& out) {
  out.machine(m.engine());
  gaps seen;
  child bystander;
  mw::world healthy;
  fault_figures result;
  auto measure = [&]() -> mw::task<void> { result = co_await faults(m, o, seen).run(); };
  if (o.alone) {
    co_await measure();
  } else {
    bystander = m.start("bystander");
    healthy = m.describe("healthy", 0);
    co_await healthy;
    co_await mw::when_any(take_stream(healthy, seen), measure());
    if (healthy.state() != mw::world_state::up) throw mw::world_error(healthy.failure());
  }
  out.row(row_of(o, result, out.transport()));
}

}  // namespace

void fail(const common_options& common, const fail_options& options) {
  member m(common);
  if (common.role == "bystander") {
    m.runtime().run(give_stream(m));
  } else if (common.role == "victim") {
    class line parent = line::to_parent();
    parent.signal();
    parent.wait();
    m.runtime().run(be_victim(m));
  } else {
    report out(common.json, common.transport());
    m.runtime().run(lead(m, options, out));
  }
}

}  // namespace mwbench
