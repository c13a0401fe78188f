// Store gate: lets a world use its store until the last handle is dropped.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0::detail {

/// A user that drops the handle of a forming world may destroy the store right after,
/// while the service thread is about to ask it something. So the drop shuts the gate,
/// and the destruction of the store does too. A shut gate performs nothing but one
/// parting request that was prepared before. What was asked earlier no longer depends
/// on the store, see `store::perform`. Thread: any.
class store_gate final : public store {
 public:
  /// Null makes a gate that is shut from the beginning, for survivors: their store may
  /// be gone.
  explicit store_gate(store* behind);
  ~store_gate() override;

  [[nodiscard]] std::string address() const override;
  [[nodiscard]] std::string trouble() const override;
  /// Throws store_error once the gate is shut.
  [[nodiscard]] task<store_reply> perform(store_request request) override;

  /// Sets what to ask of the store when the gate is shut, or clears it.
  void set_parting_request(std::optional<store_request> request);
  void shut() noexcept;
  [[nodiscard]] bool is_shut() const;
  /// Performs the parting request, if there is one that was not performed yet.
  [[nodiscard]] task<void> part();
  /// Called by the store as it is destroyed: it must not be asked after this returns.
  void store_ends(bool answers) noexcept;

 private:
  const std::shared_ptr<store_users> beside_;
  mutable std::mutex mutex_;
  store* behind_;  // guarded by mutex_, as are these
  std::optional<store_request> request_;
  std::optional<task<store_reply>> parting_;
};

}  // namespace manyworlds::inline v0::detail
