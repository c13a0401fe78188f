#include "testing/simulated_pairing.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "testing/simulated_deaths.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {

using namespace std::chrono_literals;

constexpr duration first_look = 20us;
constexpr duration longest_look = 10ms;
/// Shorter reads are of descriptions of payloads, which the caller wants whole.
constexpr std::size_t shortest_slice = 4096;
constexpr ssize_t bytes_a_nanosecond = 8;

std::string raw_name(const incarnation& id) {
  const auto raw = id.raw();
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

std::uint64_t seed_of(environment& env) {
  std::uint64_t seed = 0;
  env.fill_random(std::as_writable_bytes(std::span(&seed, 1)));
  return seed;
}

/// Reads the memory of a process that is simulated in this one. It still uses the
/// system call, so that a read of freed memory fails and does not crash.
class simulated_memory final : public memory_reader {
 public:
  simulated_memory(simulated_process& self, const simulated_process& peer,
                   std::uint64_t seed, std::uint64_t reads_allowed)
      : self_(self), peer_(peer), random_(seed), reads_left_(reads_allowed) {}

  ssize_t read(std::span<const iovec> into,
               std::span<const iovec> from) noexcept override {
    if (peer_.is_dead() || self_.is_dead()) return refused(ESRCH);
    if (reads_left_ == 0) return refused(EPERM);
    --reads_left_;
    std::size_t bytes = 0;
    for (const iovec& piece : from) bytes += piece.iov_len;
    iovec start = into.front();
    // Slices have any length, so that much may happen between two.
    if (bytes >= shortest_slice && start.iov_len > 1 && random_.one_in(2)) {
      start.iov_len = random_.up_to(start.iov_len);
      into = {&start, 1};
    }
    const ssize_t got = ::process_vm_readv(::getpid(), into.data(), into.size(),
                                           from.data(), from.size(), 0);
    if (got > 0) self_.spend(duration(got / bytes_a_nanosecond));
    return got;
  }

 private:
  static ssize_t refused(int error) noexcept {
    errno = error;
    return -1;
  }

  simulated_process& self_;
  const simulated_process& peer_;
  seeded_random random_;
  std::uint64_t reads_left_;
};

}  // namespace

/// A request, and its reply.
struct simulated_pairing::exchange {
  simulated_process* process = nullptr;
  incarnation from;
  nonce request_proof{};
  shared_parts parts;
  bool is_answered = false;
  std::string trouble;
  nonce reply_proof{};
};

simulated_pairing::simulated_pairing(simulated_process& self, reactor& service,
                                     const incarnation& id, pairing_listener& told,
                                     bool reads_peers)
    : pairing(self),
      self_(self),
      service_(service),
      id_(id),
      name_(raw_name(id)),
      told_(told),
      reads_peers_(reads_peers),
      random_(seed_of(self)) {
  simulated_kernel::add_resident(self_, *this);
}

simulated_pairing::~simulated_pairing() {
  simulated_kernel::remove_resident(self_, *this);
}

task<void> simulated_pairing::run() {
  for (;;) {
    while (!requests_.empty()) {
      const std::shared_ptr<exchange> next = std::move(requests_.front());
      requests_.pop_front();
      answer(*next);
      next->is_answered = true;
    }
    request_came_.reset();
    co_await request_came_.wait();
  }
}

void simulated_pairing::take(std::shared_ptr<exchange> request) {
  requests_.push_back(std::move(request));
  if (!std::exchange(arrival_is_posted_, true)) service_.post(arrival_);
}

void simulated_pairing::arrived() noexcept {
  arrival_is_posted_ = false;
  request_came_.set();
}

void simulated_pairing::answer(exchange& e) {
  if (e.process->is_dead()) return;
  const pairing_nonces* expected = told_.expected_nonces(e.from);
  if (!expected || expected->request != e.request_proof) {
    e.trouble = "it hung up";
    return told_.log(
        "refused a pairing request of this host: it does not know its nonce");
  }
  shared_parts parts;
  parts.segment = shm_segment::attach(
      ::fcntl(e.parts.segment->descriptor(), F_DUPFD_CLOEXEC, 0), e.trouble);
  if (!parts.segment) return;
  const auto [here, there] = simulated_kernel::make_pair(self_, *e.process);
  if (here == socket_handle::none) {
    e.trouble = "it has no socket left for wake-ups";
    return;
  }
  parts.wake_socket = socket(simulated_kernel::sockets(self_), here);
  e.parts.wake_socket = socket(simulated_kernel::sockets(*e.process), there);
  pass_line(parts, e.parts);
  e.reply_proof = expected->reply;
  furnish(parts, *e.process);
  told_.paired(e.from, std::move(parts));
}

// The line is the kernel's own: what is written to it is there at once. A few pairs have
// none, as if the kernel passed no descriptors.
void simulated_pairing::pass_line(shared_parts& ours, shared_parts& theirs) {
  int ends[2];
  if (random_.one_in(8) ||
      ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) !=
          0) {
    return;
  }
  ours.line = unique_descriptor(ends[0]);
  theirs.line = unique_descriptor(ends[1]);
}

// Adds our futex in the segment and the peer's memory.
void simulated_pairing::furnish(shared_parts& parts, simulated_process& peer) {
  parts.liveness = std::make_unique<simulated_liveness>(self_, *parts.segment);
  if (!reads_peers_) return;
  if (random_.one_in(4)) {
    parts.memory_refusal = EPERM;
    return;
  }
  const std::uint64_t allowed = random_.one_in(4) ? random_.below(40) : ~std::uint64_t{0};
  const auto pid = static_cast<pid_t>(peer.identity().pid);
  parts.memory.emplace(
      pid, std::make_shared<simulated_memory>(self_, peer, random_.next(), allowed));
}

task<std::optional<shared_parts>> simulated_pairing::send_request(incarnation peer,
                                                                  pairing_nonces nonces,
                                                                  std::string& why_not) {
  auto* const host =
      static_cast<simulated_pairing*>(simulated_kernel::find(self_, raw_name(peer)));
  if (!host) {
    why_not = elsewhere;
    co_return std::nullopt;
  }
  const simulated_process& their_process = host->self_;
  const auto asked = std::make_shared<exchange>();
  asked->process = &self_;
  asked->from = id_;
  asked->request_proof = nonces.request;
  asked->parts.segment = shm_segment::make(why_not);
  if (!asked->parts.segment) co_return std::nullopt;
  furnish(asked->parts, host->self_);
  host->take(asked);
  // The host may end at any time from here on.
  for (duration pause = first_look; !asked->is_answered && !their_process.is_dead();
       pause = std::min(2 * pause, longest_look)) {
    co_await sleep_for(pause);
  }
  if (!asked->parts.wake_socket.is_open()) {
    why_not = asked->trouble.empty() ? "it did not answer" : asked->trouble;
    co_return std::nullopt;
  }
  if (asked->reply_proof != nonces.reply) {
    why_not = "another process listens under its name";
    co_return std::nullopt;
  }
  co_return std::move(asked->parts);
}

}  // namespace manyworlds::inline v0::detail::shm
