// Runtime core: the reactors, the endpoint and the world router of one runtime. It
// outlives every handle that refers to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "coro/event_hub.hpp"
#include "link/endpoint.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/detail/notice.hpp"
#include "manyworlds/detail/pool_registry.hpp"
#include "manyworlds/io/environment.hpp"
#include "manyworlds/observe/log.hpp"
#include "manyworlds/world/runtime_options.hpp"
#include "manyworlds/world/world_event.hpp"
#include "nccl/runtime_devices.hpp"
#include "observe/reporter.hpp"
#include "observe/tally.hpp"
#include "world/operation_history.hpp"
#include "world/world_router.hpp"

namespace manyworlds::inline v0::detail {

class runtime_core final : public std::enable_shared_from_this<runtime_core> {
 public:
  /// Makes the reactors and starts to listen; turns nothing yet. Errors: those of
  /// `endpoint`.
  explicit runtime_core(const runtime_options& options);
  ~runtime_core();
  runtime_core(const runtime_core&) = delete;
  runtime_core& operator=(const runtime_core&) = delete;

  [[nodiscard]] environment& env() noexcept { return *env_; }
  [[nodiscard]] reactor& user() noexcept { return *user_; }
  [[nodiscard]] reactor& service() noexcept { return *service_; }
  [[nodiscard]] endpoint& peers() noexcept { return *endpoint_; }
  [[nodiscard]] world_router& worlds() noexcept { return *router_; }
  [[nodiscard]] operation_history& history() noexcept { return history_; }
  [[nodiscard]] const std::shared_ptr<pool_registry>& pools() const noexcept {
    return pools_;
  }
  /// Returns the GPUs, which the first call opens. Thread: any.
  [[nodiscard]] runtime_devices& devices();
  /// Closes the GPUs. Precondition: no world is left on them.
  void end_devices() noexcept;
  [[nodiscard]] reporter& reports() noexcept { return *reporter_; }
  [[nodiscard]] serving_tally& serving() noexcept { return serving_; }
  [[nodiscard]] const runtime_options& options() const noexcept { return options_; }
  [[nodiscard]] const process_address& self() const noexcept { return endpoint_->self(); }

  /// Runs the endpoint until `end_service`. Thread: the service thread.
  [[nodiscard]] task<void> serve();
  /// Ends `serve`, which says goodbye for at most `patience`. Called by the thread that
  /// ends the runtime.
  void end_service(duration patience) noexcept;

  /// Refuses to form worlds from now on. Thread: any.
  void refuse_worlds() noexcept {
    refuses_worlds_.store(true);
    stopping_.set();
    draining_.request_stop();
  }
  [[nodiscard]] bool refuses_worlds() const noexcept { return refuses_worlds_.load(); }
  /// Counts a world that is shrunk on the service thread, until `end_shrinking`: the
  /// end of the runtime waits for it. False, and not counted, if worlds are refused.
  [[nodiscard]] bool begin_shrinking() noexcept {
    // Count first, then look at the flag: `refuse_worlds` sets the flag first, and the
    // end of the runtime then looks at the count.
    shrinkings_.fetch_add(1);
    if (!refuses_worlds()) return true;
    end_shrinking();
    return false;
  }
  void end_shrinking() noexcept {
    [[maybe_unused]] const int before = shrinkings_.fetch_sub(1);
    MW_ASSERT(before > 0, "a shrinking that ends was counted when it began");
  }
  [[nodiscard]] bool is_shrinking() const noexcept { return shrinkings_.load() != 0; }
  /// Returns a notice that is set when worlds are refused. Thread: any.
  [[nodiscard]] notice& stopping() noexcept { return stopping_; }
  /// Returns the same as a stop token: `runtime::draining`. Thread: any.
  [[nodiscard]] std::stop_token draining() const noexcept {
    return draining_.get_token();
  }
  /// Returns the subscribers of its worlds' events. Thread: any.
  [[nodiscard]] event_hub<world_event>& events() noexcept { return events_; }

  /// Notes that the reactors are no longer turned.
  void note_end() noexcept {
    has_ended_.store(true);
    events_.close();
  }
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_.load(); }

  void log(log_level level, std::string_view line) const noexcept;
  [[nodiscard]] bool logs(log_level level) const noexcept;

  [[nodiscard]] std::uint64_t random_word();
  /// Returns a random time between 0 and `most`. Precondition: `most` is not negative.
  [[nodiscard]] duration jitter(duration most);

  /// Returns true in a child that a fork made: nothing of the runtime works there.
  [[nodiscard]] bool is_forked_child() const noexcept;
  /// Never frees this object: for a forked child, which shares the kernel objects with
  /// its parent, and for what an ending runtime leaves behind.
  void keep_for_ever() noexcept { keeps_itself_ = shared_from_this(); }
  [[nodiscard]] std::uint64_t next_instance() noexcept { return instances_.fetch_add(1); }

 private:
  void say_goodbye() noexcept;

  const runtime_options options_;
  std::unique_ptr<environment> own_env_;
  environment* env_;
  const std::shared_ptr<pool_registry> pools_ = std::make_shared<pool_registry>();
  std::unique_ptr<reactor> user_;
  std::unique_ptr<reactor> service_;
  std::unique_ptr<world_router> router_;
  std::unique_ptr<endpoint> endpoint_;
  operation_history history_;
  serving_tally serving_;
  std::unique_ptr<reporter> reporter_;
  std::atomic<std::uint64_t> instances_{1};
  std::atomic<bool> refuses_worlds_{false};
  std::atomic<int> shrinkings_{0};
  notice stopping_;
  std::stop_source draining_;
  event_hub<world_event> events_;
  std::atomic<bool> has_ended_{false};
  std::mutex random_mutex_;
  std::mutex devices_mutex_;
  std::unique_ptr<runtime_devices> devices_;
  std::shared_ptr<runtime_core> keeps_itself_;
  volatile unsigned char* fork_mark_ = nullptr;  ///< a page, wiped in a forked child

  bool ends_service_ = false;
  duration goodbye_patience_{};
  member_work<&runtime_core::say_goodbye> goodbye_{*this};
};

}  // namespace manyworlds::inline v0::detail
