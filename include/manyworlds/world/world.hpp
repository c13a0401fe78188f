// World: a named, ordered set of members that communicate; an awaitable fault domain.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "manyworlds/address.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/detail/access.hpp"
#include "manyworlds/detail/buffer_refusal.hpp"
#include "manyworlds/detail/call_refusal.hpp"
#include "manyworlds/detail/notice.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/observe/history.hpp"
#include "manyworlds/source_position.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/world/collective_calls.hpp"
#include "manyworlds/world/device_calls.hpp"
#include "manyworlds/world/options.hpp"
#include "manyworlds/world/tensor_calls.hpp"
#include "manyworlds/world/view.hpp"
#include "manyworlds/world/world_operation.hpp"
#include "manyworlds/world/world_state.hpp"

namespace manyworlds::inline v0 {

class runtime;

namespace detail {

class runtime_core;
class world_core;

/// Waits until a world is formed, or throws the first cause why it is not.
class formation_awaiter {
 public:
  explicit formation_awaiter(std::shared_ptr<world_core> core);

  bool await_ready() const noexcept { return decided_.await_ready(); }
  bool await_start(continuation& k);
  bool await_cancel() noexcept { return decided_.await_cancel(); }
  bool await_must_resume() const noexcept { return true; }
  void await_resume() const;
  [[nodiscard]] executor& await_home() const noexcept;

 private:
  std::shared_ptr<world_core> core_;
  notice_awaiter decided_;
};

}  // namespace detail

/// A handle on one member's end of a world. It is movable. Dropping the handle of a
/// live world breaks it (`abandoned`, told to the others): `leave()` first.
///
///     mw::world w(rt, store, {.name = "left", .rank = 0, .size = 2});
///     co_await w;  // until both members are connected
///     co_await w.send(x, mw::to{1});
///     co_await w.recv(y, mw::from{1}).within(1s);  // giving up leaves the world up
///     co_await w.all_reduce(x, mw::sum);
///     co_await w.leave();
///
/// Constructing describes; the first `co_await w` starts the forming, every other joins
/// its outcome. The world belongs to its runtime's reactor. Operations may be awaited
/// by tasks of any runtime and thread, for one post there and one back.
///
/// Lifetime: buffers belong to the caller and must live until the await ends. Then the
/// library no longer touches them, no matter how it ended (law 4). Operations take
/// effect in the order they are awaited, per peer and lane (law 5).
///
/// Errors: world_error. Every function throws it with `invalid_argument` if the handle
/// has no world. Operations throw it with a cause of their own list, or of these sets:
/// - The causes of a break: `peer_died`, `silent_peer`, `connection_lost`, `replaced`,
///   `abandoned`, `stalled`, `overdue`, `mismatch`, `protocol_error`,
///   `out_of_resources`, `broken_by_user`, `runtime_stopped`, `not_turned`,
///   `device_failed`, `nccl_failed`, `forked`. The first one stays: every later
///   operation fails with it.
/// - The causes of forming: `not_joined`, `rank_taken`, `size_disagrees`,
///   `backend_disagrees`, `store_unreachable`, `wrong_secret`, `wrong_version`,
///   `device_unavailable`, `device_busy`, `device_degraded`; `invalid_argument` for wrong
///   options; those of a break.
/// - The causes of any operation: those of a break, or of forming where that failed;
///   `not_formed` before the world is up; `closed` when this member or the peer has left;
///   `invalid_argument` for a rank or lane that is not there; `timed_out` of `within`,
///   `cancelled` of `stop`.
///
/// A broken world is never mended in place: a member that did not see the break could
/// still send into it. `reform()` gives the next epoch of the same name.
class world : public device_calls<world>,
              public collective_calls<world>,
              public tensor_calls<world>,
              public detail::not_for_asio {
 public:
  /// Makes a handle without a world, like one that was moved from. It may be assigned
  /// to, asked for `bool` or dropped; all else throws world_error (`invalid_argument`).
  world() noexcept = default;
  /// Returns whether the handle has a world.
  [[nodiscard]] explicit operator bool() const noexcept { return core_ != nullptr; }
  /// Describes a world. Lifetime: the store must live until the world is formed, or the
  /// handle dropped. It is never used afterwards (for stores that the library does not
  /// provide, see `store::perform`). Wrong options are `invalid_argument` when the
  /// world is awaited.
  world(runtime& rt, store& st, world_options options);
  world(world&& other) noexcept = default;
  world& operator=(world&& other) noexcept;
  // Compilers print the line, and the reason with it.
  world(const world&) = delete;  // one handle: std::move it, or pass a mw::world&
  world& operator=(const world&) = delete;
  ~world();

  /// Forms the world and ends when it is connected to all members, at `options.form` at
  /// the latest. Cancelling the wait does not stop the forming.
  ///
  /// Errors: the causes of forming, where `not_joined` names the rank and `rank_taken`
  /// its holder; `closed` if this member has left before.
  [[nodiscard]] detail::awaitable_by_all<detail::formation_awaiter> operator co_await()
      const {
    static_cast<void>(existing_core());
    return detail::awaitable_by_all<detail::formation_awaiter>(core_);
  }

  [[nodiscard]] const world_name& name() const;
  [[nodiscard]] rank_t rank() const;
  [[nodiscard]] rank_t size() const;
  /// Returns the epoch: 0 until formed; it grows with each incarnation of the name.
  [[nodiscard]] std::uint64_t epoch() const;
  [[nodiscard]] world_state state() const;
  /// Returns the first cause if the world is broken or closed, or an empty failure.
  [[nodiscard]] class failure failure() const;
  /// Returns whether a member is silent. It may come back.
  [[nodiscard]] bool is_suspect(rank_t rank) const;
  /// Returns the members. Precondition: the world was formed.
  [[nodiscard]] const world_view& view() const;

  /// Returns how long it has been up, and counts of suspicions and errors by cause.
  /// Thread: any.
  [[nodiscard]] world_history history() const;
  /// Returns the messages and bytes so far; zeros once it is over. Thread: the world's
  /// reactor.
  [[nodiscard]] transfer_counters counters() const;
  /// Returns what carries its messages: "shm", "tcp", or "shm and tcp" where members
  /// live on several hosts; empty unless it is up. Thread: the world's reactor.
  [[nodiscard]] std::string transport() const;

  /// Waits until the world is broken or closed, and gives the cause. Errors: none.
  task<class failure> broken() const;
  /// Waits until nothing of a broken or closed world touches any buffer and its
  /// resources are free. Errors: none.
  task<void> drained() const;
  /// Leaves in order: what was sent is delivered, within `options.drain`, and the
  /// others see `closed`.
  ///
  /// Errors: the causes of a break or of forming, if the world is broken or breaks
  /// meanwhile; `abandoned` if it is still forming.
  task<void> leave();
  /// Breaks the world here and at the others, with cause `broken_by_user`. Errors: none.
  void fail(std::string reason);
  /// Forms the next epoch of the same name. This one is broken first if it is not over.
  /// Errors: the causes of forming.
  task<world> reform();
  /// Forms the next epoch of those members alone that live and call this: in the same
  /// order, so with other ranks (`previous_rank_of`). The store is not used and may be
  /// dead. This world is broken first if it is not over. A member that lives and does
  /// not call is waited for, for half of `options.form` at most. Giving up the await, by
  /// a deadline or a cancellation, ends this try alone: it may be called again.
  ///
  /// Some of them may have ended a collective that failed at others: agree on where to
  /// go on in the new world, say by an `all_reduce` of the round with `mw::min`.
  ///
  /// Errors: world_error, at `options.form` at the latest:
  /// - `expelled`: the others have gone on without this member, as they do when it was
  ///   silent for too long.
  /// - `not_joined`, naming the missing member. Also if as many members are silent as
  ///   take part, since they may have gone on themselves; and if two of those that take
  ///   part cannot reach each other. Call it again after that, or `reform()`.
  /// - `runtime_stopped`: the world's runtime ends. `forked`: this is a forked child.
  /// - `not_formed`: this world was never up. `closed`: this member has left it.
  /// - `invalid_argument`: it is being shrunk already, or this member forms another epoch
  ///   of it.
  /// - `device_unavailable`, `device_busy`, `device_degraded`: the GPU can serve no other
  ///   world.
  task<world> shrink();
  /// Forms the next epoch like `reform()`, at the size and with the rank that it had
  /// before it was shrunk. Fresh processes join with the ranks that are free. Errors: the
  /// causes of forming.
  task<world> grow();
  /// Returns the rank that a member had in the world that was shrunk to this one; the
  /// same rank if this is no shrunk world.
  [[nodiscard]] rank_t previous_rank_of(rank_t rank) const;

  // --- operations; `within`, `stop` and, of sends, `delivered`, of receives,
  // `discarding` modify them

  using device_calls::recv;
  using device_calls::send;
  using device_calls::send_message;
  using tensor_calls::recv;
  using tensor_calls::send;

  /// Ends when the data was accepted and the buffers may be reused. Errors: the causes of
  /// any operation; `cancelled_by_peer` if the peer has discarded the lane.
  world_operation<void, gather_list> send(gather_list data, to peer, lane on = {},
                                          user_word user = {},
                                          source_position where = source_position()) {
    detail::operation_request r(existing_core(), operation_kind::send, peer.rank(), on,
                                where);
    r.user = user;
    return world_operation<void, gather_list>(std::move(r), std::move(data));
  }
  /// Sends the same data to each of these members, or to all others, as one operation: a
  /// controller's command to its workers. It ends when every member has accepted it (with
  /// `delivered`: received it), and is in order with other sends to each of them. Giving
  /// it up takes it back from those that have not accepted it; the others get it.
  ///
  /// Lifetime: `ranks` must live until the await ends. Errors: those of `send`, of the
  /// first member that failed, when all have ended; `unsupported` of a backend of the
  /// user's that does not know it.
  world_operation<void, detail::fan_out_list> send_to_all(
      std::span<const rank_t> ranks, gather_list data, lane on = {}, user_word user = {},
      source_position where = source_position()) {
    return fan_out({ranks, false}, std::move(data), on, user, where);
  }
  world_operation<void, detail::fan_out_list> send_to_all(
      gather_list data, lane on = {}, user_word user = {},
      source_position where = source_position()) {
    return fan_out({{}, true}, std::move(data), on, user, where);
  }
  /// Sends a head, and data behind it, to each of these members: see `send_message` and
  /// `send_to_all`. Errors: those of `send_to_all`.
  template <class Head>
  world_operation<void, detail::list_behind<detail::fan_out_list, Head>>
  send_message_to_all(Head&& head, std::span<const rank_t> ranks, gather_list data,
                      lane on = {}, user_word user = {},
                      source_position where = source_position()) {
    detail::operation_request r = message_with(head, to{no_rank}, on, user, where);
    r.gives_payload = true;
    return world_operation<void, detail::list_behind<detail::fan_out_list, Head>>(
        std::move(r), detail::put_behind<Head>(
                          head, detail::fan_out_list(std::move(data), {ranks, false})));
  }
  /// Fills the buffers with the next message of that lane. It must have as many bytes,
  /// and elements of the same type, or of uint8 (`std::byte`) on either side. A list of
  /// several types is sent as uint8.
  ///
  /// Errors: the causes of any operation, and:
  /// - `size_mismatch`, `type_mismatch`; `memory_mismatch` if it lies in device memory.
  ///   It stays at the head of its lane and can be received with the right buffers.
  /// - `cancelled_by_peer`: the sender gave the message up after a part of it.
  /// - `cancelled`: the lane was discarded meanwhile.
  world_operation<message_info, scatter_list> recv(
      scatter_list data, from peer, lane on = {},
      source_position where = source_position()) {
    return world_operation<message_info, scatter_list>(
        detail::operation_request(existing_core(), operation_kind::receive, peer.rank(),
                                  on, where),
        std::move(data));
  }
  /// Describes the next message and consumes nothing. Without a lane it looks at lane
  /// 0, or at the first message of a lane on which this member has not received yet.
  /// Errors: the causes of any operation; `cancelled` also if the lane is discarded.
  world_operation<message_info> arrival(from peer,
                                        source_position where = source_position());
  world_operation<message_info> arrival(from peer, lane on,
                                        source_position where = source_position());

  /// Receives no more on that lane of `peer`, or of any peer with `mw::any`. What has
  /// come and was not received is dropped, and its part of the window returns to the
  /// peer. What comes later is dropped too, until a receive or an arrival names the
  /// lane again. Sends on it that still wait at the peer end there with
  /// `cancelled_by_peer`. Receives that wait on the lane fail with `cancelled`; one
  /// that has begun to take a message gets it.
  ///
  /// A protocol with a lane for each request calls it when it gives up a request that
  /// may still be answered (or uses `.discarding()` at the receive). Nothing else would
  /// empty that lane.
  ///
  /// A world that is not up discards nothing. The last 65,536 lanes of a peer are
  /// remembered. Thread: any; at once on the world's reactor, else in the order of
  /// operations started from this thread. Errors: world_error `invalid_argument` if
  /// there is no such peer, or the lane is one of the library.
  void discard(from peer, lane on = {});

  /// Sends a trivially copyable head, and perhaps data behind it. The peer receives the
  /// data apart, once it has read the head and chosen its buffers. Data that is given
  /// must be received even if it has no bytes. Lifetime: a head that has a name must
  /// live until the await ends; one written in the call is kept. Errors: those of `send`.
  template <class Head>
  world_operation<void, detail::list_behind<gather_list, Head>> send_message(
      Head&& head, to peer, lane on = {}, user_word user = {},
      source_position where = source_position()) {
    return world_operation<void, detail::list_behind<gather_list, Head>>(
        message_with(head, peer, on, user, where),
        detail::put_behind<Head>(head, gather_list()));
  }
  template <class Head>
  world_operation<void, detail::list_behind<gather_list, Head>> send_message(
      Head&& head, gather_list data, to peer, lane on = {}, user_word user = {},
      source_position where = source_position()) {
    detail::operation_request r = message_with(head, peer, on, user, where);
    r.gives_payload = true;
    return world_operation<void, detail::list_behind<gather_list, Head>>(
        std::move(r), detail::put_behind<Head>(head, std::move(data)));
  }
  /// Receives the head of the next message and the size of what follows it. The next
  /// `recv` of that lane takes what follows, even if it has no bytes, so that a
  /// receiver of tensors may always receive. If nothing follows (`info.has_payload` is
  /// false), such a `recv` waits for the next message. The next `recv_message` skips a
  /// payload of no bytes that was not received. Without a lane it takes from lane 0, or
  /// the first message of a lane on which this member has not received yet.
  ///
  /// Errors: the causes of any operation; `size_mismatch` if the head has another size,
  /// whereupon the message stays; `cancelled_by_peer` and `cancelled` as of `recv`.
  template <class Head>
  world_operation<message<Head>> recv_message(from peer,
                                              source_position where = source_position()) {
    detail::operation_request r = message_request<Head>(peer, {}, where);
    r.takes_fresh_lanes = true;
    return world_operation<message<Head>>(std::move(r));
  }
  template <class Head>
  world_operation<message<Head>> recv_message(from peer, lane on,
                                              source_position where = source_position()) {
    return world_operation<message<Head>>(message_request<Head>(peer, on, where));
  }

  // Collectives: of host memory, of device memory, or of tensors in either.
  using collective_calls::all_gather;
  using collective_calls::all_reduce;
  using collective_calls::all_to_all;
  using collective_calls::broadcast;
  using collective_calls::gather;
  using collective_calls::reduce;
  using collective_calls::reduce_scatter;
  using collective_calls::scatter;
  using device_calls::all_gather;
  using device_calls::all_reduce;
  using device_calls::all_to_all;
  using device_calls::broadcast;
  using device_calls::gather;
  using device_calls::reduce;
  using device_calls::reduce_scatter;
  using device_calls::scatter;
  using tensor_calls::all_gather;
  using tensor_calls::all_reduce;
  using tensor_calls::all_to_all;
  using tensor_calls::broadcast;
  using tensor_calls::gather;
  using tensor_calls::reduce;
  using tensor_calls::reduce_scatter;
  using tensor_calls::scatter;

  // Refuse all other types at compile time, and say what to do about it.
  template <detail::not_sendable B, class... Rest>
  void send(B&&, Rest&&...) {
    detail::refuse_buffer<B, false>();
  }
  template <detail::not_receivable B, class... Rest>
  void recv(B&&, Rest&&...) {
    detail::refuse_buffer<B, true>();
  }
  template <detail::no_buffer B, class... Rest>
  void broadcast(B&&, Rest&&...) {
    detail::refuse_buffer<B, false>();
  }
  template <detail::no_buffer B, class... Rest>
  void all_reduce(B&&, Rest&&...) {
    detail::refuse_buffer<B, false>();
  }
  template <detail::no_buffer B, class... Rest>
  void reduce(B&&, Rest&&...) {
    detail::refuse_buffer<B, false>();
  }
  template <detail::no_buffer B, class... Rest>
  void all_gather(B&&, Rest&&...) {
    detail::refuse_buffer<B, false>();
  }
  template <detail::no_buffer B, class... Rest>
  void gather(B&&, Rest&&...) {
    detail::refuse_buffer<B, false>();
  }
  template <detail::no_buffer B, class... Rest>
  void scatter(B&&, Rest&&...) {
    detail::refuse_buffer<B, false>();
  }
  template <detail::no_buffer B, class... Rest>
  void reduce_scatter(B&&, Rest&&...) {
    detail::refuse_buffer<B, false>();
  }
  template <detail::no_buffer B, class... Rest>
  void all_to_all(B&&, Rest&&...) {
    detail::refuse_buffer<B, false>();
  }
  template <detail::no_target Out, class In, class... Rest>
  requires(!detail::no_buffer<In>) void all_gather(In&&, Out&&, Rest&&...) {
    detail::refuse_buffer<Out, true>();
  }
  template <detail::no_target Out, class In, class... Rest>
  requires(!detail::no_buffer<In>) void all_reduce(In&&, Out&&, Rest&&...) {
    detail::refuse_buffer<Out, true>();
  }
  template <detail::no_target Out, class In, class... Rest>
  requires(!detail::no_buffer<In>) void all_to_all(In&&, Out&&, Rest&&...) {
    detail::refuse_buffer<Out, true>();
  }
  template <detail::no_target Out, class In, class... Rest>
  requires(!detail::no_buffer<In>) void gather(In&&, Out&&, Rest&&...) {
    detail::refuse_buffer<Out, true>();
  }
  template <detail::no_target Out, class In, class... Rest>
  requires(!detail::no_buffer<In>) void reduce(In&&, Out&&, Rest&&...) {
    detail::refuse_buffer<Out, true>();
  }
  template <detail::no_target Out, class In, class... Rest>
  requires(!detail::no_buffer<In>) void reduce_scatter(In&&, Out&&, Rest&&...) {
    detail::refuse_buffer<Out, true>();
  }
  template <detail::no_target Out, class In, class... Rest>
  requires(!detail::no_buffer<In>) void scatter(In&&, Out&&, Rest&&...) {
    detail::refuse_buffer<Out, true>();
  }
  template <detail::no_target Both, class By, class... Rest>
  requires(!detail::no_buffer<Both> &&
           !std::ranges::range<By>) void all_reduce(Both&&, By&&, Rest&&...) {
    detail::refuse_buffer<Both, true>();
  }
  template <detail::no_target Both, class By, class... Rest>
  requires(!detail::no_buffer<Both> &&
           !std::ranges::range<By>) void broadcast(Both&&, By&&, Rest&&...) {
    detail::refuse_buffer<Both, true>();
  }
  template <detail::no_target Both, class By, class... Rest>
  requires(!detail::no_buffer<Both> && !std::ranges::range<By>) void reduce(Both&&, By&&,
                                                                            Rest&&...) {
    detail::refuse_buffer<Both, true>();
  }
  template <detail::no_rank_name R, class B, class... Rest>
  requires(!detail::not_sendable<B>) void send(B&&, R&&, Rest&&...) {
    detail::refuse_rank<R>();
  }
  template <detail::no_rank_name R, class B, class... Rest>
  requires(!detail::not_receivable<B>) void recv(B&&, R&&, Rest&&...) {
    detail::refuse_rank<R>();
  }
  template <detail::no_rank_name R, class... Rest>
  void arrival(R&&, Rest&&...) {
    detail::refuse_rank<R>();
  }
  template <detail::no_rank_name R, class B, class... Rest>
  requires(!detail::no_buffer<B>) void broadcast(B&&, R&&, Rest&&...) {
    detail::refuse_rank<R>();
  }
  template <detail::no_rank_name R, detail::is_target Both, class... Rest>
  void reduce(Both&&, reduction, R&&, Rest&&...) {
    detail::refuse_rank<R>();
  }
  template <detail::no_rank_name R, class In, detail::is_target Out, class... Rest>
  requires(!detail::no_buffer<In>) void reduce(In&&, Out&&, reduction, R&&, Rest&&...) {
    detail::refuse_rank<R>();
  }
  template <detail::no_rank_name R, class In, detail::is_target Out, class... Rest>
  requires(!detail::no_buffer<In>) void gather(In&&, Out&&, R&&, Rest&&...) {
    detail::refuse_rank<R>();
  }
  template <detail::no_rank_name R, class In, detail::is_target Out, class... Rest>
  requires(!detail::no_buffer<In>) void scatter(In&&, Out&&, R&&, Rest&&...) {
    detail::refuse_rank<R>();
  }
  template <class First, class... Rest>
  requires detail::lacks_reduction<First, Rest...>
  void all_reduce(First&&, Rest&&...) { detail::refuse_without_reduction<First>(); }
  template <class First, class... Rest>
  requires detail::lacks_reduction<First, Rest...>
  void reduce(First&&, Rest&&...) { detail::refuse_without_reduction<First>(); }
  template <class First, class... Rest>
  requires detail::lacks_reduction<First, Rest...>
  void reduce_scatter(First&&, Rest&&...) { detail::refuse_without_reduction<First>(); }

  /// Starts several operations as one, left to right. None waits for another to end, so
  /// that sends and receives among members cannot block each other. Unmatched ones on
  /// device memory form one NCCL group. If one of those cannot begin, the others of the
  /// group end with `invalid_argument`.
  ///
  /// Errors: those of the operations, of which the first is thrown when all have ended.
  template <class... Results, class... Lists>
  task<void> group(world_operation<Results, Lists>... operations) {
    detail::launch_group together((std::size_t{operations.is_unmatched()} + ... + 0));
    (operations.join(together), ...);
    co_await when_all(std::move(operations)...);
  }

 private:
  friend struct detail::access;

  world(std::shared_ptr<detail::runtime_core> rt, store& st, world_options options);
  explicit world(std::shared_ptr<detail::world_core> core) noexcept
      : core_(std::move(core)) {}

  /// Returns the core. Errors: world_error (`invalid_argument`) if there is no world.
  [[nodiscard]] detail::world_core& existing_core() const {
    if (!core_) [[unlikely]]
      refuse_without_world();
    return *core_;
  }
  [[noreturn]] static void refuse_without_world();

  world_operation<void, detail::fan_out_list> fan_out(detail::send_targets targets,
                                                      gather_list&& data, lane on,
                                                      user_word user,
                                                      source_position where) {
    detail::operation_request r(existing_core(), operation_kind::send, no_rank, on,
                                where);
    r.user = user;
    return world_operation<void, detail::fan_out_list>(
        std::move(r), detail::fan_out_list(std::move(data), targets));
  }

  template <class Head>
  detail::operation_request message_with(const Head& head, to peer, lane on,
                                         user_word user, source_position where) {
    detail::check_head<Head>();
    detail::operation_request r(existing_core(), operation_kind::send, peer.rank(), on,
                                where);
    r.user = user;
    r.head = std::addressof(head);
    r.head_bytes = sizeof(Head);
    return r;
  }
  template <class Head>
  detail::operation_request message_request(from peer, lane on, source_position where) {
    detail::check_head<Head>();
    detail::operation_request r(existing_core(), operation_kind::receive, peer.rank(), on,
                                where);
    r.head_bytes = sizeof(Head);
    return r;
  }

  std::shared_ptr<detail::world_core> core_;
};

}  // namespace manyworlds::inline v0
