// Device calls: the operations of a world on device memory.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "manyworlds/detail/access.hpp"
#include "manyworlds/detail/world_device.hpp"
#include "manyworlds/world/world_operation.hpp"

namespace manyworlds::inline v0 {

namespace detail {

template <class Result>
using device_operation = world_operation<Result, device_request>;

}  // namespace detail

/// The operations of a world of backend `nccl` on device memory. In a world of another
/// backend all of them are `unsupported`. A part of `world`.
///
///     mw::device_buffer<float> kv(pool, 1 << 20, stream);
///     fill_by_kernel(kv.data(), stream.handle());
///     co_await w.all_reduce(kv, mw::sum);  // begins after the kernel
///     const mw::ticket sent = co_await w.send(kv, mw::to{1}).enqueue();
///     co_await w.settled(sent);
///
/// Each function returns a `world_operation`, which `within`, `stop`, `unmatched` and
/// `enqueue` modify. An operation begins when the work that is on its views' streams now
/// is done. Work that is enqueued there after the await has ended comes after it. Views
/// of one operation may name several streams. All its memory is on the world's device
/// and belongs to the caller. The library no longer touches it when the await has ended,
/// except for cause `buffers_lost`.
///
/// Every operation is matched over the link before it is handed to NCCL. A parked
/// receive occupies no multiprocessor and can be withdrawn. Members that disagree get
/// an error instead of a hang. Operations that coroutines start in different orders do
/// not block each other. Matching takes one exchange of messages between the members,
/// which operations in flight hide. `.unmatched()` skips it: all members then start the
/// same operations in the same order, as NCCL demands.
///
/// `.enqueue()` ends with a ticket when the stream has the operation. Work that is then
/// enqueued on the views' streams comes after it. `settled(ticket)` tells that it is
/// done and that the world had not broken.
///
/// The contents of buffers after a collective that failed are those that
/// `collective_calls` tells.
///
/// Errors: the causes of any operation, and:
/// - `unsupported`: the world has another backend; the loaded NCCL or a GPU cannot do it.
/// - `invalid_argument`: views that do not fit together, lie elsewhere or have no usable
///   stream; the device is suspended; another operation of the group could not begin.
/// - `closed`: also if rank 0 has left, without which nothing is matched, or a member
///   before the device was ready.
/// - `buffers_lost`: the world is broken and its stream does not drain.
/// - `device_failed`, `nccl_failed`, `stalled`, `overdue`, `mismatch`: they break the
///   world. So do `size_disagrees` and `unsupported` for a communicator that was given
///   and does not fit, and `invalid_argument` for a capture that `native` left open.
template <class World>
class device_calls {
 public:
  /// Ends when the data has left the buffers. Up to 336 runs of views of equal size.
  /// Errors: those of `device_calls`; `cancelled_by_peer` if the peer has discarded the
  /// lane.
  detail::device_operation<void> send(device_gather_list data, to peer, lane on = {},
                                      user_word user = {},
                                      source_position where = source_position()) {
    detail::operation_request r(core(), operation_kind::send, peer.rank(), on, where);
    r.user = user;
    return detail::device_operation<void>(std::move(r),
                                          detail::device_request(std::move(data), {}));
  }
  /// Fills the buffers with the next message of that lane. It must come from device
  /// memory, with as many bytes of the same type (or of uint8 on either side).
  ///
  /// Errors: those of `device_calls`; `memory_mismatch`, `size_mismatch`,
  /// `type_mismatch`, whereupon the message stays there; `cancelled_by_peer` if the
  /// sender gave it up; `cancelled` also if the lane is discarded.
  detail::device_operation<message_info> recv(device_scatter_list data, from peer,
                                              lane on = {},
                                              source_position where = source_position()) {
    return detail::device_operation<message_info>(
        detail::operation_request(core(), operation_kind::receive, peer.rank(), on,
                                  where),
        detail::device_request({}, std::move(data)));
  }
  /// Sends a head in host memory, and device memory behind it that the peer receives
  /// apart. Lifetime: a head that has a name must live until the await ends; one written
  /// in the call is kept. Errors: those of `send`.
  template <class Head>
  world_operation<void, detail::list_behind<detail::device_request, Head>> send_message(
      Head&& head, device_gather_list data, to peer, lane on = {}, user_word user = {},
      source_position where = source_position()) {
    detail::check_head<std::remove_cvref_t<Head>>();
    detail::operation_request r(core(), operation_kind::send, peer.rank(), on, where);
    r.user = user;
    r.head = std::addressof(head);
    r.head_bytes = sizeof head;
    return world_operation<void, detail::list_behind<detail::device_request, Head>>(
        std::move(r),
        detail::put_behind<Head>(head, detail::device_request(std::move(data), {})));
  }

  /// Every member gets the root's `data`.
  detail::device_operation<void> broadcast(device_view data, root at,
                                           source_position where = source_position()) {
    return collective(operation_kind::broadcast, data, data, sum, at.rank(), where);
  }
  /// Every member gets in `data` the reduction of all members' `data`.
  detail::device_operation<void> all_reduce(device_view data, reduction by,
                                            source_position where = source_position()) {
    return collective(operation_kind::all_reduce, data, data, by, no_rank, where);
  }
  detail::device_operation<void> all_reduce(const_device_view in, device_view out,
                                            reduction by,
                                            source_position where = source_position()) {
    return collective(operation_kind::all_reduce, in, out, by, no_rank, where);
  }
  /// The root gets the reduction; the others' `data` is left as it is.
  detail::device_operation<void> reduce(device_view data, reduction by, root at,
                                        source_position where = source_position()) {
    return collective(operation_kind::reduce, data, data, by, at.rank(), where);
  }
  detail::device_operation<void> reduce(const_device_view in, device_view out,
                                        reduction by, root at,
                                        source_position where = source_position()) {
    return collective(operation_kind::reduce, in, out, by, at.rank(), where);
  }
  /// `out` gets the elements of each rank in turn: it has size() times those of `in`.
  detail::device_operation<void> all_gather(const_device_view in, device_view out,
                                            source_position where = source_position()) {
    return collective(operation_kind::all_gather, in, out, sum, no_rank, where);
  }
  /// The root gets what `all_gather` gives; the others may give an empty `out`.
  detail::device_operation<void> gather(const_device_view in, device_view out, root at,
                                        source_position where = source_position()) {
    return collective(operation_kind::gather, in, out, sum, at.rank(), where);
  }
  /// The reverse of `gather`: the others may give an empty `in`.
  detail::device_operation<void> scatter(const_device_view in, device_view out, root at,
                                         source_position where = source_position()) {
    return collective(operation_kind::scatter, in, out, sum, at.rank(), where);
  }
  /// `in` has size() times the elements of `out`, which gets this rank's part of the
  /// reduction.
  detail::device_operation<void> reduce_scatter(
      const_device_view in, device_view out, reduction by,
      source_position where = source_position()) {
    return collective(operation_kind::reduce_scatter, in, out, by, no_rank, where);
  }
  /// Part r of `in` goes to rank r; part r of `out` comes from there.
  detail::device_operation<void> all_to_all(const_device_view in, device_view out,
                                            source_position where = source_position()) {
    return collective(operation_kind::all_to_all, in, out, sum, no_rank, where);
  }

  /// Ends when the communicator is made and the peers are connected, and tells the
  /// cost. Operations may be started before: they wait for it.
  detail::device_operation<device_costs> device_ready(
      source_position where = source_position()) {
    return detail::device_operation<device_costs>(detail::operation_request(
        core(), operation_kind::device_ready, no_rank, {}, where));
  }
  /// Ends when the operation of the ticket, and all that were handed to the stream
  /// before it, are done. Errors: those of `device_calls`, also if the world broke after
  /// they were done; `invalid_argument` for a ticket of another epoch.
  detail::device_operation<void> settled(ticket at,
                                         source_position where = source_position()) {
    detail::device_operation<void> wait(
        detail::operation_request(core(), operation_kind::settle, no_rank, {}, where));
    wait.part().at = at;
    return wait;
  }
  /// Calls `call(ncclComm_t, cudaStream_t)` where operations are launched, behind those
  /// that were handed over before. It gives access to the rest of NCCL, and to
  /// capturing graphs. Ends when the call has returned. Errors: what the call threw;
  /// those of `device_calls`.
  ///
  /// The call must not block (the world breaks after `device_options::blocked_call`),
  /// leave a capture open, or end the communicator. What it launches is in no order
  /// with matched operations of other members. Lifetime: `call` must live until the
  /// await ends.
  template <class Call>
  detail::device_operation<void> native(Call& call,
                                        source_position where = source_position()) {
    detail::device_operation<void> run(
        detail::operation_request(core(), operation_kind::native, no_rank, {}, where));
    run.part().context =
        const_cast<void*>(static_cast<const void*>(std::addressof(call)));
    run.part().call = [](void* context, ncclComm* communicator, CUstream_st* stream) {
      (*static_cast<Call*>(context))(communicator, stream);
    };
    return run;
  }
  /// Collectives: the communicator returns its device memory when what was started
  /// before is done, and takes it again. In between, operations on device memory are
  /// `invalid_argument`; those on host memory go on.
  ///
  /// Errors: those of `device_calls`; `unsupported` before NCCL 2.29.7;
  /// `invalid_argument` if it is suspended already.
  detail::device_operation<void> suspend_device(
      source_position where = source_position()) {
    return detail::device_operation<void>(detail::operation_request(
        core(), operation_kind::suspend_device, no_rank, {}, where));
  }
  /// Takes the memory again; see `suspend_device`. Errors: those of `device_calls`;
  /// `invalid_argument` if it is not suspended.
  detail::device_operation<void> resume_device(
      source_position where = source_position()) {
    return detail::device_operation<void>(detail::operation_request(
        core(), operation_kind::resume_device, no_rank, {}, where));
  }

  /// Returns the stream on which the world's operations run: views on it need no events
  /// between their work and ours. None before `device_ready()`, and in a world without
  /// a device. Thread: the world's reactor.
  [[nodiscard]] device_stream stream() const { return detail::stream_of(core()); }

 private:
  [[nodiscard]] detail::world_core& core() const {
    return detail::access::core(static_cast<const World&>(*this));
  }
  detail::device_operation<void> collective(operation_kind kind, const_device_view in,
                                            device_view out, reduction by, rank_t at,
                                            source_position where) {
    detail::device_operation<void> all(
        detail::operation_request(core(), kind, no_rank, {}, where),
        detail::device_request(in, out));
    all.part().by = by;
    all.part().root = at;
    return all;
  }
};

}  // namespace manyworlds::inline v0
