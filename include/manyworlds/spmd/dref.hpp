// Dref: the controller's handle on a register, of which each worker of a mesh has one.
#pragma once

#include <concepts>
#include <memory>
#include <utility>

#include "manyworlds/detail/config.hpp"
#include "manyworlds/detail/native_only.hpp"
#include "manyworlds/detail/remote_request.hpp"
#include "manyworlds/source_position.hpp"

namespace manyworlds::inline v0 {

class any_value;

/// Refers to a value on each worker of a mesh: what a call gave there. Its T need not be
/// known here; the workers check it.
///
///     mw::dref<layer> weights = co_await tp.call(fetch, path, 0);
///     mw::dref<mw::tensor> output = co_await tp.issue(mlp, weights, input);
///     co_await output;  // until the call that fills it has ended everywhere
///
/// It is movable, and what was moved from refers to nothing. When it is dropped, the
/// workers let the value go, behind the last call that uses it. Thread: it may be dropped
/// on any; all else on the session's reactor. Lifetime: it may outlive its session.
///
/// Errors: `co_await` throws the `call_error` of the call that should have filled it, if
/// that was not told yet; later it throws it again, as `register_lost`.
template <class T>
class [[nodiscard("the value is let go when it is dropped")]] dref
    : public detail::not_for_asio {
 public:
  using value_type = T;

  dref() noexcept = default;
  dref(dref && other) noexcept = default;
  dref& operator=(dref&& other) noexcept = default;
  // Compilers print the line, and the reason with it.
  dref(const dref&) = delete;  // one handle: std::move it, or pass a const mw::dref<T>&
  dref& operator=(const dref&) = delete;
  ~dref() = default;

  /// Returns whether it refers to a register.
  [[nodiscard]] explicit operator bool() const noexcept { return node_ != nullptr; }

  /// Says which type the registers have that an `any_function` gave. It is not known
  /// here: the workers refuse a call that uses another.
  template <class U>
  requires std::same_as<T, any_value>
  [[nodiscard]] dref<U> as()&& noexcept {
    return detail::access::make<dref<U>>(std::move(node_));
  }

  /// Waits until the call that fills it has ended on all workers of its mesh. It must not
  /// be dropped meanwhile. Errors: those of `mesh`, and as said above.
  [[nodiscard]] detail::sync_awaiter operator co_await() const {
    return detail::await_register(node_.get(), source_position()).operator co_await();
  }

 private:
  friend struct detail::access;
  explicit dref(detail::register_handle node) noexcept : node_(std::move(node)) {}
  /// What `detail::access::core` gives.
  [[nodiscard]] const detail::register_node* existing_core() const noexcept {
    return node_.get();
  }

  detail::register_handle node_;
};

}  // namespace manyworlds::inline v0
