// Role workers: the workers of a session that are instances of a role.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "manyworlds/mpmd/job_placement.hpp"
#include "manyworlds/spmd/session_options.hpp"
#include "mpmd/worker_post.hpp"
#include "spmd/worker_source.hpp"
#include "store/store_gate.hpp"

namespace manyworlds::inline v0::detail {

/// Worker k is instance k + 1 of the role; instance 0 is the controller. The job's master
/// and agents start their processes, and start them again: this one takes those that are
/// free. A worker that the session drops is recalled, and is free again; one that does
/// not hear of that is told to the master as lost.
class role_workers final : public worker_source {
 public:
  /// Tells the master that an incarnation of an instance is lost, and why.
  using lost_teller =
      std::function<void(const instance_id&, std::uint64_t, const std::string&)>;

  /// For the session of that incarnation of the controller.
  role_workers(store& keys, std::string role, std::uint64_t controller,
               const session_options& limits, lost_teller tell_lost);

  void name_session(const std::string& name, int workers) override;
  [[nodiscard]] store& meeting() noexcept override { return keys_; }
  [[nodiscard]] bool comes_again() const noexcept override { return true; }
  [[nodiscard]] task<void> start(int worker, std::uint64_t incarnation) override;
  [[nodiscard]] task<std::string> ended(int worker) override;
  [[nodiscard]] task<void> end(int worker, duration patience) override;
  [[nodiscard]] std::int64_t pid(int worker) const noexcept override;

 private:
  struct seat {
    seat(store& keys, instance_id of) : instance(std::move(of)), post(keys, instance) {}

    const instance_id instance;
    worker_post post;
    free_worker process;  ///< the last that was seen
    std::uint64_t session_incarnation = 0;
    bool is_lost = false;  ///< that process was told as lost
  };

  [[nodiscard]] seat& seat_of(int worker) const { return *seats_.at(worker); }
  [[nodiscard]] task<void> invite_next(seat& own, std::string invitation);
  [[nodiscard]] task<void> tell_of_silent(seat& own);
  void tell_lost(const seat& own, const char* why) const;

  /// The session may live on while its program's store ends.
  store_gate keys_;
  const std::string role_;
  const std::uint64_t controller_;
  const session_options limits_;
  const lost_teller tell_lost_;
  std::string session_;
  int count_ = 0;
  std::map<int, std::unique_ptr<seat>> seats_;
};

}  // namespace manyworlds::inline v0::detail
