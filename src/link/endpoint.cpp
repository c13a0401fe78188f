#include "link/endpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "link/endpoint_acceptor.hpp"
#include "link/local_discovery.hpp"
#include "link/local_peer.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

using namespace std::chrono_literals;

constexpr duration collision_patience = 2s;
constexpr duration ending_look = 10ms;
/// An unused link is kept this long, so that the next world with the peer forms sooner.
constexpr duration linger = 5s;

process_address name_self(environment& env) {
  std::array<std::byte, incarnation::size> raw;
  env.fill_random(raw);
  process_address self;
  self.id = incarnation(raw);
  self.identity = env.identity();
  return self;
}

const endpoint_options& checked(const endpoint_options& o) {
  const std::string wrong = listening_error(o.listen, !o.secret.empty(), o.insecure);
  if (!wrong.empty()) throw std::invalid_argument(wrong);
  if (!o.secret.empty() && !can_prove()) {
    throw std::invalid_argument(
        "a secret is set, but this build has no libcrypto to use it");
  }
  return o;
}

}  // namespace

endpoint::endpoint(reactor& service, environment& env, endpoint_options options,
                   endpoint_listener& told)
    : service_(service),
      told_(told),
      options_(checked(options)),
      greeter_(env, name_self(env), options_.secret),
      acceptor_(std::make_unique<acceptor>(*this)) {
  socket_address reachable = acceptor_->address();
  if (options_.advertise.is_valid()) {
    reachable = options_.advertise.port() != 0
                    ? options_.advertise
                    : options_.advertise.with_port(reachable.port());
  } else if (reachable.is_wildcard()) {
    throw std::invalid_argument(fmt::format(
        "peers cannot dial {}: say which address to advertise", reachable.text()));
  }
  greeter_.set_endpoint(reachable);
  last_look_ = service.now();
  discovery_ = std::make_unique<shm::local_discovery>(*this, service, env, options_);
}

endpoint::~endpoint() = default;

void endpoint::spawn(task<void> t) {
  if (scope_) scope_->spawn(contain(std::move(t)));
}

task<void> endpoint::contain(task<void> t) {
  try {
    co_await std::move(t);
  } catch (const std::exception& e) {
    log(log_level::warning,
        std::string("a task of the service thread failed: ") + e.what());
  }
}

task<void> endpoint::run() {
  MW_ASSERT(!scope_, "an endpoint runs once at a time");
  auto body = [this](scope& s) -> task<void> {
    MW_ASSERT(service_.is_current(), "an endpoint runs on the service reactor");
    scope_ = &s;
    s.spawn(acceptor_->run());
    s.spawn(beat());
    s.spawn(contain(discovery_->run()));
    co_await quiet_.wait();
    s.cancel();
  };
  // Links and worlds must find no scope once it is over, no matter how it ends.
  struct forget {
    endpoint& self;
    ~forget() {
      self.scope_ = nullptr;
      // The local peers are closed before this thread may end, since it holds the
      // liveness futexes.
      for (const auto& l : self.links()) l->local().close();
      self.discovery_->end();
    }
  } on_end{*this};
  discovery_->begin();
  co_await scope::run(body);
}

task<void> endpoint::say_goodbye(duration patience) {
  leaving_ = true;
  for (const auto& l : links()) l->say_goodbye();
  const time_point until = service_.now() + patience;
  while (!links().empty() && service_.now() < until) co_await sleep_for(1ms);
  quiet_.set();
}

std::vector<std::shared_ptr<link>> endpoint::links() const {
  std::vector<std::shared_ptr<link>> up;
  for (const auto& [id, e] : entries_) {
    if (e->up) up.push_back(e->up);
  }
  return up;
}

link* endpoint::link_to(const incarnation& peer) const {
  const auto found = entries_.find(peer);
  return found == entries_.end() ? nullptr : found->second->up.get();
}

std::optional<time_point> endpoint::last_heard(const incarnation& peer) const {
  const auto found = entries_.find(peer);
  if (found == entries_.end() || !found->second->up) return std::nullopt;
  return found->second->up->last_heard();
}

// --- links

std::shared_ptr<endpoint::entry> endpoint::entry_of(const incarnation& id) {
  auto& e = entries_[id];
  if (!e) e = std::make_shared<entry>();
  return e;
}

std::shared_ptr<link> endpoint::establish(stream s, process_address peer,
                                          bool dialled_by_us) {
  const auto e = entry_of(peer.id);
  // A peer that still trusted its link would not dial again.
  if (e->up) e->up->end(cause::connection_lost, "the peer has made a new link");
  MW_ASSERT(service_.is_current(), "links live on the service reactor");
  e->up =
      std::make_shared<link>(service_, std::move(s), std::move(peer), told_, *discovery_);
  e->dialled_by_us = dialled_by_us;
  e->unused_since = service_.now();
  e->changed.set();
  spawn(run_link(e->up));
  if (!dialled_by_us) e->up->local().begin_pairing();
  return e->up;
}

task<void> endpoint::run_link(std::shared_ptr<link> l) {
  try {
    co_await l->run();
  } catch (const std::exception& e) {
    l->end(cause::out_of_resources, e.what());
  }
  const auto found = entries_.find(l->peer().id);
  if (found == entries_.end() || found->second->up != l) co_return;
  found->second->up = nullptr;
  found->second->changed.set();
  if (!found->second->dialling && found->second->accepting == 0) entries_.erase(found);
}

// --- dialling

task<link_hold> endpoint::reach(process_address peer, time_point deadline) {
  for (;;) {
    const auto e = entry_of(peer.id);
    if (e->up && e->up->is_usable()) co_return link_hold(e->up);
    if (service_.now() >= deadline) {
      throw link_error(cause::silent_peer, peer.text() + " did not answer in time");
    }
    // Wait for a link that is about to end: the peer declines, or a new one follows.
    const bool is_ending = e->up && e->up->is_up();
    bool wait_for_theirs = e->dialling || e->accepting > 0 || is_ending;
    if (!wait_for_theirs) {
      hello words;
      words.purpose = connection_purpose::link;
      words.expected = peer.id;
      std::optional<process_address> met;
      {
        struct dialling {
          entry& e;
          explicit dialling(entry& on) : e(on) {
            MW_ASSERT(!e.dialling, "one dial to a peer at a time");
            e.dialling = true;
          }
          ~dialling() {
            e.dialling = false;
            e.changed.set();
          }
        } now(*e);
        stream s = co_await dial(peer, words, deadline, met);
        if (met && !(e->up && e->up->is_up())) {
          co_return link_hold(establish(std::move(s), *met, true));
        }
      }
      wait_for_theirs = !met;
    }
    if (wait_for_theirs && !(e->up && e->up->is_usable())) {
      e->changed.reset();
      // A dial of either side sets `changed`; otherwise look again and perhaps dial.
      try {
        co_await within(e->changed.wait(),
                        std::min<duration>(deadline - service_.now(),
                                           is_ending ? ending_look : collision_patience));
      } catch (const timed_out&) {
        continue;
      }
    }
  }
}

task<stream> endpoint::dial(process_address peer, hello words, time_point deadline,
                            std::optional<process_address>& met) {
  stream s;
  auto attempt = [this](stream& into, socket_address address, hello& said,
                        std::optional<process_address>& who) -> task<io_result> {
    const io_result connected = co_await stream::connect(service_, address, into);
    if (!connected.ok()) co_return connected;
    who = co_await greeter_.greet(into, said);
    co_return connected;
  };
  bool late = false;
  io_result connected;
  try {
    connected =
        co_await within(attempt(s, peer.endpoint, words, met), deadline - service_.now());
  } catch (const timed_out&) {
    late = true;
  }
  if (late) throw link_error(cause::silent_peer, peer.text() + " did not answer in time");
  if (!connected.ok()) {
    const bool no_listener =
        connected.error() == ECONNREFUSED || connected.error() == ECONNRESET;
    const bool ours = connected.error() == EMFILE || connected.error() == ENFILE;
    throw link_error(no_listener ? cause::peer_died
                     : ours      ? cause::out_of_resources
                                 : cause::silent_peer,
                     fmt::format("cannot reach {}: {}", peer.text(),
                                 std::strerror(connected.error())));
  }
  co_return s;
}

task<stream> endpoint::dial_data(process_address peer, std::uint64_t world_id,
                                 rank_t self, time_point deadline) {
  hello words;
  words.purpose = connection_purpose::data;
  words.expected = peer.id;
  words.world_id = world_id;
  words.rank = self;
  std::optional<process_address> met;
  co_return co_await dial(std::move(peer), words, deadline, met);
}

task<bytes> endpoint::ask(process_address peer, bytes question, time_point deadline) {
  hello words;
  words.purpose = connection_purpose::query;
  words.expected = peer.id;
  std::optional<process_address> met;
  stream s = co_await dial(peer, words, deadline, met);
  auto exchange = [](stream& with, bytes asked) -> task<bytes> {
    wire_writer out;
    out.put(static_cast<std::uint32_t>(asked.size())).put_raw(asked);
    const bytes framed = out.take();
    bytes answer;
    io_result got = co_await with.send_all(framed);
    std::uint32_t size = 0;
    if (got.ok()) {
      got = co_await with.receive_exactly(std::as_writable_bytes(std::span(&size, 1)));
    }
    if (got.ok() && got.count() == sizeof size && size <= link::longest_message) {
      answer.resize(size);
      got = co_await with.receive_exactly(answer);
      if (got.ok() && got.count() == size) co_return answer;
    }
    throw link_error(cause::peer_died,
                     "the peer hung up instead of answering a question");
  };
  bool late = false;
  bytes answer;
  try {
    answer = co_await within(exchange(s, std::move(question)), deadline - service_.now());
  } catch (const timed_out&) {
    late = true;
  }
  if (late) throw link_error(cause::silent_peer, peer.text() + " did not answer in time");
  co_return answer;
}

// --- beats

task<void> endpoint::beat() {
  for (;;) {
    co_await sleep_for(options_.heartbeat / 4);
    beat_once();
  }
}

// A peer that is bound to our only CPU cannot run while we spin. It is believed, since
// a lie only makes us sleep sooner. A peer that has not reported its CPU is taken to have
// another: holding all spins until then cost each new link 60 ms in which members slept
// between any two messages (8 KiB: 8 us in place of 2.8). If it does share ours, spins
// only yield to it for up to a heartbeat.
bool endpoint::shares_only_cpu_with(const link& l, cpu_binding cpu) const noexcept {
  if (!cpu.only_cpu() || !l.is_up()) return false;
  const bool is_here =
      l.local().shares_memory() || l.peer().identity.host == self().identity.host;
  return is_here && l.peer_cpu() == cpu;
}

void endpoint::beat_once() {
  MW_ASSERT(service_.is_current(), "links beat on the service reactor");
  const time_point now = service_.now();
  // A detector that was late itself (stopped, starved, a paused machine) has not
  // listened: it gives every peer a new window instead of accusing it.
  const bool was_late = now - last_look_ > options_.heartbeat;
  // Bounded by a heartbeat for each look, so that the link to a peer that does not answer
  // ends also where every look is late.
  const duration missed =
      was_late ? now - last_look_ - options_.heartbeat : duration::zero();
  const bool beat_is_due = now.time_since_epoch() / options_.heartbeat !=
                           last_look_.time_since_epoch() / options_.heartbeat;
  last_look_ = now;
  // Parked counts as a turn, since the reactor would make one at once. A reactor that
  // is neither is blocked in user code, and its peers tolerate that (law 8).
  if (user_ && user_->is_parked()) ++beats_parked_;
  const std::uint64_t progress = user_ ? user_->turns() + beats_parked_ : 0;
  const cpu_binding cpu = user_ ? user_->binding() : cpu_binding();
  bool shares_only_cpu = false;
  unsigned peers_here = 0;
  for (const auto& l : links()) {
    if (was_late) l->note_heard(now);
    l->local().return_slots();
    l->beat(progress, cpu, beat_is_due);
    shares_only_cpu |= shares_only_cpu_with(*l, cpu);
    peers_here += l->local().shares_memory() ? 1 : 0;
    const auto e = entry_of(l->peer().id);
    // While we did not look, we neither read the peer's answer nor saw that the link was
    // in use.
    e->unused_since = std::min(now, e->unused_since + missed);
    if (l->is_held() || l->take_declined()) {
      e->unused_since = now;
    } else if (l->is_usable() && now - e->unused_since > linger) {
      l->offer_end();
      // The peer can answer from now on only, however long the link was unused.
      e->unused_since = now - linger;
    } else if (now - e->unused_since > linger + greeting_limit) {
      MW_ASSERT(!l->is_usable(), "a peer that was not asked owes no answer");
      l->end(cause::closed, "the peer did not answer");
    }
  }
  // Peers that could not be dialled leave no entry.
  std::erase_if(entries_, [](const auto& each) {
    const auto& e = each.second;
    return !e->up && !e->dialling && e.use_count() == 1;
  });
  if (user_) user_->note_peers_here(peers_here);
  if (user_ && adapts_spin_) user_->hold_spinning(shares_only_cpu);
  told_.examine_silence(now);
}

}  // namespace manyworlds::inline v0::detail
