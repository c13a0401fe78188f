// Mesh: workers of a session in an order, on which the controller calls functions.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/builtin_names.hpp"
#include "manyworlds/spmd/any_function.hpp"
#include "manyworlds/spmd/any_value.hpp"
#include "manyworlds/spmd/remote_call.hpp"
#include "manyworlds/spmd/remote_function.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// Holds for what may be given for a parameter: the dref of its type for a register, and
/// for a value what that is made of.
template <class Parameter, class Given>
concept fits_parameter =
    (std::is_lvalue_reference_v<Parameter> &&
     std::same_as<std::remove_cvref_t<Given>, dref<std::remove_cvref_t<Parameter>>>) ||
    (!std::is_reference_v<Parameter> &&
     (std::convertible_to<Given, Parameter> ||
      (!std::is_arithmetic_v<Parameter> &&
       requires(value_writer & out, const std::remove_cvref_t<Given>& given) {
         argument<Parameter>::write(out, given);
       })));

template <class Parameter, class Given>
void write_argument(remote_request& into, const Given& given) {
  if constexpr (std::is_lvalue_reference_v<Parameter>) {
    into.take(register_in(*into.core, access::core(given)));
  } else if constexpr (!std::is_arithmetic_v<Parameter> &&
                       requires { argument<Parameter>::write(into.values, given); }) {
    // Without a conversion: what is large is referred to where the caller has it.
    argument<Parameter>::write(into.values, given);
  } else {
    argument<Parameter>::write(into.values, static_cast<Parameter>(given));
  }
}

/// Returns a request of a session, without its arguments.
[[nodiscard]] remote_request request_on(const std::shared_ptr<session_core>& core,
                                        const std::vector<int>& workers);

}  // namespace detail

/// Workers of a session, in the order of their ranks, with a world of their own for their
/// data. Copies name the same.
///
///     mw::mesh left = tp.mesh({0, 1});
///     mw::dref<layer> weights = co_await left.call(fetch, path, 0);
///     auto output = co_await left.call(mlp, weights, input);
///
/// A worker begins the calls of all meshes in the order in which they were issued (S-a).
///
/// Thread: the session's reactor. Lifetime: it may outlive its session; its calls are
/// refused then (`closed`).
///
/// Errors: an await on a call throws `call_error`, with one of these causes:
/// - `handler_failed`: the function threw on a worker, or its arguments did not fit.
/// - `register_lost`: an argument was never made, since the call that should have made
///   it failed, or was lost with a worker.
/// - `timed_out`, `cancelled`: of `within` and `stop`.
/// - A worker was lost: the causes of a break.
/// - `overdue`: a worker is stuck in an earlier call that was ended (`session_options`).
/// - `closed`: the session has ended. `runtime_stopped`: its runtime ends.
/// - `invalid_argument`: what was asked for cannot be; no worker got it.
class mesh {
 public:
  /// Returns the ids of its workers, by rank.
  [[nodiscard]] const std::vector<int>& workers() const noexcept { return workers_; }
  [[nodiscard]] std::size_t size() const noexcept { return workers_.size(); }

  /// Calls a function on each worker, and ends when all of them have. Gives a `dref` on
  /// what it gave, or nothing; see `remote_call` for what else can be asked for. The
  /// arguments are written when this is evaluated.
  ///
  /// Errors, here: what `argument<T>::write` throws; std::invalid_argument for a dref
  /// that refers to nothing or belongs to another session.
  template <class Result, class... P, class... Given>
  remote_call<Result> call(const remote_function<Result(P...)>& function,
                           const Given&... arguments) const {
    return describe<Result, P...>(function, detail::answer_wish::end, arguments...);
  }
  /// Calls a function, and ends when all workers' commands are accepted: at once unless a
  /// worker has 64 of them, or 1 MiB, before it. If the call fails, that is told at the
  /// next await on its dref, or `sync`; here if it has failed before it was accepted.
  template <class Result, class... P, class... Given>
  remote_call<Result> issue(const remote_function<Result(P...)>& function,
                            const Given&... arguments) const {
    return describe<Result, P...>(function, detail::answer_wish::none, arguments...);
  }
  /// Calls a function of which only the workers know the types, with any values and
  /// drefs, or with one `any_arguments` that holds them. This gives a dref also for a
  /// function that gives nothing: one that no call can take.
  template <class... Given>
  remote_call<any_value> call(const any_function& function,
                              const Given&... arguments) const {
    return describe_any(function, detail::answer_wish::end, arguments...);
  }
  /// Does the same, and ends when all workers' commands are accepted.
  template <class... Given>
  remote_call<any_value> issue(const any_function& function,
                               const Given&... arguments) const {
    return describe_any(function, detail::answer_wish::none, arguments...);
  }
  /// Puts a copy of a tensor, or of other elements in host memory, on each worker.
  remote_call<tensor> put(const tensor& given) const {
    return call(detail::put_function, given);
  }
  remote_call<tensor> put(const_buffer_view given) const {
    return put(given, given.count());
  }
  /// Puts elements there in that shape. Errors: std::invalid_argument unless it has as
  /// many.
  remote_call<tensor> put(const_buffer_view given, const shape& as) const;
  /// Makes a tensor of zeros on each worker.
  remote_call<tensor> empty(const shape& of, dtype type) const {
    return call(detail::empty_function, of, type);
  }
  /// Replaces the tensor of one worker.
  [[nodiscard]] auto copy_to(const dref<tensor>& to, int worker,
                             const tensor& given) const {
    return call(detail::put_function, given).on(worker).into(to);
  }
  /// Gives a copy of the value of one worker. Errors: `handler_failed` if it is of a type
  /// that cannot travel.
  [[nodiscard]] auto copy_from(const dref<any_value>& from, int worker) const {
    return call(detail::copy_any_function, from).on(worker).from(worker);
  }
  /// Gives a copy of the tensor of one worker.
  [[nodiscard]] auto copy_from(const dref<tensor>& from, int worker) const {
    return call(detail::copy_function, from).on(worker).from(worker);
  }

  /// Gives all workers the elements of the one with the rank `root`. Shapes agree, as in
  /// all of these.
  remote_call<void> broadcast(const dref<tensor>& data, rank_t root = 0) const {
    return call(detail::broadcast_function, data, root);
  }
  /// Combines the workers' elements, in place at each of them.
  remote_call<void> all_reduce(const dref<tensor>& data, reduction by) const {
    return call(detail::all_reduce_function, data, by);
  }
  /// Collects the workers' `in`, by rank, in `out` of each.
  remote_call<void> all_gather(const dref<tensor>& in, const dref<tensor>& out) const {
    return call(detail::all_gather_function, in, out);
  }
  /// Collects them in `out` of the one with the rank `root`; that of the others, which
  /// they must have, stays as it is.
  remote_call<void> gather(const dref<tensor>& in, const dref<tensor>& out,
                           rank_t root = 0) const {
    return call(detail::gather_function, in, out, root);
  }
  /// Gives each worker, in `out`, the part of the root's `in` that its rank has.
  remote_call<void> scatter(const dref<tensor>& in, const dref<tensor>& out,
                            rank_t root = 0) const {
    return call(detail::scatter_function, in, out, root);
  }
  /// Copies the tensor `in` of one worker to `out` of another, which has as many
  /// elements. Both are named by their ids.
  remote_call<void> transfer(const dref<tensor>& in, int from, const dref<tensor>& out,
                             int to) const {
    return call(detail::transfer_function, in, out).on(from, to);
  }

  /// Loads a plugin on each worker: a shared object that defines `manyworlds_plugin`
  /// (`mw::plugin`). Its functions can be called from then on. The file is looked for
  /// there, as by dlopen: without a slash among the libraries. One that is loaded already
  /// stays as it is, also if another file has its path now.
  ///
  ///     co_await tp.load("./libmodel.so");
  ///     auto weights = co_await tp.call(mw::any_function("fetch", mw::alone), path);
  ///
  /// The session keeps it: a worker that was replaced loads it again, in its turn among
  /// what is `replayable`. Errors: `handler_failed` if it is not there, defines no
  /// plugin, is of another build, or has the name of a function that is there. The text
  /// has the worker, the file and what the loader said. That worker is as it was; the
  /// others keep the plugin.
  [[nodiscard]] task<void> load(std::string file,
                                source_position where = source_position()) const;
  /// Does the same with a file of the controller. Workers of this host open a copy in
  /// memory that this process keeps with the session, one for all of them; what cannot
  /// open it is sent the bytes. They check its SHA-256, and what they have they are not
  /// sent again. Where memory cannot be executed it is loaded from an unlinked file in
  /// `$TMPDIR`.
  ///
  /// Errors: those of `load`; file_error for a file that cannot be read;
  /// std::runtime_error in a build without libcrypto.
  [[nodiscard]] task<void> upload(std::string file,
                                  source_position where = source_position()) const;

  /// Waits until the workers have ended all that was issued to them before. Errors: the
  /// call_error of a call that was not told yet, the earliest first.
  [[nodiscard]] detail::sync_awaitable sync(
      source_position where = source_position()) const {
    return detail::sync_awaitable(detail::sync_request(core_, workers_, where));
  }

 protected:
  mesh() noexcept = default;
  mesh(std::shared_ptr<detail::session_core> core, std::vector<int> workers) noexcept
      : core_(std::move(core)), workers_(std::move(workers)) {}

  [[nodiscard]] const std::shared_ptr<detail::session_core>& core() const noexcept {
    return core_;
  }

 private:
  friend struct detail::access;

  template <class Result, class... P, class... Given>
  remote_call<Result> describe(const remote_function<Result(P...)>& function,
                               detail::answer_wish wish, const Given&... given) const {
    constexpr bool has_as_many = sizeof...(P) == sizeof...(Given);
    static_assert(has_as_many, "the function takes another number of arguments");
    if constexpr (has_as_many) {
      constexpr bool fit = (detail::fits_parameter<P, Given> && ...);
      static_assert(fit,
                    "an argument does not fit: T& and const T& take a mw::dref<T>, "
                    "all other parameters a value");
      detail::remote_request request = detail::request_on(core_, workers_);
      request.function = function.name();
      request.types = function.types().number();
      request.is_alone = function.is_alone();
      request.fills = !std::is_void_v<Result>;
      request.wish = wish;
      if constexpr (fit) (detail::write_argument<P>(request, given), ...);
      return remote_call<Result>(std::move(request));
    }
  }

  template <class... Given>
  remote_call<any_value> describe_any(const any_function& function,
                                      detail::answer_wish wish,
                                      const Given&... given) const {
    detail::remote_request request = detail::request_on(core_, workers_);
    request.function = function.name();
    request.is_alone = function.is_alone();
    request.fills = true;
    request.wish = wish;
    constexpr bool is_list = (std::same_as<Given, any_arguments> || ...);
    if constexpr (is_list && sizeof...(Given) == 1) {
      detail::write_all_arguments(request, given...);
    } else {
      constexpr bool fit = (detail::any_given<Given> && ...);
      static_assert(fit,
                    "an argument is a value (mw::argument), a text or a mw::dref, or one "
                    "mw::any_arguments stands for all");
      if constexpr (fit) (detail::write_any_argument(request, given), ...);
    }
    return remote_call<any_value>(std::move(request));
  }

  std::shared_ptr<detail::session_core> core_;
  std::vector<int> workers_;
};

}  // namespace manyworlds::inline v0
