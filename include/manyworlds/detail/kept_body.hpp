// Kept body: a body of `keep`, `accept` or `connect`, without its type.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/body.hpp"

namespace manyworlds::inline v0 {
class world;
}  // namespace manyworlds::inline v0

namespace manyworlds::inline v0::detail {

/// A function of a world that returns a task.
template <class Body>
concept world_body = std::is_invocable_r_v<task<void>, Body&, world&>;

/// Refuses what is no body, with one sentence for all functions that take a body.
template <class Body>
constexpr void check_body() noexcept {
  static_assert(world_body<Body>,
                "a body takes a mw::world& and gives a mw::task<void>: "
                "[&](mw::world& w) -> mw::task<void> {...}");
}

/// Holds a body while it is run in one world after the other, or in several at once.
class kept_body {
 public:
  kept_body() = default;
  kept_body(const kept_body&) = delete;
  kept_body& operator=(const kept_body&) = delete;
  virtual ~kept_body() = default;

  [[nodiscard]] virtual task<void> run_in(world& w) = 0;
};

template <class Body>
class kept_body_of final : public kept_body {
 public:
  template <class B>
  explicit kept_body_of(B&& body) : body_(std::forward<B>(body)) {}

  [[nodiscard]] task<void> run_in(world& w) override { return body_(w); }

 private:
  Body body_;
};

template <class Body>
[[nodiscard]] std::unique_ptr<kept_body> keep_body(Body&& body) {
  check_body<std::decay_t<Body>>();
  return std::make_unique<kept_body_of<std::decay_t<Body>>>(std::forward<Body>(body));
}

}  // namespace manyworlds::inline v0::detail
