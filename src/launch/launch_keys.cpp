#include "launch/launch_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/stop.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/store/run_on.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// A member leaves a token that was not answered once more, since the store may have been
/// started anew: first after the short pause, then less and less often.
constexpr duration first_pause = std::chrono::milliseconds(250);
constexpr duration longest_pause = std::chrono::seconds(2);
/// Rank 0 looks for tokens also when no bell rings.
constexpr duration look_again = std::chrono::seconds(5);
/// Limit of one request that only wants an answer.
constexpr duration answer_limit = std::chrono::seconds(10);

std::string random_token(environment& from) {
  std::array<std::byte, 16> bytes{};
  from.fill_random(bytes);
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<int>(b));
  return text;
}

/// A store that outlives attempts needs a nonce that is drawn; otherwise there is one.
std::string nonce_of(const launch_context& job) {
  if (job.is_attempt_agreed) return fmt::format("attempt-{}", job.attempt);
  return job.place == store_place::launcher ? "" : "hosted";
}

}  // namespace

launch_keys::launch_keys(runtime& rt, const launch_context& job,
                         const std::string& endpoint, const tcp_store_options& client)
    : rank_(job.rank),
      size_(job.size),
      run_(fmt::format("manyworlds/{}/", job.run_id)),
      fixed_nonce_(nonce_of(job)),
      token_(random_token(access::core(rt).env())),
      is_hosted_(job.place != store_place::launcher),
      service_(rt.service()),
      client_(rt, endpoint, client) {
  if (!fixed_nonce_.empty()) agree(fixed_nonce_);
}

void launch_keys::agree(const std::string& nonce) {
  MW_ASSERT(!nonce.empty(), "a nonce is not empty");
  MW_ASSERT(!is_agreed_.load(), "a nonce is agreed on once");
  prefix_ = run_ + nonce + "/";
  // Release: pairs with the acquires of `prefix` and `perform`, which then read it.
  is_agreed_.store(true, std::memory_order_release);
  settled_.set();
}

void launch_keys::note(const store_error& e) {
  const store_error_kind kind = e.kind();
  if (kind != store_error_kind::protocol && kind != store_error_kind::refused) return;
  refusal_ = e.failure();
  settled_.set();
}

std::string launch_keys::prefix() const {
  return is_agreed_.load(std::memory_order_acquire) ? prefix_ : std::string();
}

std::string launch_keys::trouble() const {
  std::string of_client = client_.trouble();
  if (!of_client.empty() || is_agreed_.load(std::memory_order_acquire)) return of_client;
  return fmt::format("rank 0 of this attempt has not come to the store at {}",
                     client_.address());
}

task<void> launch_keys::serve(std::shared_ptr<launch_keys> self) {
  try {
    co_await stop_on(self->take_part(), self->stop_.get_token());
  } catch (const stopped&) {
    co_return;
  }
}

task<void> launch_keys::take_part() {
  // Without a conditional operator: g++ 12.2 frees the task of one twice.
  if (!is_agreed_.load() && rank_ == 0) co_await lead();
  if (!is_agreed_.load()) co_await follow();
  if (shows_presence()) co_await show_presence();
}

task<void> launch_keys::lead() {
  std::int64_t drawn = 0;
  while (drawn == 0) {
    bool failed = false;
    try {
      // Where the answer is lost a number is left out, which does no harm.
      drawn = co_await client_.add(run_ + "attempts", 1, answer_limit);
    } catch (const store_error& e) {
      failed = true;
      note(e);
    }
    if (failed) co_await sleep_for(first_pause);
  }
  const std::string nonce = std::to_string(drawn);
  agree(nonce);
  if (size_ > 1) co_await answer_all(nonce);
}

task<void> launch_keys::answer_all(std::string nonce) {
  std::vector<std::string> answered(static_cast<std::size_t>(size_));
  for (;;) {
    bool failed = false;
    try {
      // In this order: what is left after a look rings for the next one.
      co_await client_.erase(run_ + "bell", answer_limit);
      for (rank_t rank = 1; rank < size_; ++rank) {
        const auto token =
            co_await client_.try_get(fmt::format("{}join/{}", run_, rank), answer_limit);
        std::string& last = answered[static_cast<std::size_t>(rank)];
        if (!token || *token == last) continue;
        co_await client_.set(run_ + "nonce/" + *token, nonce, answer_limit);
        last = *token;
      }
      co_await client_.get(run_ + "bell", look_again);
    } catch (const store_error& e) {
      failed = e.kind() != store_error_kind::timed_out;
    }
    if (failed) co_await sleep_for(first_pause);
  }
}

task<void> launch_keys::follow() {
  for (duration pause = first_pause;; pause = std::min(2 * pause, longest_pause)) {
    bool failed = false;
    std::string nonce;
    try {
      co_await client_.set(fmt::format("{}join/{}", run_, rank_), token_, answer_limit);
      co_await client_.set(run_ + "bell", "1", answer_limit);
      nonce = co_await client_.get(run_ + "nonce/" + token_, pause);
    } catch (const store_error& e) {
      failed = e.kind() != store_error_kind::timed_out;
      note(e);
    }
    if (!nonce.empty()) co_return agree(nonce);
    if (failed) co_await sleep_for(pause);
  }
}

task<void> launch_keys::show_presence() {
  for (;;) {
    bool failed = false;
    try {
      co_await client_.set(fmt::format("{}here/{}", prefix_, rank_), "1", answer_limit);
    } catch (const store_error&) {
      failed = true;
    }
    if (!failed) co_return;
    co_await sleep_for(first_pause);
  }
}

task<void> launch_keys::all_have_come(duration limit) {
  std::vector<std::string> keys;
  for (rank_t rank = 1; rank < size_; ++rank)
    keys.push_back(fmt::format("{}here/{}", prefix_, rank));
  if (!keys.empty()) co_await client_.wait(store_keys(std::move(keys)), limit);
}

task<void> launch_keys::until_agreed(store_operation what, std::string key,
                                     duration limit) {
  const time_point begun = service_.now();
  try {
    co_await within(settled_.wait(), limit);
  } catch (const timed_out&) {}
  if (is_agreed_.load(std::memory_order_acquire)) co_return;
  const store_error_kind kind = refusal_ ? refusal_->kind : store_error_kind::unreachable;
  const std::string why = refusal_ ? refusal_->reason : trouble();
  throw store_error(store_failure(kind, client_.address(), what, {std::move(key)},
                                  service_.now() - begun, why));
}

task<store_reply> launch_keys::perform(std::shared_ptr<launch_keys> self,
                                       store_request request) {
  if (!self->is_agreed_.load(std::memory_order_acquire)) {
    const time_point begun = self->service_.now();
    std::string key = request.keys.empty() ? std::string() : request.keys.front();
    co_await run_on(self->service_,
                    self->until_agreed(request.operation, std::move(key), request.limit));
    request.limit =
        std::max(duration::zero(), request.limit - (self->service_.now() - begun));
  }
  for (std::string& key : request.keys) key.insert(0, self->prefix_);
  co_return co_await self->client_.perform(std::move(request));
}

}  // namespace manyworlds::inline v0::detail
