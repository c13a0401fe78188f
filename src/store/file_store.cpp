#include "manyworlds/store/file_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/store/run_on.hpp"
#include "store/file_folder.hpp"
#include "store/file_sleep.hpp"
#include "store/store_thread.hpp"
#include "store/stored_number.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

// Where the kernel tells of changes, a wait looks by itself as well.
constexpr duration look_besides = std::chrono::seconds(1);
constexpr duration first_lock_pause = std::chrono::milliseconds(1);
constexpr duration longest_lock_pause = std::chrono::milliseconds(16);

}  // namespace

/// The folder and the thread that uses it. Operations keep it until they have ended, also
/// beyond the store itself. Thread: its own, but for `address`, `trouble`, `limits` and
/// `run`.
class file_store::contents {
 public:
  contents(std::string folder, const file_store_options& options)
      : options_(options),
        folder_(std::move(folder)),
        sleep_(folder_.is_local(), folder_.keys_folder(), folder_.queues_folder()),
        thread_("mw-file-store", sleep_) {}

  [[nodiscard]] std::string address() const { return "file://" + folder_.path(); }
  [[nodiscard]] std::string trouble() const {
    const std::lock_guard lock(mutex_);
    return trouble_;
  }
  [[nodiscard]] const store_limits& limits() const noexcept { return options_.limits; }

  static task<store_reply> run(std::shared_ptr<contents> self, store_request request) {
    co_return co_await run_on(self->thread_, self->perform(std::move(request)));
  }

 private:
  /// One request that is under way, and how it fails.
  struct attempt {
    attempt(contents& in, store_request r)
        : self(in),
          request(std::move(r)),
          began(in.thread_.now()),
          deadline(later(began, request.limit)) {}

    [[noreturn]] void fail(store_error_kind kind, std::vector<std::string> keys,
                           std::string reason) const {
      throw store_error(store_failure(kind, self.address(), request.operation,
                                      std::move(keys), self.thread_.now() - began,
                                      std::move(reason)));
    }
    [[nodiscard]] const std::string& key() const { return request.keys.front(); }

    contents& self;
    store_request request;
    time_point began;
    time_point deadline;
    /// Of a wait: what each key's queue had seen when it began.
    std::vector<std::uint64_t> pushes;
  };

  task<store_reply> perform(store_request request);
  task<store_reply> change(attempt& a);
  task<store_reply> await(attempt& a);
  task<store_reply> arrive(attempt& a);
  task<void> pause(const attempt& a, duration& next);
  store_reply change_now(const attempt& a);
  store_reply add_now(const attempt& a);
  store_reply append_now(const attempt& a);
  store_reply compare_set_now(const attempt& a);
  store_reply read_now(const attempt& a);
  std::optional<store_reply> what_has_come(const attempt& a);
  [[nodiscard]] std::vector<std::string> missing(const attempt& a) const;
  void note(std::string trouble) {
    const std::lock_guard lock(mutex_);
    trouble_ = std::move(trouble);
  }

  const file_store_options options_;
  file_folder folder_;
  mutable std::mutex mutex_;
  std::string trouble_;  // guarded by mutex_
  file_sleep sleep_;
  // The thread comes last: its tasks use the other members.
  store_thread thread_;
};

task<store_reply> file_store::contents::perform(store_request request) {
  attempt a(*this, std::move(request));
  std::string failed;
  bool is_full = false;
  try {
    store_reply reply;
    switch (a.request.operation) {
      case store_operation::get:
      case store_operation::wait:
      case store_operation::multi_get:
      case store_operation::pop:
        reply = co_await await(a);
        break;
      case store_operation::barrier:
        reply = co_await arrive(a);
        break;
      case store_operation::try_get:
      case store_operation::check:
      case store_operation::num_keys:
      case store_operation::keys:
      case store_operation::queue_size:
        folder_.look_again();
        reply = read_now(a);
        break;
      default:
        reply = co_await change(a);
    }
    note({});
    co_return reply;
  } catch (const file_trouble& trouble) {
    failed = trouble.what();
    is_full = trouble.is_full();
  }
  note(failed);
  a.fail(is_full ? store_error_kind::refused : store_error_kind::unreachable,
         a.request.keys, std::move(failed));
}

/// Waits for the lock by trying: a call that waits could not be withdrawn.
task<store_reply> file_store::contents::change(attempt& a) {
  duration next = first_lock_pause;
  for (;;) {
    {
      const file_folder::hold held(folder_);
      if (held.is_held()) {
        folder_.look_again();
        co_return change_now(a);
      }
    }
    if (thread_.now() >= a.deadline) {
      std::string reason = "another process holds the lock of the folder";
      note(reason);
      a.fail(store_error_kind::unreachable, a.request.keys, std::move(reason));
    }
    co_await sleep_until(std::min(a.deadline, later(thread_.now(), next)));
    next = std::min(2 * next, longest_lock_pause);
  }
}

task<store_reply> file_store::contents::await(attempt& a) {
  duration next = options_.first_pause;
  if (a.request.operation == store_operation::wait) {
    for (const std::string& key : a.request.keys) a.pushes.push_back(folder_.pushes(key));
  }
  for (;;) {
    folder_.look_again();
    if (a.request.operation == store_operation::pop) {
      // Only what is there is worth the lock.
      if (folder_.queue_size(a.key()) > 0) {
        store_reply taken = co_await change(a);
        if (taken.value) co_return taken;
      }
    } else if (auto reply = what_has_come(a)) {
      co_return std::move(*reply);
    }
    if (thread_.now() >= a.deadline)
      a.fail(store_error_kind::timed_out, missing(a), "not set by any process");
    co_await pause(a, next);
  }
}

task<store_reply> file_store::contents::arrive(attempt& a) {
  const std::int64_t members = std::exchange(a.request.delta, 1);
  store_reply count = co_await change(a);
  duration next = options_.first_pause;
  while (count.number < members) {
    if (thread_.now() >= a.deadline)
      a.fail(store_error_kind::timed_out, a.request.keys,
             fmt::format("not all {} members have arrived", members));
    co_await pause(a, next);
    folder_.look_again();
    const std::optional<std::string> value = folder_.read(a.key());
    const std::optional<std::int64_t> number = stored_sum(value, 0);
    if (!number)
      a.fail(store_error_kind::refused, a.request.keys, "the value is no number");
    count.number = *number;
  }
  co_return store_reply();
}

/// Waits for a change, or for a while where none is told.
task<void> file_store::contents::pause(const attempt& a, duration& next) {
  duration span = sleep_.tells() ? look_besides : next;
  next = std::min(2 * next, options_.longest_pause);
  span = std::min(span, a.deadline - thread_.now());
  try {
    co_await within(sleep_.changed().wait(), span);
  } catch (const timed_out&) {
    // It looks again.
  }
}

std::vector<std::string> file_store::contents::missing(const attempt& a) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < a.request.keys.size(); ++i) {
    const std::string& key = a.request.keys[i];
    const bool was_pushed = i < a.pushes.size() && folder_.pushes(key) > a.pushes[i];
    if (!was_pushed && !folder_.contains(key)) names.push_back(key);
  }
  return names;
}

/// Returns what a wait was for; nothing if it has not come, or is gone again.
std::optional<store_reply> file_store::contents::what_has_come(const attempt& a) {
  if (a.request.operation == store_operation::get) {
    std::optional<std::string> value = folder_.read(a.key());
    if (!value) return std::nullopt;
    return store_reply(std::move(value));
  }
  store_reply reply;
  if (a.request.operation == store_operation::wait) {
    if (!missing(a).empty()) return std::nullopt;
    return reply;
  }
  for (const std::string& key : a.request.keys) {
    std::optional<std::string> value = folder_.read(key);
    if (!value) return std::nullopt;
    reply.values.push_back(std::move(*value));
  }
  return reply;
}

/// Performs what needs the lock. Precondition: the folder is held.
store_reply file_store::contents::change_now(const attempt& a) {
  const store_request& r = a.request;
  switch (r.operation) {
    case store_operation::set:
      folder_.write(a.key(), r.value);
      return store_reply();
    case store_operation::multi_set:
      for (std::size_t i = 0; i < r.keys.size(); ++i)
        folder_.write(r.keys[i], r.values[i]);
      return store_reply();
    case store_operation::append:
      return append_now(a);
    case store_operation::add:
    case store_operation::barrier:
      return add_now(a);
    case store_operation::compare_set:
      return compare_set_now(a);
    case store_operation::erase:
      return store_reply(std::int64_t{folder_.erase(a.key())});
    case store_operation::push:
      folder_.push(a.key(), r.value);
      return store_reply();
    default:
      MW_ASSERT(
          r.operation == store_operation::pop || r.operation == store_operation::try_pop,
          "all other changes are served");
      return store_reply(folder_.pop(a.key()));
  }
}

store_reply file_store::contents::add_now(const attempt& a) {
  const std::optional<std::string> value = folder_.read(a.key());
  const std::optional<std::int64_t> sum = stored_sum(value, a.request.delta);
  if (!sum)
    a.fail(store_error_kind::refused, a.request.keys,
           a.request.operation == store_operation::barrier
               ? "the value is no number"
               : "the value is no number, or the sum exceeds 64 bits");
  folder_.write(a.key(), std::to_string(*sum));
  return store_reply(*sum);
}

store_reply file_store::contents::append_now(const attempt& a) {
  std::string value = folder_.read(a.key()).value_or("");
  if (value.size() + a.request.value.size() > options_.limits.value_bytes)
    a.fail(store_error_kind::refused, a.request.keys, "the value would exceed its limit");
  folder_.write(a.key(), value += a.request.value);
  return store_reply();
}

store_reply file_store::contents::compare_set_now(const attempt& a) {
  const std::optional<std::string> value = folder_.read(a.key());
  if (!value && !a.request.expected.empty()) return store_reply(a.request.expected);
  if (value && *value != a.request.expected) return store_reply(value);
  folder_.write(a.key(), a.request.value);
  return store_reply(a.request.value);
}

store_reply file_store::contents::read_now(const attempt& a) {
  switch (a.request.operation) {
    case store_operation::check:
      return store_reply(std::int64_t{missing(a).empty()});
    case store_operation::num_keys:
      return store_reply(folder_.key_count());
    case store_operation::queue_size:
      return store_reply(folder_.queue_size(a.key()));
    case store_operation::keys: {
      store_reply reply;
      reply.values = folder_.keys();
      if (!a.request.keys.empty()) keep_prefixed(reply.values, a.key());
      return reply;
    }
    default:
      MW_ASSERT(a.request.operation == store_operation::try_get, "all others are served");
      return store_reply(folder_.read(a.key()));
  }
}

file_store::file_store(std::string folder, file_store_options options)
    : contents_(std::make_shared<contents>(std::move(folder), options)) {}

file_store::~file_store() { end_users(); }

std::string file_store::address() const { return contents_->address(); }

std::string file_store::trouble() const { return contents_->trouble(); }

task<store_reply> file_store::perform(store_request request) {
  check_limits(request, contents_->limits(), address());
  return contents::run(contents_, std::move(request));
}

}  // namespace manyworlds::inline v0
