// Server session: the worker's end of one leader's world, while it is served.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "link/wire.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/call_deadline.hpp"
#include "manyworlds/serve/call_server.hpp"
#include "serve/call_peer.hpp"
#include "serve/call_wire.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

struct call_server::state {
  handler handle;
  call_server_options options;
  std::uint64_t load = 0;
  bool has_load = false;
  std::vector<server_session*> sessions;
  /// It is never reset.
  bool is_draining = false;
  /// Is set, and reset, when a session has ended.
  event session_ended;

  void begin_drain() noexcept;
};

}  // namespace manyworlds::inline v0

namespace manyworlds::inline v0::detail {

/// Reads what the leader orders, and runs a handler per slot. Thread: the world's
/// reactor.
class server_session {
 public:
  server_session(call_server::state& server, world& w);
  server_session(const server_session&) = delete;
  server_session& operator=(const server_session&) = delete;
  ~server_session();

  [[nodiscard]] task<void> run();
  void note_load() noexcept;
  /// Tells the leader that no new calls are taken. `run` returns when those that were
  /// begun have ended and the leader has said that no more come.
  void begin_drain() noexcept;

  // --- for its calls
  [[nodiscard]] task<void> reply(std::uint32_t slot, gather_list data);

 private:
  struct slot {
    served_call* call = nullptr;
    bool is_taken = false;
    /// May be set before its handler has begun.
    bool is_cancelled = false;
    /// The last call that came for it.
    std::optional<std::uint64_t> last;
    std::uint64_t window = 0;
    std::uint64_t largest_reply = 0;
    std::uint64_t sent = 0;    ///< cost of its replies so far, also of those given up
    std::uint64_t credit = 0;  ///< cost of those that were read
    /// True if the leader may count less than `sent`.
    bool is_sent_unclear = false;
    /// Is set when a reply that waits for credit has to check again.
    event credited;

    void note_credit() noexcept {
      credited.set();
      credited.reset();
    }
  };
  /// The end of a handler, as the leader is told.
  struct handler_end {
    handler_end() noexcept {}
    cause why = cause::none;
    std::string text;
  };
  class running;
  class counted_reply;
  /// Counts a call that was begun, until the leader has its end.
  struct open_call {
    explicit open_call(server_session& s) noexcept : session(s) {}
    open_call(const open_call&) = delete;
    open_call& operator=(const open_call&) = delete;
    ~open_call() {
      MW_ASSERT(session.open_ > 0, "a call that was begun is counted until its end");
      --session.open_;
      session.check_drained();
    }
    server_session& session;
  };
  /// Counts a handler's end that is being sent to the leader.
  struct end_under_way {
    explicit end_under_way(server_session& s) noexcept : session(s) {
      ++session.ends_under_way_;
    }
    end_under_way(const end_under_way&) = delete;
    end_under_way& operator=(const end_under_way&) = delete;
    ~end_under_way() {
      MW_ASSERT(session.ends_under_way_ > 0,
                "an end under way is counted until it is sent");
      --session.ends_under_way_;
      session.end_sent_.set();
      session.end_sent_.reset();
    }
    server_session& session;
  };
  /// Tells handlers that the world has ended before any task waits for their own end.
  struct end_of_reading {
    explicit end_of_reading(server_session& s) noexcept : session(s) {}
    ~end_of_reading() { session.stop_all(); }
    server_session& session;
  };

  [[nodiscard]] task<void> read(scope& handlers);
  [[nodiscard]] task<void> write();
  [[nodiscard]] task<void> heed_runtime();
  [[nodiscard]] task<void> give_back(std::uint32_t slot, std::uint64_t id);
  void check_drained() noexcept;
  [[nodiscard]] task<void> take_request(scope& handlers, call_wire::order_head head,
                                        std::size_t size);
  [[nodiscard]] task<void> take_control(call_wire::order_head head, std::size_t size);
  /// Returns true if the leader waits for the slot of a call that never came.
  [[nodiscard]] bool take(const call_wire::control_entry& entry);
  [[nodiscard]] task<void> tell_sent(std::uint32_t slot);
  [[nodiscard]] task<handler_end> run_handler(call_wire::order_head head, bytes data);
  [[nodiscard]] task<void> handle(call_wire::order_head asked, bytes data);
  void stop_all() noexcept;
  [[nodiscard]] failure describe(enum cause why, std::uint32_t slot,
                                 std::string detail) const;

  call_server::state& server_;
  call_peer peer_;
  std::vector<slot> slots_;
  std::size_t ends_under_way_ = 0;
  event end_sent_;
  event something_due_;
  bool is_load_due_;
  bool is_drain_due_ = false;
  /// Begun calls; the leader may not have their end yet.
  std::size_t open_ = 0;
  bool is_draining_ = false;
  /// True once the leader has said that it sends no more requests.
  bool no_more_come_ = false;
  event drained_;
  /// True while the leader's orders are read.
  bool is_heard_ = true;
};

}  // namespace manyworlds::inline v0::detail
