// Remote request: what a call of a session asks for, until it is issued.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/continuation.hpp"
#include "manyworlds/detail/access.hpp"
#include "manyworlds/detail/native_only.hpp"
#include "manyworlds/detail/type_token.hpp"
#include "manyworlds/source_position.hpp"
#include "manyworlds/spmd/argument.hpp"
#include "manyworlds/spmd/value_reader.hpp"
#include "manyworlds/spmd/value_writer.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

class call_record;
struct kept_call;
class local_place;
class register_node;
class session_core;

/// Gives a register's node to its session, on any thread.
struct register_dropper {
  void operator()(register_node* node) const noexcept;
};

/// Owns what a dref refers to.
using register_handle = std::unique_ptr<register_node, register_dropper>;

/// Returns the session of a dref. Errors: std::invalid_argument for one that refers to
/// nothing, and after the end of its session.
[[nodiscard]] std::shared_ptr<session_core> session_of(const register_node* node);
/// Returns which register a dref of this session names. Errors: std::invalid_argument for
/// one that refers to nothing, or belongs to another session.
[[nodiscard]] register_id register_in(const session_core& session,
                                      const register_node* node);

/// What the workers are to say when they have ended a call.
enum class answer_wish : std::uint8_t {
  none,       ///< nothing, unless it fails: the call is issued
  end,        ///< that it has ended
  one_value,  ///< one of them the value; the others nothing
  all_values
};

/// One call, as the controller wrote it; without a function it is a `sync`. Lifetime:
/// what the arguments refer to lives until the await has ended.
struct remote_request {
  std::shared_ptr<session_core> core;
  std::string function;
  /// The number of its types' code; 0 if only the workers know them.
  std::uint64_t types = 0;
  source_position where = source_position("", 0);  ///< line 0: not known
  /// The workers, by their ids in the order of their ranks.
  std::vector<int> workers;
  value_writer values;
  std::vector<register_id> takes;
  /// The register that it fills, if it makes none; of a sync, the one that it is about.
  register_id into;
  duration limit = duration::max();
  std::stop_token token;
  int from = 0;  ///< of `one_value`
  answer_wish wish = answer_wish::end;
  bool is_alone = false;
  bool fills = false;  ///< whether the function gives something
  bool is_replayable = false;
  /// Of a call that is made again: itself, as it is kept.
  std::shared_ptr<const kept_call> again;
  /// Of a `session::local`: where its worker leaves the value.
  std::shared_ptr<local_place> local;

  /// Writes a register as the next argument.
  void take(register_id which) {
    values.reference(which);
    takes.push_back(which);
  }
};

/// Awaits a call.
class remote_awaiter : public native_only {
 public:
  explicit remote_awaiter(remote_request&& request) noexcept;
  remote_awaiter(const remote_awaiter&) = delete;
  remote_awaiter& operator=(const remote_awaiter&) = delete;
  ~remote_awaiter();

  bool await_ready() const noexcept { return false; }
  bool await_start(continuation& k);
  bool await_cancel() noexcept;
  [[nodiscard]] bool await_must_resume() const noexcept;

 protected:
  /// Throws the call's error, if it failed.
  void check() const;
  /// Throws an error of an earlier call that was not told.
  void tell_of_earlier() const;
  /// Returns the register that it fills.
  [[nodiscard]] register_handle take_register() noexcept;
  /// Returns what a worker of this process showed; the register's dref keeps it alive.
  /// Errors: call_error if it showed nothing, or the dref was dropped meanwhile.
  [[nodiscard]] void* keep_local() const;
  /// Reads what a worker gave, by its rank.
  [[nodiscard]] value_reader answer_of(std::size_t rank) const;
  [[nodiscard]] std::size_t answers() const noexcept;
  [[nodiscard]] std::size_t rank_of_answer() const noexcept;

 private:
  remote_request request_;
  /// Null if the call was refused, for this reason.
  std::shared_ptr<call_record> record_;
  std::exception_ptr refused_;
};

/// Awaits that all workers of a mesh have ended what was issued to them, and throws an
/// error of it that was not told yet: a call of nothing, behind which all is done.
class sync_awaiter : public remote_awaiter {
 public:
  explicit sync_awaiter(remote_request&& request) noexcept
      : remote_awaiter(std::move(request)) {}
  void await_resume() const;
};

/// Makes the request of a `sync` that is about one register, or about all.
[[nodiscard]] remote_request sync_request(std::shared_ptr<session_core> core,
                                          std::vector<int> workers,
                                          source_position where);

/// What `co_await` of a dref gives an awaiter of.
class MANYWORLDS_MUST_AWAIT sync_awaitable : public not_for_asio {
 public:
  using value_type = void;

  explicit sync_awaitable(remote_request&& request) noexcept
      : request_(std::move(request)) {}
  sync_awaiter operator co_await() && noexcept {
    return sync_awaiter(std::move(request_));
  }

 private:
  remote_request request_;
};

/// Awaits what a register holds on worker 0, as it is there.
template <class T>
class local_awaiter : public remote_awaiter {
 public:
  using remote_awaiter::remote_awaiter;
  T& await_resume() const {
    check();
    return *static_cast<T*>(keep_local());
  }
};

/// What `session::local` gives.
template <class T>
class MANYWORLDS_MUST_AWAIT local_awaitable : public not_for_asio {
 public:
  using value_type = T&;

  explicit local_awaitable(remote_request&& request) noexcept
      : request_(std::move(request)) {}
  local_awaiter<T> operator co_await() && noexcept {
    return local_awaiter<T>(std::move(request_));
  }

 private:
  remote_request request_;
};

/// Makes the request of a `session::local`.
[[nodiscard]] remote_request local_request(const std::shared_ptr<session_core>& core,
                                           const register_node* of, type_token wanted,
                                           source_position where);

/// Returns what waits for the call that fills a register.
[[nodiscard]] sync_awaitable await_register(const register_node* node,
                                            source_position where);

}  // namespace manyworlds::inline v0::detail
