#include "host/collectives.hpp"

#include <exception>
#include <utility>

#include "exception_text.hpp"
#include "host/algorithm_table.hpp"
#include "host/collective_algorithms.hpp"
#include "host/host_backend.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

/// Worlds with few collectives make no pages.
constexpr std::uint64_t first_for_pages = 4;

}  // namespace

collectives::step::step(collectives& owner, function f) noexcept
    : work([](work& w) noexcept {
        auto& self = static_cast<step&>(w);
        MW_ASSERT(self.is_queued && self.owner.core_.home.is_current(),
                  "queued work runs once, on its reactor");
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

collectives::collectives(core& shared)
    : core_(shared),
      schedule_(shared, *this),
      tracker_(shared, *this),
      agreement_(shared, tracker_),
      by_page_(shared, schedule_, agreement_, *this) {}

void collectives::start_step(operation& op) noexcept { core_.backend.start_part(op); }

bool collectives::withdraw_step(operation& op) noexcept {
  return core_.backend.withdraw(op);
}

// The backend is quiet: the coroutine waits for nothing that still comes, and its work
// in the reactor's queue has run.
collectives::~collectives() {
  if (task_runs_) task_.promise().cancel();
}

void collectives::stop() noexcept {
  stopped_ = true;
  tracker_.stop();
  by_page_.stop();
  schedule_.stop();
}

void collectives::queue(step& s) noexcept {
  if (!stopped_ && !std::exchange(s.is_queued, true)) core_.home.schedule(s);
}

const collectives::choice& collectives::choice_for(
    const collective_shape& shape) noexcept {
  MW_ASSERT(
      shape.kind >= operation_kind::barrier && shape.kind <= operation_kind::all_to_all,
      "a collective is of a known kind");
  choice& last = choices_[static_cast<std::size_t>(shape.kind) - first_kind];
  if (last.bytes == shape.bytes) return last;
  collective_extent extent;
  extent.kind = shape.kind;
  extent.members = core_.size;
  extent.bytes = shape.bytes;
  extent.one_host = core_.options.one_host;
  last.use = choose_algorithm(core_.options.algorithms, extent);
  last.is_own = has_rule_for(core_.options.algorithms, extent);
  last.bytes = shape.bytes;
  return last;
}

bool collectives::may_use_pages(const collective_shape& shape, bool has_cpus) noexcept {
  return core_.options.one_host && !choice_for(shape).is_own &&
         fits_pages(shape, core_.size, has_cpus);
}

// Whether there are CPUs for all is known once all have told; until then no member uses
// pages, so that the word need not say it.
collective_signature collectives::signature_of(const collective_shape& shape,
                                               std::uint64_t number) noexcept {
  return {shape, algorithm_for(shape), number, may_use_pages(shape, true)};
}

void collectives::enter(operation& op) {
  const std::uint64_t number = tracker_.next_number();
  if (number >= closed_from_) return fail_closed(op, closed_by_);
  std::string wrong = validate_collective(op, core_.self, core_.size);
  if (!wrong.empty()) return refuse(op, std::move(wrong));
  op.backend.number = number;
  collective_shape shape = shape_of(op, core_.self, core_.size);
  const algorithm use = algorithm_for(shape);
  const bool is_next = !active_ && waiting_.empty();
  waiting_.push_back(op);
  if (!tracker_.enter(signature_of(shape, number), op.where)) return;
  if (!is_next || is_contradicted()) return;
  waiting_.remove(op);
  begin(op, std::move(shape), use);
}

bool collectives::is_alone() const {
  rank_t left = 0;
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    if (rank != core_.self && core_.backend.has_left(rank)) ++left;
  }
  return left == core_.size - 1;
}

// The others must not wait for this member, nor take this member's next collective for
// this one.
void collectives::refuse(operation& op, std::string why) {
  collective_shape shape;
  shape.kind = op.kind;
  tracker_.refuse(
      collective_signature(shape, algorithm::flat, tracker_.next_number(), false),
      op.where);
  op.fail(cause::invalid_argument, std::move(why));
}

void collectives::begin_next() {
  if (active_ || waiting_.empty() || is_contradicted()) return;
  operation& op = *waiting_.pop_front();
  collective_shape shape = shape_of(op, core_.self, core_.size);
  const algorithm use = algorithm_for(shape);
  begin(op, std::move(shape), use);
}

// Returns the first number entered for which messages may still come. All messages
// of earlier ones have come: a member that agrees has sent what was received, and no
// more.
std::uint64_t collectives::first_open() const noexcept {
  if (active_) return active_->backend.number;
  const operation* const next = waiting_.front();
  return next ? next->backend.number : tracker_.next_number();
}

void collectives::note_message(rank_t peer, collective_signature theirs) noexcept {
  has_early_ = true;
  if (found_ || stopped_ || closed_from_ != never) return;
  const std::uint64_t number = tracker_.number_of(theirs);
  // A collective that is not begun is checked when it begins.
  if (number > first_open() || (!active_ && number == first_open())) return;
  if (!tracker_.contradicts(theirs, number < first_open())) return;
  found_ = contradiction{peer, number, theirs, {}};
  queue(dispute_step_);
}

// Checks what has come early for the collective that begins next. A lane's first
// message is the earliest.
bool collectives::is_contradicted() {
  if (found_) return true;
  if (!has_early_) return false;
  has_early_ = false;
  for (rank_t peer = 0; peer < core_.size; ++peer) {
    const inbound_message* const m =
        peer == core_.self ? nullptr
                           : core_.matcher->first_message(peer, schedule::lane_number);
    if (!m) continue;
    has_early_ = true;
    const collective_signature theirs(m->user);
    const std::uint64_t number = tracker_.number_of(theirs);
    if (number > first_open()) continue;
    if (!tracker_.contradicts(theirs, number < first_open())) continue;
    found_ = contradiction{peer, number, theirs, {}};
    queue(dispute_step_);
    return true;
  }
  return false;
}

void collectives::dispute_found() {
  if (found_) tracker_.dispute(*found_);
}

void collectives::peer_left(rank_t peer) {
  if (!stopped_) dispute_found();
  if (!stopped_) {
    agreement_.peer_left(peer);
    if (is_held_ && agreement_.is_decided()) queue(held_step_);
    by_page_.peer_left();
  }
  if (!stopped_) give_up_active();
  if (!stopped_) tracker_.peer_left(peer);
}

std::optional<collective_status> collectives::status() const {
  collective_status status = tracker_.status();
  if (status.number == 0) return std::nullopt;
  return status;
}

void collectives::begin(operation& op, collective_shape&& shape, algorithm use) {
  MW_ASSERT(!active_ && !task_runs_, "one collective at a time");
  MW_ASSERT(op.backend.number != 0 && stage_of(op) == stage::none,
            "a collective that begins has a number and no longer waits");
  active_ = &op;
  given_up_ = false;
  is_reported_ = false;
  op.begun = true;
  op.bytes_moved = shape.bytes;
  tracker_.begin(op.backend.number, op.kind, op.limit);
  const collective_signature signature = signature_of(shape, op.backend.number);
  schedule_.open(std::move(shape), signature);
  active_use_ = use;
  carry_out_active();
}

void collectives::carry_out_active() {
  if (may_use_pages(schedule_.shape(), agreement_.has_cpus())) {
    const std::uint64_t number = active_->backend.number;
    if (number >= first_for_pages && agreement_.may_begin()) agreement_.begin();
    switch (agreement_.way_of(number)) {
      case page_agreement::way::pages:
        if (!by_page_.has_pages()) by_page_.use(agreement_.take_pages());
        return by_page_.begin();
      case page_agreement::way::undecided:
        is_held_ = true;
        return;
      case page_agreement::way::messages:
        break;
    }
  }
  task_ = carry_out(schedule_, active_use_);
  task_runs_ = true;
  task_.promise().start(end_of_task_).resume();
}

const char* collectives::handle_page(rank_t peer, const frame& f) {
  const char* const wrong = agreement_.handle(peer, f);
  if (!wrong && is_held_ && agreement_.is_decided()) queue(held_step_);
  return wrong;
}

void collectives::go_on_held() {
  if (!std::exchange(is_held_, false) || schedule_.is_failing()) return;
  carry_out_active();
}

// Called from within the coroutine's last suspension: its frame stays until the next
// begins.
void collectives::task_ended() noexcept {
  MW_ASSERT(task_runs_ && (active_ || stopped_), "an algorithm ends once");
  task_runs_ = false;
  if (stopped_) return;
  if (const std::exception_ptr& error = task_.promise().error()) {
    schedule_.fail({no_rank, cause::out_of_resources, exception_text(error), {}});
  }
  if (schedule_.is_failing()) return queue(give_up_step_);
  end_active(operation_end::done);
}

void collectives::end_active(operation_end how) noexcept {
  MW_ASSERT(active_ && !task_runs_, "a collective ends once (law 1)");
  operation& op = *std::exchange(active_, nullptr);
  const std::uint64_t number = op.backend.number;
  tracker_.end();
  schedule_failure failure = schedule_.close();
  if (!waiting_.empty()) queue(next_step_);
  if (how == operation_end::done) return op.end(how);
  op.info.source = failure.peer;
  if (failure.why == cause::closed) return fail_closed(op, failure.peer);
  if (failure.why == cause::mismatch && failure.theirs.word() != 0) {
    failure.detail = tracker_.text_of(
        {failure.peer, number, failure.theirs, std::move(failure.detail)});
  }
  op.fail(failure.why, std::move(failure.detail));
}

void collectives::give_up_active() {
  if (stopped_ || !active_ || !schedule_.is_failing()) return;
  by_page_.stop();
  is_held_ = false;
  const schedule_failure why = schedule_.failure();
  const std::uint64_t number = active_->backend.number;
  if (why.why != cause::closed && !is_alone()) {
    if (std::exchange(is_reported_, true)) return;
    if (why.why == cause::mismatch) {
      return tracker_.dispute({why.peer, number, why.theirs, why.detail});
    }
    return core_.events.must_break(why.peer, why.why, why.detail);
  }
  if (!std::exchange(given_up_, true)) {
    closed_from(number, why.peer);
    tracker_.tell_closed(number, why.peer);
    schedule_.take_back();
  }
  if (schedule_.under_way() > 0) return;
  // If the coroutine is in the reactor's queue it ends by itself, and this is called
  // again.
  if (task_runs_ && !task_.promise().cancel()) return;
  task_runs_ = false;
  end_active(operation_end::failed);
}

// A world that all others have left is over and no longer breaks; operations that have
// not ended end by what was found. If all have ended, only the log can tell.
void collectives::disagree(rank_t peer, std::string detail) {
  if (!is_alone()) {
    return core_.events.must_break(peer, cause::mismatch, std::move(detail));
  }
  if (!active_ && waiting_.empty()) core_.events.log(log_level::warning, detail);
  while (operation* op = waiting_.pop_front()) {
    op->info.source = peer;
    op->fail(cause::mismatch, detail);
  }
  found_.reset();
  if (active_) schedule_.fail({peer, cause::mismatch, std::move(detail), {}});
  closed_from(0, peer);
}

void collectives::closed_from(std::uint64_t number, rank_t culprit) {
  if (number >= closed_from_) return;
  closed_from_ = number;
  closed_by_ = culprit;
  fail_waiting(number, culprit);
  if (active_ && active_->backend.number >= number) {
    schedule_.fail({culprit, cause::closed, has_left_text(culprit), {}});
  }
}

void collectives::leave() {
  // A disagreement that is found and not yet told: this member would leave as if all
  // were well.
  dispute_found();
  tracker_.settle_now();
  if (stopped_) return;
  fail_waiting(0, core_.self);
  // Its messages fail with the leave; what waits for pages has none.
  if (by_page_.is_active() || is_held_) {
    schedule_.fail({core_.self, cause::closed, closed_text(core_.self), {}});
  }
  closed_from_ = 0;
  closed_by_ = core_.self;
}

std::string collectives::closed_text(rank_t culprit) const {
  return culprit == core_.self ? "this member has left" : has_left_text(culprit);
}

void collectives::fail_closed(operation& op, rank_t culprit) const {
  op.info.source = culprit;
  op.fail(cause::closed, closed_text(culprit));
}

void collectives::fail_waiting(std::uint64_t from, rank_t culprit) {
  operation* op = waiting_.front();
  while (op) {
    operation* const next = operation_queue::next(*op);
    if (op->backend.number >= from) {
      waiting_.remove(*op);
      fail_closed(*op, culprit);
    }
    op = next;
  }
}

}  // namespace manyworlds::inline v0::detail::host
