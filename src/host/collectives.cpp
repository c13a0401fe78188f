#include "collectives.hpp"

#include <exception>
#include <utility>

#include "algorithm_table.hpp"
#include "collective_algorithms.hpp"

namespace manyworlds::inline v0::host {

namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of an unknown kind";
  }
}

}  // namespace

collectives::step::step(collectives& owner, function f) noexcept
    : work([](work& w) noexcept {
        auto& self = static_cast<step&>(w);
        self.is_queued = false;
        if (self.owner.stopped_) return;
        try {
          (self.owner.*self.call)();
        } catch (const std::exception& e) {
          self.owner.core_.events.must_break(no_rank, cause::out_of_resources, e.what());
        }
      }),
      owner(owner),
      call(f) {}

collectives::end_of_task::end_of_task(collectives& owner) noexcept
    : continuation(
          [](continuation& k) noexcept -> std::coroutine_handle<> {
            static_cast<end_of_task&>(k).owner.task_ended();
            return std::noop_coroutine();
          },
          &owner.core_.home),
      owner(owner) {}

collectives::collectives(core& shared, collective_port& port)
    : core_(shared), port_(port), exchange_(shared, *this), roll_(shared, *this) {}

// The backend is quiet: nothing that the coroutine waits for comes any more, and what of
// it was in the reactor's queue has run.
collectives::~collectives() {
  if (task_runs_) task_.promise().cancel();
}

void collectives::stop() noexcept {
  stopped_ = true;
  roll_.stop();
  exchange_.stop();
}

void collectives::queue(step& s) noexcept {
  if (!stopped_ && !std::exchange(s.is_queued, true)) core_.home.schedule(s);
}

algorithm collectives::algorithm_for(const collective_shape& shape) noexcept {
  choice& last = choices_[static_cast<std::size_t>(shape.kind) - first_kind];
  if (last.bytes == shape.bytes) return last.use;
  collective_extent extent;
  extent.kind = shape.kind;
  extent.members = core_.size;
  extent.bytes = shape.bytes;
  extent.one_host = core_.options.one_host;
  last.use = choose_algorithm(core_.options.algorithms, extent);
  last.bytes = shape.bytes;
  return last.use;
}

void collectives::enter(operation& op) {
  const std::uint64_t number = roll_.next_number();
  if (number >= closed_from_) {
    return op.fail(cause::closed, has_left_text(closed_by_));
  }
  std::string wrong = objection_to_collective(op, core_.self, core_.size);
  if (!wrong.empty()) return refuse(op, std::move(wrong));
  op.backend.number = number;
  collective_shape shape = shape_of(op, core_.self, core_.size);
  const algorithm use = algorithm_for(shape);
  const bool is_next = !active_ && waiting_.empty();
  waiting_.push_back(op);
  if (!roll_.enter(collective_signature(shape, use, number)) || !is_next) return;
  waiting_.remove(op);
  begin(op, std::move(shape), use);
}

bool collectives::is_alone() const {
  rank_t left = 0;
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    if (rank != core_.self && port_.has_left(rank)) ++left;
  }
  return left == core_.size - 1;
}

// The others must not wait for this member, nor this member's next collective be taken
// for this one.
void collectives::refuse(operation& op, std::string why) {
  collective_shape shape;
  shape.kind = op.kind;
  roll_.refuse(collective_signature(shape, algorithm::flat, roll_.next_number()));
  op.fail(cause::invalid_argument, std::move(why));
}

void collectives::begin_next() {
  if (active_) return;
  if (operation* op = waiting_.pop_front()) {
    collective_shape shape = shape_of(*op, core_.self, core_.size);
    const algorithm use = algorithm_for(shape);
    begin(*op, std::move(shape), use);
  }
}

void collectives::begin(operation& op, collective_shape&& shape, algorithm use) {
  active_ = &op;
  given_up_ = false;
  op.begun = true;
  op.bytes_moved = shape.bytes;
  roll_.begin(op.backend.number, op.kind);
  const collective_signature signature(shape, use, op.backend.number);
  exchange_.open(std::move(shape), signature);
  task_ = carry_out(exchange_, use);
  task_runs_ = true;
  task_.promise().start(end_of_task_).resume();
}

// From within the coroutine's last suspension: its frame stays until the next begins.
void collectives::task_ended() noexcept {
  task_runs_ = false;
  if (stopped_) return;
  if (const std::exception_ptr& error = task_.promise().error()) {
    exchange_.fail({no_rank, cause::out_of_resources, text_of(error)});
  }
  if (exchange_.is_failing()) return queue(give_up_step_);
  end_active(operation_end::done);
}

void collectives::end_active(operation_end how) noexcept {
  operation& op = *std::exchange(active_, nullptr);
  roll_.end();
  const exchange_failure failure = exchange_.close();
  if (!waiting_.empty()) queue(next_step_);
  if (how == operation_end::done) return op.end(how);
  op.fail(failure.why, failure.detail);
}

void collectives::give_up_active() {
  if (!active_ || !exchange_.is_failing()) return;
  const exchange_failure why = exchange_.failure();
  const std::uint64_t number = active_->backend.number;
  const bool world_ends_it = why.why != cause::closed && !is_alone();
  if (!std::exchange(given_up_, true)) {
    if (world_ends_it) {
      return core_.events.must_break(why.peer, why.why, why.detail);
    }
    closed_from(number, why.peer);
    roll_.tell_closed(number, why.peer);
    exchange_.take_back();
  }
  if (world_ends_it || exchange_.under_way() > 0) return;
  // If the coroutine is in the reactor's queue it ends by itself, and this is called
  // again.
  if (task_runs_ && !task_.promise().cancel()) return;
  task_runs_ = false;
  end_active(operation_end::failed);
}

void collectives::disagree(rank_t peer, std::string detail) {
  if (is_alone()) return closed_from(0, peer);
  core_.events.must_break(peer, cause::mismatch, std::move(detail));
}

void collectives::closed_from(std::uint64_t number, rank_t culprit) {
  if (number >= closed_from_) return;
  closed_from_ = number;
  closed_by_ = culprit;
  fail_waiting(number, has_left_text(culprit));
  if (active_ && active_->backend.number >= number) {
    exchange_.fail({culprit, cause::closed, has_left_text(culprit)});
  }
}

void collectives::leave() {
  fail_waiting(0, "this member has left");
  closed_from_ = 0;
  closed_by_ = core_.self;
}

void collectives::fail_waiting(std::uint64_t from, const std::string& detail) {
  operation* op = waiting_.front();
  while (op) {
    operation* const next = operation_queue::next(*op);
    if (op->backend.number >= from) {
      waiting_.remove(*op);
      op->fail(cause::closed, detail);
    }
    op = next;
  }
}

}  // namespace manyworlds::inline v0::host
