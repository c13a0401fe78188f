#include "launch/worker_watch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "duration_text.hpp"
#include "io/process_list.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/access.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// A replacement that is up within this time is told of in one line.
constexpr duration told_together = std::chrono::seconds(1);
/// A worker of this library has reported by then.
constexpr duration until_hello = std::chrono::seconds(1);
constexpr duration between_hang_looks_least = std::chrono::milliseconds(25);
constexpr duration between_hang_looks_most = std::chrono::seconds(1);
/// A turn of this process that comes later than this by a part of the limit was held up.
constexpr duration least_held_up = std::chrono::milliseconds(250);
constexpr duration longest_dump = std::chrono::seconds(1);
/// A handler of SIGABRT may write where each thread is.
constexpr duration after_abort = std::chrono::milliseconds(500);
constexpr duration after_hang_kill = std::chrono::seconds(5);
constexpr duration between_end_looks = std::chrono::milliseconds(5);

std::string joined(const std::map<std::string, std::uint64_t, std::less<>>& worlds) {
  std::string all;
  for (const auto& [name, epoch] : worlds) all += (all.empty() ? "" : ", ") + name;
  return fmt::format("world{} {}", worlds.size() == 1 ? "" : "s", all);
}

bool is_formed(const worker_account& account, std::string_view world) {
  const auto found = account.worlds.find(world);
  return found != account.worlds.end() && found->second.kind == world_event_kind::formed;
}

}  // namespace

std::uintmax_t size_of_files(const std::vector<std::string>& paths) {
  std::uintmax_t size = 0;
  for (const std::string& each : paths) {
    struct stat what {};
    if (::stat(each.c_str(), &what) == 0)
      size += static_cast<std::uintmax_t>(what.st_size);
  }
  return size;
}

worker_watch::worker_watch(runtime& rt, watch_options options)
    : home_(access::core(rt).user()), options_(std::move(options)), since_(home_.now()) {
  // In a simulation there is no process that could report, or be looked at.
  is_real_ = access::core(rt).env().starts_threads();
  if (!is_real_) return;
  try {
    worker_reports_listener& self = *this;
    reports_ = std::make_unique<worker_reports>(home_, self);
  } catch (const std::system_error& e) {
    options_.told(fmt::format("workers cannot report: {}", e.what()));
  }
  const auto variable = [&](const char* name) {
    const auto set = options_.inherited.find(name);
    return set == options_.inherited.end() ? std::string() : set->second;
  };
  if (variable("TORCHELASTIC_ENABLE_FILE_TIMER") != "1") return;
  try {
    timers_ = std::make_unique<file_timers>(
        home_, variable("TORCHELASTIC_TIMER_FILE"),
        [this](const file_timer_line& line) { timer_expired(line); });
  } catch (const std::system_error& e) {
    options_.told(fmt::format("there are no file timers: {}", e.what()));
  }
}

worker_watch::~worker_watch() = default;

launch_variables worker_watch::variables() const {
  launch_variables set;
  if (reports_) set["MANYWORLDS_AGENT"] = reports_->address();
  if (timers_) set["TORCHELASTIC_TIMER_FILE"] = timers_->path();
  return set;
}

task<void> worker_watch::run() {
  co_await scope::run([this](scope& s) -> task<void> {
    if (reports_) s.spawn(reports_->run());
    if (timers_) s.spawn(timers_->run());
    const bool judges = options_.hang_limit || options_.kernel_limit;
    if (judges && is_real_) co_await judge(s);
  });
  co_await sleep_for(duration::max());
}

// -------------------------------------------------------------------------- one process

task<void> worker_watch::follow(supervised_process& process, watched_start start) {
  try {
    co_await process.started();
  } catch (const process_error&) {
    // Its end says so, too.
    co_return;
  }
  followed f;
  f.process = &process;
  f.start = std::move(start);
  f.pid = process.pid();
  // One that has ended already is told of by its end.
  if (f.pid == 0) co_return;
  f.began = f.last_output = home_.now();
  f.written = f.start.output_before;
  if (reports_) reports_->begin(f.start.rank, f.start.incarnation, f.pid);
  followed_.insert_or_assign(f.start.rank, f);
  if (f.start.failed) {
    co_await tell_replacement(std::move(f));
  } else if (f.start.incarnation > 1) {
    // The process before it was another node's.
    options_.told(fmt::format("rank {} started again as pid {}, incarnation {}",
                              f.start.rank, f.pid, f.start.incarnation));
  }
}

void worker_watch::hear(std::vector<worker_testimony> all) { heard_ = std::move(all); }

void worker_watch::ended(int rank) {
  const auto found = followed_.find(rank);
  const duration ran =
      found == followed_.end() ? duration::zero() : home_.now() - found->second.began;
  followed_.erase(rank);
  if (reports_) reports_->hear_rest(rank);
  const worker_account* const account = reports_ ? reports_->of(rank) : nullptr;
  if (!account) return;
  // One that ends before its worlds are up again leaves those of the process before.
  lost& all = lost_[rank];
  all.has_come = all.has_come || account->has_come;
  all.ran = std::max(all.ran, ran);
  for (const auto& [name, news] : account->worlds) {
    if (news.kind == world_event_kind::formed) all.worlds[name] = news.epoch;
  }
  reports_->end(rank);
}

task<void> worker_watch::tell_replacement(followed now) {
  const int rank = now.start.rank;
  const time_point failed = *now.start.failed;
  const std::string begun =
      fmt::format("rank {} started again as pid {}, incarnation {}, after {}", rank,
                  now.pid, now.start.incarnation, duration_text(home_.now() - failed));
  const lost before = lost_[rank];
  const bool is_silent = !before.has_come && before.ran >= until_hello;
  if (reports_ && is_silent && named_.insert(rank).second) {
    options_.told(
        fmt::format("rank {} reports nothing to its agent; PyTorch's groups cannot form "
                    "again in place: use --restart-scope group",
                    rank));
  }
  if (before.worlds.empty()) {
    options_.told(begun);
    co_return;
  }
  const std::string worlds = joined(before.worlds);
  const auto took = [&] { return duration_text(home_.now() - failed); };
  bool is_up = co_await until_up(
      rank, before, later(failed, std::min(told_together, options_.worlds_up_limit)));
  if (is_up) {
    lost_[rank].worlds.clear();
    options_.told(fmt::format("{}; {} up again after {}", begun, worlds, took()));
    co_return;
  }
  options_.told(begun);
  is_up = co_await until_up(rank, before, later(failed, options_.worlds_up_limit));
  if (is_up) {
    lost_[rank].worlds.clear();
    options_.told(fmt::format("rank {}: {} up again after {}", rank, worlds, took()));
  } else if (options_.unmended) {
    options_.unmended(rank, fmt::format("{} not up again within {}", worlds,
                                        duration_text(options_.worlds_up_limit)));
  }
}

/// Returns whether they are up by then.
task<bool> worker_watch::until_up(int rank, const lost& before, time_point until) {
  for (;;) {
    worlds_changed_.reset();
    if (are_up(rank, before)) co_return true;
    if (home_.now() >= until) co_return false;
    co_await when_any(worlds_changed_.wait(), sleep_until(until));
  }
}

/// Every worker of this node that is in one of the worlds has a later epoch of it.
bool worker_watch::are_up(int rank, const lost& before) const {
  const worker_account* const account = reports_->of(rank);
  if (!account) return false;
  return std::all_of(before.worlds.begin(), before.worlds.end(), [&](const auto& each) {
    const auto& [name, epoch] = each;
    if (!is_formed(*account, name)) return false;
    return std::all_of(
        reports_->accounts().begin(), reports_->accounts().end(),
        [&, &world = name, old = epoch](const auto& other) {
          const auto found = other.second.worlds.find(world);
          return found == other.second.worlds.end() ||
                 (is_formed(other.second, world) && found->second.epoch > old);
        });
  });
}

// ------------------------------------------------------------------------------ reports

void worker_watch::world_changed(const worker_account&, const world_news&) {
  worlds_changed_.set();
}

void worker_watch::has_overrun(const worker_account& who, const std::string& what) {
  kill_overrun(who.rank, what, SIGKILL);
}

void worker_watch::was_reported(const worker_account& by, const worker_report& what) {
  if (const auto* const asks = std::get_if<restart_request>(&what)) {
    if (options_.unmended)
      options_.unmended(by.rank, "it asks for a restart of all: " + asks->why);
    return;
  }
  if (options_.reported) options_.reported(by.rank, what);
}

void worker_watch::timer_expired(const file_timer_line& line) {
  // PyTorch lets a client ask for no signal.
  if (line.signal <= 0) return;
  for (const auto& [rank, f] : followed_) {
    if (!descends_from(line.pid, f.pid)) continue;
    const auto which = look_at_process(line.pid);
    if (which && line.pid != f.pid) signal_process(*which, line.signal);
    kill_overrun(rank, line.scope, line.pid == f.pid ? line.signal : 0);
    return;
  }
}

void worker_watch::kill_overrun(int rank, const std::string& what, int signal) {
  const auto found = followed_.find(rank);
  if (found == followed_.end()) return;
  options_.told(
      fmt::format("rank {} (pid {}) has overrun its deadline \"{}\": it is ended", rank,
                  found->second.pid, what));
  if (signal > 0) found->second.process->signal(signal);
}

// ----------------------------------------------------------------------------- verdicts

task<void> worker_watch::judge(scope& s) {
  const duration shortest = std::min(limit(), options_.kernel_limit.value_or(limit()));
  const duration period =
      std::clamp(shortest / 8, between_hang_looks_least, between_hang_looks_most);
  for (time_point last = home_.now();;) {
    co_await sleep_for(period);
    const time_point now = home_.now();
    const bool was_late = now - last > period + std::max(shortest / 4, least_held_up);
    last = now;
    const hang_question asked = question(was_late);
    if (options_.testified && options_.hang_limit) testify(asked);
    for (hang_verdict& v : hang_verdicts(asked)) {
      followed* const f = find(v.rank, v.pid);
      if (!f || std::exchange(f->is_convicted, true)) continue;
      s.spawn(carry_out(std::move(v)));
    }
  }
}

hang_question worker_watch::question(bool was_late) {
  hang_question asked;
  asked.limit = limit();
  asked.kernel_limit = std::min(limit(), options_.kernel_limit.value_or(limit()));
  asked.was_late = was_late;
  if (was_late) since_ = home_.now();
  for (auto& [rank, f] : followed_) {
    asked.workers.push_back(witness(f));
    if (was_late) f.pulse.forget(since_);
  }
  // Without reports it is not known of whom they speak.
  if (!reports_) return asked;
  for (const worker_testimony& each : heard_) asked.workers.push_back(far_witness(each));
  return asked;
}

hang_witness worker_watch::witness(followed& f) {
  const time_point now = home_.now();
  hang_witness w;
  w.rank = f.start.rank;
  w.pid = f.pid;
  const worker_account* const account = reports_ ? reports_->of(w.rank) : nullptr;
  f.pulse.look(account ? account->reporter : f.pid, now);
  w.state = f.pulse.state();
  w.in_state = f.pulse.in_state(now);
  w.was_at_disk = f.pulse.last_at_disk() && now - *f.pulse.last_at_disk() < limit();
  if (account && account->has_come) {
    add_reports(w, *account);
  } else if (!f.start.output_files.empty()) {
    look_at_output(f);
    w.without_output = now - std::max(f.last_output, since_);
    w.has_written = f.has_written;
  }
  return w;
}

void worker_watch::add_reports(hang_witness& w, const worker_account& account) const {
  const time_point now = home_.now();
  const auto since = [&](time_point t) { return now - std::max(t, since_); };
  w.beats = account.last_beat && !account.is_at_rest;
  if (!w.beats) return;
  w.was_late = account.last_late && now - *account.last_late < limit();
  w.silent = since(*account.last_beat);
  w.without_turn = since(account.last_turn);
  // One that has waited for a stuck member has yet to go on when that one is gone.
  if (account.progress)
    w.without_progress = since(std::max(account.last_progress, account.last_wait));
  if (account.waits) {
    hang_wait& waits = w.waits.emplace();
    waits.operation = name_of(account.waits->kind);
    waits.world = account.waits->world;
    if (account.waits->peer_pid != 0)
      waits.rank = reports_->rank_of(account.waits->peer_pid, account.waits->peer_host);
  }
  for (const auto& [name, news] : account.worlds) {
    if (news.kind == world_event_kind::formed && news.size > 1)
      w.worlds.push_back({name, news.size});
  }
  for (const auto& [about, news] : account.suspects)
    w.suspects.push_back({news.world, reports_->rank_of(news.pid, news.host), news.size});
}

/// Only suspicions and waits are known of it.
hang_witness worker_watch::far_witness(const worker_testimony& said) const {
  hang_witness w;
  w.rank = said.rank;
  w.is_elsewhere = true;
  if (said.waits) {
    hang_wait& waits = w.waits.emplace();
    waits.operation = said.waits->operation;
    waits.world = said.waits->on.world;
    if (said.waits->on.pid != 0)
      waits.rank = reports_->rank_of(said.waits->on.pid, said.waits->on.host);
  }
  for (const far_member& each : said.suspects)
    w.suspects.push_back({each.world, reports_->rank_of(each.pid, each.host), 0});
  return w;
}

void worker_watch::testify(const hang_question& asked) {
  std::vector<worker_testimony> all;
  for (const hang_witness& w : asked.workers) {
    if (asked.was_late || w.is_elsewhere || !is_believed(w, asked.limit)) continue;
    const worker_account* const account = reports_->of(w.rank);
    MW_ASSERT(account, "a worker is believed by its reports alone");
    worker_testimony said = testimony_of(*account);
    if (said.waits || !said.suspects.empty()) all.push_back(std::move(said));
  }
  if (all == told_) return;
  told_ = all;
  options_.testified(std::move(all));
}

/// What it tells of this node's workers is heard here. A wait is told once it has lasted:
/// others come and go all the time.
worker_testimony worker_watch::testimony_of(const worker_account& account) const {
  worker_testimony said;
  said.rank = account.rank;
  if (account.waits && account.waits->age >= limit() / 2 &&
      reports_->rank_of(account.waits->peer_pid, account.waits->peer_host) < 0) {
    said.waits = {
        std::string(name_of(account.waits->kind)),
        {account.waits->world, account.waits->peer_pid, account.waits->peer_host}};
  }
  for (const auto& [about, news] : account.suspects) {
    if (reports_->rank_of(news.pid, news.host) < 0)
      said.suspects.push_back({news.world, news.pid, news.host});
  }
  return said;
}

void worker_watch::look_at_output(followed& f) {
  const std::uintmax_t size = size_of_files(f.start.output_files);
  if (size == f.written) return;
  f.written = size;
  f.has_written = true;
  f.last_output = home_.now();
}

worker_watch::followed* worker_watch::find(int rank, pid_t pid) noexcept {
  const auto found = followed_.find(rank);
  return found != followed_.end() && found->second.pid == pid ? &found->second : nullptr;
}

/// The end that follows is the worker's failure, as any other: a restart by scope.
task<void> worker_watch::carry_out(hang_verdict verdict) {
  options_.told(verdict.text());
  if (options_.convicted) options_.convicted(verdict);
  std::vector<int> asked_of = verdict.accusers;
  // One that is stopped writes nothing.
  if (!verdict.is_stopped()) asked_of.push_back(verdict.rank);
  co_await take_dumps(std::move(asked_of));
  followed* f = find(verdict.rank, verdict.pid);
  if (!f) co_return;
  f->process->signal(SIGABRT);
  const bool may_handle =
      !verdict.is_stopped() && verdict.reason != hang_reason::in_kernel;
  const bool has_ended = co_await until_ended(
      verdict.rank, verdict.pid, may_handle ? after_abort : between_end_looks);
  if (has_ended) co_return;
  f = find(verdict.rank, verdict.pid);
  if (f) f->process->signal(SIGKILL);
  const bool is_gone = co_await until_ended(verdict.rank, verdict.pid, after_hang_kill);
  if (is_gone) co_return;
  options_.told(
      fmt::format("rank {} (pid {}) hangs in the kernel: it keeps its device, and is not "
                  "started again on this node before it has ended",
                  verdict.rank, verdict.pid));
}

task<void> worker_watch::take_dumps(std::vector<int> of) {
  std::map<int, std::uint64_t> awaited;
  for (const int rank : of) {
    const auto found = followed_.find(rank);
    const worker_account* const account = reports_ ? reports_->of(rank) : nullptr;
    if (found == followed_.end() || !account || found->second.start.folder.empty())
      continue;
    const std::string path = fmt::format("{}/dump.{}.txt", found->second.start.folder,
                                         found->second.start.incarnation);
    const unique_descriptor to(::open(
        path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (to && reports_->ask_for_dump(rank, to.get())) awaited[rank] = account->dumps + 1;
  }
  const auto is_written = [&](const auto& each) {
    const worker_account* const account = reports_->of(each.first);
    return !account || account->dumps >= each.second;
  };
  const time_point until = later(home_.now(), longest_dump);
  while (!std::all_of(awaited.begin(), awaited.end(), is_written) && home_.now() < until)
    co_await sleep_for(between_end_looks);
}

task<bool> worker_watch::until_ended(int rank, pid_t pid, duration limit) {
  for (const time_point until = later(home_.now(), limit); home_.now() < until;) {
    if (!find(rank, pid)) co_return true;
    co_await sleep_for(between_end_looks);
  }
  co_return !find(rank, pid);
}

}  // namespace manyworlds::inline v0::detail
