// What the operations carry. Sources: nccl.h of 2.28.9; docs "Collective Operations".
// Unseen on a GPU.
#include "clique.hpp"

#include <numeric>

using namespace conformance;

namespace {

constexpr int ranks = 3;
using ints = std::vector<int>;

ints row(int rank, std::size_t count) {
  ints values(count);
  std::iota(values.begin(), values.end(), 100 * rank);
  return values;
}

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

template <class T>
struct kind {
  ncclDataType_t type;
  T (*make)(int);
  int (*read)(T);
};

template <class T>
kind<T> number(ncclDataType_t type) {
  return {type, [](int v) { return static_cast<T>(v); },
          [](T v) { return static_cast<int>(v); }};
}

/// Rank r gives 2 * r + 2: the values 2, 4 and 6 are exact in every type.
template <class T>
void reduce_all(const clique& c, kind<T> k) {
  struct expectation {
    ncclRedOp_t op;
    int value;
  };
  for (const expectation& each :
       {expectation{ncclSum, 12}, expectation{ncclProd, 48}, expectation{ncclMax, 6},
        expectation{ncclMin, 2}, expectation{ncclAvg, 4}}) {
    const auto op = each.op;
    const auto data =
        c.arrays<T>([&](int r) { return std::vector<T>(5, k.make(2 * r + 2)); });
    c.all([&](int r, ncclComm_t comm, cudaStream_t stream) {
      auto* buffer = data[at(r)]->data();
      return ncclAllReduce(buffer, buffer, 5, k.type, op, comm, stream);
    });
    CAPTURE(k.type);
    CAPTURE(op);
    for (const auto& on_rank : data)
      for (T v : on_rank->values()) CHECK(k.read(v) == each.value);
  }
}

}  // namespace

TEST_CASE("every type is reduced by every operation" * unseen) {
  if (!has_devices(ranks)) return;
  const clique c{ranks};
  reduce_all(c, number<std::int8_t>(ncclInt8));
  reduce_all(c, number<std::uint8_t>(ncclUint8));
  reduce_all(c, number<std::int32_t>(ncclInt32));
  reduce_all(c, number<std::uint32_t>(ncclUint32));
  reduce_all(c, number<std::int64_t>(ncclInt64));
  reduce_all(c, number<std::uint64_t>(ncclUint64));
  reduce_all(c, number<float>(ncclFloat32));
  reduce_all(c, number<double>(ncclFloat64));
  reduce_all<__half>(c, {ncclFloat16, [](int v) { return __float2half(float(v)); },
                         [](__half v) { return int(__half2float(v)); }});
  reduce_all<__nv_bfloat16>(
      c, {ncclBfloat16, [](int v) { return __float2bfloat16(float(v)); },
          [](__nv_bfloat16 v) { return int(__bfloat162float(v)); }});
  reduce_all<__nv_fp8_e4m3>(
      c, {ncclFloat8e4m3, [](int v) { return __nv_fp8_e4m3(float(v)); },
          [](__nv_fp8_e4m3 v) { return int(float(v)); }});
  reduce_all<__nv_fp8_e5m2>(
      c, {ncclFloat8e5m2, [](int v) { return __nv_fp8_e5m2(float(v)); },
          [](__nv_fp8_e5m2 v) { return int(float(v)); }});
}

TEST_CASE("an operator made of a scalar scales each rank's part by its own" * unseen) {
  if (!has_devices(ranks)) return;
  const clique c{ranks};
  std::vector<ncclRedOp_t> ops(ranks);
  for (int r = 0; r < ranks; ++r) {
    float scalar = static_cast<float>(r + 1);
    REQUIRE(ncclRedOpCreatePreMulSum(&ops[at(r)], &scalar, ncclFloat32,
                                     ncclScalarHostImmediate, c.comm(r)) == ncclSuccess);
  }
  const auto from = c.arrays<float>([](int) { return std::vector<float>(4, 10.0F); });
  const auto to = c.arrays<float>([](int) { return std::vector<float>(4, 0.0F); });
  c.all([&](int r, ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(from[at(r)]->data(), to[at(r)]->data(), 4, ncclFloat32,
                         ops[at(r)], comm, stream);
  });
  for (const auto& each : to) CHECK(each->values() == std::vector<float>(4, 60.0F));
  for (int r = 0; r < ranks; ++r)
    CHECK(ncclRedOpDestroy(ops[at(r)], c.comm(r)) == ncclSuccess);
}

TEST_CASE("broadcast, reduce, gather of all and scatter of sums" * unseen) {
  if (!has_devices(ranks)) return;
  const clique c{ranks};
  SUBCASE("broadcast gives everyone the root's") {
    const auto data = c.arrays<int>([](int r) { return row(r, 7); });
    c.all([&](int r, ncclComm_t comm, cudaStream_t stream) {
      auto* buffer = data[at(r)]->data();
      return ncclBroadcast(buffer, buffer, 7, ncclInt, 1, comm, stream);
    });
    for (const auto& each : data) CHECK(each->values() == row(1, 7));
  }
  SUBCASE("reduce gives the root the sum, and the others nothing") {
    const auto from = c.arrays<int>([](int r) { return row(r, 7); });
    const auto to = c.arrays<int>([](int) { return ints(7, -1); });
    c.all([&](int r, ncclComm_t comm, cudaStream_t stream) {
      return ncclReduce(from[at(r)]->data(), to[at(r)]->data(), 7, ncclInt, ncclSum, 2,
                        comm, stream);
    });
    CHECK(to[2]->values() == ints{300, 303, 306, 309, 312, 315, 318});
    CHECK(to[0]->values() == ints(7, -1));
  }
  SUBCASE("all-gather puts the parts in rank order") {
    const auto from = c.arrays<int>([](int r) { return row(r, 2); });
    const auto to = c.arrays<int>([](int) { return ints(6, -1); });
    c.all([&](int r, ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(from[at(r)]->data(), to[at(r)]->data(), 2, ncclInt, comm,
                           stream);
    });
    for (const auto& each : to) CHECK(each->values() == ints{0, 1, 100, 101, 200, 201});
  }
  SUBCASE("reduce-scatter gives each rank its part of the sum") {
    const auto from = c.arrays<int>([](int r) { return row(r, 6); });
    const auto to = c.arrays<int>([](int) { return ints(2, -1); });
    c.all([&](int r, ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(from[at(r)]->data(), to[at(r)]->data(), 2, ncclInt,
                               ncclSum, comm, stream);
    });
    CHECK(to[0]->values() == ints{300, 303});
    CHECK(to[2]->values() == ints{312, 315});
  }
}

TEST_CASE("all-to-all, gather and scatter put the parts where their ranks say" * unseen) {
  if (!has_devices(ranks)) return;
  const clique c{ranks};
  SUBCASE("all-to-all") {
    const auto from = c.arrays<int>([](int r) { return row(r, 3); });
    const auto to = c.arrays<int>([](int) { return ints(3, -1); });
    c.all([&](int r, ncclComm_t comm, cudaStream_t stream) {
      return ncclAlltoAll(from[at(r)]->data(), to[at(r)]->data(), 1, ncclInt, comm,
                          stream);
    });
    for (int r = 0; r < ranks; ++r)
      CHECK(to[at(r)]->values() == ints{r, 100 + r, 200 + r});
  }
  SUBCASE("gather") {
    const auto from = c.arrays<int>([](int r) { return row(r, 1); });
    const auto to = c.arrays<int>([](int) { return ints(3, -1); });
    c.all([&](int r, ncclComm_t comm, cudaStream_t stream) {
      return ncclGather(from[at(r)]->data(), to[at(r)]->data(), 1, ncclInt, 1, comm,
                        stream);
    });
    CHECK(to[1]->values() == ints{0, 100, 200});
    CHECK(to[0]->values() == ints(3, -1));
  }
  SUBCASE("scatter") {
    const auto from = c.arrays<int>([](int r) { return row(r, 3); });
    const auto to = c.arrays<int>([](int) { return ints(1, -1); });
    c.all([&](int r, ncclComm_t comm, cudaStream_t stream) {
      return ncclScatter(from[at(r)]->data(), to[at(r)]->data(), 1, ncclInt, 1, comm,
                         stream);
    });
    for (int r = 0; r < ranks; ++r) CHECK(to[at(r)]->values() == ints{100 + r});
  }
}

TEST_CASE("a large exchange in both directions ends when it is one group" * unseen) {
  if (!has_devices(2)) return;
  const clique c{2};
  const std::size_t count = 1 << 20;
  const auto from = c.arrays<int>([&](int r) { return row(r, count); });
  const auto to = c.arrays<int>([&](int) { return ints(count, -1); });
  c.all([&](int r, ncclComm_t comm, cudaStream_t stream) {
    const auto sent = ncclSend(from[at(r)]->data(), count, ncclInt, 1 - r, comm, stream);
    if (sent != ncclSuccess) return sent;
    return ncclRecv(to[at(r)]->data(), count, ncclInt, 1 - r, comm, stream);
  });
  CHECK(to[0]->values() == row(1, count));
  CHECK(to[1]->values() == row(0, count));
}

// src/enqueue.cc taskAppend, ncclLaunchOneRank: a copy on the user's stream, nothing
// queued.
TEST_CASE("a communicator of one rank copies at once, also when it does not block" *
          unseen) {
  cudaSetDevice(0);
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  auto config = config_with(0);
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  REQUIRE(settled(comm) == ncclSuccess);
  {
    const device_stream stream;
    const device_array<int> from{{1, 2, 3}};
    const device_array<int> to{{0, 0, 0}};
    CHECK(ncclAllReduce(from.data(), to.data(), 3, ncclInt, ncclSum, comm, stream) ==
          ncclSuccess);
    CHECK(stream.finished());
    CHECK(to.values() == ints{1, 2, 3});
  }
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

// src/enqueue.cc taskAppend: "Empty collectives can be discarded."
TEST_CASE("a collective of nothing is dropped and waits for no rank" * unseen) {
  if (!has_devices(2)) return;
  const clique c{2};
  cudaSetDevice(0);
  CHECK(ncclAllReduce(nullptr, nullptr, 0, ncclInt, ncclSum, c.comm(0), c.stream(0)) ==
        ncclSuccess);
  CHECK(c.stream(0).finished());
}
