// Launch keys: under which prefix the keys of one attempt stand, agreed by its members.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/launch/launch_store.hpp"

namespace manyworlds::inline v0::detail {

/// The client of a job's store, with the prefix that its members agree on.
///
/// Rank 0 draws the nonce from a counter, so that no other attempt has it. Every other
/// member leaves a random token under its rank and rings a bell; rank 0 answers under the
/// name of the token. What members of dead attempts have left is harmless: their tokens
/// are answered and not read, their answers stand under names that no living member has,
/// and a rank 0 that is dead answers nothing. So a member has the nonce of a rank 0 that
/// lived after the member began, no matter which of them came first.
///
/// Thread: the service reactor's, except for what says otherwise.
class launch_keys : public std::enable_shared_from_this<launch_keys> {
 public:
  launch_keys(runtime& rt, const launch_context& job, const std::string& endpoint,
              const tcp_store_options& client);

  /// Agrees on the nonce, shows that this member is there and, at rank 0, answers the
  /// others. Runs until it is cancelled.
  [[nodiscard]] static task<void> serve(std::shared_ptr<launch_keys> self);
  /// Ends `serve`. Thread: any.
  void stop() noexcept { stop_.request_stop(); }
  /// Returns whether `serve` shows rank 0 that this member is there, and ends then.
  [[nodiscard]] bool shows_presence() const noexcept { return is_hosted_ && rank_ != 0; }

  /// Performs a request under the prefix. Thread: any.
  [[nodiscard]] static task<store_reply> perform(std::shared_ptr<launch_keys> self,
                                                 store_request request);
  /// Waits until every other member has come. Errors: store_error at the limit.
  [[nodiscard]] task<void> all_have_come(duration limit);

  /// Returns the prefix; empty before it is agreed. Thread: any.
  [[nodiscard]] std::string prefix() const;
  /// Thread: any.
  [[nodiscard]] std::string trouble() const;

 private:
  [[nodiscard]] task<void> take_part();
  [[nodiscard]] task<void> lead();
  [[nodiscard]] task<void> answer_all(std::string nonce);
  [[nodiscard]] task<void> follow();
  [[nodiscard]] task<void> show_presence();
  [[nodiscard]] task<void> until_agreed(store_operation what, std::string key,
                                        duration limit);
  void agree(const std::string& nonce);
  void note(const store_error& e);

  const rank_t rank_;
  const rank_t size_;
  /// "manyworlds/RUN/".
  const std::string run_;
  const std::string fixed_nonce_;
  const std::string token_;
  const bool is_hosted_;
  executor& service_;
  tcp_store client_;
  std::stop_source stop_;
  event settled_;  ///< the nonce is agreed, or there is a refusal
  /// What the store has said last that is no store, or has another secret. It is tried
  /// again, but no operation waits for that.
  std::optional<store_failure> refusal_;
  /// Written once, before `is_agreed_`.
  std::string prefix_;
  std::atomic<bool> is_agreed_{false};
};

}  // namespace manyworlds::inline v0::detail
