// Communication: each call becomes a task of the group it stands in.
#include "call.hpp"
#include "element.hpp"
#include "plan.hpp"
#include "settings.hpp"

#include <algorithm>
#include <span>

using namespace nccl_emulation;

namespace {

// src/enqueue.cc taskAppend: of all ranks' devices the least counts.
ncclResult_t check_float8(const communicator& c, const task& t) {
  const bool reduces = t.what == call::all_reduce || t.what == call::reduce ||
                       t.what == call::reduce_scatter;
  const bool is_old =
      std::any_of(c.members.begin(), c.members.end(),
                  [](const member_card& each) { return each.capability < 90; });
  if (!reduces || !is_old || t.count == 0) return ncclSuccess;
  return complain(ncclInvalidArgument,
                  "FP8 reduction support begins with sm90 capable devices.");
}

// The header of 2.23 ends with ncclBfloat16.
int types() { return chosen().version < 22400 ? ncclBfloat16 + 1 : ncclNumTypes; }

ncclResult_t check(const communicator& c, const char* name, const task& t) {
  if (t.root < 0 || t.root >= c.count)
    return complain(ncclInvalidArgument, std::string{name} + " : invalid root");
  if (t.type < 0 || t.type >= types())
    return complain(ncclInvalidArgument, std::string{name} + " : invalid type");
  if (t.type == ncclFloat8e4m3 || t.type == ncclFloat8e5m2) return check_float8(c, t);
  return ncclSuccess;
}

// The operator may be destroyed before the group ends, so its state is copied here.
ncclResult_t resolve(const communicator& c, ncclRedOp_t op, task& t) {
  if (op >= 0 && op < ncclNumOps) {
    t.op.kind = op;
    return ncclSuccess;
  }
  const auto found = c.reductions.find(op);
  if (found == c.reductions.end())
    return complain(ncclInvalidArgument,
                    "reduction operation unknown to this communicator");
  t.op = found->second;
  return ncclSuccess;
}

ncclResult_t append(const shared_communicator& c, std::span<const task> tasks) {
  for (const auto& t : tasks) {
    const bool collective = !t.point_to_point();
    if (collective && t.count == 0) continue;
    const auto result =
        collective && c->count == 1 ? launch_alone(c, t) : group::current().add(c, t);
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

// As waitWorkFifoAvailable (2.28.9 src/enqueue.cc): the call spins while the queue of
// work is full, and looks at the flag.
bool await_room(communicator& c) {
  c.looks_at_flag = true;
  const bool room = c.order.wait_below(static_cast<std::size_t>(chosen().most_waiting));
  c.looks_at_flag = false;
  return room && !c.revoked;
}

/// What ncclEnqueueCheck does (2.28.9 src/enqueue.cc); `make` gives the tasks once the
/// communicator is known.
template <class Make>
ncclResult_t enqueue(const char* name, ncclComm_t comm, Make make) {
  auto& here = group::current();
  if (comm == nullptr) return here.note(missing(name, "comm"));
  const use c{find(comm, name), name};
  if (c->revoked)
    return here.note(complain(ncclInvalidUsage, "communicator was revoked"));
  if (c->suspended)
    return here.note(complain(ncclInvalidUsage, "communicator is suspended"));
  if (!await_room(*c.shared()))
    return here.note(complain(ncclInternalError, "given up while the queue was full"));
  const auto result = in_group(name, [&] {
    auto failure = ensure_ready(*c.shared());
    if (failure != ncclSuccess && c->async_result == ncclInProgress) c->poisoned = true;
    if (failure == ncclSuccess) failure = make(c.shared());
    if (failure != ncclSuccess && !c->blocking) c->async_result = failure;
    return failure;
  });
  if (result != ncclSuccess && result != ncclInProgress) return result;
  return state_or(*c.shared(), result);
}

ncclResult_t enqueue_one(const char* name, ncclComm_t comm, task t, ncclRedOp_t op) {
  return enqueue(name, comm, [&](const shared_communicator& c) {
    if (const auto wrong = check(*c, name, t)) return wrong;
    if (const auto wrong = resolve(*c, op, t)) return wrong;
    return append(c, {&t, 1});
  });
}

// AlltoAll, Gather and Scatter are sends and receives (src/enqueue.cc taskAppend), but
// for one rank, where they are a copy.
template <class Split>
ncclResult_t enqueue_split(const char* name, ncclComm_t comm, const task& t,
                           Split split) {
  return enqueue(name, comm, [&](const shared_communicator& c) {
    if (const auto wrong = check(*c, name, t)) return wrong;
    if (t.count == 0) return ncclSuccess;
    if (c->count == 1) return launch_alone(c, t);
    std::vector<task> tasks;
    const auto move = [&](call what, int peer, std::size_t from, std::size_t to) {
      auto part = t;
      part.what = what;
      part.root = peer;
      if (what == call::send)
        part.from = static_cast<const char*>(t.from) + from * t.bytes();
      else
        part.to = static_cast<char*>(t.to) + to * t.bytes();
      tasks.push_back(part);
    };
    split(*c, move);
    return append(c, tasks);
  });
}

task make(call what, const void* from, void* to, std::size_t count, ncclDataType_t type,
          int root, cudaStream_t stream) {
  task t;
  t.what = what;
  t.from = from;
  t.to = to;
  t.count = count;
  t.type = type;
  t.root = root;
  t.stream = stream;
  return t;
}

}  // namespace

NCCL_CALL(ncclResult_t, ncclSend,
          (const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
           cudaStream_t stream)) {
  return enqueue_one("ncclSend", comm,
                     make(call::send, from, nullptr, count, type, peer, stream), ncclSum);
}

NCCL_CALL(ncclResult_t, ncclRecv,
          (void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
           cudaStream_t stream)) {
  return enqueue_one("ncclRecv", comm,
                     make(call::receive, nullptr, to, count, type, peer, stream),
                     ncclSum);
}

NCCL_CALL(ncclResult_t, ncclAllReduce,
          (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
           ncclComm_t comm, cudaStream_t stream)) {
  return enqueue_one("ncclAllReduce", comm,
                     make(call::all_reduce, from, to, count, type, 0, stream), op);
}

NCCL_CALL(ncclResult_t, ncclReduce,
          (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
           int root, ncclComm_t comm, cudaStream_t stream)) {
  return enqueue_one("ncclReduce", comm,
                     make(call::reduce, from, to, count, type, root, stream), op);
}

NCCL_CALL(ncclResult_t, ncclBroadcast,
          (const void* from, void* to, size_t count, ncclDataType_t type, int root,
           ncclComm_t comm, cudaStream_t stream)) {
  return enqueue_one("ncclBroadcast", comm,
                     make(call::broadcast, from, to, count, type, root, stream), ncclSum);
}

NCCL_CALL(ncclResult_t, ncclBcast,
          (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
           cudaStream_t stream)) {
  return pncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

NCCL_CALL(ncclResult_t, ncclAllGather,
          (const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
           cudaStream_t stream)) {
  return enqueue_one("ncclAllGather", comm,
                     make(call::all_gather, from, to, count, type, 0, stream), ncclSum);
}

NCCL_CALL(ncclResult_t, ncclReduceScatter,
          (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
           ncclComm_t comm, cudaStream_t stream)) {
  return enqueue_one("ncclReduceScatter", comm,
                     make(call::reduce_scatter, from, to, count, type, 0, stream), op);
}

NCCL_CALL(ncclResult_t, ncclAlltoAll,
          (const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
           cudaStream_t stream)) {
  const auto t = make(call::send, from, to, count, type, 0, stream);
  return enqueue_split("ncclAlltoAll", comm, t, [](const communicator& c, auto move) {
    for (int r = 0; r < c.count; ++r) {
      const auto place = static_cast<std::size_t>(r);
      move(call::send, r, place, 0);
      move(call::receive, r, 0, place);
    }
  });
}

NCCL_CALL(ncclResult_t, ncclGather,
          (const void* from, void* to, size_t count, ncclDataType_t type, int root,
           ncclComm_t comm, cudaStream_t stream)) {
  const auto t = make(call::send, from, to, count, type, root, stream);
  return enqueue_split("ncclGather", comm, t, [root](const communicator& c, auto move) {
    move(call::send, root, 0, 0);
    if (c.rank != root) return;
    for (int r = 0; r < c.count; ++r)
      move(call::receive, r, 0, static_cast<std::size_t>(r));
  });
}

NCCL_CALL(ncclResult_t, ncclScatter,
          (const void* from, void* to, size_t count, ncclDataType_t type, int root,
           ncclComm_t comm, cudaStream_t stream)) {
  const auto t = make(call::send, from, to, count, type, root, stream);
  return enqueue_split("ncclScatter", comm, t, [root](const communicator& c, auto move) {
    if (c.rank == root)
      for (int r = 0; r < c.count; ++r)
        move(call::send, r, static_cast<std::size_t>(r), 0);
    move(call::receive, root, 0, 0);
  });
}

NCCL_CALL(ncclResult_t, ncclGroupStart, ()) {
  group::current().start();
  return ncclSuccess;
}

NCCL_CALL(ncclResult_t, ncclGroupEnd, ()) { return group::current().end("ncclGroupEnd"); }
