#include "call_record.hpp"

#include <fmt/format.h>

#include "dispatch_core.hpp"
#include "worker_link.hpp"

namespace manyworlds::inline v0 {

namespace {

constexpr std::size_t most_read_kept = 64;

}  // namespace

call_record::call_record(std::shared_ptr<dispatch_core> core, pick_reference pick,
                         std::uint64_t number) noexcept
    : core_(std::move(core)),
      pick_(pick),
      number_(number),
      watch_(
          [](void* self, cause why) noexcept {
            static_cast<call_record*>(self)->give_up(failure(
                why, why == cause::timed_out ? "the time of the call has passed" : ""));
          },
          this) {}

call_record::~call_record() {
  give_up(failure(cause::cancelled, "its stream was dropped"));
  // Unwound while its request was being sent.
  if (link_) link_->cancel(slot_);
}

void call_record::begin(executor& home, duration limit, std::stop_token token) {
  deadline_ = later(home.now(), limit);
  watch_.begin(home, deadline_, std::move(token));
}

void call_record::check() const {
  if (phase_ != phase::over || came_ > 0) return;
  if (error_) std::rethrow_exception(error_);
  if (failure_) throw world_error(failure_);
}

void call_record::set_queued() noexcept {
  link_ = nullptr;
  phase_ = phase::queued;
  note_change();
}

void call_record::set_sending(worker_link& link, std::uint32_t slot) noexcept {
  link_ = &link;
  slot_ = slot;
  ++tries_;
  phase_ = phase::sending;
  note_change();
}

// Its answer may have overtaken the end of the sending.
void call_record::set_asked() noexcept {
  if (phase_ == phase::sending) phase_ = phase::asked;
}

void call_record::end(failure f) noexcept {
  link_ = nullptr;
  // Given up while its request was being sent, by a cause that stays.
  if (phase_ == phase::over) return;
  finish(std::move(f));
}

void call_record::give_up(failure f) noexcept {
  if (phase_ == phase::over) return;
  if (phase_ == phase::queued) core_->forget(*this);
  // While its request is being sent the slot stays with the sender, who knows whether the
  // worker has got it.
  if (phase_ == phase::asked) std::exchange(link_, nullptr)->cancel(slot_);
  finish(std::move(f));
}

void call_record::give_up(std::exception_ptr error) noexcept {
  error_ = std::move(error);
  give_up(failure(cause::cancelled, "its pick threw"));
}

void call_record::finish(failure f) noexcept {
  phase_ = phase::over;
  failure_ = std::move(f);
  watch_.end();
  note_change();
  if (!reader_) return;
  next_reply_awaiter& reader = *std::exchange(reader_, nullptr);
  reader.finish(std::nullopt, failure_);
}

void call_record::push(bytes reply) {
  const std::size_t size = reply.size();
  ++came_;
  cost_of_come_ += size + call_wire::reply_cost;
  if (reader_) {
    next_reply_awaiter& reader = *std::exchange(reader_, nullptr);
    ++received_;
    note_read(size + call_wire::reply_cost);
    reader.finish(std::move(reply), failure());
    return;
  }
  replies_.push_back(std::move(reply));
  note_change();
}

bool call_record::is_lost(const failure& why, int most_tries) noexcept {
  link_ = nullptr;
  if (came_ == 0 && tries_ < most_tries) return true;
  failure f = why;
  const std::string told =
      came_ > 0 ? fmt::format("{} {} of the call had come", came_,
                              came_ == 1 ? "reply" : "replies")
                : fmt::format("the last of {} workers that were asked", tries_);
  f.detail = f.detail.empty() ? told : f.detail + "; " + told;
  finish(std::move(f));
  return false;
}

std::optional<bytes> call_record::take_reply() noexcept {
  if (next_ == replies_.size()) return std::nullopt;
  bytes reply = std::move(replies_[next_++]);
  // Also for a reader who is always one behind.
  if (next_ == replies_.size() || next_ == most_read_kept) {
    replies_.erase(replies_.begin(),
                   replies_.begin() + static_cast<std::ptrdiff_t>(next_));
    next_ = 0;
  }
  ++received_;
  note_read(reply.size() + call_wire::reply_cost);
  return reply;
}

void call_record::skip(std::uint64_t cost) noexcept {
  cost_of_come_ += cost;
  note_read(cost);
}

void call_record::note_read(std::uint64_t cost) noexcept {
  cost_of_read_ += cost;
  if (link_) link_->note_read(slot_);
}

void call_record::note_change() noexcept {
  changed_.set();
  changed_.reset();
}

}  // namespace manyworlds::inline v0
