#include "spmd/hosted_worker.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "exception_text.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "spmd/mesh_name.hpp"
#include "spmd/received_command.hpp"

namespace manyworlds::inline v0::detail {

using command_wire::reply_head;
using node_wire::word_kind;
using node_wire::word_of;

hosted_worker::hosted_worker(runtime& rt, store& meeting, const worker_seat& seat,
                             process_options program)
    : id_(seat.id),
      incarnation_(seat.incarnation),
      name_(control_name(seat.session, seat.id, seat.incarnation)),
      process_(rt, std::move(program)),
      control_(rt, meeting,
               {.name = name_,
                .rank = 0,
                .size = 2,
                .form = seat.limits.start,
                .suspect_after = seat.limits.suspect_after,
                .broken_after = seat.limits.lost_after}) {}

// More than a worker that reads has waiting, of as many meshes as there may be.
constexpr std::size_t most_urgent = std::size_t{4} * command_wire::most_members;
constexpr std::size_t most_urgent_bytes = std::size_t{64} << 20;

word_of hosted_worker::word(word_kind kind) const noexcept {
  word_of head{};
  head.kind = kind;
  head.worker = id_;
  head.incarnation = incarnation_;
  return head;
}

task<void> hosted_worker::run(std::shared_ptr<hosted_worker> self, world& controller) {
  const failure why = co_await self->serve(controller);
  word_of last = self->word(word_kind::over);
  last.why = static_cast<std::uint8_t>(why.cause);
  last.noticed_after = why.noticed_after.count();
  const std::size_t bytes = std::min(why.detail.size(), node_wire::longest_text);
  co_await controller.send_message(last,
                                   std::as_bytes(std::span(why.detail).first(bytes)),
                                   to{0}, node_wire::commands);
}

/// Returns why it is over.
task<failure> hosted_worker::serve(world& controller) {
  failure why(cause::abandoned, {});
  auto dropped = [this]() -> task<void> { co_await let_go_; };
  try {
    co_await when_any(meet(controller), dropped());
  } catch (const world_error& e) {
    why = e.failure();
  } catch (...) {
    why = failure(cause::out_of_resources, handled_exception_text());
  }
  control_ = world();
  waiting_.clear();
  urgent_.clear();
  urgent_bytes_ = 0;
  co_return why;
}

task<void> hosted_worker::meet(world& controller) {
  co_await control_;
  co_await controller.send_message(word(word_kind::joined), to{0}, node_wire::commands);
  co_await when_any(read(controller), write());
}

// --- what it is told ------------------------------------------------------------

void hosted_worker::push(command next, bool is_urgent) {
  // Nothing is kept for one that is over.
  if (!control_) return;
  if (is_urgent) {
    push_urgent(std::move(next));
  } else {
    // Its window bounds these.
    waiting_.push_back(std::move(next));
  }
  wake_.set();
}

void hosted_worker::push_urgent(command next) {
  const std::size_t bytes = next.block.size();
  if (urgent_.size() >= most_urgent || urgent_bytes_ + bytes > most_urgent_bytes)
    return fail("it asks, and does not read what it is told");
  // An alert is counted, as those that come behind it do, and one is as good as many.
  ++urgent_so_far_;
  const bool is_alert = next.head.kind == command_wire::command_kind::alert;
  if (is_alert && !urgent_.empty() && urgent_.back().head.kind == next.head.kind) return;
  urgent_bytes_ += bytes;
  urgent_.push_back(std::move(next));
}

bool hosted_worker::may_send() const noexcept {
  return !urgent_.empty() ||
         (!waiting_.empty() && waiting_.front().behind <= urgent_so_far_);
}

task<void> hosted_worker::write() {
  for (;;) {
    while (!may_send()) {
      wake_.reset();
      co_await wake_;
    }
    const bool is_urgent = !urgent_.empty();
    std::deque<command>& from_here = is_urgent ? urgent_ : waiting_;
    command next = std::move(from_here.front());
    from_here.pop_front();
    if (is_urgent) urgent_bytes_ -= next.block.size();
    const sent_block block(next.block.bytes_at(0, next.block.size()));
    co_await send_with_block(control_, next.head, block, to{1});
  }
}

// --- what it says ------------------------------------------------------------

/// The controller reads what it says about itself.
task<void> hosted_worker::read(world& controller) {
  for (;;) {
    const auto told =
        co_await control_.recv_message<head_and_block<reply_head>>(from{1}, lane(0));
    if (!reply_fits(told.head.head, block_bytes(told.head, told.info))) {
      control_.fail("a reply that contradicts itself");
      continue;
    }
    received_block block = block_of(told.head, told.info);
    if (told.info.has_payload) co_await control_.recv(block.view(), from{1}, lane(0));
    word_of head = word(word_kind::reply);
    head.reply = told.head.head;
    const sent_block whole(block.bytes_at(0, block.size()));
    co_await send_block(controller, head, whole, to{0}, node_wire::commands);
  }
}

}  // namespace manyworlds::inline v0::detail
