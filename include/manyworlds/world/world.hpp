// World: a named, ordered set of members that communicate; an awaitable fault domain.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "manyworlds/address.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/memory/buffer_refusal.hpp"
#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/source_position.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/world/collective_calls.hpp"
#include "manyworlds/world/device_calls.hpp"
#include "manyworlds/world/options.hpp"
#include "manyworlds/world/view.hpp"
#include "manyworlds/world/world_core.hpp"
#include "manyworlds/world/world_operation.hpp"

namespace manyworlds::inline v0 {

class runtime;

/// Waits until a world is formed, or throws the first cause why it is not.
class formation_awaiter {
 public:
  explicit formation_awaiter(std::shared_ptr<world_core> core)
      : core_(std::move(core)), decided_(core_->decided()) {}

  bool await_ready() const noexcept { return decided_.await_ready(); }
  bool await_start(continuation& k) {
    core_->begin_forming();
    return decided_.await_start(k);
  }
  bool await_cancel() noexcept { return decided_.await_cancel(); }
  bool await_must_resume() const noexcept { return true; }
  void await_resume() const;
  [[nodiscard]] executor& await_home() const noexcept;

 private:
  std::shared_ptr<world_core> core_;
  notice_awaiter decided_;
};

/// A handle on one member's end of a world. Movable; the last handle of a live world that
/// is dropped breaks it (`abandoned`, told to the others): `leave()` first.
///
/// Constructing describes; the first `co_await w` starts the forming, every other joins
/// its outcome. The world belongs to its runtime's reactor; operations may be awaited
/// from any runtime's task, and from any thread's, for one post there and one back.
/// Buffers belong to the caller and must live until the await ends; then nothing of the
/// library touches them any more, however it ended (law 4). Operations take effect in the
/// order they are awaited, per peer and lane (law 5). They throw world_error: for the
/// world's first cause once it is broken, else for what ended that operation alone.
///
/// A broken world is never mended in place: a member that did not see the break could
/// still send into it. `reform()` gives the next epoch of the same name.
class world : public device_calls<world>,
              public collective_calls<world>,
              public not_for_asio {
 public:
  /// No world, as what was moved from: to be assigned to, asked for `bool` or dropped.
  /// All else throws world_error (`invalid_argument`).
  world() noexcept = default;
  [[nodiscard]] explicit operator bool() const noexcept { return core_ != nullptr; }
  /// The store must live until the world is formed, or the handle dropped; it is never
  /// used afterwards (one of another kind than the library's: see `store::perform`).
  /// Wrong options are `invalid_argument` when the world is awaited.
  world(runtime& rt, store& st, world_options options);
  world(std::shared_ptr<runtime_core> rt, store& st, world_options options);
  /// For the library's own layers.
  explicit world(std::shared_ptr<world_core> core) noexcept : core_(std::move(core)) {}
  world(world&& other) noexcept = default;
  world& operator=(world&& other) noexcept;
  world(const world&) = delete;
  world& operator=(const world&) = delete;
  ~world();

  /// Formed and connected to all members when it ends; throws world_error otherwise
  /// (`not_joined` naming the rank, `rank_taken` naming its holder, `store_unreachable`,
  /// `wrong_secret` ...), at `options.form` at the latest. Cancelling the wait does not
  /// stop the forming.
  [[nodiscard]] awaitable_by_all<formation_awaiter> operator co_await() const {
    return awaitable_by_all<formation_awaiter>(existing().shared_from_this());
  }

  [[nodiscard]] const world_name& name() const { return existing().options().name; }
  [[nodiscard]] rank_t rank() const { return existing().options().rank; }
  [[nodiscard]] rank_t size() const { return existing().options().size; }
  /// 0 until formed; grows with each incarnation of the name.
  [[nodiscard]] std::uint64_t epoch() const { return existing().epoch(); }
  [[nodiscard]] world_state state() const { return existing().state(); }
  /// The first cause if the world is broken or closed; else says that nothing failed.
  [[nodiscard]] class failure failure() const { return existing().first_failure(); }
  /// A member that has not been heard of for a while; it may come back.
  [[nodiscard]] bool is_suspect(rank_t rank) const { return existing().is_suspect(rank); }
  /// Who is who; only of a world that was formed.
  [[nodiscard]] const world_view& view() const { return existing().view(); }

  /// How long it has been up, suspicions and errors by cause. Any thread.
  [[nodiscard]] world_history history() const;
  /// Messages and bytes so far; zeros once it is over. On the world's reactor.
  [[nodiscard]] transfer_counters counters() const;
  /// What carries its messages: "shm", "tcp", or "shm and tcp" where members live on
  /// several hosts; empty unless it is up. On the world's reactor.
  [[nodiscard]] std::string transport() const;

  /// Waits until the world is broken or closed; gives the cause.
  [[nodiscard]] task<class failure> broken() const;
  /// Waits until nothing of a broken or closed world touches any buffer and its resources
  /// are free.
  [[nodiscard]] task<void> drained() const;
  /// Leaves in order: what was sent is delivered (for at most `options.drain`), the
  /// others see `closed`. Throws the first cause if the world breaks meanwhile or is
  /// broken.
  [[nodiscard]] task<void> leave();
  /// Breaks the world here and at the others, with cause `broken_by_user`.
  void fail(std::string reason);
  /// The next epoch of the same name, formed; this one is broken first if it is not yet
  /// over.
  [[nodiscard]] task<world> reform();
  /// The next epoch, formed by those members alone that live and call this: in the same
  /// order, so with other ranks (`previous_rank_of`). The store is not used and may be
  /// dead. This world is broken first if it is not yet over. A member that lives and does
  /// not call is waited for, for half of `options.form` at most. Throws world_error at
  /// `options.form` at the latest: `expelled` if the others have gone on without this
  /// member, as they do when it was silent for too long; `not_joined` naming who is
  /// missing, also when as many members are silent as take part and may have gone on
  /// themselves, and where two of those that take part cannot reach each other. Call it
  /// again after that, or `reform()`. `runtime_stopped` if the world's runtime ends.
  [[nodiscard]] task<world> shrink();
  /// `reform()` at the size and with the rank it had before it was shrunk: fresh
  /// processes join with the ranks that are free.
  [[nodiscard]] task<world> grow();
  /// Of a member, in the world whose `shrink()` gave this one; the same rank if none did.
  [[nodiscard]] rank_t previous_rank_of(rank_t rank) const;

  // --- operations; `within`, `stop` and, of sends, `delivered`, of receives,
  // `discarding` modify them

  using device_calls::recv;
  using device_calls::send;
  using device_calls::send_message;

  /// Ends when the data was accepted and the buffers may be reused.
  world_operation<void, gather_list> send(gather_list data, to peer, lane on = {},
                                          user_word user = {},
                                          source_position where = source_position()) {
    operation_request r(existing(), operation_kind::send, peer.rank(), on, where);
    r.user = user;
    return world_operation<void, gather_list>(std::move(r), std::move(data));
  }
  /// Fills the buffers with the next message of that lane, which must have as many bytes
  /// and elements of the same type, or of uint8 (`std::byte`) on either side, as a list
  /// of several types is sent. Else `size_mismatch` or `type_mismatch`, and the message
  /// stays at the head of its lane: receive it rightly.
  world_operation<message_info, scatter_list> recv(
      scatter_list data, from peer, lane on = {},
      source_position where = source_position()) {
    return world_operation<message_info, scatter_list>(
        operation_request(existing(), operation_kind::receive, peer.rank(), on, where),
        std::move(data));
  }
  /// Tells of the next message and consumes nothing. Without a lane: of lane 0, or of the
  /// first message of a lane that nobody has received on yet.
  world_operation<message_info> arrival(from peer,
                                        source_position where = source_position());
  world_operation<message_info> arrival(from peer, lane on,
                                        source_position where = source_position());

  /// This member takes no more on that lane of `peer`, or of any with `mw::any`. What has
  /// come and was not received is dropped, and its part of the window is the peer's
  /// again. What comes later is dropped likewise, until a receive or an arrival names the
  /// lane again. Sends of it that still wait at the peer end there with
  /// `cancelled_by_peer`. Receives that wait on the lane fail with `cancelled`; one that
  /// has begun to take a message goes on, and gets it.
  ///
  /// A protocol with a lane for each request calls it when it gives up a request whose
  /// answer may come all the same (or says `.discarding()` at the receive). Nothing else
  /// would ever empty that lane.
  ///
  /// Thread: any; at once on the world's reactor, else in the order of operations started
  /// from this thread. A world that is not up discards nothing. The last 65,536 lanes of
  /// a peer are remembered. Errors: throws world_error `invalid_argument` if there is no
  /// such peer, or the lane is the library's own.
  void discard(from peer, lane on = {});

  /// Sends a trivially copyable head, and perhaps data behind it that the peer receives
  /// apart, once it has read the head and chosen its buffers. Data that is given counts
  /// as something to receive also if it has no bytes. `head` must live until the await
  /// ends.
  template <class Head>
  world_operation<void, gather_list> send_message(
      const Head& head, to peer, lane on = {}, user_word user = {},
      source_position where = source_position()) {
    return world_operation<void, gather_list>(message_with(head, peer, on, user, where));
  }
  template <class Head>
  world_operation<void, gather_list> send_message(
      const Head& head, gather_list data, to peer, lane on = {}, user_word user = {},
      source_position where = source_position()) {
    operation_request r = message_with(head, peer, on, user, where);
    r.gives_payload = true;
    return world_operation<void, gather_list>(std::move(r), std::move(data));
  }
  /// The head of the next message and the size of what follows it, which the next `recv`
  /// of that lane takes: also if it has no bytes, so that a receiver of tensors may
  /// always receive. Behind a message that is only a head (`info.has_payload` is false)
  /// such a `recv` gets the next message, and waits for it. The next `recv_message`
  /// passes over a payload of no bytes that was not received. Without a lane: of lane 0,
  /// or the first message of a lane on which this member has not received yet.
  template <class Head>
  world_operation<message<Head>> recv_message(from peer,
                                              source_position where = source_position()) {
    operation_request r = message_request<Head>(peer, {}, where);
    r.takes_fresh_lanes = true;
    return world_operation<message<Head>>(std::move(r));
  }
  template <class Head>
  world_operation<message<Head>> recv_message(from peer, lane on,
                                              source_position where = source_position()) {
    return world_operation<message<Head>>(message_request<Head>(peer, on, where));
  }

  // Collectives: of device memory, or of host memory.
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

  // What is none of the above, and what to do about it.
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

  /// Several operations started as one, left to right: none waits for another to end, so
  /// that sends and receives among members cannot block each other. Those on device
  /// memory that are unmatched are one NCCL group. Throws the first error when all have
  /// ended.
  template <class... Results, class... Lists>
  [[nodiscard]] task<void> group(world_operation<Results, Lists>... operations) {
    launch_group together((std::size_t{operations.is_unmatched()} + ... + 0));
    (operations.join(together), ...);
    co_await when_all(std::move(operations)...);
  }

  /// For the library's own layers; null if there is no world.
  [[nodiscard]] const std::shared_ptr<world_core>& core() const noexcept { return core_; }
  /// The same for what needs a world: throws world_error (`invalid_argument`) without.
  [[nodiscard]] world_core& existing() const {
    if (!core_) [[unlikely]]
      refuse_without_world();
    return *core_;
  }

 private:
  [[noreturn]] static void refuse_without_world();

  template <class Head>
  static void check_head() {
    static_assert(std::is_trivially_copyable_v<Head>, "a head is copied byte by byte");
    static_assert(sizeof(Head) <= operation::largest_head, "a head is at most 4 KiB");
  }
  template <class Head>
  operation_request message_with(const Head& head, to peer, lane on, user_word user,
                                 source_position where) {
    check_head<Head>();
    operation_request r(existing(), operation_kind::send, peer.rank(), on, where);
    r.user = user;
    r.head = std::addressof(head);
    r.head_bytes = sizeof(Head);
    return r;
  }
  template <class Head>
  operation_request message_request(from peer, lane on, source_position where) {
    check_head<Head>();
    operation_request r(existing(), operation_kind::receive, peer.rank(), on, where);
    r.head_bytes = sizeof(Head);
    return r;
  }

  std::shared_ptr<world_core> core_;
};

}  // namespace manyworlds::inline v0
