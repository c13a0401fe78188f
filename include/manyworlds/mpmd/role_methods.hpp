// Role methods: the answering side of a calls edge.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/mpmd/job_placement.hpp"
#include "manyworlds/time.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

class served_call;

namespace detail {
class role_methods_core;
struct call_head;
}  // namespace detail

/// One call, as the method that answers it sees it. Lifetime: that of the method's task.
class role_call {
 public:
  role_call(const role_call&) = delete;
  role_call& operator=(const role_call&) = delete;

  /// Returns what was sent: any bytes.
  [[nodiscard]] std::string_view data() const noexcept { return data_; }
  /// Returns the method's name.
  [[nodiscard]] std::string_view method() const noexcept { return method_; }
  /// Returns the instance that asks, as it names itself.
  [[nodiscard]] const instance_id& from() const noexcept { return from_; }
  /// Returns the call's id. It is the same where a call that may be repeated is executed
  /// again, perhaps by another instance.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  /// Returns when the asking side stops waiting, in this reactor's time.
  [[nodiscard]] std::optional<time_point> deadline() const noexcept;
  /// Returns a token that is triggered when the answer is no longer wanted; the method's
  /// task is cancelled then as well.
  [[nodiscard]] std::stop_token stop_token() const noexcept;

 private:
  friend class detail::role_methods_core;
  role_call(served_call& call, const detail::call_head& head);

  served_call& call_;
  std::string_view data_;
  std::string_view method_;
  instance_id from_;
  std::uint64_t id_;
};

/// The methods that a role answers at a calls edge, by name.
///
///     mw::role_methods answers;
///     answers.on("double", [](mw::role_call& call) -> mw::task<std::string> {
///       co_return std::string(call.data()) + std::string(call.data());
///     });
///     s.spawn(self.serve("ask", answers));
///
/// A method runs for each call, side by side with the others, 64 at a time for one
/// asking instance; its result is any bytes, up to 16 MiB. An exception of a method
/// travels to the asking side with its text, as cause `handler_failed`.
///
/// Thread: the runtime's reactor. Lifetime: it outlives the tasks that serve and drain.
class role_methods {
 public:
  /// Answers one call. It is called on the reactor.
  using method = std::function<task<std::string>(role_call&)>;

  role_methods();
  role_methods(const role_methods&) = delete;
  role_methods& operator=(const role_methods&) = delete;
  ~role_methods();

  /// Sets what answers calls of that name. Errors: std::invalid_argument for a name that
  /// is empty, longer than 64 bytes or there already, or without a method.
  role_methods& on(std::string name, method answer);
  /// Serves a world of two with one asking instance; `role_context::serve` does so with
  /// all. Errors: those of `call_server::serve`.
  [[nodiscard]] task<void> serve(world& w);
  /// Takes no new calls, and ends when those that were begun have ended. Other instances
  /// get what was on its way here. Meant for `role_context::leaving`. Errors: none.
  [[nodiscard]] task<void> drain();

 private:
  std::unique_ptr<detail::role_methods_core> core_;
};

}  // namespace manyworlds::inline v0
