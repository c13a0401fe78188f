// Device calls: the operations of a world on device memory.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "manyworlds/world/world_operation.hpp"

namespace manyworlds::inline v0 {

template <class Result>
using device_operation = world_operation<Result, device_request>;

/// What a world of backend `nccl` can do with device memory; in a world of another
/// backend all of it is `unsupported`. A part of `world`.
///
/// An operation begins when what is on its views' streams now is done, and what is
/// enqueued there after the await has ended comes after it. Views of one operation may
/// name several streams. All its memory is on the world's device; the caller owns it, and
/// the library touches it no more when the await has ended, except for cause
/// `buffers_lost`.
///
/// Everything is matched over the link before it is handed to NCCL: a parked receive
/// occupies no multiprocessor and can be withdrawn, members that disagree get an error
/// instead of a hang, and operations that coroutines start in different orders do not
/// block each other. That takes one exchange of messages between the members, which
/// operations in flight hide. `.unmatched()` goes without: all members then start the
/// same operations in the same order, as NCCL demands.
///
/// `.enqueue()` ends with a ticket when the stream has the operation: what is enqueued
/// then on the views' streams comes after it; `settled(ticket)` tells that it is done and
/// that the world had not broken.
template <class World>
class device_calls {
 public:
  /// Ends when the data has left the buffers. Up to 336 runs of views of equal size.
  device_operation<void> send(device_gather_list data, to peer, lane on = {},
                              user_word user = {},
                              source_position where = source_position()) {
    operation_request r(core(), operation_kind::send, peer.rank(), on, where);
    r.user = user;
    return device_operation<void>(std::move(r), device_request(std::move(data), {}));
  }
  /// Fills the buffers with the next message of that lane, which must come from device
  /// memory, with as many bytes of the same type (or of uint8 on either side); otherwise
  /// `memory_mismatch`, `size_mismatch` or `type_mismatch`, and it stays there.
  device_operation<message_info> recv(device_scatter_list data, from peer, lane on = {},
                                      source_position where = source_position()) {
    return device_operation<message_info>(
        operation_request(core(), operation_kind::receive, peer.rank(), on, where),
        device_request({}, std::move(data)));
  }
  /// A head in host memory, and device memory behind it that the peer receives apart.
  /// `head` must live until the await ends.
  template <class Head>
  device_operation<void> send_message(const Head& head, device_gather_list data, to peer,
                                      lane on = {}, user_word user = {},
                                      source_position where = source_position()) {
    static_assert(std::is_trivially_copyable_v<Head>, "a head is copied byte by byte");
    static_assert(sizeof(Head) <= operation::largest_head, "a head is at most 4 KiB");
    operation_request r(core(), operation_kind::send, peer.rank(), on, where);
    r.user = user;
    r.head = std::addressof(head);
    r.head_bytes = sizeof(Head);
    return device_operation<void>(std::move(r), device_request(std::move(data), {}));
  }

  /// Every member gets the root's `data`.
  device_operation<void> broadcast(device_view data, root at,
                                   source_position where = source_position()) {
    return collective(operation_kind::broadcast, data, data, sum, at.rank(), where);
  }
  /// Every member gets in `data` the reduction of all members' `data`.
  device_operation<void> all_reduce(device_view data, reduction by,
                                    source_position where = source_position()) {
    return collective(operation_kind::all_reduce, data, data, by, no_rank, where);
  }
  device_operation<void> all_reduce(const_device_view in, device_view out, reduction by,
                                    source_position where = source_position()) {
    return collective(operation_kind::all_reduce, in, out, by, no_rank, where);
  }
  /// The root gets the reduction; the others' `data` is left as it is.
  device_operation<void> reduce(device_view data, reduction by, root at,
                                source_position where = source_position()) {
    return collective(operation_kind::reduce, data, data, by, at.rank(), where);
  }
  device_operation<void> reduce(const_device_view in, device_view out, reduction by,
                                root at, source_position where = source_position()) {
    return collective(operation_kind::reduce, in, out, by, at.rank(), where);
  }
  /// `out` has size() times the elements of `in`: of each rank in turn.
  device_operation<void> all_gather(const_device_view in, device_view out,
                                    source_position where = source_position()) {
    return collective(operation_kind::all_gather, in, out, sum, no_rank, where);
  }
  /// As `all_gather`, at the root; the others may give an empty `out`.
  device_operation<void> gather(const_device_view in, device_view out, root at,
                                source_position where = source_position()) {
    return collective(operation_kind::gather, in, out, sum, at.rank(), where);
  }
  /// The reverse of `gather`: the others may give an empty `in`.
  device_operation<void> scatter(const_device_view in, device_view out, root at,
                                 source_position where = source_position()) {
    return collective(operation_kind::scatter, in, out, sum, at.rank(), where);
  }
  /// `in` has size() times the elements of `out`, which gets this rank's part of the
  /// reduction.
  device_operation<void> reduce_scatter(const_device_view in, device_view out,
                                        reduction by,
                                        source_position where = source_position()) {
    return collective(operation_kind::reduce_scatter, in, out, by, no_rank, where);
  }
  /// Part r of `in` goes to rank r; part r of `out` comes from there.
  device_operation<void> all_to_all(const_device_view in, device_view out,
                                    source_position where = source_position()) {
    return collective(operation_kind::all_to_all, in, out, sum, no_rank, where);
  }

  /// Ends when the communicator is made and the peers are connected; tells what it cost.
  /// Operations may be started before: they wait for it.
  device_operation<device_costs> device_ready(source_position where = source_position()) {
    return device_operation<device_costs>(
        operation_request(core(), operation_kind::device_ready, no_rank, {}, where));
  }
  /// Ends when the operation of the ticket, and all that were handed to the stream before
  /// it, are done; fails if the world broke, also after that.
  device_operation<void> settled(ticket at, source_position where = source_position()) {
    device_operation<void> wait(
        operation_request(core(), operation_kind::settle, no_rank, {}, where));
    wait.part().at = at;
    return wait;
  }
  /// Calls `call(ncclComm_t, cudaStream_t)` where and when operations are launched,
  /// behind those that were handed over before: the door to the rest of NCCL, and to
  /// capturing graphs. Ends when it has returned, and throws what it threw. It must not
  /// block (after `device_options::blocked_call` the world breaks), nor leave a capture
  /// open, nor end the communicator; what it launches is in no order with matched
  /// operations of other members. `call` must live until the await ends.
  template <class Call>
  device_operation<void> native(Call& call, source_position where = source_position()) {
    device_operation<void> run(
        operation_request(core(), operation_kind::native, no_rank, {}, where));
    run.part().context =
        const_cast<void*>(static_cast<const void*>(std::addressof(call)));
    run.part().call = [](void* context, ncclComm* communicator, CUstream_st* stream) {
      (*static_cast<Call*>(context))(communicator, stream);
    };
    return run;
  }
  /// Collectives: the communicator gives its device memory back when what was started
  /// before is done, and takes it again. In between operations on device memory are
  /// `invalid_argument`; host memory is not concerned. `unsupported` before NCCL 2.29.7.
  device_operation<void> suspend_device(source_position where = source_position()) {
    return device_operation<void>(
        operation_request(core(), operation_kind::suspend_device, no_rank, {}, where));
  }
  device_operation<void> resume_device(source_position where = source_position()) {
    return device_operation<void>(
        operation_request(core(), operation_kind::resume_device, no_rank, {}, where));
  }

  /// The stream on which the world's operations run: views on it need no events between
  /// theirs and ours. None before `device_ready()`, and in a world without a device. On
  /// the world's reactor.
  [[nodiscard]] device_stream stream() const {
    device_control* const device = core().device();
    return device ? device->stream() : device_stream();
  }

 private:
  [[nodiscard]] world_core& core() const {
    return static_cast<const World&>(*this).existing();
  }
  device_operation<void> collective(operation_kind kind, const_device_view in,
                                    device_view out, reduction by, rank_t at,
                                    source_position where) {
    device_operation<void> all(operation_request(core(), kind, no_rank, {}, where),
                               device_request(in, out));
    all.part().by = by;
    all.part().root = at;
    return all;
  }
};

}  // namespace manyworlds::inline v0
