// Runtime core: the reactors, the endpoint and the directory of one runtime. Outlives
// every handle that refers to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/io/environment.hpp"
#include "manyworlds/link/endpoint.hpp"
#include "manyworlds/memory/pool_registry.hpp"
#include "manyworlds/nccl/runtime_devices.hpp"
#include "manyworlds/observe/log.hpp"
#include "manyworlds/observe/reporter.hpp"
#include "manyworlds/observe/tally.hpp"
#include "manyworlds/world/directory.hpp"
#include "manyworlds/world/notice.hpp"
#include "manyworlds/world/operation_ledger.hpp"
#include "manyworlds/world/runtime_options.hpp"
#include "manyworlds/world/world_event.hpp"

namespace manyworlds::inline v0 {

class runtime_core final : public std::enable_shared_from_this<runtime_core>,
                           private endpoint_events {
 public:
  /// Makes the reactors and starts to listen; turns nothing yet. Throws what `endpoint`
  /// throws.
  explicit runtime_core(const runtime_options& options);
  ~runtime_core();
  runtime_core(const runtime_core&) = delete;
  runtime_core& operator=(const runtime_core&) = delete;

  [[nodiscard]] environment& env() noexcept { return *env_; }
  [[nodiscard]] reactor& user() noexcept { return *user_; }
  [[nodiscard]] reactor& service() noexcept { return *service_; }
  [[nodiscard]] endpoint& peers() noexcept { return *endpoint_; }
  [[nodiscard]] world_directory& worlds() noexcept { return *directory_; }
  [[nodiscard]] operation_ledger& ledger() noexcept { return ledger_; }
  [[nodiscard]] const std::shared_ptr<pool_registry>& pools() const noexcept {
    return pools_;
  }
  /// The GPUs, from the first time that somebody asks. Any thread.
  [[nodiscard]] runtime_devices& devices();
  /// When no world is left on them.
  void end_devices() noexcept;
  [[nodiscard]] reporter& reports() noexcept { return *reporter_; }
  [[nodiscard]] serving_tally& serving() noexcept { return serving_; }
  [[nodiscard]] const runtime_options& options() const noexcept { return options_; }
  [[nodiscard]] const process_address& self() const noexcept { return endpoint_->self(); }

  /// What the service thread does: runs the endpoint until `end_service`.
  [[nodiscard]] task<void> serve();
  /// From any thread; `serve` ends after at most `patience`.
  void end_service(duration patience) noexcept;

  /// What is known here of the holder of a rank. On the service reactor.
  [[nodiscard]] claim_answer answer(const claim_query& query);

  /// No world may be formed any more. Any thread.
  void refuse_worlds() noexcept {
    refuses_worlds_.store(true);
    stopping_.set();
    draining_.request_stop();
  }
  [[nodiscard]] bool refuses_worlds() const noexcept { return refuses_worlds_.load(); }
  /// One more world is shrunk on the service thread, until `end_shrinking`: the runtime's
  /// end waits for that. False, and not counted, if worlds are refused.
  [[nodiscard]] bool begin_shrinking() noexcept {
    // Counted, then asked; `refuse_worlds` says it, then the end looks at the count.
    shrinkings_.fetch_add(1);
    if (!refuses_worlds()) return true;
    end_shrinking();
    return false;
  }
  void end_shrinking() noexcept { shrinkings_.fetch_sub(1); }
  [[nodiscard]] bool is_shrinking() const noexcept { return shrinkings_.load() != 0; }
  /// Set when worlds are refused, for those who would form them. Any thread; a task waits
  /// for it by `co_await stopping().wait()`.
  [[nodiscard]] notice& stopping() noexcept { return stopping_; }
  /// The same as a stop token: `runtime::draining`. Any thread.
  [[nodiscard]] std::stop_token draining() const noexcept {
    return draining_.get_token();
  }
  /// Who is told of its worlds. Any thread.
  [[nodiscard]] world_event_hub& events() noexcept { return events_; }

  /// Nobody turns the reactors any more.
  void note_end() noexcept {
    has_ended_.store(true);
    events_.close();
  }
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_.load(); }

  void log(log_level level, std::string_view line) const noexcept;
  [[nodiscard]] bool logs(log_level level) const noexcept;

  [[nodiscard]] std::uint64_t random_word();
  /// Between 0 and `most`.
  [[nodiscard]] duration jitter(duration most);

  /// True in a child that a fork made: nothing of the runtime works there.
  [[nodiscard]] bool is_forked_child() const noexcept;
  /// Only in a forked child: the kernel objects are shared with the parent and stay
  /// untouched.
  void keep_for_ever() noexcept { keeps_itself_ = shared_from_this(); }
  [[nodiscard]] std::uint64_t next_instance() noexcept { return instances_.fetch_add(1); }

 private:
  void link_message(const std::shared_ptr<link>& l,
                    std::span<const std::byte> message) override;
  void link_ended(const std::shared_ptr<link>& l, enum cause why,
                  const std::string& detail) noexcept override;
  void slot_offered(const std::shared_ptr<link>& l, std::uint64_t world_id, rank_t rank,
                    slot_lease slot) override;
  void data_connection(stream connection, const hello& words) override;
  task<bytes> answer_query(bytes question) override;
  void examine_silence(time_point now) noexcept override;
  void remark(log_level level, std::string line) noexcept override;

  const runtime_options options_;
  std::unique_ptr<environment> own_env_;
  environment* env_;
  const std::shared_ptr<pool_registry> pools_ = std::make_shared<pool_registry>();
  std::unique_ptr<reactor> user_;
  std::unique_ptr<reactor> service_;
  std::unique_ptr<world_directory> directory_;
  std::unique_ptr<endpoint> endpoint_;
  operation_ledger ledger_;
  serving_tally serving_;
  std::unique_ptr<reporter> reporter_;
  std::atomic<std::uint64_t> instances_{1};
  std::atomic<bool> refuses_worlds_{false};
  std::atomic<int> shrinkings_{0};
  notice stopping_;
  std::stop_source draining_;
  world_event_hub events_;
  std::atomic<bool> has_ended_{false};
  std::mutex random_mutex_;
  std::mutex devices_mutex_;
  std::unique_ptr<runtime_devices> devices_;
  std::shared_ptr<runtime_core> keeps_itself_;
  /// One page that a forked child sees wiped.
  volatile unsigned char* fork_mark_ = nullptr;

  struct ending final : work {
    explicit ending(runtime_core& rt) noexcept;
    runtime_core& core;
    duration patience{};
    bool posted = false;
  } ending_{*this};
};

}  // namespace manyworlds::inline v0
