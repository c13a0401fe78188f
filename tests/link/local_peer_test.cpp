// Two runtimes of one host share memory, or say once why not; slots go from one to the
// other.
#include "link/local_peer.hpp"
#include "link/local_socket.hpp"

#include <sys/syscall.h>

#include "death_fixture.hpp"
#include "io/reactor_fixture.hpp"
#include "io/system_environment.hpp"
#include "link/shared_link.hpp"
#include "local_peer_fixture.hpp"

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("local_peer");

namespace {

/// This machine, where the first runtime has a name that is known before.
class foretold final : public system_environment {
 public:
  explicit foretold(const incarnation& id) : id_(id) {}
  void fill_random(std::span<std::byte> bytes) override {
    if (std::exchange(told_, true) || bytes.size() != incarnation::size)
      return system_environment::fill_random(bytes);
    std::copy(id_.raw().begin(), id_.raw().end(), bytes.begin());
  }

 private:
  incarnation id_;
  bool told_ = false;
};

/// A pattern in the peer's half of a slot, read back on this side.
void check_shared(const shm_slot& one, const shm_slot& other) {
  auto* out = reinterpret_cast<unsigned char*>(&one.link()->outgoing(one.index()));
  auto* in = reinterpret_cast<unsigned char*>(&other.link()->incoming(other.index()));
  CHECK(in[100] == 0);
  out[100] = 77;
  CHECK(in[100] == 77);
}

}  // namespace

TEST_CASE("two runtimes of one host have a local link, whichever dials") {
  node a;
  node b;
  CHECK(pair_up(a, b));
  CHECK(local_links(a) == 1);
  CHECK(local_links(b) == 1);
  CHECK(pair_up(b, a));
  CHECK(local_links(b) == 1);
}

TEST_CASE("a world's slot is the same memory on both sides, and each is another one") {
  node a;
  node b;
  REQUIRE(pair_up(a, b));
  // The one that dialled is side 0: even slots.
  const shm_slot first = allocate_slot(a, b, 1, 0);
  const shm_slot second = allocate_slot(a, b, 2, 0);
  const shm_slot back = allocate_slot(b, a, 3, 0);
  REQUIRE(first);
  REQUIRE(second);
  REQUIRE(back);
  CHECK(first.index() == 0);
  CHECK(second.index() == 2);
  CHECK(back.index() == 1);
  auto first_there = claim(b, a, 1, 0);
  auto second_there = claim(b, a, 2, 0);
  auto back_there = claim(a, b, 3, 0);
  REQUIRE((first_there && second_there && back_there));
  check_shared(first, first_there->take_slot());
  check_shared(second_there->take_slot(), second);
  check_shared(back, back_there->take_slot());
}

TEST_CASE("law 6: a thousand worlds use the same few slots, clean each time") {
  node a;
  node b;
  REQUIRE(pair_up(a, b));
  unsigned highest = 0;
  std::size_t descriptors = 0;
  for (std::uint64_t world = 1; world <= 1000; ++world) {
    CAPTURE(world);
    const shm_slot mine = allocate_slot(a, b, world, 0);
    REQUIRE(mine);
    highest = std::max(highest, mine.index());
    auto theirs = claim(b, a, world, 0);
    REQUIRE(theirs);
    check_shared(mine, theirs->take_slot());
    if (world == 10) descriptors = open_descriptors();
  }
  // The peer gives one back when it is handed the next.
  CHECK(highest <= 4);
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE(
    "one side may use the slots of both; when all are in use, worlds get none, which is "
    "said once") {
  node a;
  node b;
  REQUIRE(pair_up(a, b));
  std::vector<shm_slot> all;
  for (std::uint64_t world = 1; world <= 255; ++world) {
    CAPTURE(world);
    shm_slot next;
    // What the other side cedes is on its way.
    REQUIRE(eventually([&] {
      next = allocate_slot(a, b, world, 0);
      return bool{next};
    }));
    all.push_back(std::move(next));
  }
  CHECK_FALSE(allocate_slot(a, b, 300, 0));
  CHECK_FALSE(allocate_slot(a, b, 301, 0));
  CHECK(a.log.count("all its slots are in use") == 1);
  // The last is the other side's own.
  const shm_slot last = allocate_slot(b, a, 302, 1);
  CHECK(last);
  CHECK_FALSE(allocate_slot(b, a, 303, 1));
  // Both give one back: it can be used again.
  all.erase(all.begin() + 50);
  CHECK(claim(b, a, 51, 0));
  shm_slot again;
  CHECK(eventually([&] {
    again = allocate_slot(a, b, 400, 0);
    return bool{again};
  }));
  CHECK(again.index() == 100);
}

TEST_CASE("an unclaimed slot is given back when its link ends, or with time") {
  node a;
  shm_slot mine;
  {
    node b;
    REQUIRE(pair_up(a, b));
    mine = allocate_slot(a, b, 1, 0);
    REQUIRE(claim(b, a, 1, 0));
    REQUIRE(allocate_slot(b, a, 2, 0));
  }
  // Its link is over; the memory is there while a place in it is held.
  CHECK(eventually([&] { return local_links(a) == 0; }));
  reinterpret_cast<unsigned char*>(&mine.link()->outgoing(mine.index()))[0] = 1;
  std::weak_ptr<shm::shared_link> memory = mine.link();
  mine = shm_slot();
  CHECK(memory.expired());
}

TEST_CASE("a new link to the same peer has new memory") {
  node a;
  node b;
  REQUIRE(pair_up(a, b));
  const shm_slot old = allocate_slot(a, b, 1, 0);
  on_service(a, [&](runtime_core& core) -> task<void> {
    core.peers()
        .link_to(access::core(b.rt).self().id)
        ->end(cause::connection_lost, "a test");
    co_return;
  });
  // The end of the old one is its peer's to notice.
  CHECK(eventually([&] { return local_links(b) == 0; }));
  REQUIRE(pair_up(a, b));
  const shm_slot fresh = allocate_slot(a, b, 2, 0);
  REQUIRE(fresh);
  CHECK(fresh.link() != old.link());
  CHECK(fresh.index() == 0);
  auto there = claim(b, a, 2, 0);
  REQUIRE(there);
  check_shared(fresh, there->take_slot());
}

TEST_CASE("with a peer that has it turned off there is tcp, and nothing is shared") {
  for (const bool off_dials : {false, true}) {
    node on;
    node off({.shared_memory = false});
    const bool paired = off_dials ? pair_up(off, on) : pair_up(on, off);
    CHECK_FALSE(paired);
    CHECK(local_links(on) == 0);
    CHECK_FALSE(allocate_slot(off, on, 1, 0));
    CHECK(on.log.gets("tcp is used: it is turned off there"));
    CHECK(on.log.count("no memory is shared with") == 1);
    CHECK(off.log.count("no memory is shared with") == 0);
  }
  pair p({.name = "off", .form = 10s}, {.shared_memory = false});
  check_alive(p.a, p.wa, p.b, p.wb);
  CHECK(p.a.rt.dump().find(" over tcp, last heard") != std::string::npos);
}

TEST_CASE("a squatter on a runtime's name costs it shared memory, and is logged") {
  const incarnation id = stranger(77).id;
  std::string name = "manyworlds.";
  for (int i = 0; i < 16; ++i) name += "4d";
  shm::local_socket squatter;
  REQUIRE(squatter.listen(name) == 0);
  foretold env(id);
  node a({.environment = &env});
  REQUIRE(access::core(a.rt).self().id == id);
  node b;
  CHECK_FALSE(pair_up(b, a));
  CHECK(a.log.count("a Unix socket cannot listen: Address already in use") == 1);
  CHECK(b.log.count("a Unix socket cannot listen: Address already in use") == 1);
  // It can still request pairing of others.
  node c;
  CHECK(pair_up(a, c));
}

TEST_CASE(
    "where no liveness futex can be held, no memory is read: another process may have "
    "its number") {
  child_process child([](child_process::voice) {
    refuse(SYS_set_robust_list, EPERM);
    node a;
    node b;
    if (!pair_up(a, b)) ::_exit(2);
    const shm_slot mine = allocate_slot(a, b, 1, 0);
    auto there = claim(b, a, 1, 0);
    if (!mine || !there) ::_exit(3);
    const shm_slot theirs = there->take_slot();
    ::_exit(mine.link()->memory() || theirs.link()->memory() ? 4 : 0);
  });
  const int status = child.reap();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("law 9: a peer that never says whether it shares memory is not waited for") {
  node a;
  const raw_peer silent(access::core(a.rt).self().endpoint);
  const process_address who = stranger(31);
  REQUIRE(greet(silent, who, connection_purpose::link));
  REQUIRE_FALSE(silent.hear_link_frame(5).empty());
  const bool local = on_service(a, [&](runtime_core& core) -> task<bool> {
    link_hold l = co_await core.peers().reach(who, core.service().now() + 5s);
    co_return co_await l->local().paired(core.service().now() + 20ms);
  });
  CHECK_FALSE(local);
}

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
