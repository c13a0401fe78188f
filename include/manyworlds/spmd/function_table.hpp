// Function table: the functions that a worker runs, by their names.
#pragma once

#include <concepts>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "manyworlds/detail/remote_callable.hpp"
#include "manyworlds/spmd/any_function.hpp"
#include "manyworlds/spmd/remote_function.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// A function that runs on the worker's compute thread.
template <class F>
struct blocking_function {
  F run;
};

template <class F>
inline constexpr bool is_blocking = false;
template <class F>
inline constexpr bool is_blocking<blocking_function<F>> = true;

/// Returns the function itself.
template <class F>
[[nodiscard]] F without_blocking(F run) {
  return run;
}
template <class F>
[[nodiscard]] F without_blocking(blocking_function<F> marked) {
  return std::move(marked.run);
}

/// Whether a function of type F may stand behind a name of these types.
template <class F, class Result, class... P>
[[nodiscard]] consteval bool fits_name() {
  if constexpr (!takes_arguments<F, P...>) {
    return false;
  } else {
    return std::is_same_v<remote_result<F, P...>, Result>;
  }
}

}  // namespace detail

/// Makes a plain function run on the worker's compute thread, always the same one, where
/// it may block. All others run on the worker's reactor: tasks, and plain functions that
/// are short.
///
///     const mw::function_table table{{step, mw::blocking(run_step)}};
template <class F>
[[nodiscard]] constexpr detail::blocking_function<std::decay_t<F>> blocking(F&& run) {
  return {std::forward<F>(run)};
}

/// The functions that a worker runs, each under a name that the controller shares. Tables
/// are objects; nothing registers itself.
///
///     const mw::function_table functions{
///         {fetch, run_fetch}, {mlp, run_mlp}, {pick, run_pick}};
///     const auto* const found = functions.find("mlp");
///
/// A function takes what its name says, perhaps with a `mw::worker&` in front, and gives
/// the result or a task of it. It is kept by value. One behind a `mw::any_function` takes
/// all arguments that a call gives, as `std::span<const mw::any_value>`, and is found by
/// calls of such names only.
///
/// Thread: any, as nothing changes after it was made. Errors: std::invalid_argument for a
/// name that is empty, has more than 255 bytes, or stands there twice.
class function_table {
 public:
  /// One function with its name.
  class entry {
   public:
    template <class Result, class... P, class F>
    entry(remote_function<Result(P...)> name, F run)
        : name_(name.name()),
          is_alone_(name.is_alone()),
          blocks_(detail::is_blocking<F>) {
      using plain = decltype(detail::without_blocking(std::move(run)));
      constexpr bool fits = detail::fits_name<plain, Result, P...>();
      static_assert(fits,
                    "the function must take the parameters of its name, perhaps behind a "
                    "mw::worker&, and give its result or a mw::task of it");
      if constexpr (fits) keep<Result, P...>(std::move(run));
    }
    template <class F>
    entry(const any_function& name, F run)
        : name_(name.name()),
          is_alone_(name.is_alone()),
          blocks_(detail::is_blocking<F>) {
      using plain = decltype(detail::without_blocking(std::move(run)));
      constexpr bool fits = detail::takes_arguments<plain, detail::any_parameters>;
      static_assert(fits,
                    "the function must take a std::span<const mw::any_value>, perhaps "
                    "behind a mw::worker&");
      if constexpr (fits) {
        using result = detail::remote_result<plain, detail::any_parameters>;
        static_assert(detail::register_result<result>,
                      "a remote function gives nothing or an object: no reference, "
                      "pointer or array");
        keep<result, detail::any_parameters>(std::move(run));
      }
    }

    [[nodiscard]] std::string_view name() const noexcept { return name_; }
    [[nodiscard]] bool is_alone() const noexcept { return is_alone_; }
    /// Returns whether it runs on the compute thread.
    [[nodiscard]] bool blocks() const noexcept { return blocks_; }

   private:
    friend struct detail::access;
    /// What `detail::access::core` gives.
    [[nodiscard]] const detail::remote_callable& existing_core() const noexcept {
      return *callable_;
    }

    template <class Result, class... P, class F>
    void keep(F run) {
      using plain = decltype(detail::without_blocking(std::move(run)));
      using returned = detail::remote_returned<plain, P...>;
      static_assert(
          !detail::is_blocking<F> || !detail::task_value<returned>::is_task,
          "a task runs on the worker's reactor: mw::blocking is for plain functions");
      callable_ = std::make_shared<detail::typed_callable<plain, Result, P...>>(
          detail::without_blocking(std::move(run)));
    }

    std::string name_;
    std::shared_ptr<const detail::remote_callable> callable_;
    bool is_alone_;
    bool blocks_;
  };

  function_table(std::initializer_list<entry> entries);

  /// Returns the function of that name, or null.
  [[nodiscard]] const entry* find(std::string_view name) const noexcept;
  /// Returns all, sorted by name.
  [[nodiscard]] const std::vector<entry>& entries() const noexcept { return entries_; }

 private:
  std::vector<entry> entries_;
};

}  // namespace manyworlds::inline v0
