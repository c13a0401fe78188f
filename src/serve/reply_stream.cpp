#include "manyworlds/serve/reply_stream.hpp"

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/failure.hpp"
#include "serve/call_state.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

next_reply_awaiter::next_reply_awaiter(call_state* call, duration limit,
                                       std::stop_token token) noexcept
    : call_(call), limit_(limit), token_(std::move(token)) {}

next_reply_awaiter::~next_reply_awaiter() = default;

bool next_reply_awaiter::await_ready() noexcept {
  if (!call_) {
    failure_ = failure(
        cause::invalid_argument,
        "this reply stream has no call: it was default-constructed or moved from");
    failure_.operation = operation_kind::call;
    return true;
  }
  if (call_->is_being_read()) {
    failure_ = call_->describe(failure(cause::invalid_argument,
                                       "another task already waits for the next reply"));
    return true;
  }
  if (token_.stop_requested()) {
    failure_ = call_->describe(
        failure(cause::cancelled, "the stop token was triggered before it started"));
    return true;
  }
  if (!call_->has_news()) return false;
  reply_ = call_->take_reply();
  if (!reply_) failure_ = call_->ending();
  return true;
}

void next_reply_awaiter::await_start(continuation& k) {
  MW_ASSERT(call_ && !waiter_, "a next reply is awaited once");
  waiter_ = &k;
  executor& home = k.home();
  deadline_.begin(home, later(home.now(), limit_), std::move(token_));
  call_->read_by(this);
}

bool next_reply_awaiter::await_cancel() noexcept {
  // It has ended, and its waiter will be resumed.
  if (!waiter_) return false;
  call_->read_by(nullptr);
  deadline_.end();
  return true;
}

std::optional<bytes> next_reply_awaiter::await_resume() {
  if (failure_) throw world_error(std::move(failure_));
  return std::move(reply_);
}

void next_reply_awaiter::give_up(cause why) noexcept {
  call_->read_by(nullptr);
  finish(std::nullopt, call_->describe(failure(why, "while waiting for a reply")));
}

void next_reply_awaiter::finish(std::optional<bytes> reply, failure f) noexcept {
  MW_ASSERT(waiter_, "law 1: a wait for a reply ends once");
  MW_ASSERT(!reply || !f, "a wait ends with a reply or a failure, not with both");
  deadline_.end();
  reply_ = std::move(reply);
  failure_ = std::move(f);
  std::exchange(waiter_, nullptr)->resume();
}

reply_stream::reply_stream() noexcept = default;
reply_stream::reply_stream(std::unique_ptr<call_state> call) noexcept
    : call_(std::move(call)) {}
reply_stream::reply_stream(reply_stream&& other) noexcept = default;
reply_stream& reply_stream::operator=(reply_stream&& other) noexcept = default;
reply_stream::~reply_stream() = default;

std::optional<bytes> reply_stream::try_next() noexcept {
  if (!call_ || call_->is_being_read()) return std::nullopt;
  return call_->take_reply();
}

std::uint64_t reply_stream::received() const noexcept {
  return call_ ? call_->replies().received() : 0;
}

}  // namespace manyworlds::inline v0
