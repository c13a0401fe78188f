// Launch store: the store of a job, wherever its launcher has put it.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "manyworlds/launch/launch_context.hpp"
#include "manyworlds/serve/hosted_store.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "manyworlds/world/runtime.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class launch_keys;
}  // namespace detail

/// Options of a job's store.
struct launch_store_options {
  /// Where rank 0 tells by PMIx where the store is, all members must have come by then.
  duration join = std::chrono::seconds(60);
  /// Rank 0, which hosts the store, stays this long at most for the others to be done.
  duration linger = std::chrono::seconds(10);
  tcp_store_options client = {};
};

/// Is a client of the launcher's store. Where there is none, rank 0 hosts one, and this
/// is a client of that.
///
///     const auto job = mw::launch_context::from_environment();
///     mw::runtime rt(job.runtime());
///     mw::launch_store store(rt, job);
///     co_await store.set("model", "/models/7b");  // for this attempt's members
///     mw::world w(rt, store, job.world("main"));
///
/// All keys stand under "manyworlds/RUN/NONCE/", where no other attempt has the nonce. It
/// is the attempt if the launcher says one number to all (mwrun). Where rank 0 hosts the
/// store it needs none, since the keys end with rank 0. A store that outlives attempts,
/// as torchrun's does, keeps the keys of dead ones. There rank 0 draws a number that was
/// never drawn, and each other member takes it from this rank 0 and no earlier one.
/// Operations wait for that, within their limit. So rank 0 must be there, and when it is
/// replaced all others must be.
///
/// The destructor of rank 0's keeps its server until all others have come and gone, at
/// most for `linger`, and not at all if the runtime is stopping. Lifetime: the runtime
/// must outlive it. A process has one.
///
/// Errors: operations throw store_error; it is `unreachable` while rank 0 is not there.
class launch_store final : public store {
 public:
  /// Errors: launch_error where the job's words lead to no store; std::system_error if
  /// its address is in use; std::invalid_argument for a store beyond loopback without
  /// `insecure`; std::runtime_error if PMIx fails, or not all have come in time.
  launch_store(runtime& rt, const launch_context& job, launch_store_options options = {});
  ~launch_store() override;

  /// Returns "tcp://host:port".
  [[nodiscard]] std::string address() const override;
  [[nodiscard]] std::string trouble() const override;
  task<store_reply> perform(store_request request) override;

  /// Returns whether this process hosts the store.
  [[nodiscard]] bool is_host() const noexcept { return host_ != nullptr; }
  /// Returns what stands in front of all keys; empty until it is agreed. Thread: any.
  [[nodiscard]] std::string prefix() const;

 private:
  void wait_for_the_others() noexcept;

  runtime& runtime_;
  launch_store_options options_;
  rank_t size_;
  std::unique_ptr<hosted_store> host_;
  std::string endpoint_;
  std::shared_ptr<detail::launch_keys> keys_;
  started<void> beside_;
};

}  // namespace manyworlds::inline v0
