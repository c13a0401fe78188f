#include "host/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "memory/reduce_elements.hpp"

namespace manyworlds::inline v0::detail::host {

/// Holds one message, of bytes; the signature says what they are. Its list of one view,
/// and the view, lie beside it.
struct schedule::step : operation {
  explicit step(schedule& x) noexcept
      : operation(operation_kind::none,
                  [](operation& op, operation_end how) noexcept {
                    auto& self = static_cast<step&>(op);
                    self.owner.step_ended(self, how);
                  }),
        owner(x) {}

  schedule& owner;
  const_buffer_view from;
  buffer_view into;
  bool is_under_way = false;
  step* next_idle = nullptr;
};

namespace {

/// Returns how many members receive a large message while this one does.
rank_t at_once(operation_kind kind, rank_t members) noexcept {
  switch (kind) {
    case operation_kind::gather:
    case operation_kind::reduce:
      return 1;
    case operation_kind::broadcast:
    case operation_kind::scatter:
      return members - 1;
    default:
      return members;
  }
}

}  // namespace

schedule::schedule(core& shared, schedule_port& port) noexcept
    : core_(shared), port_(port) {}
schedule::~schedule() = default;

schedule::step& schedule::take_step(operation_kind kind, rank_t peer) {
  MW_ASSERT(peer >= 0 && peer < core_.size && peer != core_.self,
            "messages go to the other members");
  step* s = idle_;
  if (s) {
    idle_ = s->next_idle;
  } else {
    s = &steps_.emplace_back(*this);
  }
  MW_ASSERT(!s->is_under_way, "an idle step is not under way");
  s->kind = kind;
  s->peer = peer;
  s->on = lane(lane_number);
  s->user = user_word(signature_.word());
  s->info = {};
  s->failed_with = cause::none;
  s->begun = false;
  s->bytes_moved = 0;
  s->is_under_way = true;
  return *s;
}

void schedule::begin(step& s) noexcept {
  ++(s.kind == operation_kind::send ? sends_ : receives_);
  s.started = core_.home.recently();
  port_.start_step(s);
}

void schedule::send(rank_t peer, std::span<const std::byte> data) {
  if (failing_) return;
  step& s = take_step(operation_kind::send, peer);
  s.from = data;
  s.source = const_view_list::of_one(s.from);
  s.target = view_list();
  begin(s);
}

void schedule::receive(rank_t peer, std::span<std::byte> into) {
  if (failing_) return;
  step& s = take_step(operation_kind::receive, peer);
  s.receivers = receivers_;
  s.into = into;
  s.target = view_list::of_one(s.into);
  s.source = const_view_list();
  begin(s);
}

void schedule::step_ended(step& s, operation_end how) noexcept {
  MW_ASSERT(s.is_under_way, "a message ends once (law 1)");
  MW_ASSERT((s.kind == operation_kind::send ? sends_ : receives_) > 0,
            "each message under way is counted once");
  --(s.kind == operation_kind::send ? sends_ : receives_);
  s.is_under_way = false;
  if (how == operation_end::failed) {
    note_failure(s);
  } else if (how == operation_end::done && s.kind == operation_kind::receive &&
             !failing_) {
    const collective_signature said(s.info.user.value());
    if (!signature_.agrees_with(said)) [[unlikely]] {
      fail({s.peer, cause::mismatch, {}, said});
    }
  }
  s.next_idle = std::exchange(idle_, &s);
  if (failing_) {
    if (under_way() == 0 && !stopped_) port_.came_to_rest();
    return;
  }
  resume_if_reached();
}

void schedule::resume_if_reached() noexcept {
  if (!waiter_ || !is_reached(goal_)) return;
  resume(*std::exchange(waiter_, nullptr));
}

void schedule::note_failure(step& s) noexcept {
  if (failing_) return;
  const bool is_disagreement = s.failed_with == cause::size_mismatch ||
                               s.failed_with == cause::type_mismatch ||
                               s.failed_with == cause::memory_mismatch;
  // A member that takes back what is being read fails with this collective: a member
  // has left.
  if (s.failed_with == cause::cancelled_by_peer) s.failed_with = cause::closed;
  if (!is_disagreement) {
    return fail({s.peer, s.failed_with, std::move(s.failure_detail), {}});
  }
  fail({s.peer, cause::mismatch,
        fmt::format(": a message of {} bytes where {} were expected", s.info.bytes,
                    s.target.total_bytes()),
        collective_signature(s.info.user.value())});
}

void schedule::fail(schedule_failure why) noexcept {
  if (std::exchange(failing_, true)) {
    // A member that disagrees and leaves has not only left.
    const bool says_more = why.why == cause::mismatch && failure_.why == cause::closed;
    if (says_more && !stopped_) failure_ = std::move(why);
    return;
  }
  failure_ = std::move(why);
  port_.step_failed();
}

void schedule::take_back() {
  for (step& s : steps_) {
    if (!s.is_under_way || !port_.withdraw_step(s)) continue;
    MW_ASSERT(s.is_under_way && under_way() > 0,
              "a message that is withdrawn does not end");
    --(s.kind == operation_kind::send ? sends_ : receives_);
    s.is_under_way = false;
    s.next_idle = std::exchange(idle_, &s);
  }
}

void schedule::open(collective_shape&& shape, collective_signature signature) noexcept {
  MW_ASSERT(under_way() == 0 && !waiter_, "one collective at a time");
  shape_ = std::move(shape);
  signature_ = signature;
  receivers_ = at_once(shape_.kind, size());
  const std::size_t most = std::max(shape_.in.size(), shape_.out.size());
  next_.set_kind(most * static_cast<std::size_t>(size()) <= brief_bytes
                     ? work_kind::brief
                     : work_kind::library);
}

schedule_failure schedule::close() noexcept {
  MW_ASSERT(under_way() == 0 && !waiter_,
            "a collective ends when its messages have (law 4)");
  if (scratch_bytes_ > scratch_kept) {
    scratch_.reset();
    scratch_bytes_ = 0;
  }
  failing_ = stopped_;
  return std::exchange(failure_, {});
}

std::span<std::byte> schedule::scratch(std::size_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_.reset();
    scratch_bytes_ = 0;
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    scratch_bytes_ = bytes;
  }
  return {scratch_.get(), bytes};
}

void schedule::combine(std::span<const std::byte> low, std::span<const std::byte> high,
                       std::span<std::byte> into) noexcept {
  MW_ASSERT(low.size() == into.size() && high.size() == into.size(),
            "what is combined has one size");
  MW_ASSERT(into.size() <= largest_slice && into.size() % size_of(shape_.type) == 0,
            "a slice is bounded (law 9) and ends with an element");
  reduce_elements(shape_.type, shape_.by, low.data(), high.data(), into.data(),
                  into.size() / size_of(shape_.type));
}

void schedule::finish_reduction(std::span<std::byte> data) noexcept {
  if (shape_.by != avg) return;
  MW_ASSERT(data.size() <= largest_slice && data.size() % size_of(shape_.type) == 0,
            "a slice is bounded (law 9) and ends with an element");
  divide_elements(shape_.type, data.data(), data.size() / size_of(shape_.type),
                  core_.size);
}

}  // namespace manyworlds::inline v0::detail::host
