#include "manyworlds/store/memory_store.hpp"

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
  store_reply perform_now(store_request& request);

  store_limits limits_;
  std::mutex mutex_;
  key_value_table table_;
};

/// Awaits keys until a point in time, and returns whether they were set. The lock
/// decides what ends the wait: the side that takes the waiter out of the table resumes
/// it.
class memory_store::contents::key_wait : key_value_table::waiter, timer {
 public:
  /// The first wait of an operation sets the deadline, later ones keep it.
  key_wait(contents& owner, const std::vector<std::string>& keys, duration limit,
           std::optional<time_point>& deadline) noexcept
      : waiter(released),
        timer(expired),
        owner_(owner),
        keys_(keys),
        limit_(limit),
        deadline_(deadline) {}
  ~key_wait() { disarm(); }

  bool await_ready() const noexcept { return false; }
  bool await_start(continuation& k) {
    MW_ASSERT(!waiter_, "a wait for keys is started once");
    executor& home = k.home();
    if (!deadline_) deadline_ = later(home.now(), limit_);
    // A wait without a limit needs no timer.
    if (*deadline_ != time_point::max()) home.arm(*this, *deadline_);
    waiter_ = &k;
    const std::lock_guard lock(owner_.mutex_);
    return !owner_.table_.await(*this, keys_);
  }
  bool await_cancel() noexcept { return withdraw(); }
  bool await_must_resume() const noexcept { return true; }
  bool await_resume() noexcept { return !has_expired_; }

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
  const std::vector<std::string>& keys_;
  duration limit_;
  std::optional<time_point>& deadline_;
  continuation* waiter_ = nullptr;
  bool has_expired_ = false;
};

task<store_reply> memory_store::contents::perform(std::shared_ptr<contents> self,
                                                  store_request request) {
  check_limits(request, self->limits_, where);
  if (request.operation == store_operation::get)
    co_return co_await self->await_value(std::move(request));
  if (request.operation == store_operation::wait)
    co_return co_await self->await_keys(std::move(request));
  co_return self->perform_now(request);
}

task<store_reply> memory_store::contents::await_keys(store_request request) {
  std::optional<time_point> deadline;
  if (co_await key_wait(*this, request.keys, request.limit, deadline))
    co_return store_reply();
  const std::lock_guard lock(mutex_);
  std::erase_if(request.keys,
                [this](const std::string& key) { return table_.contains(key); });
  throw store_error(store_failure(store_error_kind::timed_out, where, request.operation,
                                  std::move(request.keys), request.limit,
                                  "not set by anyone"));
}

task<store_reply> memory_store::contents::await_value(store_request request) {
  std::optional<time_point> deadline;
  while (co_await key_wait(*this, request.keys, request.limit, deadline)) {
    // The key may have been erased since the release: wait again then.
    const std::lock_guard lock(mutex_);
    if (const std::string* value = table_.find(request.keys.front())) {
      co_return store_reply(*value);
    }
  }
  throw store_error(store_failure(store_error_kind::timed_out, where, request.operation,
                                  std::move(request.keys), request.limit,
                                  "not set by anyone"));
}

store_reply memory_store::contents::perform_now(store_request& request) {
  const std::lock_guard lock(mutex_);
  const auto key = [&]() -> std::string& { return request.keys.front(); };
  switch (request.operation) {
    case store_operation::set:
      table_.set(std::move(key()), std::move(request.value));
      return store_reply();
    case store_operation::add: {
      const std::optional<std::int64_t> sum = table_.add(key(), request.delta);
      if (sum) return store_reply(*sum);
      throw store_error(store_failure(
          store_error_kind::refused, where, request.operation, std::move(request.keys),
          duration::zero(), "the value is no number, or the sum exceeds 64 bits"));
    }
    case store_operation::compare_set:
      return store_reply(
          table_.compare_set(key(), request.expected, std::move(request.value)));
    case store_operation::erase:
      return store_reply(std::int64_t{table_.erase(key())});
    case store_operation::check:
      return store_reply(std::int64_t{table_.contains_all(request.keys)});
    case store_operation::num_keys:
      return store_reply(static_cast<std::int64_t>(table_.key_count()));
    default: {
      const std::string* value = table_.find(key());
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
