// Calls that came after 2.28.9, found as a program built against it finds them. Sources:
// nccl.h of 2.32.3; NCCL master src/init.cc ncclCommGrow, ncclCommGetUniqueId,
// src/mem_manager.cc.
#include "nccl_support.hpp"

#include <cstdint>

using namespace conformance;

namespace {

using ints = std::vector<int>;
using grow_call = ncclResult_t (*)(ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t*,
                                   ncclConfig_t*);
using id_call = ncclResult_t (*)(ncclComm_t, ncclUniqueId*);
using suspend_call = ncclResult_t (*)(ncclComm_t, int);
using resume_call = ncclResult_t (*)(ncclComm_t);
using stats_call = ncclResult_t (*)(ncclComm_t, int, std::uint64_t*);

template <class Call>
Call find(const char* name) {
  return reinterpret_cast<Call>(dlsym(RTLD_DEFAULT, name));
}

bool absent(const char* name) {
  if (dlsym(RTLD_DEFAULT, name) != nullptr) return false;
  MESSAGE("skipped: this version has no ", std::string{name});
  return true;
}

// Ranks 0 and 1 are there; rank 2 joins.
SCENARIO_OF_RANKS(grow_by_one) {
  const auto grow = find<grow_call>("ncclCommGrow");
  REQUIRE(cudaSetDevice(me.index() % device_count()) == cudaSuccess);
  auto config = config_with(0);
  const auto first = me.shared_id();
  ncclComm_t parent = nullptr;
  if (me.index() < 2) {
    ncclCommInitRankConfig(&parent, 2, first, me.index(), &config);
    REQUIRE(settled(parent) == ncclSuccess);
    ncclComm_t wrong = nullptr;
    CHECK(grow(parent, 2, nullptr, -1, &wrong, nullptr) == ncclInvalidArgument);
    CHECK(grow(parent, 3, nullptr, 0, &wrong, nullptr) == ncclInvalidArgument);
  }
  ncclUniqueId id{};
  if (me.index() == 0) {
    const auto invite = find<id_call>("ncclCommGetUniqueId");
    REQUIRE(invite(parent, &id) == ncclSuccess);
    CHECK(invite(parent, &id) == ncclInvalidUsage);
    me.send_id(id);
  } else if (me.index() == 2) {
    id = me.received_id();
  } else {
    me.received_id();
  }
  ncclComm_t grown = nullptr;
  const bool member = me.index() < 2;
  grow(parent, 3, me.index() == 1 ? nullptr : &id, member ? -1 : 2, &grown,
       member ? nullptr : &config);
  // The handle is set early, and it is the one to poll.
  REQUIRE(grown != nullptr);
  CHECK(settled(grown) == ncclSuccess);
  int place = -1;
  CHECK(ncclCommUserRank(grown, &place) == ncclSuccess);
  CHECK(place == me.index());
  CHECK(sum_over(grown, me.index() + 1) == 6);
  me.say('e');
  me.hear('e');
  CHECK(aborts_within(grown, limit));
  if (parent != nullptr) CHECK(aborts_within(parent, limit));
}

SCENARIO_OF_RANKS(suspend) {
  const auto comm = form(me);
  const auto stop = find<suspend_call>("ncclCommSuspend");
  const auto go_on = find<resume_call>("ncclCommResume");
  const auto stats = find<stats_call>("ncclCommMemStats");
  constexpr int memory = 1;
  constexpr int is_suspended = 1;
  constexpr int total = 3;
  std::uint64_t value = 7;
  CHECK(stats(comm, is_suspended, &value) == ncclSuccess);
  CHECK(value == 0);
  CHECK(stats(comm, total, &value) == ncclSuccess);
  CHECK(value > 0);
  CHECK(stop(comm, memory) == ncclSuccess);
  CHECK(stats(comm, is_suspended, &value) == ncclSuccess);
  CHECK(value == 1);
  CHECK(go_on(comm) == ncclSuccess);
  CHECK(sum_over(comm, 2) == 4);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

}  // namespace

TEST_CASE("a communicator grows by a rank that is invited" * unseen) {
  if (absent("ncclCommGrow")) return;
  crew ranks{grow_by_one, 3};
  ranks.share_id();
  ranks.share_id();
  for (int i = 0; i < 3; ++i) CHECK(ranks.said(i, 'e'));
  ranks.tell_all('e');
  CHECK(ranks.all_ended_well());
}

TEST_CASE("a suspended communicator goes on after it is resumed" * unseen) {
  if (absent("ncclCommSuspend")) return;
  crew ranks{suspend, 2};
  ranks.share_id();
  CHECK(ranks.all_ended_well());
}
