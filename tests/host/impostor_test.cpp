// What is read from the memory of a process that only has the number of a dead peer.
#include <sys/mman.h>

#include "../link/death_fixture.hpp"
#include "../link/impostor.hpp"
#include "cluster.hpp"
#include "io/posix_network.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;
using link_tests::child_process;

namespace {

constexpr unsigned slot = 5;
constexpr std::size_t payload_bytes = 1U << 20;

/// At one address in all processes forked from here, and each has its own.
class payload {
 public:
  payload() {
    at_ = ::mmap(nullptr, payload_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at_ != MAP_FAILED);
  }
  payload(const payload&) = delete;
  payload& operator=(const payload&) = delete;
  ~payload() { ::munmap(at_, payload_bytes); }
  [[nodiscard]] std::span<std::uint8_t> bytes() const {
    return {static_cast<std::uint8_t*>(at_), payload_bytes};
  }
  void fill(std::uint8_t with) const { std::memset(at_, with, payload_bytes); }

 private:
  void* at_ = nullptr;
};

/// One end of a link, with a backend of two on it.
struct side {
  side(rank_t rank, shm::shared_parts parts)
      : home(make_engine(engine_kind::epoll).engine),
        link(std::make_shared<shm::shared_link>(home, home.sockets(), std::move(parts))) {
    std::vector<data_channel> channels(2);
    channels[static_cast<std::size_t>(1 - rank)] = data_channel(shm_slot(link, slot));
    backend = std::make_unique<host_backend>(home, events, host_backend_options{}, rank,
                                             std::move(channels));
  }
  ~side() {
    backend->quiesce(quiet);
    turn_until([this] { return quiet.runs > 0; });
    backend.reset();
    // What the engine holds of the link ends.
    for (int idle = 0; idle < 1000;) idle = home.turn() ? 0 : idle + 1;
  }
  template <class Condition>
  bool turn_until(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition() && std::chrono::steady_clock::now() < until) home.turn();
    return condition();
  }

  recorded_events events;
  flag_work quiet;
  reactor home;
  std::shared_ptr<shm::shared_link> link;
  std::unique_ptr<host_backend> backend;
};

/// Sends its payload, which stays where it is, and waits to be killed.
[[noreturn]] void offer(const child_process::voice& v, int segment, int wake_socket,
                        const payload& p) {
  std::string why_not;
  shm::shared_parts parts;
  parts.segment = shm::shm_segment::attach(segment, why_not);
  if (!parts.segment) ::_exit(2);
  parts.wake_socket = {posix_network(), static_cast<socket_handle>(wake_socket)};
  shm::robust_futex_list list;
  shm::held_futex held(list, parts.segment->at(shm::offset::liveness(1)));
  if (!held.hold()) ::_exit(2);
  p.fill(0x11);
  side us(1, std::move(parts));
  send_op sent;
  sent.peer = 0;
  sent.from_list = gather_list(p.bytes());
  sent.source = sent.from_list.views();
  us.backend->start(sent);
  for (int idle = 0; idle < 1000;) idle = us.home.turn() ? 0 : idle + 1;
  v.say();
  v.wait_for_ever();
}

}  // namespace

TEST_CASE("what was read from another process with a dead peer's number is no message") {
  std::string why_not;
  shm::shared_parts parts;
  parts.segment = shm::shm_segment::make(why_not);
  REQUIRE_MESSAGE(parts.segment, why_not);
  REQUIRE(parts.segment->reserve(shm::offset::ring(slot, 0),
                                 2 * sizeof(shm::cell_ring)) == 0);
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) ==
          0);
  const payload p;
  shm::memory_probe probe;
  probe.address = reinterpret_cast<std::uintptr_t>(probe.content.data());
  const auto& futex = *reinterpret_cast<const std::atomic<std::uint32_t>*>(
      parts.segment->at(shm::offset::liveness(1)));

  child_process peer([&](child_process::voice v) {
    offer(v, ::dup(parts.segment->descriptor()), ends[1], p);
  });
  ::close(ends[1]);
  parts.wake_socket = {posix_network(), static_cast<socket_handle>(ends[0])};
  REQUIRE(peer.hear());
  const pid_t number = peer.pid();
  parts.memory = shm::remote_memory::of(number, probe, parts.memory_refusal);
  if (!parts.memory) {
    MESSAGE("skipped: the memory of other processes cannot be read here");
    return;
  }
  peer.kill();
  peer.reap();
  CHECK((futex.load() & FUTEX_OWNER_DIED) != 0);

  p.fill(0xEE);
  const pid_t impostor = link_tests::fork_as(number);
  if (impostor < 0) {
    MESSAGE("skipped: numbers of processes cannot be chosen here: errno " << errno);
    return;
  }
  std::vector<std::uint8_t> got(payload_bytes);
  {
    side us(0, std::move(parts));
    receive_op r;
    r.peer = 1;
    r.into_list = scatter_list(got);
    r.target = r.into_list.views();
    us.backend->start(r);
    // All of it was read, and not from the peer.
    CHECK(us.turn_until([&] { return got.back() == 0xEE; }));
    for (int idle = 0; idle < 1000;) idle = us.home.turn() ? 0 : idle + 1;
    CHECK_FALSE(r.ended());
    // Its death is the link's to tell, and nothing else breaks the world.
    CHECK(us.events.quiet());
  }
  REQUIRE(::kill(impostor, SIGKILL) == 0);
  CHECK(::waitpid(impostor, nullptr, 0) == impostor);
}
