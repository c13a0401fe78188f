// Store gate: a world's way to its store, until the last handle is dropped.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0 {

/// Whoever drops the handle of a forming world may destroy the store right after, while
/// the service thread is about to ask it something. The gate is shut then: nothing is
/// asked any more, but for one parting request that was made out before. What was asked
/// earlier depends on the store no longer, see `store::perform`. So is the gate of a
/// store that is destroyed first. Any thread.
class store_gate final : public store, private store_user {
 public:
  /// Null: shut from the beginning, as of survivors, whose store may be gone long since.
  explicit store_gate(store* behind);
  ~store_gate() override;

  [[nodiscard]] std::string address() const override;
  [[nodiscard]] std::string trouble() const override;
  /// Throws store_error once the gate is shut.
  [[nodiscard]] task<store_reply> perform(store_request request) override;

  /// What to ask of the store as the gate is shut; nothing for nothing.
  void set_parting_request(std::optional<store_request> request);
  void shut() noexcept;
  [[nodiscard]] bool is_shut() const;
  /// Performs the parting request, if there was one and nobody has.
  [[nodiscard]] task<void> part();

 private:
  void store_ends(bool answers) noexcept override;

  const std::shared_ptr<store_users> beside_;
  mutable std::mutex mutex_;
  store* behind_;  // guarded by mutex_, as are these
  std::optional<store_request> request_;
  std::optional<task<store_reply>> parting_;
};

}  // namespace manyworlds::inline v0
