// Call peer: the other member of a world of two, and what to do if it breaks the
// protocol.
#pragma once

#include <string>
#include <utility>

#include "link/wire.hpp"
#include "manyworlds/world/outcome.hpp"
#include "manyworlds/world/world.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

/// Reads from the peer: heads, then the payloads behind them.
class call_peer {
 public:
  /// Throws world_error (`invalid_argument`) unless the world has two members.
  explicit call_peer(world& w) : world_(w), rank_(1 - w.rank()) {
    if (w.size() == 2) return;
    throw world_error(access::core(w).describe_failure(
        cause::invalid_argument, no_rank, operation_kind::call,
        "calls are served in worlds of two members; this world has " +
            std::to_string(w.size())));
  }

  [[nodiscard]] world& in() const noexcept { return world_; }
  [[nodiscard]] rank_t rank() const noexcept { return rank_; }
  [[nodiscard]] bool is_over() const noexcept {
    return world_.state() != world_state::up;
  }

  template <class Head>
  [[nodiscard]] task<message<Head>> head() {
    auto got = co_await outcome(world_.recv_message<Head>(from(rank_), lane()));
    if (!got) end_by(got.error());
    co_return *got;
  }

  /// Receives a payload. Returns false if the sender gave it up on the way.
  /// Precondition: its size was checked.
  [[nodiscard]] task<bool> payload(bytes& into) {
    auto got = co_await outcome(world_.recv(into, from(rank_), lane()));
    if (!got && got.error().cause == cause::cancelled_by_peer) co_return false;
    if (!got) end_by(got.error());
    co_return true;
  }

  /// Breaks the world with `protocol_error`, and throws that.
  [[noreturn]] void refuse(std::string what) {
    world_core& core = access::core(world_);
    core.break_with(core.describe_failure(cause::protocol_error, rank_,
                                          operation_kind::none, std::move(what)));
    throw world_error(core.first_failure());
  }

 private:
  /// Throws the failure. If the world is still up, the peer sent something other than
  /// its head announced: this breaks the world first.
  [[noreturn]] void end_by(const failure& f) {
    if (!is_over()) refuse("in a call: " + f.text());
    throw world_error(f);
  }

  world& world_;
  rank_t rank_;
};

}  // namespace manyworlds::inline v0::detail
