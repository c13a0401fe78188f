// Controller store: through what the worlds of a worker's meshes form: keys that the
// controller of the session has.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/executor.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/spmd/value_writer.hpp"
#include "manyworlds/store/store.hpp"
#include "spmd/received_command.hpp"
#include "spmd/store_question.hpp"

namespace manyworlds::inline v0::detail {

/// The questions of one worker to its controller: which are to be sent, and which wait.
/// They are asked and given up on any thread, and need no turn of the worker's reactor
/// for that: its runtime ends worlds also when that reactor turns no more. Thread:
/// `home`, the worker's reactor, but where `any` is said.
class store_desk : public std::enable_shared_from_this<store_desk> {
 public:
  explicit store_desk(executor& home) noexcept : home_(home) {}
  store_desk(const store_desk&) = delete;
  store_desk& operator=(const store_desk&) = delete;

  struct outgoing {
    std::uint64_t number;
    value_writer values;
  };

  /// Returns whether nothing is answered any longer. Thread: any.
  [[nodiscard]] bool is_over() const noexcept { return is_over_.load(); }

  /// Asks. Gives what `store::perform` gives for this request, and ends as that does.
  /// Thread: any.
  [[nodiscard]] static task<store_reply> ask(std::shared_ptr<store_desk> self,
                                             store_question q, store_request request);
  /// Waits until there is something to send.
  [[nodiscard]] task<void> until_asked();
  /// Takes the first that is to be sent. Precondition: there is one.
  [[nodiscard]] outgoing take_next() noexcept;
  /// Takes an answer; one to a question that is over is dropped. Errors: value_error.
  void take(received_command& answer);
  /// Ends all that waits: the controller is gone, or this worker ends.
  void close() noexcept;

 private:
  class waiting;

  void note_asked() noexcept;
  /// Sees that what is in the outbox is sent.
  void wake() noexcept;
  [[nodiscard]] bool has_some() const;

  executor& home_;
  std::atomic<bool> is_over_{false};
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, waiting*> waiting_;
  std::deque<outgoing> outbox_;
  bool is_woken_ = false;

  kept_member_work<&store_desk::note_asked> wake_{*this};
  event asked_;  ///< of `home`
};

/// The store of one of a mesh's worlds: it has no key of another. It serves what worlds
/// that form ask: `get`, `try_get`, `compare_set` and `erase`; all else is `refused`.
/// Thread: any.
class controller_store final : public store {
 public:
  controller_store(std::shared_ptr<store_desk> desk, std::uint32_t mesh,
                   std::uint64_t number, std::size_t members) noexcept;
  ~controller_store() override { end_users(); }

  [[nodiscard]] std::string trouble() const override;
  [[nodiscard]] std::string address() const override;
  [[nodiscard]] task<store_reply> perform(store_request request) override;

 private:
  const std::shared_ptr<store_desk> desk_;
  const std::uint32_t mesh_;
  const std::uint64_t number_;
  const store_limits limits_;
};

}  // namespace manyworlds::inline v0::detail
