// TCP store pool: the connections of one client to its server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/seeded_random.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "store/store_health.hpp"
#include "store/tcp_store_connection.hpp"
#include "store/turnstile.hpp"

namespace manyworlds::inline v0::detail {

/// Dials connections, keeps idle ones, and decides which of them a wait may keep. Thread:
/// its home's. Lifetime: what it is made with outlives it.
///
/// A server may be slow to accept: PyTorch's looks up the name of each peer, one after
/// the other, and takes seconds for each where the resolver does not answer. A
/// connection that is given up there delays the next ones. So only a few are dialled at
/// a time, and a connection waits long for the answer to its greeting. An operation
/// that still waits for its turn to dial takes any connection that another one gives
/// back.
class tcp_store_pool {
 public:
  using connection = std::unique_ptr<tcp_store_connection>;

  tcp_store_pool(reactor& home, const std::string& endpoint,
                 const tcp_store_options& options, store_health& health,
                 seeded_random& random) noexcept;

  /// What the current attempt of an operation does with connections.
  struct use {
    /// It has one that was idle; its request itself may have left.
    bool was_reused = false;
    bool is_connecting = false;
  };
  /// Adds one to a number for its lifetime.
  class counted {
   public:
    explicit counted(std::size_t& number) noexcept : number_(number) { ++number_; }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    ~counted() {
      MW_ASSERT(number_ > 0, "what is counted is counted until its end");
      --number_;
    }

   private:
    std::size_t& number_;
  };

  /// Returns an idle connection or a new one, whichever is there first.
  task<connection> take(use& of);
  /// Returns the most recent idle connection, or null.
  connection take_idle(use& of) noexcept;
  /// Returns a new connection that a wait may keep.
  task<connection> take_own(use& of);
  void give_back(connection c);
  void close_idle() noexcept { idle_.clear(); }

  /// Says whether a wait may keep a connection for itself: where new ones are slow to
  /// come, one at least is left to the others.
  [[nodiscard]] bool may_keep_one() const noexcept;
  /// Counts a connection that a wait keeps.
  [[nodiscard]] counted keep() noexcept {
    MW_ASSERT(kept_ < open_, "a wait keeps a greeted connection");
    return counted(kept_);
  }
  /// Distinguishes the replies to pings.
  std::uint32_t nonce() noexcept { return static_cast<std::uint32_t>(random_.next()); }

 private:
  task<turnstile::place> turn_to_dial();
  task<void> until_one_is_idle();
  /// Precondition: the caller has a turn to dial.
  task<connection> connect(use& of);
  task<connection> dial();
  task<stream> reach();
  task<void> prove_secret(stream& s);

  reactor& home_;
  const std::string& endpoint_;
  const tcp_store_options& options_;
  store_health& health_;
  seeded_random& random_;
  turnstile dials_;
  /// Operations that wait for a connection.
  std::size_t needy_ = 0;
  /// Connections that were greeted, and those of them that waits keep.
  std::size_t open_ = 0;
  std::size_t kept_ = 0;
  duration last_dial_took_ = duration::zero();
  event given_back_;
  std::vector<connection> idle_;
};

}  // namespace manyworlds::inline v0::detail
