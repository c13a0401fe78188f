// What two processes of a host tell each other of their shared pools.
#include "link/pool_exchange.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "manyworlds/memory/shared_buffer.hpp"

using namespace manyworlds;
using namespace manyworlds::shm;

TEST_SUITE_BEGIN("pool_exchange");

namespace {

constexpr std::size_t granule = pool_memory::granule;

struct two_ends {
  two_ends() {
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                         ends) == 0);
  }
  int ends[2];
};

/// Two exchanges in one process: what one maps, it maps a second time.
struct pair : two_ends {
  pair()
      : ours(std::make_shared<pool_registry>()),
        a(unique_descriptor(ends[0]), ours),
        b(unique_descriptor(ends[1]), std::make_shared<pool_registry>()) {}
  /// As a send from `memory` names it.
  std::optional<unsigned> name(const shared_buffer& memory) {
    const auto pool = a.find(memory.data(), memory.size());
    return pool ? a.name_for_peer(*pool) : std::nullopt;
  }
  std::shared_ptr<pool_registry> ours;
  pool_exchange a;
  pool_exchange b;
};

/// A peer that says what it likes.
struct stranger : two_ends {
  stranger() : us(unique_descriptor(ends[0]), nullptr), line(ends[1]) {}
  void say(const pool_notice& notice, int file = -1) {
    const std::span<const int> carried(&file, file >= 0 ? 1 : 0);
    REQUIRE(send_packet(line.get(), std::as_bytes(std::span(&notice, 1)), carried) == 0);
  }
  std::string verdict(std::uint32_t name) {
    const char* wrong = nullptr;
    const auto pool = us.pool_of_peer(name, wrong);
    return wrong ? wrong : pool ? "fine" : "not available";
  }
  pool_exchange us;
  unique_descriptor line;
};

unique_descriptor file_of(std::size_t bytes, int seals) {
  unique_descriptor file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(file);
  REQUIRE(::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
  REQUIRE(::fcntl(file.get(), F_ADD_SEALS, seals) == 0);
  return file;
}
constexpr int pool_seals =
    F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

}  // namespace

TEST_CASE("a peer sees what lies in a pool, under one name, from its first offer on") {
  pair p;
  shared_pool pool(p.ours, 3 * granule);
  REQUIRE_MESSAGE(pool.refusal().empty(), pool.refusal());
  shared_buffer memory = pool.allocate(2 * granule + 5);
  std::memset(memory.data(), 0x42, memory.size());
  const auto name = p.name(memory);
  REQUIRE(name);
  CHECK(p.name(memory) == name);
  const char* wrong = nullptr;
  const auto seen = p.b.pool_of_peer(*name, wrong);
  REQUIRE(seen);
  CHECK(p.b.mapped() == 1);
  const std::byte* const there = seen->at(0, memory.size());
  REQUIRE(there);
  CHECK(there != memory.data());
  CHECK(std::memcmp(there, memory.data(), memory.size()) == 0);
  CHECK(seen->contains(0, 3 * granule));
  CHECK_FALSE(seen->contains(1, 3 * granule));
  CHECK_FALSE(seen->contains(~std::uint64_t{0}, 2));
}

TEST_CASE("law 6: a pool that is gone is let go, and its name is another's") {
  pair p;
  for (unsigned i = 0; i < 1000; ++i) {
    shared_pool pool(p.ours, granule);
    shared_buffer memory = pool.allocate(1);
    memory.data()[0] = static_cast<std::byte>(i);
    const auto name = p.name(memory);
    REQUIRE(name);
    const char* wrong = nullptr;
    const auto seen = p.b.pool_of_peer(*name, wrong);
    REQUIRE_MESSAGE(seen, i << ": " << (wrong ? wrong : ""));
    CHECK(seen->at(0, 1)[0] == static_cast<std::byte>(i));
    memory = {};
    pool = shared_pool(p.ours, granule);
    CHECK(p.a.may_have_lost_some());
    CHECK(p.a.tell_gone());
    CHECK_FALSE(p.a.may_have_lost_some());
    p.b.poll();
    CHECK(p.b.mapped() == 0);
  }
}

TEST_CASE("a pool beyond the number that a peer maps is memory as any other") {
  pair p;
  std::vector<shared_pool> pools;
  std::vector<shared_buffer> memory;
  for (unsigned i = 0; i <= most_pools; ++i) {
    pools.emplace_back(p.ours, 1);
    memory.push_back(pools.back().allocate(1));
    CHECK(p.name(memory.back()).has_value() == (i < most_pools));
  }
  // The peer need not have listened meanwhile; what it lets go makes room.
  memory[3] = {};
  pools.erase(pools.begin() + 3);
  CHECK(p.a.tell_gone());
  CHECK_FALSE(p.name(memory.back()));
  p.b.poll();
  p.b.poll();
  CHECK(p.name(memory.back()) == 3);
}

TEST_CASE("without a line to the peer, or a peer, a pool is memory as any other") {
  const auto ours = std::make_shared<pool_registry>();
  shared_pool pool(ours, 1);
  const shared_buffer memory = pool.allocate(1);
  pool_exchange alone({}, ours);
  CHECK_FALSE(alone.find(memory.data(), 1));
  pair p;
  shared_pool known(p.ours, 1);
  const shared_buffer there = known.allocate(1);
  p.b = pool_exchange({}, nullptr);
  CHECK_FALSE(p.name(there));
}

TEST_CASE("the page of a world is found by its slot and token, and by no other") {
  pair p;
  const unique_descriptor file = file_of(granule, pool_seals);
  const std::uint64_t first = p.a.pass_page(3, file.get());
  const std::uint64_t of_another = p.a.pass_page(4, file.get());
  REQUIRE(first != 0);
  REQUIRE(of_another != first);
  CHECK_FALSE(p.b.take_page(3, of_another));
  CHECK_FALSE(p.b.take_page(5, first));
  CHECK(p.b.take_page(3, first));
  CHECK(p.b.take_page(4, of_another));
  // It was taken.
  CHECK_FALSE(p.b.take_page(3, first));
  // An older one, of a world that is over, gives way, or is dropped.
  const std::uint64_t old = p.a.pass_page(3, file.get());
  const std::uint64_t fresh = p.a.pass_page(3, file.get());
  CHECK_FALSE(p.b.take_page(3, old));
  CHECK(p.b.take_page(3, fresh));
  const std::uint64_t dropped = p.a.pass_page(9, file.get());
  p.b.poll();
  p.b.forget_page(9);
  CHECK_FALSE(p.b.take_page(9, dropped));
}

TEST_CASE(
    "a page without a slot or without a file, and a line that is full, do no harm") {
  stranger s;
  const unique_descriptor file = file_of(granule, pool_seals);
  s.say({pool_notice::what::page, 100'000, 1}, file.get());
  s.say({pool_notice::what::page, 7, 2});
  CHECK_FALSE(s.us.take_page(7, 2));
  while (s.us.pass_page(1, file.get()) != 0) {}
  CHECK(s.us.pass_page(1, file.get()) == 0);
  pool_exchange none({}, nullptr);
  CHECK(none.pass_page(1, file.get()) == 0);
  CHECK_FALSE(none.take_page(1, 1));
}

TEST_CASE("law 11: what a peer passes in place of a pool is refused by name") {
  stranger s;
  const unique_descriptor good = file_of(granule, pool_seals);
  const unique_descriptor unsealed = file_of(granule, F_SEAL_GROW);
  const unique_descriptor odd = file_of(granule - 1, pool_seals);
  const unique_descriptor zero(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  s.say({pool_notice::what::pool, 0, granule}, good.get());
  s.say({pool_notice::what::pool, 1, granule}, unsealed.get());
  s.say({pool_notice::what::pool, 2, 2 * granule}, good.get());
  s.say({pool_notice::what::pool, 3, granule - 1}, odd.get());
  s.say({pool_notice::what::pool, 4, granule}, zero.get());
  s.say({pool_notice::what::pool, 5, granule});
  s.say({pool_notice::what::pool, 6, 0}, good.get());
  s.say({pool_notice::what::pool, 7, ~std::uint64_t{0}}, good.get());
  const std::string other_size = "a shared pool of another size than it said";
  CHECK(s.verdict(0) == "fine");
  CHECK(s.verdict(1) == "a shared pool that is not sealed");
  CHECK(s.verdict(2) == other_size);
  CHECK(s.verdict(3) == other_size);
  CHECK(s.verdict(4) == "a shared pool that is not sealed");
  CHECK(s.verdict(5) == "a shared pool that is not sealed");
  CHECK(s.verdict(6) == other_size);
  CHECK(s.verdict(7) == other_size);
  CHECK(s.verdict(8) == "an offer from a shared pool that was not passed");
  CHECK(s.verdict(most_pools) == "an offer from a shared pool that cannot be one");
  s.say({pool_notice::what::pool, 0, granule}, good.get());
  s.us.poll();
  CHECK(s.verdict(0) == "a shared pool under the name of another");
}

TEST_CASE("law 11: senseless notices change nothing, and cost a bounded step") {
  stranger s;
  const unique_descriptor good = file_of(granule, pool_seals);
  s.say({pool_notice::what::unmapped, 3, 0});
  s.say({pool_notice::what::gone, 4'000'000'000U, 0});
  s.say({static_cast<pool_notice::what>(77), 0, 0}, good.get());
  s.say({pool_notice::what::gone, 9, 0});
  s.say({pool_notice::what::pool, 0, granule}, good.get());
  CHECK(s.verdict(0) == "fine");
  CHECK(s.us.mapped() == 1);
  s.say({pool_notice::what::gone, 0, 0});
  s.us.poll();
  CHECK(s.us.mapped() == 0);
}

TEST_CASE("what is being copied from stays mapped while a peer says that it is gone") {
  stranger s;
  const unique_descriptor good = file_of(granule, pool_seals);
  s.say({pool_notice::what::pool, 0, granule}, good.get());
  const char* wrong = nullptr;
  const auto held = s.us.pool_of_peer(0, wrong);
  REQUIRE(held);
  s.say({pool_notice::what::gone, 0, 0});
  s.us.poll();
  CHECK(s.verdict(0) == "an offer from a shared pool that was not passed");
  CHECK(held->at(0, granule)[granule - 1] == std::byte{0});
}

TEST_SUITE_END();
