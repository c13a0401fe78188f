// Native only: error texts for coroutines of other libraries that await what only tasks
// can.
#pragma once

#include <coroutine>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// A base of awaiters that only a task can await.
class native_only {
 public:
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise>) {
    static_assert(sizeof(Promise) == 0,
                  "only a mw::task can await this. A coroutine of another library writes "
                  "co_await mw::resume_on(executor, op), an asio::awaitable "
                  "co_await mw::asio_await(rt.home(), op, asio::use_awaitable)");
  }
};

// clang-format off
template <class Frame>
concept asio_frame = requires(Frame& f) { f.detach_thread(); f.pop_frame(); };
// clang-format on

/// A base of awaitables that only a task can await. `asio::awaitable` takes what can be
/// called with its frame, and nothing that is awaitable, so this call carries the text.
class not_for_asio {
 public:
  template <asio_frame Frame>
  auto operator()(Frame*) {
    static_assert(sizeof(Frame) == 0,
                  "an asio::awaitable takes no foreign awaitable: write "
                  "co_await mw::asio_await(rt.home(), op, asio::use_awaitable), from "
                  "<manyworlds/interop/asio.hpp>");
  }
};

}  // namespace manyworlds::inline v0::detail
