// Local discovery: what an endpoint has for all its peers on this host.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "link/death_notices.hpp"
#include "link/endpoint.hpp"
#include "link/host_kernel.hpp"
#include "link/liveness_futex.hpp"
#include "link/pairing.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Owns the pairing with peers of this host, the futexes by which they hear of our death,
/// and the watch by which we hear of theirs. Thread: the service reactor. Lifetime:
/// destroyed before it, once that no longer turns.
class local_discovery final : private pairing_listener {
 public:
  local_discovery(endpoint& owner, reactor& service, environment& env,
                  const endpoint_options& options);
  ~local_discovery();

  static constexpr const char* turned_off = "it is turned off there";
  /// Says why no memory is shared here; empty if it is.
  [[nodiscard]] std::string refusal() const;
  /// Says why no peer can request pairing here; empty if peers can. We may still request
  /// it of them.
  [[nodiscard]] std::string listening_refusal() const;

  /// Begins, before all calls below. Thread: the one that peers watch for its end.
  void begin();
  /// Ends, when no link shares memory any longer. Thread: that of `begin`.
  void end() noexcept;

  /// Answers pairing requests until cancelled.
  [[nodiscard]] task<void> run();
  [[nodiscard]] class pairing& pairing() noexcept {
    MW_ASSERT(pairing_, "peers pair only where sharing is turned on");
    return *pairing_;
  }
  [[nodiscard]] death_notices& deaths() noexcept { return *deaths_; }
  [[nodiscard]] endpoint& owner() noexcept { return owner_; }
  /// Logs a refusal: the first one of a reason is a warning, later ones with other
  /// peers are for debugging.
  void log_refusal(const std::string& reason, std::string line);
  [[nodiscard]] reactor& service() noexcept { return service_; }
  [[nodiscard]] const std::shared_ptr<class copy_thread>& copy_thread() const noexcept {
    return copy_thread_;
  }
  [[nodiscard]] const std::shared_ptr<pool_registry>& pools() const noexcept {
    return pools_;
  }

 private:
  const pairing_nonces* expected_nonces(const incarnation& from) override;
  void paired(const incarnation& from, shared_parts parts) override;
  void log(std::string line) noexcept override;

  endpoint& owner_;
  reactor& service_;
  /// Null: the kernel itself.
  host_kernel* const simulated_;
  std::shared_ptr<pool_registry> pools_;
  std::shared_ptr<class copy_thread> copy_thread_;
  std::optional<robust_futex_list> futexes_;
  std::unique_ptr<death_notices> deaths_;
  /// Null: turned off.
  std::unique_ptr<class pairing> pairing_;
  /// Reasons that were logged, also those of peers.
  std::set<std::string> told_;
};

}  // namespace manyworlds::inline v0::detail::shm
