#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <stdexcept>

#include "fail_roles.hpp"
#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

using namespace std::chrono_literals;

/// Time before and after each fault, in which the healthy world shows its usual rate.
constexpr auto quiet = 200ms;

struct fault_figures {
  samples detect_ms;
  samples suspect_ms;
  samples reform_ms;
  samples quiet_gap_us;
  samples fault_gap_us;
  /// The ranks from 1, without the victim.
  std::vector<samples> survivors_ms;
};

/// The leader is rank 0, the last rank is the victim, and the ranks in between survive.
class faults {
 public:
  faults(member& m, const fail_options& o, gaps& seen, report& out)
      : member_(m), options_(o), seen_(seen), out_(out) {
    figures_.survivors_ms.resize(static_cast<std::size_t>(o.members - 2));
  }

  mw::task<fault_figures> run() {
    for (mw::rank_t r = 1; r < victim_rank(); ++r) {
      survivors_.push_back(member_.start(fmt::format("{}/{}", survivor_role, r)));
    }
    if (!survivors_.empty()) {
      control_ = member_.describe("survivors", 0, victim_rank());
      co_await control_;
    }
    victim_ = member_.start(role_of_victim(0));
    co_await until_ready(victim_.line());
    victim_.line().signal();
    co_await join(0);
    for (int i = 0; i < options_.repeat; ++i) co_await once(i);
    co_return std::move(figures_);
  }

 private:
  [[nodiscard]] mw::rank_t victim_rank() const noexcept { return options_.members - 1; }
  [[nodiscard]] bool kills() const noexcept { return options_.fault == "kill"; }
  [[nodiscard]] static std::string role_of_victim(int number) {
    return fmt::format("{}/{}", victim_role, number);
  }

  mw::task<void> join(int number) {
    return join_victim(member_, options_, 0, number, world_);
  }

  mw::task<void> once(int number) {
    out_.progress(
        fmt::format("{} {} of {}", options_.fault, number + 1, options_.repeat));
    child standby = member_.start(role_of_victim(number + 1));
    co_await until_ready(standby.line());
    co_await mw::sleep_for(quiet);
    (void)seen_.take();
    co_await mw::sleep_for(quiet);
    figures_.quiet_gap_us.add_all(seen_.take());

    auto ended = co_await mw::when_all(wait_for_error(), strike());
    const std::int64_t noticed = std::get<0>(ended);
    standby.line().signal();
    co_await join(number + 1);
    figures_.reform_ms.add(ms_since(noticed));
    co_await ask_survivors();
    co_await mw::sleep_for(quiet);
    figures_.fault_gap_us.add_all(seen_.take());
    victim_ = std::move(standby);
  }

  /// Time at which the waiter had its error.
  mw::task<std::int64_t> wait_for_error() {
    char byte = 0;
    const auto got =
        co_await mw::outcome(world_.recv(std::span(&byte, 1), mw::from{victim_rank()}));
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
    if (options_.fault == "cut") {
      victim_.line().signal();
    } else {
      ::kill(victim_.pid(), kills() ? SIGKILL : SIGSTOP);
    }
    if (kills()) co_return;
    // A member that breaks without it tells the waiter why.
    while (!world_.is_suspect(victim_rank())) {
      if (world_.state() != mw::world_state::up) co_return;
      co_await mw::sleep_for(1ms);
    }
    figures_.suspect_ms.add(ms_since(struck_));
  }

  mw::task<void> ask_survivors() {
    for (mw::rank_t r = 1; r < victim_rank(); ++r) {
      const auto noticed = co_await control_.recv_message<std::int64_t>(mw::from{r});
      figures_.survivors_ms[static_cast<std::size_t>(r - 1)].add(
          static_cast<double>(noticed.head - struck_) / 1e6);
    }
  }

  member& member_;
  const fail_options& options_;
  gaps& seen_;
  report& out_;
  std::vector<child> survivors_;
  child victim_;
  mw::world control_;
  mw::world world_;
  std::int64_t struck_ = 0;
  fault_figures figures_;
};

fields row_of(const fail_options& o, const fault_figures& f, std::string_view transport) {
  fields row{
      {"bench", "fail"},
      {"fault", o.fault},
      {"transport", transport},
      {"members", o.members},
      {"repeats", f.detect_ms.count()},
  };
  if (!f.suspect_ms.empty()) row["suspect_ms"] = f.suspect_ms.median();
  row[f.suspect_ms.empty() ? "detect_ms" : "broken_ms"] = f.detect_ms.median();
  if (f.suspect_ms.empty()) row["detect_p99_ms"] = f.detect_ms.p99();
  if (!f.survivors_ms.empty()) {
    fields medians = fields::array();
    double latest = 0;
    for (const samples& of : f.survivors_ms) {
      medians.push_back(of.median());
      latest = std::max(latest, of.largest());
    }
    row["survivors_ms"] = medians;
    row["latest_survivor_ms"] = latest;
  }
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
  auto measure = [&]() -> mw::task<void> {
    result = co_await faults(m, o, seen, out).run();
  };
  if (o.alone) {
    co_await measure();
  } else {
    bystander = m.start(std::string(bystander_role));
    healthy = m.describe("healthy", 0);
    co_await healthy;
    co_await mw::when_any(take_stream(healthy, seen), measure());
    if (healthy.state() != mw::world_state::up) throw mw::world_error(healthy.failure());
  }
  out.row(row_of(o, result, out.transport()));
}

}  // namespace

void fail(const common_options& asked, const fail_options& options) {
  common_options common = asked;
  // A network lies only between processes that do not share memory.
  if (options.fault == "cut") common.shared_memory = false;
  if (!common.leads()) return take_role(common, options);
  member m(common);
  report out(common.json, common.transport());
  m.runtime().run(lead(m, options, out));
}

}  // namespace mwbench
