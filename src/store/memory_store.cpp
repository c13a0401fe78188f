#include "manyworlds/store/memory_store.hpp"

#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "store/key_value_table.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {
const char* const where = "memory";
}  // namespace

/// The state that operations keep until they have ended, also beyond the store itself.
class memory_store::contents {
 public:
  explicit contents(store_limits limits) noexcept : limits_(limits) {}

  static task<store_reply> perform(std::shared_ptr<contents> self, store_request request);

 private:
  class key_wait;

  task<store_reply> await_value(store_request request);
  task<store_reply> await_keys(store_request request);
  task<store_reply> arrive(store_request request);
  /// Leaves those of the keys that are not set, for an error to name.
  void keep_missing(store_request& request);
  std::optional<store_reply> read(const store_request& request);
  store_reply perform_now(store_request& request);
  store_reply read_now(const store_request& request);
  [[noreturn]] static void time_out(store_request& request, std::string reason);
  [[noreturn]] static void refuse(store_request& request, std::string reason);

  store_limits limits_;
  std::mutex mutex_;
  key_value_table table_;
};

/// Awaits a request's keys, or the other members of its barrier, until a point in time;
/// returns whether they came. The lock decides what ends the wait: the side that takes
/// the waiter out of the table resumes it.
class memory_store::contents::key_wait : key_value_table::waiter, timer {
 public:
  /// The first wait of an operation sets the deadline, later ones keep it.
  key_wait(contents& owner, const store_request& request,
           std::optional<time_point>& deadline) noexcept
      : waiter(released),
        timer(expired),
        owner_(owner),
        request_(request),
        deadline_(deadline) {}
  ~key_wait() { disarm(); }

  bool await_ready() const noexcept { return false; }
  bool await_start(continuation& k) {
    MW_ASSERT(!waiter_, "a wait for keys is started once");
    executor& home = k.home();
    if (!deadline_) deadline_ = later(home.now(), request_.limit);
    // A wait without a limit needs no timer.
    if (*deadline_ != time_point::max()) home.arm(*this, *deadline_);
    waiter_ = &k;
    const std::lock_guard lock(owner_.mutex_);
    return !has_come();
  }
  bool await_cancel() noexcept { return withdraw(); }
  bool await_must_resume() const noexcept { return true; }
  bool await_resume() noexcept { return !has_expired_; }
  /// Says whether the key of a barrier holds no number.
  [[nodiscard]] bool was_refused() const noexcept { return was_refused_; }

 private:
  static void released(waiter& w) noexcept {
    auto& self = static_cast<key_wait&>(w);
    MW_ASSERT(self.waiter_ && !self.has_expired_, "a wait ends once");
    self.waiter_->resume();
  }
  static void expired(timer& t) noexcept {
    auto& self = static_cast<key_wait&>(t);
    if (!self.withdraw()) return;
    MW_ASSERT(self.waiter_ && !self.has_expired_, "a wait ends once");
    self.has_expired_ = true;
    self.waiter_->resume();
  }

  /// Precondition: the lock is held.
  bool has_come() {
    if (request_.operation != store_operation::barrier) {
      const bool takes = request_.operation == store_operation::pop;
      return owner_.table_.await(*this, request_.keys, takes);
    }
    const auto all = owner_.table_.arrive(*this, request_.keys.front(), request_.delta);
    was_refused_ = !all;
    return all.value_or(true);
  }

  bool withdraw() noexcept {
    const std::lock_guard lock(owner_.mutex_);
    const bool waited = is_waiting();
    owner_.table_.forget(*this);
    return waited;
  }

  void disarm() noexcept {
    if (waiter_) waiter_->home().timers().disarm(*this);
  }

  contents& owner_;
  const store_request& request_;
  std::optional<time_point>& deadline_;
  continuation* waiter_ = nullptr;
  bool has_expired_ = false;
  bool was_refused_ = false;
};

task<store_reply> memory_store::contents::perform(std::shared_ptr<contents> self,
                                                  store_request request) {
  check_limits(request, self->limits_, where);
  switch (request.operation) {
    case store_operation::get:
    case store_operation::multi_get:
    case store_operation::pop:
      co_return co_await self->await_value(std::move(request));
    case store_operation::wait:
      co_return co_await self->await_keys(std::move(request));
    case store_operation::barrier:
      co_return co_await self->arrive(std::move(request));
    default:
      co_return self->perform_now(request);
  }
}

void memory_store::contents::time_out(store_request& request, std::string reason) {
  throw store_error(store_failure(store_error_kind::timed_out, where, request.operation,
                                  std::move(request.keys), request.limit,
                                  std::move(reason)));
}

void memory_store::contents::refuse(store_request& request, std::string reason) {
  throw store_error(store_failure(store_error_kind::refused, where, request.operation,
                                  std::move(request.keys), duration::zero(),
                                  std::move(reason)));
}

task<store_reply> memory_store::contents::await_keys(store_request request) {
  std::optional<time_point> deadline;
  key_wait wait(*this, request, deadline);
  const bool has_come = co_await wait;
  if (has_come) co_return store_reply();
  keep_missing(request);
  time_out(request, "not set by anyone");
}

task<store_reply> memory_store::contents::arrive(store_request request) {
  std::optional<time_point> deadline;
  key_wait wait(*this, request, deadline);
  const bool has_come = co_await wait;
  if (!has_come)
    time_out(request, fmt::format("not all {} members have arrived", request.delta));
  if (wait.was_refused()) refuse(request, "the value is no number");
  co_return store_reply();
}

task<store_reply> memory_store::contents::await_value(store_request request) {
  std::optional<time_point> deadline;
  while (co_await key_wait(*this, request, deadline)) {
    // What was there may have been erased or taken since the release: wait again then.
    const std::lock_guard lock(mutex_);
    if (auto reply = read(request)) co_return std::move(*reply);
  }
  if (request.operation == store_operation::multi_get) keep_missing(request);
  time_out(request, "not set by anyone");
}

void memory_store::contents::keep_missing(store_request& request) {
  const std::lock_guard lock(mutex_);
  std::erase_if(request.keys,
                [this](const std::string& key) { return table_.contains(key); });
}

/// Reads what a wait was for; nothing if it is gone. Precondition: the lock is held.
std::optional<store_reply> memory_store::contents::read(const store_request& request) {
  store_reply reply;
  if (request.operation == store_operation::pop) {
    reply.value = table_.pop(request.keys.front());
    if (!reply.value) return std::nullopt;
    return reply;
  }
  for (const std::string& key : request.keys) {
    const std::string* value = table_.find(key);
    if (!value) return std::nullopt;
    if (request.operation == store_operation::get) return store_reply(*value);
    reply.values.push_back(*value);
  }
  return reply;
}

/// Performs what changes the table and waits for nothing.
store_reply memory_store::contents::perform_now(store_request& request) {
  const std::lock_guard lock(mutex_);
  const auto key = [&]() -> std::string& { return request.keys.front(); };
  switch (request.operation) {
    case store_operation::set:
      table_.set(std::move(key()), std::move(request.value));
      return store_reply();
    case store_operation::multi_set:
      for (std::size_t i = 0; i < request.keys.size(); ++i)
        table_.set(std::move(request.keys[i]), std::move(request.values[i]));
      return store_reply();
    case store_operation::append: {
      const std::string* value = table_.find(key());
      if ((value ? value->size() : 0) + request.value.size() > limits_.value_bytes)
        refuse(request, "the value would exceed its limit");
      table_.append(key(), request.value);
      return store_reply();
    }
    case store_operation::add: {
      const std::optional<std::int64_t> sum = table_.add(key(), request.delta);
      if (!sum) refuse(request, "the value is no number, or the sum exceeds 64 bits");
      return store_reply(*sum);
    }
    case store_operation::compare_set:
      return store_reply(
          table_.compare_set(key(), request.expected, std::move(request.value)));
    case store_operation::erase:
      return store_reply(std::int64_t{table_.erase(key())});
    case store_operation::push:
      table_.push(key(), std::move(request.value));
      return store_reply();
    case store_operation::try_pop:
      return store_reply(table_.pop(key()));
    default:
      return read_now(request);
  }
}

/// Performs what only reads. Precondition: the lock is held.
store_reply memory_store::contents::read_now(const store_request& request) {
  switch (request.operation) {
    case store_operation::check:
      return store_reply(std::int64_t{table_.contains_all(request.keys)});
    case store_operation::num_keys:
      return store_reply(static_cast<std::int64_t>(table_.key_count()));
    case store_operation::queue_size:
      return store_reply(
          static_cast<std::int64_t>(table_.queue_size(request.keys.front())));
    case store_operation::keys: {
      store_reply reply;
      reply.values = table_.keys();
      if (!request.keys.empty()) keep_prefixed(reply.values, request.keys.front());
      return reply;
    }
    default: {
      MW_ASSERT(request.operation == store_operation::try_get, "all others are served");
      const std::string* value = table_.find(request.keys.front());
      return store_reply(value ? std::optional<std::string>(*value) : std::nullopt);
    }
  }
}

memory_store::memory_store(store_limits limits)
    : contents_(std::make_shared<contents>(limits)) {}

memory_store::~memory_store() { end_users(); }

std::string memory_store::address() const { return where; }

task<store_reply> memory_store::perform(store_request request) {
  return contents::perform(contents_, std::move(request));
}

}  // namespace manyworlds::inline v0
