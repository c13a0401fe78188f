// Register book: what the controller knows of registers: which workers have them, which
// call fills them, and how they are made again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/failure.hpp"
#include "spmd/call_record.hpp"
#include "spmd/dropped_registers.hpp"
#include "spmd/register_file.hpp"
#include "spmd/register_table.hpp"

namespace manyworlds::inline v0::detail {

/// A call that can be made again.
struct kept_call {
  std::string function;
  std::uint64_t types = 0;
  std::vector<std::byte> written;
  /// What stood beside the values, which is kept.
  std::vector<std::vector<std::byte>> beside;
  std::vector<register_id> takes;
};

/// One entry for each register that has a name. Thread: the session's reactor.
class register_book {
 public:
  explicit register_book(session_core& session)
      : dropped_(std::make_shared<dropped_registers>(&session)) {}

  /// Names a register. Its handle gives it back.
  [[nodiscard]] register_handle name(std::weak_ptr<session_core> session);
  /// Returns whether the workers' files have no place left.
  [[nodiscard]] bool is_full() const noexcept {
    return table_.is_full(register_file::most_registers);
  }
  [[nodiscard]] bool is_live(register_id which) const noexcept {
    return table_.is_live(which);
  }
  /// Notes that the call is to fill it, on the workers of the call, and how it is made
  /// again there: not, for null.
  void fill(register_id which, const call_record& call,
            std::shared_ptr<const kept_call> again);
  /// Notes that the call has failed: it is not there, unless another has filled it.
  void fail(register_id which, const call_record& call,
            const std::shared_ptr<const failure>& why) noexcept;

  /// Returns the workers that it is for. Precondition: it is live.
  [[nodiscard]] std::vector<int> workers_of(register_id which) const;
  /// Says why a call on that worker cannot take it; nothing if it can.
  [[nodiscard]] std::optional<failure> why_not(register_id which, int worker,
                                               std::uint64_t incarnation) const;
  /// Says why a call on that worker cannot fill it.
  [[nodiscard]] std::optional<failure> why_not_filled(register_id which,
                                                      int worker) const;
  /// Says why it is not there on one of its workers at least.
  [[nodiscard]] std::optional<failure> why_never_made(register_id which) const;

  /// Returns the call that filled it last on that worker, or is to. Precondition: it is
  /// there.
  [[nodiscard]] std::uint64_t maker_of(register_id which, int worker) const noexcept {
    return entries_[which.index].find(worker)->made_by;
  }

  /// Returns those of a worker that can be made again, each behind what it is made of.
  [[nodiscard]] std::vector<register_id> replayable_on(int worker) const;
  /// Precondition: it is one of those.
  [[nodiscard]] std::shared_ptr<const kept_call> kept(register_id which,
                                                      int worker) const {
    return entries_[which.index].find(worker)->again;
  }

  /// Keeps what it holds on worker 0 as long as the register has its name, or until the
  /// next time, and returns it. Precondition: it is live.
  void* keep_local(register_id which, std::shared_ptr<void> value) noexcept {
    entries_[which.index].local = std::move(value);
    return entries_[which.index].local.get();
  }
  void let_locals_go() noexcept {
    for (entry& each : entries_) each.local = nullptr;
  }

  [[nodiscard]] bool has_dropped() const noexcept { return !dropped_->empty(); }
  /// Takes those that were dropped: `use(which, workers)` is called for each, and its
  /// index is free then.
  template <class Use>
  void release_dropped(Use&& use) {
    dropped_->release_all([&](register_id which) {
      use(which, workers_of(which));
      entries_[which.index] = {};
      table_.release(which);
    });
  }
  /// Tells its session no longer. Thread: the one that destroys it.
  void forget_session() noexcept { dropped_->forget_session(); }

 private:
  struct holder {
    int worker;
    /// The incarnation that has it.
    std::uint64_t incarnation;
    /// The call that filled it last here, or is to.
    std::uint64_t made_by;
    std::string function;
    /// Null if it is not replayable.
    std::shared_ptr<const kept_call> again;
    /// Why that call has not filled it; null if it has, or may.
    std::shared_ptr<const failure> never_made;
  };
  struct entry {
    register_id which;
    std::vector<holder> on;
    /// The first call that was to fill it.
    std::uint64_t named_by = 0;
    std::string function;
    /// What `session::local` has given.
    std::shared_ptr<void> local;

    [[nodiscard]] const holder* find(int worker) const noexcept {
      for (const holder& each : on) {
        if (each.worker == worker) return &each;
      }
      return nullptr;
    }
  };

  register_table table_;
  std::vector<entry> entries_;
  std::shared_ptr<dropped_registers> dropped_;
};

}  // namespace manyworlds::inline v0::detail
