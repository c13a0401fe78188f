// Worker pool: the workers of one dispatcher, and which of them may get calls.
#pragma once

#include <cstdint>
#include <vector>

#include "manyworlds/serve/dispatcher.hpp"

namespace manyworlds::inline v0::detail {

class call_state;
class client_session;

/// Workers as a `pick` is shown them, each with its session.
struct worker_choice {
  std::vector<worker_status> shown;
  std::vector<client_session*> sessions;

  void add(client_session& s);
};

/// The sessions of the workers that are served, in the order in which they began.
/// Thread: the dispatcher's reactor.
class worker_pool {
 public:
  [[nodiscard]] worker_id next_id() noexcept { return worker_id{++ids_}; }
  void add(client_session& s) { sessions_.push_back(&s); }
  void remove(client_session& s) noexcept;
  [[nodiscard]] const std::vector<client_session*>& sessions() const noexcept {
    return sessions_;
  }
  /// Returns null for a worker that is gone.
  [[nodiscard]] client_session* find(worker_id id) const noexcept;
  [[nodiscard]] std::vector<worker_status> statuses() const;

  void refresh_candidates();
  /// Returns the workers that may get calls, as the last refresh has found them.
  [[nodiscard]] worker_choice& candidates() noexcept { return candidates_; }
  /// Returns whether one of the candidates has a free slot.
  [[nodiscard]] bool has_room() const noexcept;
  /// Returns the workers that were heard from just now and have not had the call.
  [[nodiscard]] worker_choice others_than_its_own(const call_state& c) const;

  /// Returns whether no worker may get calls.
  [[nodiscard]] bool is_alone() const noexcept;
  /// Returns whether a suspect or silent worker has a free slot.
  [[nodiscard]] bool has_room_at_suspects() const noexcept;
  /// Returns whether most workers are silent, or were and have not all been heard
  /// since. Then it is unlikely that each of them was stopped by itself.
  [[nodiscard]] bool looks_frozen() noexcept;

 private:
  std::vector<client_session*> sessions_;
  std::uint64_t ids_ = 0;
  worker_choice candidates_;
  bool is_frozen_ = false;
};

}  // namespace manyworlds::inline v0::detail
