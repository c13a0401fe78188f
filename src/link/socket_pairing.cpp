#include "link/socket_pairing.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "link/wire.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t magic = 0x4853'574d;  // "MWSH"
constexpr std::uint16_t version = 2;
constexpr std::size_t largest_packet = 256;
constexpr duration listening_limit = 1s;
constexpr std::size_t most_at_a_time = 64;

std::string name_of(const incarnation& id) {
  std::string name = "manyworlds.";
  for (const std::byte b : id.raw()) {
    name += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  }
  return name;
}

/// The sender's identity, the proof, and where its memory may be probed.
struct pairing_request {
  incarnation from;
  nonce proof{};
  memory_probe probe;
};

struct pairing_reply {
  nonce proof{};
  bool welcome = false;
  memory_probe probe;
};

void put(wire_writer& out, const memory_probe& p) {
  out.put(p.address).put_raw(p.content);
}

template <std::size_t N>
void get(wire_reader& in, std::array<std::byte, N>& into) {
  const auto raw = in.take(N);
  std::memcpy(into.data(), raw.data(), N);
}

void get(wire_reader& in, memory_probe& p) {
  p.address = in.get<std::uint64_t>();
  get(in, p.content);
}

bytes encode(const pairing_request& w) {
  wire_writer out;
  out.put(magic).put(version).put_raw(w.from.raw()).put_raw(w.proof);
  put(out, w.probe);
  return out.take();
}

bytes encode(const pairing_reply& w) {
  wire_writer out;
  out.put(magic).put(version).put(std::uint8_t{w.welcome}).put_raw(w.proof);
  put(out, w.probe);
  return out.take();
}

void expect_ours(wire_reader& in) {
  if (in.get<std::uint32_t>() != magic) throw wire_error("not one of our packets");
  if (in.get<std::uint16_t>() != version) throw wire_error("another version");
}

pairing_request decode_request(std::span<const std::byte> packet) {
  wire_reader in(packet);
  expect_ours(in);
  pairing_request w;
  std::array<std::byte, incarnation::size> raw{};
  get(in, raw);
  w.from = incarnation(raw);
  get(in, w.proof);
  get(in, w.probe);
  in.expect_end();
  return w;
}

pairing_reply decode_reply(std::span<const std::byte> packet) {
  wire_reader in(packet);
  expect_ours(in);
  pairing_reply w;
  w.welcome = in.get<std::uint8_t>() != 0;
  get(in, w.proof);
  get(in, w.probe);
  in.expect_end();
  return w;
}

bool is_stream_socket(int fd) noexcept {
  int type = 0;
  int domain = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
         type == SOCK_STREAM &&
         ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
         domain == AF_UNIX;
}

socket wake_socket_of(reactor& service, unique_descriptor end) {
  return {service.sockets(), static_cast<socket_handle>(end.release())};
}

}  // namespace

socket_pairing::socket_pairing(reactor& service, environment& env,
                               const incarnation& self, pairing_listener& told,
                               bool reads_peers)
    : pairing(env),
      service_(service),
      self_(self),
      told_(told),
      reads_peers_(reads_peers),
      probe_(std::make_unique<memory_probe>()) {
  env_.fill_random(probe_->content);
  probe_->address = reinterpret_cast<std::uintptr_t>(probe_->content.data());
  if (const int error = listener_.listen(name_of(self_))) {
    refusal_ = fmt::format("a Unix socket cannot listen: {}", std::strerror(error));
  }
}

task<void> socket_pairing::run() {
  auto body = [this](scope& s) -> task<void> {
    while (listener_.is_open()) {
      local_socket from;
      const io_result accepted = co_await listener_.accept(service_, from);
      if (!accepted.ok()) {
        // Descriptors have most likely run out; the peer falls back to tcp meanwhile.
        co_await sleep_for(50ms);
        continue;
      }
      if (requests_ < most_at_a_time) s.spawn(answer(std::move(from)));
    }
  };
  co_await scope::run(body);
}

task<void> socket_pairing::answer(local_socket from) {
  struct counted {
    std::size_t& n;
    explicit counted(std::size_t& count) : n(++count) {}
    ~counted() { --n; }
  } open(requests_);
  const boot_time met = boot_time_now();
  std::array<std::byte, largest_packet> packet;
  passed_descriptors passed;
  io_result got;
  try {
    got = co_await within(from.receive(service_, packet, passed), listening_limit);
  } catch (const timed_out&) {
    co_return;
  }
  if (!got.ok() || got.count() == 0) co_return;
  std::string trouble;
  try {
    const pairing_request request = decode_request(std::span(packet).first(got.count()));
    const pairing_nonces* expected = told_.expected_nonces(request.from);
    // A process that cannot prove that it is the peer of a link gets no reply.
    if (!expected || expected->request != request.proof) {
      trouble = "it does not know its nonce";
    } else if (!passed[0] || !passed[1] || !is_stream_socket(passed[1].get())) {
      trouble = "it passed no segment and no socket";
    } else {
      pairing_reply reply;
      reply.proof = expected->reply;
      reply.probe = *probe_;
      shared_parts parts;
      parts.segment = shm_segment::attach(passed[0].release(), trouble);
      parts.wake_socket = wake_socket_of(service_, std::move(passed[1]));
      reply.welcome = parts.segment != nullptr;
      if (reply.welcome) hold_liveness(parts);
      parts.process =
          std::make_unique<process_watch>(process_watch::of_peer(from.descriptor(), met));
      // The peer waits for the reply, so its memory may be read now; it reads ours
      // afterwards.
      probe_peer(parts, from.peer_pid(), request.probe);
      const bytes encoded = encode(reply);
      if (from.send(encoded, {}) == 0 && reply.welcome) {
        parts.line = from.take();
        told_.paired(request.from, std::move(parts));
      }
    }
  } catch (const wire_error& e) {
    trouble = e.what();
  }
  if (!trouble.empty()) told_.log("refused a pairing request of this host: " + trouble);
}

void socket_pairing::hold_liveness(shared_parts& parts) {
  if (!futexes_) return;
  std::byte* const futex = parts.segment->at(offset::liveness(parts.segment->side()));
  auto held = std::make_unique<held_futex>(*futexes_, futex);
  // Without a held futex the peer has its other notices.
  static_cast<void>(held->hold());
  parts.liveness = std::move(held);
}

void socket_pairing::probe_peer(shared_parts& parts, pid_t pid,
                                const memory_probe& probe) const {
  if (reads_peers_) parts.memory = remote_memory::of(pid, probe, parts.memory_refusal);
}

task<std::optional<shared_parts>> socket_pairing::send_request(incarnation peer,
                                                               pairing_nonces nonces,
                                                               std::string& why_not) {
  local_socket to;
  if (const int error = to.connect(name_of(peer))) {
    why_not = error == ECONNREFUSED
                  ? std::string(elsewhere)
                  : std::string("its Unix socket: ") + std::strerror(error);
    co_return std::nullopt;
  }
  const boot_time met = boot_time_now();
  shared_parts parts;
  parts.segment = shm_segment::make(why_not);
  if (!parts.segment) co_return std::nullopt;
  hold_liveness(parts);
  parts.process =
      std::make_unique<process_watch>(process_watch::of_peer(to.descriptor(), met));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    why_not = std::string("socketpair: ") + std::strerror(errno);
    co_return std::nullopt;
  }
  parts.wake_socket = wake_socket_of(service_, unique_descriptor(ends[0]));
  const unique_descriptor theirs(ends[1]);

  pairing_request request;
  request.from = self_;
  request.proof = nonces.request;
  request.probe = *probe_;
  const bytes packet = encode(request);
  const int passed[] = {parts.segment->descriptor(), theirs.get()};
  if (const int error = to.send(packet, passed)) {
    why_not = std::string("its Unix socket: ") + std::strerror(error);
    co_return std::nullopt;
  }
  std::array<std::byte, largest_packet> received;
  passed_descriptors nothing;
  const io_result got = co_await to.receive(service_, received, nothing);
  if (!got.ok() || got.count() == 0) {
    why_not = "it hung up on its Unix socket";
    co_return std::nullopt;
  }
  try {
    const pairing_reply reply = decode_reply(std::span(received).first(got.count()));
    if (reply.proof != nonces.reply) {
      why_not = "another process listens under its name";
      co_return std::nullopt;
    }
    if (!reply.welcome) {
      why_not = "it could not use the shared memory";
      co_return std::nullopt;
    }
    probe_peer(parts, to.peer_pid(), reply.probe);
    parts.line = to.take();
  } catch (const wire_error& e) {
    why_not = e.what();
    co_return std::nullopt;
  }
  co_return parts;
}

}  // namespace manyworlds::inline v0::detail::shm
