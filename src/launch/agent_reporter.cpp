#include "launch/agent_reporter.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "io/signals_blocked.hpp"
#include "io/stream.hpp"
#include "launch/abstract_address.hpp"
#include "manyworlds/coro/offload.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/worker_thread.hpp"
#include "manyworlds/detail/access.hpp"
#include "manyworlds/launch/launch_context.hpp"
#include "world/runtime_core.hpp"
#include "world/world_core.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

/// The agent sees two beats within the shortest limit for hangs, and a worker that waits
/// stays at rest.
constexpr duration between_beats = std::chrono::milliseconds(400);
/// After an agent could not be reached.
constexpr duration between_connects = std::chrono::seconds(1);
/// Worlds and suspects beyond this are told once, and not again.
constexpr std::size_t most_kept_news = 256;
constexpr std::size_t world_events_kept = 1024;
/// Asked for; the kernel may give less.
constexpr int most_unread = 1 << 19;

time_point steady_now() { return std::chrono::steady_clock::now(); }

std::shared_ptr<world_core> world_of(runtime_core& core, const world_event& e) {
  for (const auto& each : core.worlds().snapshot()) {
    if (each->options().name == e.world && each->epoch() == e.epoch) return each;
  }
  return nullptr;
}

void name_member(const world_core& w, rank_t member, world_news& news) {
  if (w.epoch() == 0) return;
  news.size = w.view().size();
  if (member < 0 || member >= w.view().size()) return;
  const process_identity& who = w.view().member(member).identity;
  news.pid = who.pid;
  news.host = who.host.view();
}

world_news news_of(runtime_core& core, const world_event& e) {
  world_news news;
  news.kind = e.kind;
  news.world = e.world.view();
  news.epoch = e.epoch;
  news.why = e.cause;
  if (const auto w = world_of(core, e)) name_member(*w, e.rank, news);
  return news;
}

/// Adds the oldest operation of the world, if it is older than `waits`.
void look_for_wait(const world_core& w, time_point now,
                   std::optional<worker_wait>& waits) {
  const auto is_older = [&](duration age) { return !waits || age > waits->age; };
  const auto begin = [&](operation_kind kind, duration age) -> worker_wait& {
    worker_wait& found = waits.emplace();
    found.kind = kind;
    found.world = w.options().name.view();
    found.epoch = w.epoch();
    found.age = std::max(age, duration::zero());
    return found;
  };
  if (w.state() == world_state::forming) {
    if (!waits) begin(operation_kind::form, duration::zero());
    return;
  }
  rank_t peer = no_rank;
  bool is_new = false;
  {
    const std::lock_guard lock(w.pending().history().mutex());
    for (const operation* op = w.pending().first(); op; op = op->next_pending) {
      if (!is_older(now - op->started)) continue;
      begin(op->kind, now - op->started);
      peer = op->peer;
      is_new = true;
    }
  }
  world_news named;
  if (is_new) name_member(w, peer, named);
  if (is_new) waits->peer_pid = named.pid;
  if (is_new) waits->peer_host = named.host;
}

std::optional<worker_wait> wait_of(runtime_core& core) {
  std::optional<worker_wait> waits;
  const time_point now = core.service().now();
  for (const auto& each : core.worlds().snapshot()) look_for_wait(*each, now, waits);
  return waits;
}

/// Takes all descriptors that came with a message, and returns the one if there is one.
unique_descriptor only_descriptor_of(msghdr& message) noexcept {
  unique_descriptor first;
  int count = 0;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t size = head->cmsg_len - CMSG_LEN(0);
    for (std::size_t at = 0; at + sizeof(int) <= size; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + at, sizeof fd);
      unique_descriptor each(fd);
      if (++count == 1) first = std::move(each);
    }
  }
  return count == 1 ? std::move(first) : unique_descriptor();
}

/// Returns the descriptor that came with a request for a dump; none without one.
unique_descriptor next_dump_request(int connection, bool& is_over) noexcept {
  std::byte what{};
  iovec into{&what, 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> beside{};
  msghdr message{};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  message.msg_control = beside.data();
  message.msg_controllen = beside.size();
  const ssize_t got =
      ::recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_NOSIGNAL);
  is_over = is_over || got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  if (got < 0) return unique_descriptor();
  // The room for one may have held two.
  unique_descriptor given = only_descriptor_of(message);
  return got == 1 && what == dump_request ? std::move(given) : unique_descriptor();
}

std::unique_ptr<worker_thread> dump_thread() {
  const signals_blocked while_starting;
  return std::make_unique<worker_thread>("mw-dump");
}

void write_dump_text(int to, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t some = ::write(to, text.data(), text.size());
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(some));
  }
}

}  // namespace

namespace detail {

agent_reporter::agent_reporter(std::string address, int rank, int incarnation)
    : address_(std::move(address)),
      rank_(rank),
      incarnation_(incarnation),
      owner_(::getpid()) {}

void agent_reporter::attach(runtime& rt) {
  // In a simulation there is no agent.
  if (!access::core(rt).env().starts_threads() || is_forked()) return;
  stay here{shared_from_this(), &rt, 0};
  {
    const std::lock_guard lock(stay_mutex_);
    here.number = ++stays_;
    stay_at_.store(here.number);
  }
  world_events events(access::core(rt).events().subscribe(world_events_kept));
  (void)rt.start_service(report_worlds(here, std::move(events)));
  (void)rt.start_service(report_beats(here));
  (void)rt.start_service(answer_requests(here));
}

void agent_reporter::detach() noexcept {
  if (is_forked()) return;
  {
    const std::lock_guard lock(stay_mutex_);
    if (stay_at_.exchange(0) == 0) return;
  }
  tell(worker_rest());
}

// --------------------------------------------------------------------- the service
// thread

task<void> agent_reporter::report_worlds(stay here, world_events events) {
  runtime_core& core = access::core(*here.at);
  try {
    for (;;) {
      const world_event e = co_await events.next();
      if (!here.self->is_at(here)) co_return;
      here.self->note_world(news_of(core, e));
    }
  } catch (const world_error&) {
    co_return;  // the runtime has ended
  }
}

task<void> agent_reporter::report_beats(stay here) {
  runtime_core& core = access::core(*here.at);
  while (here.self->is_at(here)) {
    here.self->beat(core);
    here.self->ask_for_turn(core.user());
    co_await sleep_for(between_beats);
  }
}

/// Returns -1 while there is no agent to hear.
int agent_reporter::connection() noexcept {
  const std::lock_guard lock(mutex_);
  return is_gone_ ? -1 : connection_.get();
}

task<void> agent_reporter::answer_requests(stay here) {
  agent_reporter& self = *here.self;
  reactor& home = access::core(*here.at).service();
  while (self.is_at(here)) {
    const int from = self.connection();
    if (from < 0) {
      co_await sleep_for(between_beats);
      continue;
    }
    io_awaiter readable(home, io_kind::readable, static_cast<socket_handle>(from));
    const io_result woken = co_await readable;
    // A later stay answers what comes then.
    if (!self.is_at(here)) co_return;
    bool is_over = !woken.ok();
    const unique_descriptor to = next_dump_request(from, is_over);
    if (is_over) self.note_agent_gone();
    if (!to) continue;
    // Neither the dump nor a slow disk holds up the heartbeats.
    const auto writer = dump_thread();
    co_await offload(*writer, [&] { self.write_dump(here, to.get()); });
  }
}

void agent_reporter::note_agent_gone() noexcept {
  const std::lock_guard lock(mutex_);
  is_gone_ = true;
}

void agent_reporter::write_dump(const stay& here, int to) noexcept {
  std::string text;
  try {
    const std::lock_guard lock(stay_mutex_);
    if (is_at(here)) text = here.at->dump();
  } catch (const std::exception&) {
    return;  // no memory for a dump
  }
  write_dump_text(to, text);
  tell(dump_written());
}

void agent_reporter::beat(runtime_core& core) {
  worker_beat now;
  now.turns = turns_.load(std::memory_order_relaxed);
  now.waits = wait_of(core);
  const std::lock_guard lock(mutex_);
  if (is_behind_) send_all_state();
  (void)send_if_room(now);
  if (untold_progress_ && send_if_room(worker_progress{*untold_progress_}))
    untold_progress_ = std::nullopt;
}

/// A reactor that runs, or sleeps, takes the work; one that is stuck in a task does not.
void agent_reporter::ask_for_turn(reactor& user) noexcept {
  // Acquire: pairs with the release in `note_turn`, after which the work is free.
  if (is_asked_.exchange(true, std::memory_order_acquire)) return;
  turn_.keep(shared_from_this());
  if (user.try_post(turn_)) return;
  turn_.let_go();
  is_asked_.store(false, std::memory_order_release);
}

void agent_reporter::note_turn() noexcept {
  turns_.fetch_add(1, std::memory_order_relaxed);
  is_asked_.store(false, std::memory_order_release);
}

void agent_reporter::note_world(const world_news& news) {
  const std::lock_guard lock(mutex_);
  note_news(news, most_kept_news, worlds_, suspects_);
  send_state(news);
}

// ------------------------------------------------------------------------------ any
// thread

/// The locks that threads of the parent held are never released in a forked child.
bool agent_reporter::is_forked() const noexcept { return ::getpid() != owner_; }

void agent_reporter::note_progress(std::uint64_t step) noexcept {
  if (is_forked()) return;
  const time_point now = steady_now();
  const std::lock_guard lock(mutex_);
  untold_progress_ = step;
  if (now < next_progress_) return;
  next_progress_ = now + between_beats;
  if (send_if_room(worker_progress{step})) untold_progress_ = std::nullopt;
}

std::uint64_t agent_reporter::begin_deadline(duration limit, std::string_view what) {
  if (is_forked()) return 0;
  const time_point now = steady_now();
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = next_deadline_++;
  deadlines_[number] = {later(now, limit), std::string(what)};
  send_state(
      deadline_begun{number, std::max(limit, duration::zero()), std::string(what)});
  return number;
}

void agent_reporter::end_deadline(std::uint64_t number) noexcept {
  if (is_forked()) return;
  const std::lock_guard lock(mutex_);
  deadlines_.erase(number);
  send_state(deadline_ended{number});
}

void agent_reporter::tell(const worker_report& report) noexcept {
  if (is_forked()) return;
  const std::lock_guard lock(mutex_);
  (void)send_if_room(report);
}

// ---------------------------------------------------------------------- under the mutex

bool agent_reporter::connect() noexcept {
  if (connection_) return true;
  const time_point now = steady_now();
  if (now < next_connect_) return false;
  next_connect_ = now + between_connects;
  unique_descriptor made(
      ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const abstract_address to(address_);
  if (!made || ::connect(made.get(), to.get(), to.length) != 0) return false;
  ::setsockopt(made.get(), SOL_SOCKET, SO_SNDBUF, &most_unread, sizeof most_unread);
  connection_ = std::move(made);
  if (send(worker_hello{rank_, incarnation_})) return true;
  // The agent ends a connection that begins with anything else.
  connection_ = unique_descriptor();
  return false;
}

bool agent_reporter::send(const worker_report& report) noexcept {
  if (is_gone_ || is_forked() || !connect()) return false;
  bytes message;
  try {
    message = encoded(report);
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (message.size() > longest_report) return false;
  const ssize_t sent = ::send(connection_.get(), message.data(), message.size(),
                              MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) return true;
  is_gone_ = errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ENOMEM;
  return false;
}

bool agent_reporter::send_if_room(const worker_report& report) noexcept {
  int unread = 0;
  if (connection_ && ::ioctl(connection_.get(), SIOCOUTQ, &unread) == 0 &&
      unread > most_unread / 4)
    return false;
  return send(report);
}

void agent_reporter::send_state(const worker_report& report) noexcept {
  if (is_behind_) {
    send_all_state();
  } else {
    is_behind_ = !send(report);
  }
}

void agent_reporter::ask_for_restart(std::string_view why) {
  if (is_forked()) return;
  const std::lock_guard lock(mutex_);
  asks_ = restart_request{std::string(why)};
  send_state(*asks_);
}

void agent_reporter::send_all_state() noexcept {
  const time_point now = steady_now();
  bool is_told = send(state_again());
  try {
    for (const auto& [number, d] : deadlines_) {
      const duration left = std::max(d.until - now, duration::zero());
      is_told = is_told && send(deadline_begun{number, left, d.what});
    }
    for (const auto& [name, news] : worlds_) is_told = is_told && send(news);
    for (const auto& [about, news] : suspects_) is_told = is_told && send(news);
    if (asks_) is_told = is_told && send(*asks_);
  } catch (const std::bad_alloc&) {
    is_told = false;
  }
  is_behind_ = !is_told;
}

}  // namespace detail

// -------------------------------------------------------------------- what a job reports

job_deadline::job_deadline(std::shared_ptr<agent_reporter> to, duration limit,
                           std::string_view what)
    : to_(std::move(to)) {
  if (to_) number_ = to_->begin_deadline(limit, what);
}

job_deadline::~job_deadline() {
  if (to_) to_->end_deadline(number_);
}

job_timer::job_timer(std::shared_ptr<agent_reporter> to, std::string_view name)
    : to_(std::move(to)), name_(name), since_(steady_now()) {}

job_timer::~job_timer() {
  if (to_) to_->tell(reported_span{std::move(name_), steady_now() - since_});
}

void launch_context::progress(std::uint64_t step) const noexcept {
  if (agent) agent->note_progress(step);
}

job_deadline launch_context::expires(duration limit, std::string_view what) const {
  return job_deadline(agent, limit, what);
}

void launch_context::event(std::string_view name, const job_fields& fields) const {
  if (agent) agent->tell(reported_event{std::string(name), fields});
}

void launch_context::request_restart(std::string_view why) const {
  if (agent) agent->ask_for_restart(why);
}

void launch_context::metric(std::string_view name, double value) const {
  if (agent) agent->tell(reported_metric{std::string(name), value});
}

job_timer launch_context::timed(std::string_view name) const {
  return job_timer(agent, name);
}

}  // namespace manyworlds::inline v0
