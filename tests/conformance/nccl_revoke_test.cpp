// Revocation: trap 15. Source: NCCL 2.28.9 src/init.cc ncclCommRevoke, commRevokeAsync.
#include "nccl_support.hpp"

using namespace conformance;

namespace {

constexpr std::size_t many = 1 << 20;
using ints = std::vector<int>;

void end(rank& me, ncclComm_t comm) {
  me.say('e');
  me.hear('e');
  CHECK(aborts_within(comm, limit));
}

SCENARIO_OF_RANKS(revoke_both) {
  const auto comm = form(me, 0);
  const device_stream stream;
  const device_array<int> data{ints(many, 1)};
  exchange_first(comm, 1 - me.index());
  ncclRecv(data.data(), many, ncclInt, 1 - me.index(), comm, stream);
  CHECK(settled(comm) == ncclSuccess);
  CHECK(stream.hangs());
  CHECK(ncclCommRevoke(comm, 1) == ncclInvalidArgument);
  const auto revoking = ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
  CHECK((revoking == ncclInProgress || revoking == ncclSuccess));
  CHECK(settled(comm) == ncclSuccess);
  CHECK(stream.finished());
  CHECK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT) == ncclInvalidArgument);
  CHECK(ncclRecv(data.data(), 4, ncclInt, 1 - me.index(), comm, stream) ==
        ncclInvalidUsage);
  CHECK(ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream) ==
        ncclInvalidUsage);
  CHECK(settled(comm) == ncclSuccess);
  ncclComm_t child = nullptr;
  CHECK(ncclCommSplit(comm, 0, 0, &child, nullptr) == ncclSuccess);
  CHECK(settled(comm) == ncclSuccess);
  REQUIRE(child != nullptr);
  end(me, child);
  CHECK(aborts_within(comm, limit));
}

SCENARIO_OF_RANKS(finalize_after) {
  const auto comm = form(me, 0);
  ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
  CHECK(settled(comm) == ncclSuccess);
  CHECK(ncclCommFinalize(comm) == ncclInvalidArgument);
  end(me, comm);
}

SCENARIO_OF_RANKS(after_finalize) {
  const auto comm = form(me, 0);
  ncclCommFinalize(comm);
  CHECK(settled(comm) == ncclSuccess);
  CHECK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT) == ncclInvalidArgument);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  me.say('e');
  me.hear('e');
}

SCENARIO_OF_RANKS(shrink_after) {
  const auto comm = form(me, 0);
  me.say('f');
  if (me.index() == 1) return me.hear('k');
  const device_stream stream;
  const device_array<int> data{ints(4, 1)};
  ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream);
  CHECK(settled(comm) == ncclSuccess);
  me.hear('d');
  ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
  CHECK(settled(comm) == ncclSuccess);
  CHECK(stream.finished());
  int excluded = 1;
  ncclComm_t child = nullptr;
  CHECK(ncclCommShrink(comm, &excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT) ==
        ncclSuccess);
  CHECK(settled(comm) == ncclSuccess);
  REQUIRE(child != nullptr);
  ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, child, stream);
  CHECK(settled(child) == ncclSuccess);
  CHECK(stream.finished());
  end(me, child);
  CHECK(aborts_within(comm, limit));
}

// proxyState->asyncResult is set in src/proxy.cc and never reset: a revocation does not
// mend it.
SCENARIO_OF_RANKS(still_told) {
  const auto comm = form(me, 0);
  me.say('f');
  if (me.index() == 1) return me.hear('k');
  const device_stream stream;
  const device_array<int> data{ints(4, 1)};
  ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream);
  CHECK(settled(comm) == ncclSuccess);
  me.say('i');
  me.hear('d');
  CHECK(within(limit, [&] { return state_of(comm) == ncclRemoteError; }));
  ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
  CHECK(stream.finished());
  CHECK(settled(comm) == ncclRemoteError);
  int excluded = 1;
  ncclComm_t child = nullptr;
  CHECK(ncclCommShrink(comm, &excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT) ==
        ncclRemoteError);
  CHECK(aborts_within(comm, limit));
}

void all_end(const scenario& plot, int count, std::vector<std::string> environment = {}) {
  crew ranks{plot, count, std::move(environment)};
  ranks.share_id();
  for (int i = 0; i < count; ++i) CHECK(ranks.said(i, 'e'));
  ranks.tell_all('e');
  CHECK(ranks.all_ended_well());
}

}  // namespace

TEST_CASE("a revoked communicator is quiet, refuses operations and can be split" *
          unseen) {
  all_end(revoke_both, 2);
}

TEST_CASE("a revoked communicator cannot be finalised" * unseen) {
  all_end(finalize_after, 2);
}

TEST_CASE("a finalised communicator cannot be revoked" * unseen) {
  all_end(after_finalize, 2);
}

TEST_CASE("survivors of a death revoke and shrink" * unseen) {
  crew ranks{shrink_after, 3};
  ranks.share_id();
  for (int i = 0; i < 3; ++i) CHECK(ranks.said(i, 'f'));
  ranks.kill(1);
  for (int i : {0, 2}) ranks.tell(i, 'd');
  for (int i : {0, 2}) CHECK(ranks.said(i, 'e'));
  for (int i : {0, 2}) ranks.tell(i, 'e');
  CHECK(ranks.ended_well(0));
  CHECK(ranks.ended_well(2));
}

TEST_CASE("an error of the network outlasts the revocation" * unseen) {
  if (!only_emulated()) return;
  crew ranks{
      still_told, 2, {"EMULATED_NCCL_DEATH=socket", "EMULATED_NCCL_ERROR_DELAY_MS=10"}};
  ranks.share_id();
  for (int i = 0; i < 2; ++i) CHECK(ranks.said(i, 'f'));
  CHECK(ranks.said(0, 'i'));
  ranks.kill(1);
  ranks.tell(0, 'd');
  CHECK(ranks.ended_well(0));
}
