// Dropped registers: what drefs leave behind when they are dropped, until it is released.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "manyworlds/spmd/value_writer.hpp"

namespace manyworlds::inline v0::detail {

class dropped_registers;
class session_core;

/// What a dref refers to. It is allocated with the dref, so that dropping one allocates
/// nothing.
class register_node {
 public:
  register_node(register_id which, std::shared_ptr<dropped_registers> to,
                std::weak_ptr<session_core> session = {}) noexcept
      : id(which), of(std::move(session)), goes_to(std::move(to)) {}
  register_node(const register_node&) = delete;
  register_node& operator=(const register_node&) = delete;

  const register_id id;
  const std::weak_ptr<session_core> of;

 private:
  friend class dropped_registers;
  std::shared_ptr<dropped_registers> goes_to;
  register_node* next = nullptr;
};

/// A stack without a lock: any thread pushes, the session takes all at once, so that no
/// pop can see a node that was pushed again (Treiber 1986, without its ABA problem).
class dropped_registers {
 public:
  /// The session is told of drops, if there is one.
  explicit dropped_registers(session_core* session = nullptr) noexcept
      : session_(session) {}
  dropped_registers(const dropped_registers&) = delete;
  dropped_registers& operator=(const dropped_registers&) = delete;
  ~dropped_registers() { free_all(take()); }

  /// Takes over a node. Thread: any. Lifetime: the list may end here, with its last node.
  static void drop(std::unique_ptr<register_node> node) noexcept {
    // The node keeps the list, which must outlive the push.
    const std::shared_ptr<dropped_registers> list = std::move(node->goes_to);
    register_node* const pushed = node.release();
    register_node* head = list->head_.load(std::memory_order_relaxed);
    do {
      pushed->next = head;
      // Release: pairs with the acquire of `take`, which reads the nodes.
    } while (!list->head_.compare_exchange_weak(head, pushed, std::memory_order_release,
                                                std::memory_order_relaxed));
    list->tell_session();
  }
  /// Tells it no longer. Thread: the one that destroys the session.
  void forget_session() noexcept {
    const std::lock_guard lock(mutex_);
    session_ = nullptr;
  }

  /// Calls `use(register_id)` for each that was dropped, the latest first. Thread: the
  /// session's reactor.
  template <class Use>
  void release_all(Use&& use) {
    register_node* node = take();
    for (register_node* each = node; each != nullptr; each = each->next) use(each->id);
    free_all(node);
  }
  /// Returns whether any waits. Thread: any.
  [[nodiscard]] bool empty() const noexcept {
    return head_.load(std::memory_order_relaxed) == nullptr;
  }

 private:
  [[nodiscard]] register_node* take() noexcept {
    return head_.exchange(nullptr, std::memory_order_acquire);
  }
  static void free_all(register_node* first) noexcept {
    while (first != nullptr) delete std::exchange(first, first->next);
  }

  void tell_session() noexcept;

  std::atomic<register_node*> head_{nullptr};
  std::mutex mutex_;
  session_core* session_;  // guarded by mutex_
};

}  // namespace manyworlds::inline v0::detail
