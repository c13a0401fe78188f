// What a process of this host may say on Unix sockets, with any descriptors: in a pairing
// request, in the reply to one, and of the pools that it shares.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "input.hpp"
#include "io/engines.hpp"
#include "io/system_environment.hpp"
#include "link/pool_exchange.hpp"
#include "link/socket_pairing.hpp"
#include "link/wire.hpp"
#include "memory/sealable_memory.hpp"
#include "simulation/simulated_node.hpp"

using namespace manyworlds;
using namespace manyworlds::shm;
using namespace std::chrono_literals;
using fuzzing::input;
using fuzzing::must;
using manyworlds_tests::root_task;

namespace {

constexpr std::size_t pool_bytes = pool_memory::granule;
constexpr std::uint32_t magic = 0x4853'574d;
constexpr std::uint16_t version = 2;

unique_descriptor file_of(std::size_t bytes, int seals) {
  unique_descriptor file(make_sealable_memory("manyworlds-fuzz"));
  must(file && ::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
  must(::fcntl(file.get(), F_ADD_SEALS, seals) == 0);
  return file;
}

/// What a process may bring. They are passed as copies.
int descriptor_from(input& in) {
  static std::string why_not;
  static const auto segment = shm_segment::make(why_not);
  must(segment != nullptr);
  static const unique_descriptor sealed = file_of(pool_bytes, pool_seals);
  static const unique_descriptor may_shrink = file_of(pool_bytes, F_SEAL_GROW);
  static const unique_descriptor empty = file_of(0, pool_seals);
  static const unique_descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  static int ends[2];
  static const int paired =
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends);
  must(paired == 0);
  switch (in.take<std::uint8_t>() % 8) {
    case 0:
    case 1:
      return segment->descriptor();
    case 2:
    case 3:
      return ends[0];
    case 4:
      return sealed.get();
    case 5:
      return may_shrink.get();
    case 6:
      return empty.get();
    default:
      return nothing.get();
  }
}

void say(int socket, std::span<const std::byte> packet, input& in) {
  std::vector<int> carried(in.take<std::uint8_t>() % 4);
  for (int& each : carried) each = descriptor_from(in);
  carried.resize(std::min(carried.size(), most_passed));
  static_cast<void>(send_packet(socket, packet, carried));
}

/// The beginning of a packet that is right, or any bytes.
bytes words_or_garbage(bytes right, input& in) {
  const unsigned what = in.take<std::uint8_t>();
  if (what % 4 == 0) right.resize(in.take<std::uint8_t>());
  if (what % 2 == 0 && !right.empty()) {
    const std::size_t from = in.take<std::uint8_t>() % right.size();
    in.take_into(std::span(right).subspan(from));
  }
  return right;
}

struct owner final : pairing_listener {
  const pairing_nonces* expected_nonces(const incarnation& from) override {
    return from == peer ? &nonces : nullptr;
  }
  void paired(const incarnation&, shared_parts parts) override {
    must(parts.segment != nullptr);
    pairings.push_back(std::move(parts));
  }
  void log(std::string) noexcept override {}

  incarnation peer;
  pairing_nonces nonces;
  std::vector<shared_parts> pairings;
};

/// Others of this machine may run this program too.
incarnation fresh() {
  static std::uint32_t number = 0;
  wire_writer out;
  out.put(std::uint64_t{0}).put(static_cast<std::uint32_t>(::getpid())).put(++number);
  return incarnation(out.view().first<incarnation::size>());
}
std::string name_of(const incarnation& id) {
  constexpr const char* digits = "0123456789abcdef";
  std::string name = "manyworlds.";
  for (const std::byte b : id.raw()) {
    name += digits[std::to_integer<unsigned>(b) / 16];
    name += digits[std::to_integer<unsigned>(b) % 16];
  }
  return name;
}

template <class Condition>
void turn_until(reactor& home, Condition condition) {
  for (int i = 0; i < 64 && !condition(); ++i) home.turn();
}

void answer_a_liar(input& in) {
  reactor home(make_epoll_engine(), {.spin = duration::zero()});
  system_environment env;
  owner told;
  told.peer = fresh();
  const incarnation self = fresh();
  socket_pairing local(home, env, self, told);
  told.nonces = local.make_nonces();
  root_task receiving(home, local.run());
  home.turn();
  for (int i = 0; i < 4 && !in.ended(); ++i) {
    local_socket liar;
    must(liar.connect(name_of(self)) == 0);
    wire_writer right;
    right.put(magic).put(version).put_raw(told.peer.raw()).put_raw(told.nonces.request);
    right.put(std::uint64_t{4096}).put_raw(memory_probe().content);
    const bytes packet = words_or_garbage(right.take(), in);
    say(liar.descriptor(), packet, in);
    for (int turn = 0; turn < 6; ++turn) home.turn();
  }
  receiving.cancel();
  turn_until(home, [&] { return receiving.has_ended(); });
  must(receiving.has_ended());
}

task<void> request(socket_pairing& local, incarnation peer, pairing_nonces nonces) {
  std::string why_not;
  const auto parts = co_await local.request(peer, nonces, 2ms, why_not);
  must(parts.has_value() == why_not.empty());
}

void ask_a_liar(input& in) {
  reactor home(make_epoll_engine(), {.spin = duration::zero()});
  system_environment env;
  owner told;
  socket_pairing local(home, env, fresh(), told);
  const pairing_nonces nonces = local.make_nonces();
  const incarnation peer = fresh();
  local_socket door;
  must(door.listen(name_of(peer)) == 0);
  root_task asking(home, request(local, peer, nonces));
  home.turn();
  const unique_descriptor accepted(
      ::accept4(door.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  must(static_cast<bool>(accepted));
  wire_writer right;
  right.put(magic).put(version).put(std::uint8_t{1}).put_raw(nonces.reply);
  right.put(std::uint64_t{4096}).put_raw(memory_probe().content);
  const bytes packet = words_or_garbage(right.take(), in);
  say(accepted.get(), packet, in);
  home.run_until([&] { return asking.has_ended(); });
}

void share_pools(input& in) {
  int ends[2];
  must(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) ==
       0);
  pool_exchange us(unique_descriptor(ends[0]), nullptr);
  const unique_descriptor peer(ends[1]);
  while (!in.ended()) {
    pool_notice notice;
    notice.kind = static_cast<pool_notice::what>(in.take<std::uint8_t>() % 4);
    notice.index = in.take<std::uint8_t>() % (most_pools + 2);
    const unsigned how = in.take<std::uint8_t>();
    notice.bytes = how % 4 == 0 ? in.take<std::uint64_t>() : pool_bytes;
    const auto whole = std::as_bytes(std::span(&notice, 1));
    say(peer.get(), how % 8 == 1 ? whole.first(how % whole.size()) : whole, in);
    if (how >= 192) continue;
    const char* wrong = nullptr;
    const std::uint64_t name = how >= 128 ? in.take<std::uint64_t>() : notice.index;
    if (const auto pool = us.pool_of_peer(name, wrong)) {
      const auto offset = in.take<std::uint32_t>();
      const auto bytes = in.take<std::uint16_t>();
      if (!pool->contains(offset, bytes) || bytes == 0) continue;
      const std::byte* const first = pool->at(offset, bytes);
      must(!first || std::vector<std::byte>(first, first + bytes).size() == bytes);
    }
    us.poll();
    must(us.mapped() <= most_pools);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input in(data, size);
  switch (in.take<std::uint8_t>() % 3) {
    case 0:
      answer_a_liar(in);
      break;
    case 1:
      ask_a_liar(in);
      break;
    default:
      share_pools(in);
  }
  return 0;
}
