// Remote callable: a function of a worker without its types.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/task_value.hpp"
#include "manyworlds/detail/type_token.hpp"
#include "manyworlds/spmd/any_value.hpp"
#include "manyworlds/spmd/remote_function.hpp"
#include "manyworlds/spmd/worker.hpp"

namespace manyworlds::inline v0::detail {

/// What a register of a worker holds.
struct held_value {
  std::shared_ptr<void> value;
  /// Nothing if the register holds nothing.
  std::optional<type_token> type;
  /// Returns a copy of the value; null if it cannot travel.
  any_value (*read)(const void* value) = nullptr;
};

template <class T>
[[nodiscard]] any_value read_held(const void* value) {
  return *static_cast<const T*>(value);
}

/// Throws value_error if a register holds a value of another type.
void check_type(const held_value& held, type_token wanted);

/// Finds the registers that a call names.
class register_lookup {
 public:
  /// Returns what the register holds. Errors: value_error that says why it holds nothing.
  [[nodiscard]] virtual const held_value& find(register_id which) = 0;

 protected:
  ~register_lookup() = default;
};

/// One call while it is executed: its arguments, and what it gives.
class call_frame {
 public:
  call_frame(value_reader arguments, register_lookup& registers,
             bool wants_value) noexcept
      : arguments_(std::move(arguments)),
        registers_(registers),
        wants_value_(wants_value) {}

  /// Says how many arguments the function takes.
  void expect(std::size_t parameters) noexcept { parameters_ = parameters; }
  /// Reads the next argument. Errors: value_error, and whatever `argument<T>` throws.
  template <class T>
  [[nodiscard]] T take_value() {
    begin_argument();
    if constexpr (std::is_same_v<T, any_value>) {
      return take_any();
    } else {
      return argument<T>::read(arguments_);
    }
  }
  /// Reads the next argument, which names a register, and returns what that holds.
  template <class T>
  [[nodiscard]] T& take_register() {
    begin_argument();
    const held_value& held = find_held(type_token::of<T>().name());
    check_type(held, type_token::of<T>());
    return *static_cast<T*>(held.value.get());
  }
  /// Reads the next argument, which names a register of any type.
  [[nodiscard]] const held_value& take_held() {
    begin_argument();
    return find_held("any type");
  }
  /// Reads all arguments that are left.
  [[nodiscard]] std::vector<any_value> take_rest();
  /// Returns the number of the argument that was read last, from 1 on.
  [[nodiscard]] std::size_t taken() const noexcept { return taken_; }
  /// Throws value_error unless all arguments were read. The function begins then.
  void expect_end();
  /// Returns whether errors are the function's.
  [[nodiscard]] bool has_begun() const noexcept { return has_begun_; }

  /// Keeps what the function gave, and writes the answer if its value is wanted; that of
  /// a value that lies on a device is left to `fetch_answer`.
  template <class T>
  void give(T&& result) {
    using kept = std::remove_cvref_t<T>;
    const auto held = std::make_shared<kept>(std::forward<T>(result));
    held_ = {held, type_token::of<kept>()};
    if constexpr (remote_value<kept>) held_.read = &read_held<kept>;
    if (!wants_value_) return;
    if constexpr (std::is_same_v<kept, tensor>) {
      if (!held->place().is_host()) {
        to_fetch_ = held;
        return;
      }
    }
    // Of what is kept: large data is only referred to.
    if constexpr (remote_value<kept>) {
      argument<kept>::write(answer_, *held);
    } else {
      refuse_value(type_token::of<kept>());
    }
  }
  void give_nothing() {
    if (wants_value_) answer_.none();
  }
  [[nodiscard]] bool has_to_fetch() const noexcept { return to_fetch_ != nullptr; }
  /// Writes the answer of a value that lies on a device. Precondition: it has to. Thread:
  /// the worker's reactor. Errors: device_error.
  [[nodiscard]] task<void> fetch_answer();

  /// Returns the value, if one was wanted. Lifetime: what it refers to is kept here,
  /// until `take_result`.
  [[nodiscard]] const value_writer& answer() const noexcept { return answer_; }
  [[nodiscard]] held_value take_result() noexcept { return std::move(held_); }

 private:
  void begin_argument();
  [[nodiscard]] any_value take_any();
  [[nodiscard]] const held_value& find_held(std::string_view wanted);
  [[noreturn]] static void refuse_value(type_token type);

  value_reader arguments_;
  register_lookup& registers_;
  value_writer answer_;
  held_value held_;
  /// A tensor that is to be the answer, and a copy of it in host memory.
  std::shared_ptr<const tensor> to_fetch_;
  tensor fetched_;
  std::size_t taken_ = 0;
  std::size_t parameters_ = 0;
  bool wants_value_;
  bool has_begun_ = false;
};

/// A function with its types erased.
class remote_callable {
 public:
  remote_callable(value_code types, std::size_t parameters) noexcept
      : types_(types), parameters_(parameters) {}
  remote_callable(const remote_callable&) = delete;
  remote_callable& operator=(const remote_callable&) = delete;
  virtual ~remote_callable() = default;

  /// Reads the arguments, runs the function and keeps what it gives. Lifetime: worker and
  /// frame outlive the task. Errors: value_error if an argument does not fit, before the
  /// function has begun; what the function throws.
  [[nodiscard]] virtual task<void> run(worker& me, call_frame& frame) const = 0;

  [[nodiscard]] value_code types() const noexcept { return types_; }
  [[nodiscard]] std::size_t parameters() const noexcept { return parameters_; }

 private:
  value_code types_;
  std::size_t parameters_;
};

/// An argument from when it was read until the function is called.
template <class P>
struct read_argument {
  explicit read_argument(call_frame& frame) : value(frame.take_value<P>()) {}
  P&& give() noexcept { return std::move(value); }
  P value;
};
template <class P>
requires std::is_lvalue_reference_v<P>
struct read_argument<P> {
  using held = std::remove_cvref_t<P>;
  explicit read_argument(call_frame& frame) : value(frame.take_register<held>()) {}
  P give() noexcept { return value; }
  held& value;
};
/// A register of any type, as a value.
template <>
struct read_argument<const any_value&> {
  explicit read_argument(call_frame& frame) : value(frame.take_value<any_value>()) {}
  const any_value& give() noexcept { return value; }
  any_value value;
};
/// A register of any type, as it is kept.
template <>
struct read_argument<const held_value&> {
  explicit read_argument(call_frame& frame) : value(frame.take_held()) {}
  const held_value& give() noexcept { return value; }
  const held_value& value;
};
template <>
struct read_argument<any_parameters> {
  explicit read_argument(call_frame& frame) : values(frame.take_rest()) {}
  any_parameters give() noexcept { return values; }
  std::vector<any_value> values;
};

/// Holds for what can run as a function of these types, with the worker in front or
/// without it.
template <class F, class... P>
concept takes_worker = std::is_invocable_v<const F&, worker&, P...>;
template <class F, class... P>
concept takes_arguments = takes_worker<F, P...> || std::is_invocable_v<const F&, P...>;

template <class F, class... P>
decltype(auto) invoke_remote(const F& run, worker& me, P... arguments) {
  if constexpr (takes_worker<F, P...>) {
    return run(me, std::forward<P>(arguments)...);
  } else {
    return run(std::forward<P>(arguments)...);
  }
}

/// What the function gives, after an await where it is a task.
template <class F, class... P>
using remote_returned = decltype(invoke_remote<F, P...>(
    std::declval<const F&>(), std::declval<worker&>(), std::declval<P>()...));

template <class F, class... P>
using remote_result = typename task_value<remote_returned<F, P...>>::type;

template <class F, class Result, class... P>
class typed_callable final : public remote_callable {
 public:
  explicit typed_callable(F run)
      : remote_callable(signature_code<Result, P...>(), sizeof...(P)),
        run_(std::move(run)) {}

  [[nodiscard]] task<void> run(worker& me, call_frame& frame) const override {
    frame.expect(sizeof...(P));
    // Braces order the reads.
    std::tuple<read_argument<P>...> read{read_argument<P>(frame)...};
    frame.expect_end();
    using returned = remote_returned<F, P...>;
    const auto call = [&](auto&... each) -> returned {
      return invoke_remote<F, P...>(run_, me, each.give()...);
    };
    if constexpr (task_value<returned>::is_task) {
      task<typename task_value<returned>::type> running = std::apply(call, read);
      if constexpr (std::is_void_v<Result>) {
        co_await std::move(running);
        frame.give_nothing();
      } else {
        Result result = co_await std::move(running);
        frame.give(std::move(result));
      }
    } else if constexpr (std::is_void_v<Result>) {
      std::apply(call, read);
      frame.give_nothing();
    } else {
      Result result = std::apply(call, read);
      frame.give(std::move(result));
    }
    co_return;
  }

 private:
  F run_;
};

}  // namespace manyworlds::inline v0::detail
