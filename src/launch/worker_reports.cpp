#include "launch/worker_reports.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "io/process_list.hpp"
#include "io/stream.hpp"
#include "io/system_environment.hpp"
#include "launch/abstract_address.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// A worker is known once its starter has seen it start, and may be faster itself.
constexpr duration longest_until_known = std::chrono::seconds(2);
constexpr duration between_looks_for_worker = std::chrono::milliseconds(20);
/// A beat that comes later than this says that its worker, or this machine, was held up.
constexpr duration late_beat = std::chrono::milliseconds(1200);
/// A deadline is ended by a message, which takes its time.
constexpr duration deadline_slack = std::chrono::milliseconds(20);
constexpr duration without_descriptors = std::chrono::milliseconds(200);
/// Messages of one worker before others are heard.
constexpr int most_at_once = 64;
constexpr std::size_t spare_connections = 64;
/// More than the kernel keeps of one worker.
constexpr int most_unread_reports = 4096;
/// More than the kernel lets wait to be accepted, unless it is set up for more.
constexpr int most_waiting = 4096;
constexpr std::size_t most_worlds_known = 4096;
constexpr std::size_t most_deadlines = 4096;

std::string free_agent_name() {
  std::random_device seed;
  return fmt::format("manyworlds-agent-{}-{:08x}{:08x}", ::getpid(), seed(), seed());
}

/// Returns the process at the other end, if this user may be heard.
pid_t peer_of(int connection) noexcept {
  ucred who{};
  socklen_t length = sizeof who;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) return 0;
  return who.uid == ::geteuid() || who.uid == 0 ? who.pid : 0;
}

}  // namespace

worker_reports::worker_reports(reactor& home, worker_reports_listener& told)
    : home_(home),
      listener_(told),
      host_(decltype(host_)::clipped(own_host_name())),
      address_(free_agent_name()),
      listening_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                 "socket") {
  const abstract_address at(address_);
  if (::bind(listening_.get(), at.get(), at.length) != 0 ||
      ::listen(listening_.get(), SOMAXCONN) != 0)
    throw std::system_error(errno, std::generic_category(), "the socket for reports");
}

task<void> worker_reports::run() {
  co_await scope::run([this](scope& s) -> task<void> {
    struct here {
      worker_reports& self;
      ~here() { self.serving_ = nullptr; }
    };
    const here until_end{*this};
    serving_ = &s;
    s.spawn(watch_deadlines());
    co_await accept_all();
  });
}

void worker_reports::begin(int rank, int incarnation, pid_t pid) {
  worker_account fresh;
  fresh.rank = rank;
  fresh.incarnation = incarnation;
  fresh.pid = fresh.reporter = pid;
  fresh.started = home_.now();
  accounts_.insert_or_assign(rank, std::move(fresh));
}

void worker_reports::end(int rank) noexcept { accounts_.erase(rank); }

void worker_reports::hear_rest(int rank) {
  const auto account = accounts_.find(rank);
  if (account == accounts_.end()) return;
  // It may have connected, reported and ended before the reactor turned.
  if (serving_) (void)accept_waiting(most_waiting);
  for (const std::weak_ptr<connection>& each : newcomers_) {
    if (const auto c = each.lock()) (void)greet(*c);
  }
  hear_waiting(account->second);
}

/// Takes the reports that have come and are not read.
void worker_reports::hear_waiting(worker_account& of) {
  const auto found = connections_.find(of.rank);
  if (found == connections_.end() || account_of(*found->second) != &of) return;
  // A descendant that has the connection may go on for long.
  for (int i = 0; i < most_unread_reports && !found->second->is_over; ++i) {
    const std::optional<worker_report> report = next_report(*found->second);
    if (!report) return;
    take(of, *report);
  }
}

const worker_account* worker_reports::of(int rank) const noexcept {
  const auto found = accounts_.find(rank);
  return found == accounts_.end() ? nullptr : &found->second;
}

int worker_reports::rank_of(std::int64_t pid, std::string_view host) const {
  if (host == host_.view()) {
    for (const auto& [rank, account] : accounts_) {
      if (account.reporter == pid || account.pid == pid) return rank;
    }
  }
  // The pid alone may be that of a process in each of many containers.
  const std::size_t number = std::hash<std::string>()(fmt::format("{} {}", pid, host));
  return -1 - static_cast<int>(number & 0x3fffffff);
}

bool worker_reports::ask_for_dump(int rank, int to) noexcept {
  const auto found = connections_.find(rank);
  if (found == connections_.end()) return false;
  std::byte what = dump_request;
  iovec from{&what, 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> beside{};
  msghdr message{};
  message.msg_iov = &from;
  message.msg_iovlen = 1;
  message.msg_control = beside.data();
  message.msg_controllen = beside.size();
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &to, sizeof to);
  return ::sendmsg(found->second->socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         1;
}

// ----------------------------------------------------------------------- connections

task<void> worker_reports::accept_all() {
  for (;;) {
    io_awaiter readable(home_, io_kind::readable,
                        static_cast<socket_handle>(listening_.get()));
    const io_result woken = co_await readable;
    if (!woken.ok())
      throw std::system_error(woken.error(), std::generic_category(), "reports");
    const int error = accept_waiting(most_at_once);
    // The connection waits until there are descriptors again.
    if (error == EMFILE || error == ENFILE) co_await sleep_for(without_descriptors);
    // Processes that do not cease to connect hold up no other task.
    co_await yield();
  }
}

/// Returns why no further connection was accepted; 0 if there were `most`.
int worker_reports::accept_waiting(int most) {
  std::erase_if(newcomers_, [](const auto& each) {
    const auto c = each.lock();
    return !c || c->rank >= 0;
  });
  for (int i = 0; i < most; ++i) {
    unique_descriptor one(
        ::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!one) return errno;
    const pid_t peer = peer_of(one.get());
    if (peer == 0 || open_ >= 2 * accounts_.size() + spare_connections) continue;
    auto c = std::make_shared<connection>(*this, std::move(one), peer);
    newcomers_.push_back(c);
    serving_->spawn(serve(std::move(c)));
  }
  return 0;
}

task<void> worker_reports::serve(std::shared_ptr<connection> from) {
  const bool is_worker = co_await take_hello(*from);
  if (!is_worker) co_return;
  while (!from->is_over) {
    io_awaiter readable(home_, io_kind::readable,
                        static_cast<socket_handle>(from->socket.get()));
    const io_result woken = co_await readable;
    if (!woken.ok()) break;
    for (int i = 0; i < most_at_once && !from->is_over; ++i) {
      const auto report = next_report(*from);
      if (!report) break;
      worker_account* const account = account_of(*from);
      from->is_over = account == nullptr;
      if (account) take(*account, *report);
    }
    co_await yield();
  }
}

void worker_reports::forget(const connection& c) noexcept {
  if (worker_account* const account = account_of(c)) {
    account->is_connected = false;
    // Neither can be kept now; the shell that has started the process may live on.
    account->deadlines.clear();
    account->last_beat = std::nullopt;
  }
  const auto ours = connections_.find(c.rank);
  if (ours != connections_.end() && ours->second == &c) connections_.erase(ours);
}

/// The first message says which worker it is.
task<bool> worker_reports::take_hello(connection& from) {
  io_awaiter readable(home_, io_kind::readable,
                      static_cast<socket_handle>(from.socket.get()));
  (void)co_await when_any(std::move(readable), sleep_for(longest_until_known));
  for (const time_point until = home_.now() + longest_until_known;;) {
    const bool is_known = greet(from);
    if (is_known) co_return true;
    if (!from.hello || home_.now() >= until) co_return false;
    co_await sleep_for(between_looks_for_worker);
  }
}

/// Returns true once it is known which worker it is.
bool worker_reports::greet(connection& from) {
  if (from.rank >= 0) return true;
  if (!from.hello && !from.is_over) {
    const auto report = next_report(from);
    if (!report) return false;
    const worker_hello* const hello = std::get_if<worker_hello>(&*report);
    from.is_over = hello == nullptr;
    if (hello) from.hello = *hello;
  }
  worker_account* const account = from.hello ? admitted(from, *from.hello) : nullptr;
  if (!account) return false;
  account->has_come = account->is_connected = true;
  account->reporter = from.peer;
  from.rank = account->rank;
  from.incarnation = account->incarnation;
  connections_[from.rank] = &from;
  return true;
}

worker_account* worker_reports::admitted(const connection& from, const worker_hello& h) {
  const auto found = accounts_.find(h.rank);
  if (found == accounts_.end()) return nullptr;
  worker_account& account = found->second;
  if (account.incarnation != h.incarnation || account.is_connected) return nullptr;
  // A worker may be a shell that starts the program.
  return descends_from(from.peer, account.pid) ? &account : nullptr;
}

worker_account* worker_reports::account_of(const connection& from) noexcept {
  const auto found = accounts_.find(from.rank);
  if (found == accounts_.end() || found->second.incarnation != from.incarnation)
    return nullptr;
  // A process of another attempt has the rank by now.
  const auto at = connections_.find(from.rank);
  return at != connections_.end() && at->second == &from ? &found->second : nullptr;
}

std::optional<worker_report> worker_reports::next_report(connection& from) {
  std::array<std::byte, longest_report> room;
  const ssize_t got =
      ::recv(from.socket.get(), room.data(), room.size(), MSG_DONTWAIT | MSG_TRUNC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  from.is_over = true;
  if (got <= 0 || static_cast<std::size_t>(got) > room.size()) return std::nullopt;
  try {
    auto report = decoded_report(std::span(room).first(static_cast<std::size_t>(got)));
    from.is_over = false;
    return report;
  } catch (const wire_error&) {
    return std::nullopt;
  }
}

// --------------------------------------------------------------------------- accounts

void worker_reports::take(worker_account& of, const worker_report& report) {
  struct taker {
    worker_reports& self;
    worker_account& of;
    const worker_report& whole;

    void operator()(const worker_hello&) const noexcept {}
    void operator()(const worker_beat& r) const { self.take(of, r); }
    void operator()(const worker_progress& r) const { self.take(of, r); }
    void operator()(const world_news& r) const { self.take(of, r); }
    void operator()(const deadline_begun& r) const { self.take(of, r); }
    void operator()(const deadline_ended& r) const noexcept {
      of.deadlines.erase(r.number);
    }
    void operator()(const reported_event&) const { tell(); }
    void operator()(const restart_request&) const { tell(); }
    void operator()(const reported_metric&) const { tell(); }
    void operator()(const reported_span&) const { tell(); }
    void operator()(const worker_rest&) const noexcept {
      of.is_at_rest = true;
      of.last_beat = std::nullopt;
    }
    void operator()(const dump_written&) const noexcept { ++of.dumps; }
    // What was closed or recovered meanwhile is not among what follows.
    void operator()(const state_again&) const noexcept {
      of.deadlines.clear();
      of.suspects.clear();
      of.worlds.clear();
    }
    void tell() const { self.listener_.was_reported(of, whole); }
  };
  std::visit(taker{*this, of, report}, report);
}

void worker_reports::take(worker_account& of, const worker_beat& beat) {
  const time_point now = home_.now();
  if (of.last_beat && now - *of.last_beat > late_beat) of.last_late = now;
  if (!of.last_beat || beat.turns != of.turns) of.last_turn = now;
  of.is_at_rest = false;
  of.last_beat = now;
  of.turns = beat.turns;
  // Between two beats it may have waited until now.
  if (of.waits || beat.waits) of.last_wait = now;
  of.waits = beat.waits;
}

void worker_reports::take(worker_account& of, const worker_progress& progress) {
  if (of.progress != progress.step) of.last_progress = home_.now();
  of.progress = progress.step;
}

void worker_reports::take(worker_account& of, const world_news& news) {
  note_news(news, most_worlds_known, of.worlds, of.suspects);
  listener_.world_changed(of, news);
}

void worker_reports::take(worker_account& of, const deadline_begun& begun) {
  if (of.deadlines.size() >= most_deadlines && !of.deadlines.contains(begun.number))
    return;
  of.deadlines.insert_or_assign(
      begun.number, worker_account::deadline{later(home_.now(), begun.left), begun.what});
  deadlines_changed_.set();
}

task<void> worker_reports::watch_deadlines() {
  for (;;) {
    deadlines_changed_.reset();
    time_point next = time_point::max();
    const time_point now = home_.now();
    for (auto& [rank, account] : accounts_) {
      const auto is_due = [&](const auto& each) {
        return later(each.second.until, deadline_slack) <= now;
      };
      // What ends it in time may be unread, if this agent was held up.
      if (std::any_of(account.deadlines.begin(), account.deadlines.end(), is_due))
        hear_waiting(account);
      std::vector<std::string> passed;
      std::erase_if(account.deadlines, [&](const auto& each) {
        const time_point due = later(each.second.until, deadline_slack);
        const bool has_passed = due <= now;
        if (has_passed) passed.push_back(each.second.what);
        if (!has_passed) next = std::min(next, due);
        return has_passed;
      });
      for (const std::string& what : passed) listener_.has_overrun(account, what);
    }
    if (next == time_point::max()) {
      co_await deadlines_changed_.wait();
    } else {
      co_await when_any(deadlines_changed_.wait(), sleep_until(next));
    }
  }
}

}  // namespace manyworlds::inline v0::detail
