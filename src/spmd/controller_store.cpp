#include "spmd/controller_store.hpp"

#include <new>
#include <utility>

#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/notice.hpp"

namespace manyworlds::inline v0::detail {

// Stands behind "the store" and "store" in texts.
constexpr const char* controllers_address = "of the session's controller";

[[noreturn]] static void refuse_question(store_error_kind kind,
                                         const store_request& request, duration elapsed,
                                         std::string reason,
                                         bool may_have_happened = false) {
  store_failure f(kind, controllers_address, request.operation, request.keys, elapsed,
                  std::move(reason));
  f.may_have_happened = may_have_happened;
  throw store_error(std::move(f));
}

/// One that waits, while it does. What ends without an answer is withdrawn.
class store_desk::waiting {
 public:
  waiting(store_desk& desk, const store_question& q)
      : desk_(desk), kind_(q.kind), mesh_(q.mesh), world_(q.number) {
    const std::lock_guard lock(desk_.mutex_);
    number_ = ++desk_.last_;
    send(q);
    desk_.waiting_.emplace(number_, this);
  }
  waiting(const waiting&) = delete;
  waiting& operator=(const waiting&) = delete;
  ~waiting() {
    const std::lock_guard lock(desk_.mutex_);
    desk_.waiting_.erase(number_);
    // All others are answered at once.
    if (is_answered_ || kind_ != question_kind::get) return;
    try {
      store_question last;
      last.mesh = mesh_;
      last.number = world_;
      send(last);
    } catch (const std::bad_alloc&) {
      // It waits there until its mesh has another world.
    }
  }

  // Precondition: the desk's mutex is held. So it outlives what they do.
  void answer(std::optional<std::string> value) {
    is_answered_ = true;
    value_ = std::move(value);
    over_.set();
  }
  void give_up() noexcept { over_.set(); }

  [[nodiscard]] notice& over() noexcept { return over_; }
  // Precondition: it is over.
  [[nodiscard]] bool is_answered() const noexcept { return is_answered_; }
  [[nodiscard]] std::optional<std::string> take() noexcept { return std::move(value_); }

 private:
  void send(const store_question& q) {
    // Nothing is sent any longer, and this one ends at once.
    if (desk_.is_over()) return over_.set();
    outgoing next{number_, {}};
    q.write(next.values);
    desk_.outbox_.push_back(std::move(next));
    desk_.wake();
  }

  store_desk& desk_;
  const question_kind kind_;
  const std::uint32_t mesh_;
  const std::uint64_t world_;
  std::uint64_t number_ = 0;
  notice over_;
  bool is_answered_ = false;
  std::optional<std::string> value_;
};

task<store_reply> store_desk::ask(std::shared_ptr<store_desk> self, store_question q,
                                  store_request request) {
  const bool is_wait = q.kind == question_kind::get;
  const bool changes = q.kind == question_kind::compare_set;
  waiting mine(*self, q);
  auto answered = [](notice& over) -> task<void> { co_await over.wait(); };
  try {
    co_await within(answered(mine.over()), request.limit);
  } catch (const timed_out&) {
    if (is_wait) {
      refuse_question(store_error_kind::timed_out, request, request.limit,
                      "not set by anyone");
    }
    refuse_question(store_error_kind::unreachable, request, request.limit,
                    "no answer in time", changes);
  }
  if (!mine.is_answered()) {
    refuse_question(store_error_kind::unreachable, request, duration::zero(),
                    "the worker has no controller any longer", changes);
  }
  store_reply reply(mine.take());
  reply.number = reply.value ? 1 : 0;
  if ((is_wait || changes) && !reply.value) {
    refuse_question(store_error_kind::protocol, request, duration::zero(),
                    "an answer without its value");
  }
  co_return reply;
}

/// Precondition: the mutex is held.
void store_desk::wake() noexcept {
  if (std::exchange(is_woken_, true)) return;
  wake_.keep(shared_from_this());
  // Else its runtime has ended, and this is closed.
  if (!home_.try_execute(wake_)) wake_.let_go();
}

void store_desk::note_asked() noexcept {
  const std::lock_guard lock(mutex_);
  is_woken_ = false;
  asked_.set();
}

bool store_desk::has_some() const {
  const std::lock_guard lock(mutex_);
  return !outbox_.empty();
}

task<void> store_desk::until_asked() {
  while (!has_some()) {
    asked_.reset();
    // What was asked since sets it in a later turn.
    co_await asked_;
  }
}

store_desk::outgoing store_desk::take_next() noexcept {
  const std::lock_guard lock(mutex_);
  MW_ASSERT(!outbox_.empty(), "a question is taken where there is one");
  outgoing next = std::move(outbox_.front());
  outbox_.pop_front();
  return next;
}

void store_desk::take(received_command& answer) {
  value_reader in = answer.values();
  auto value = argument<std::optional<std::string>>::read(in);
  const std::lock_guard lock(mutex_);
  const auto at = waiting_.find(answer.head.call);
  if (at != waiting_.end()) at->second->answer(std::move(value));
}

void store_desk::close() noexcept {
  const std::lock_guard lock(mutex_);
  is_over_.store(true);
  outbox_.clear();
  for (const auto& [number, each] : waiting_) each->give_up();
}

// --- the store ----------------------------------------------------------------------

static store_limits limits_of(std::size_t members) noexcept {
  store_limits limits;
  limits.key_bytes = store_question::longest_key;
  limits.value_bytes = store_question::longest_value(members);
  limits.keys_per_request = 1;
  return limits;
}

controller_store::controller_store(std::shared_ptr<store_desk> desk, std::uint32_t mesh,
                                   std::uint64_t number, std::size_t members) noexcept
    : desk_(std::move(desk)), mesh_(mesh), number_(number), limits_(limits_of(members)) {}

std::string controller_store::address() const { return controllers_address; }

std::string controller_store::trouble() const {
  return desk_->is_over() ? "the controller is gone, or the worker ends" : "";
}

task<store_reply> controller_store::perform(store_request request) {
  check_limits(request, limits_, address());
  store_question q;
  q.mesh = mesh_;
  q.number = number_;
  switch (request.operation) {
    case store_operation::get:
      q.kind = question_kind::get;
      break;
    case store_operation::try_get:
      q.kind = question_kind::try_get;
      break;
    case store_operation::compare_set:
      q.kind = question_kind::compare_set;
      break;
    case store_operation::erase:
      q.kind = question_kind::erase;
      break;
    default:
      refuse_question(store_error_kind::refused, request, duration::zero(),
                      "a controller does not serve it");
  }
  q.key = request.keys.at(0);
  q.value = std::move(request.value);
  q.expected = std::move(request.expected);
  return store_desk::ask(desk_, std::move(q), std::move(request));
}

}  // namespace manyworlds::inline v0::detail
