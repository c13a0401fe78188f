#include "manyworlds/link/endpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"

namespace manyworlds::inline v0 {

namespace {

using namespace std::chrono_literals;

constexpr duration greeting_limit = 2s;
constexpr std::size_t most_greetings = 256;
constexpr duration collision_patience = 2s;
constexpr duration ending_look = 10ms;
/// A link nobody uses is kept this long: the next world with the peer is formed sooner.
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
  const std::string objection =
      listening_objection(o.listen, !o.secret.empty(), o.insecure);
  if (!objection.empty()) throw std::invalid_argument(objection);
  if (!o.secret.empty() && !can_prove()) {
    throw std::invalid_argument(
        "a secret is set, but this build has no libcrypto to use it");
  }
  return o;
}

}  // namespace

std::string listening_objection(const socket_address& address, bool has_secret,
                                bool insecure) {
  if (!address.is_valid()) return "the listening address is not an address";
  if (address.is_loopback() || has_secret || insecure) return {};
  return fmt::format(
      "listening at {} is open to the network: set a secret, or say insecure = true",
      address.text());
}

endpoint::endpoint(reactor& service, environment& env, endpoint_options options,
                   endpoint_events& events)
    : service_(service),
      events_(events),
      options_(checked(options)),
      listener_(service, options_.listen),
      greeter_(env, name_self(env), options_.secret) {
  socket_address reachable = listener_.address();
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
}

void endpoint::spawn(task<void> t) {
  if (scope_) scope_->spawn(contain(std::move(t)));
}

task<void> endpoint::contain(task<void> t) {
  try {
    co_await std::move(t);
  } catch (const std::exception& e) {
    events_.remark(std::string("a task of the service thread failed: ") + e.what());
  }
}

task<void> endpoint::run() {
  auto body = [this](scope& s) -> task<void> {
    scope_ = &s;
    s.spawn(accept_all());
    s.spawn(beat());
    co_await quiet_.wait();
    s.cancel();
  };
  // Links and worlds must find no scope once it is over, however it ends.
  struct forget {
    endpoint& self;
    ~forget() { self.scope_ = nullptr; }
  } on_end{*this};
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

std::optional<time_point> endpoint::last_heard(const incarnation& peer) const {
  const auto found = entries_.find(peer);
  if (found == entries_.end() || !found->second->up) return std::nullopt;
  return found->second->up->last_heard();
}

// --- accepting
// ----------------------------------------------------------------------------------

task<void> endpoint::accept_all() {
  for (;;) {
    const io_result accepted = co_await listener_.accept();
    if (!accepted.ok()) {
      if (accepted.error() == EMFILE || accepted.error() == ENFILE) {
        events_.remark(
            "no descriptor is left to accept a peer with; trying again in 50 ms");
      }
      co_await sleep_for(50ms);
      continue;
    }
    stream s(service_, socket(service_.sockets(), accepted.handle()));
    // Silent strangers must not use up what peers need.
    if (greetings_ >= most_greetings) continue;
    spawn(greet_one(std::move(s)));
  }
}

/// From the moment a dial of theirs is welcome until it is a link, we do not dial: either
/// side would take the second connection for a new link and end the first under the
/// worlds that use it.
class endpoint::acceptance {
 public:
  acceptance() noexcept = default;
  acceptance(const acceptance&) = delete;
  acceptance& operator=(const acceptance&) = delete;
  ~acceptance() {
    if (!entry_) return;
    --entry_->accepting;
    entry_->changed.set();
  }
  void begin(std::shared_ptr<entry> e) {
    entry_ = std::move(e);
    ++entry_->accepting;
  }

 private:
  std::shared_ptr<entry> entry_;
};

task<std::optional<hello>> endpoint::answer_in_time(stream& s, acceptance& welcomed) {
  const auto deciding = [this, &welcomed](const hello& h) {
    const hello_status status = decide(h);
    const bool becomes_link = h.purpose == connection_purpose::link;
    if (status == hello_status::welcome && becomes_link)
      welcomed.begin(entry_of(h.self.id));
    return status;
  };
  const std::function<hello_status(const hello&)> decide_by = deciding;
  co_return co_await within(greeter_.answer(s, decide_by), greeting_limit);
}

task<void> endpoint::greet_one(stream s) {
  struct counted {
    std::size_t& n;
    explicit counted(std::size_t& count) : n(++count) {}
    ~counted() { --n; }
  } open(greetings_);
  std::string trouble;
  std::optional<hello> words;
  acceptance welcomed;
  try {
    words = co_await answer_in_time(s, welcomed);
  } catch (const link_error& e) {
    trouble = e.what();
  } catch (const timed_out&) {
    trouble = s.peer_address().text() + " connected and said nothing";
  }
  if (!trouble.empty()) {
    events_.remark("refused a connection: " + trouble);
    co_return;
  }
  if (!words || leaving_) co_return;
  switch (words->purpose) {
    case connection_purpose::link:
      establish(std::move(s), words->self, false);
      break;
    case connection_purpose::data:
      events_.data_connection(std::move(s), *words);
      break;
    case connection_purpose::query:
      spawn(answer_one(std::move(s)));
      break;
  }
}

task<void> endpoint::answer_one(stream s) {
  auto serve = [this](stream& from) -> task<void> {
    std::uint32_t size = 0;
    io_result got =
        co_await from.receive_exactly(std::as_writable_bytes(std::span(&size, 1)));
    if (!got.ok() || got.count() != sizeof size || size > link::longest_message)
      co_return;
    bytes question(size);
    got = co_await from.receive_exactly(question);
    if (!got.ok() || got.count() != size) co_return;
    const bytes answer = co_await events_.answer_query(std::move(question));
    wire_writer out;
    out.put(static_cast<std::uint32_t>(answer.size())).put_raw(answer);
    const bytes framed = out.take();
    co_await from.send_all(framed);
  };
  try {
    co_await within(serve(s), greeting_limit);
  } catch (const timed_out&) {
    // Whoever asked has its own deadline.
  } catch (const wire_error& e) {
    events_.remark(std::string("a question made no sense: ") + e.what());
  }
}

hello_status endpoint::decide(const hello& h) {
  if (h.purpose != connection_purpose::link) return hello_status::welcome;
  const auto e = entry_of(h.self.id);
  // Two processes that dial each other at once must agree on one connection: the one that
  // the lower incarnation dialled.
  const bool ours_wins = self().id < h.self.id;
  if (ours_wins && (e->dialling || (e->up && e->up->is_usable() && e->dialled_by_us))) {
    return hello_status::already_dialling;
  }
  return hello_status::welcome;
}

// --- links
// --------------------------------------------------------------------------------------

std::shared_ptr<endpoint::entry> endpoint::entry_of(const incarnation& id) {
  auto& e = entries_[id];
  if (!e) e = std::make_shared<entry>();
  return e;
}

std::shared_ptr<link> endpoint::establish(stream s, process_address peer,
                                          bool dialled_by_us) {
  const auto e = entry_of(peer.id);
  // The peer would not dial again with a link it believes in.
  if (e->up) e->up->end(cause::connection_lost, "the peer has made a new link");
  e->up = std::make_shared<link>(service_, std::move(s), std::move(peer), events_);
  e->dialled_by_us = dialled_by_us;
  e->unused_since = service_.now();
  e->changed.set();
  spawn(run_link(e->up));
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

task<link_hold> endpoint::reach(process_address peer, time_point deadline) {
  for (;;) {
    const auto e = entry_of(peer.id);
    if (e->up && e->up->is_usable()) co_return link_hold(e->up);
    if (service_.now() >= deadline) {
      throw link_error(cause::silent_peer, peer.text() + " did not answer in time");
    }
    // One that is about to end is waited for: the peer declines, or a new one follows.
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
          explicit dialling(entry& on) : e(on) { e.dialling = true; }
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
      // Whoever dials, theirs or ours, says so; otherwise look again and perhaps dial.
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
    const bool nobody =
        connected.error() == ECONNREFUSED || connected.error() == ECONNRESET;
    const bool ours = connected.error() == EMFILE || connected.error() == ENFILE;
    throw link_error(nobody ? cause::peer_died
                     : ours ? cause::out_of_resources
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
    throw link_error(cause::peer_died, "the peer hung up on a question");
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

// --- liveness
// -----------------------------------------------------------------------------------

task<void> endpoint::beat() {
  for (;;) {
    co_await sleep_for(options_.heartbeat / 4);
    beat_once();
  }
}

void endpoint::beat_once() {
  const time_point now = service_.now();
  // A detector that was late itself (stopped, starved, a paused machine) has not
  // listened: it gives every peer a new window instead of accusing it.
  const bool was_late = now - last_look_ > options_.heartbeat;
  const bool beat_is_due = now.time_since_epoch() / options_.heartbeat !=
                           last_look_.time_since_epoch() / options_.heartbeat;
  last_look_ = now;
  // Parked counts as a turn: it would make one at once. A reactor that is neither is
  // blocked in user code, and its peers forbear (law 8).
  if (beat_is_due && user_ && user_->is_parked()) ++beats_parked_;
  const std::uint64_t progress = user_ ? user_->turns() + beats_parked_ : 0;
  for (const auto& l : links()) {
    if (was_late) l->note_heard(now);
    if (beat_is_due) l->send_beat(progress);
    const auto e = entry_of(l->peer().id);
    if (l->is_held() || l->take_declined()) {
      e->unused_since = now;
    } else if (now - e->unused_since > linger + greeting_limit) {
      l->end(cause::closed, "the peer did not answer");
    } else if (now - e->unused_since > linger) {
      l->offer_end();
    }
  }
  // Peers that were dialled in vain leave no trace.
  std::erase_if(entries_, [](const auto& each) {
    const auto& e = each.second;
    return !e->up && !e->dialling && e.use_count() == 1;
  });
  events_.examine_silence(now);
}

}  // namespace manyworlds::inline v0
