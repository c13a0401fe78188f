#include "nccl/nccl_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <variant>

#include "manyworlds/detail/assertion.hpp"
#include "nccl/argument_checks.hpp"
#include "nccl/nccl_library.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

constexpr duration check_period = std::chrono::milliseconds(1);

/// Launched without rank 0's word.
[[nodiscard]] bool is_unmatched(const operation& op) noexcept {
  return op.kind == operation_kind::native ||
         (op.device->unmatched && !changes_memory(op.kind));
}

}  // namespace

nccl_backend::nccl_backend(reactor& home, backend_listener& events,
                           nccl_backend_options options, rank_t self,
                           std::vector<data_channel> connections,
                           std::shared_ptr<nccl::device> on)
    : member_(home, events, std::move(options), self, connections.size(), std::move(on)),
      communicator_(member_.device, home, member_.options.device, member_.options.name,
                    member_.options.epoch),
      host_(home, *this, member_.options.host, self, std::move(connections)) {
  if (member_.leads()) leading_.emplace(member_, mail_, turns_);
  home.timers().arm(watch_, home.now() + watch_period);
  member_.guarded([this] { make_communicator(); });
}

nccl_backend::~nccl_backend() {
  member_.home.timers().disarm(watch_);
  member_.home.timers().disarm(ending_timer_);
  stop_polling();
}

// --- operations

void nccl_backend::start(operation& op) noexcept {
  MW_ASSERT(member_.home.is_current(), "operations start on the world's reactor");
  MW_ASSERT(!member_.is_over, "no operation starts in a world that has ended");
  if (op.device) {
    op.info = {};
    return member_.guarded([&] { begin(op); });
  }
  if (!views_.must_hold(op)) return host_.start(op);
  member_.guarded([&] { views_.hold(op); });
}

void nccl_backend::begin(operation& op) {
  device_part& part = *op.device;
  part.state = nullptr;
  if (member_.is_closed_early()) return jobs_.refuse(op, cause::closed, closed_early);
  // The others come to no harm by waiting here, where they can still be checked and
  // withdrawn; a message must not be overtaken by one from host memory behind it.
  if (!member_.is_open && (!is_message(op.kind) || part.unmatched)) {
    return opening_.hold(op);
  }
  if (op.kind == operation_kind::device_ready) {
    part.costs = communicator_.costs();
    return op.end(operation_end::done);
  }
  if (op.kind == operation_kind::settle) return launches_.settle(op);
  if (part.group && part.group->failed) {
    return op.fail(cause::invalid_argument, group_failed);
  }
  if (error_message wrong = validate_beginning(op)) {
    return jobs_.refuse(op, wrong.why, std::move(wrong.text));
  }
  payload_layout layout;
  if (is_message(op.kind) && !is_unmatched(op)) {
    try {
      layout = op.kind == operation_kind::send ? payload_layout(part.source)
                                               : payload_layout(part.target);
    } catch (const std::invalid_argument& e) {
      return jobs_.refuse(op, cause::invalid_argument, e.what());
    }
  }
  take_job(op, std::move(layout));
}

error_message nccl_backend::validate_beginning(const operation& op) const {
  if (std::string wrong = validate(op, member_.self, member_.size); !wrong.empty()) {
    return {cause::invalid_argument, std::move(wrong)};
  }
  std::string missing = missing_for(op, member_.size, opening_.capability());
  if (!missing.empty()) return {cause::unsupported, std::move(missing)};
  if (jobs_.are_suspended() != (op.kind == operation_kind::resume_device)) {
    return {cause::invalid_argument,
            jobs_.are_suspended() ? "the device is suspended: resume_device() first"
                                  : "the device is not suspended"};
  }
  if (gone_) return {cause::closed, "this member has left"};
  if (!is_unmatched(op) && member_.has_leader_left()) {
    return {cause::closed, leader_gone};
  }
  return {};
}

void nccl_backend::take_job(operation& op, payload_layout layout) {
  device_job& job = jobs_.take(op);
  job.layout = std::move(layout);
  job.launch->name = member_.names.of(op.kind);
  job.launch->bytes = job.bytes_total;
  job.shown.begin(job.launch->name, job.bytes_total);
  if (std::string wrong = views_.validate(job); !wrong.empty()) {
    return jobs_.refuse(job, cause::invalid_argument, std::move(wrong));
  }
  if (changes_memory(op.kind)) jobs_.note_change(op.kind);
  views_.pass(job);
}

void nccl_backend::go_on(device_job& job) {
  const operation& op = *job.op;
  // Members may have left while its views were checked.
  if (member_.is_closed_early()) return jobs_.refuse(job, cause::closed, closed_early);
  if (gone_ && op.kind == operation_kind::receive) {
    return jobs_.refuse(job, cause::closed, "this member has left");
  }
  if (!is_unmatched(op)) return matcher_.begin(job);
  turns_.note_unordered();
  launches_.enqueue_unmatched(job);
}

bool nccl_backend::withdraw(operation& op) noexcept {
  if (views_.has(op)) return views_.withdraw(op);
  if (!op.device) return host_.withdraw(op);
  if (opening_.withdraw(op)) return true;
  if (op.kind == operation_kind::settle) {
    launches_.withdraw_settle(op);
    return true;
  }
  device_job& job = job_of(op);
  if (withdraw_job(job)) return true;
  // The peer counts on it, or has not said yet whether it does. How long it may take
  // counts from its launch: until then others are in front of it.
  job.is_given_up = true;
  if (job.stage == job_stage::handed_over) {
    job.settle_by = member_.home.now() + member_.options.host.settle_limit;
  }
  return false;
}

bool nccl_backend::withdraw_job(device_job& job) noexcept {
  if (job.stage == job_stage::grouped) {
    jobs_.leave_group(job);
    return true;
  }
  if (job.stage == job_stage::queued && job.op->kind == operation_kind::native) {
    launches_.withdraw(job);
    return true;
  }
  return matcher_.withdraw(job);
}

void nccl_backend::discard(rank_t peer, lane on) noexcept {
  member_.guarded([&] { views_.discard(peer, on); });
  host_.discard(peer, on);
}

// --- turns of the reactor

void nccl_backend::must_poll() noexcept {
  if (std::exchange(is_polling_, true)) return;
  member_.home.add(*this);
}

void nccl_backend::stop_polling() noexcept {
  if (std::exchange(is_polling_, false)) member_.home.remove(*this);
}

bool nccl_backend::poll() noexcept {
  bool any = views_.see_answers();
  if (mail_.has_own() && !member_.is_over) {
    member_.guarded([&] { any |= mail_.hear_own(); });
  }
  any |= launches_.see_launches();
  if (launches_.see_ends()) {
    any = true;
    member_.guarded([this] { turns_.note_orderly(); });
  }
  if (member_.is_over) return any;
  const time_point now = member_.home.recently();
  if (now - last_watch_ >= check_period) {
    last_watch_ = now;
    launches_.watch(member_.home.now());
  }
  pump();
  if (!launches_.is_in_flight() && views_.empty() && !mail_.has_own()) stop_polling();
  go_if_idle();
  return any;
}

bool nccl_backend::prepare_sleep(std::optional<duration>& limit) noexcept {
  const duration nap =
      views_.empty() ? launches_.longest_nap() : launch_queue::shortest_nap;
  if (!limit || *limit > nap) limit = nap;
  return true;
}

void nccl_backend::pump() noexcept {
  launches_.pump();
  turns_.take_turns();
}

void nccl_backend::watch() noexcept {
  const time_point now = member_.home.now();
  member_.home.timers().arm(watch_, now + watch_period);
  if (!member_.is_over) launches_.watch(now);
  if (!member_.is_over) watch_given_up(now);
  if (!member_.is_over) turns_.watch(now);
  if (!member_.is_over && leading_) leading_->watch(now);
}

void nccl_backend::watch_given_up(time_point now) noexcept {
  for (const auto& job : jobs_.all()) {
    if (!job->op || job->settle_by > now) continue;
    return member_.break_world(job->peer, cause::stalled,
                               "a transfer on the device was given up, but does not end");
  }
}

// --- what members say

template <class Message>
void nccl_backend::deliver(rank_t from, const Message& message) {
  constexpr bool is_to_leader = requires { leading_->hear(from, message); }
  || requires { opening_.hear(from, message); };
  if (is_to_leader && !member_.leads()) throw wire_error("what only rank 0 is told");
  if (!is_to_leader && from != 0) throw wire_error("what only rank 0 may say");
  if constexpr (requires { leading_->hear(from, message); }) {
    leading_->hear(from, message);
  } else if constexpr (requires { opening_.hear(from, message); }) {
    opening_.hear(from, message);
  } else if constexpr (requires { opening_.hear(message); }) {
    opening_.hear(message);
  } else if constexpr (requires { turns_.hear(message); }) {
    turns_.hear(message);
  } else {
    matcher_.hear(message);
  }
}

// There will be no communicator, unless all are connecting already.
template <>
void nccl_backend::deliver(rank_t from, const collective_closed& m) {
  if (from != 0) throw wire_error("what only rank 0 may say");
  if (m.number != never) return matcher_.hear(m);
  if (member_.is_open || turns_.may_connect()) return;
  close_early(fmt::format("rank {} has left before the device was ready", m.left));
  turns_.note_orderly();
}

void nccl_backend::read(rank_t from, const order_message& message) {
  std::visit([&](const auto& m) { deliver(from, m); }, message);
  pump();
}

// Not at each message: rank 0 reads its own decisions while it is about to say the next.
void nccl_backend::all_read() noexcept { go_if_idle(); }

void nccl_backend::peer_left(rank_t peer) noexcept {
  member_.guarded([&] {
    member_.note_left(peer);
    if (leading_) leading_->note_left(peer);
    // Unless it has said before that all are to connect their peers it says so no more.
    if (peer == 0 && !member_.is_open && !turns_.may_connect()) {
      close_early("rank 0 has left before the device was ready");
    }
    // No member resumes it now.
    if (launches_.is_memory_away()) {
      launches_.fail_queued(fmt::format("rank {} has left", peer));
      turns_.note_orderly();
    }
    if (peer == 0) {
      matcher_.leader_has_left();
      turns_.forget_promises();
      pump();
    }
  });
  member_.events.peer_left(peer);
  go_if_idle();
}

void nccl_backend::order_changed() noexcept {
  if (member_.is_over) return;
  member_.guarded([this] { turns_.tell_changes(); });
  pump();
}

// --- the communicator

void nccl_backend::make_communicator() {
  mail_.open();
  // Views are checked there, whether or not the communicator is made already.
  if (!member_.launches_on_reactor() &&
      !(member_.device->launching().start(member_.device->helpers()) &&
        member_.device->watching().start(member_.device->helpers()))) {
    return member_.break_world(member_.self, cause::out_of_resources,
                               "no thread could be started for NCCL");
  }
  turns_.start([this] { order_changed(); });
  if (turns_.has_seat()) communicator_.connect_later(communicator_stands_);
  opening_.begin();
  order_changed();
}

void nccl_backend::communicator_stands() noexcept {
  if (member_.is_over) return;
  member_.guarded([this] { turns_.note_made(); });
}

void nccl_backend::communicator_ended() noexcept {
  if (member_.is_over) return;
  if (error_message wrong = opening_.error()) {
    // A member that has left is no failure of the world's.
    if (member_.has_any_left()) return not_opened();
    return member_.break_world(member_.self, wrong.why, std::move(wrong.text));
  }
  member_.is_open = true;
  member_.guarded([this] {
    member_.events.log(log_level::info, opening_.ready_line(status(), host_.transport()));
    turns_.note_orderly();
    if (leading_) leading_->open();
    turns_.answer_proposals();
  });
  pump();
  // What is started meanwhile comes behind it, and must not overtake.
  while (operation* const op = member_.is_over ? nullptr : opening_.take_waiting()) {
    member_.guarded([&] { begin(*op); });
  }
  go_if_idle();
}

void nccl_backend::not_opened() noexcept {
  member_.guarded([this] {
    close_early(closed_early);
    if (leading_) leading_->give_up_opening();
  });
  turns_.stop();
  go_if_idle();
}

// The communicator will not be made: nothing waits for it, nor starts again.
void nccl_backend::close_early(const std::string& why) {
  member_.never_opens = true;
  opening_.fail_waiting(why);
  launches_.fail_queued(why);
  matcher_.fail_receives(why);
}

void nccl_backend::memory_has_changed() noexcept {
  member_.guarded([this] { turns_.answer_proposals(); });
  pump();
  go_if_idle();
}

// --- what is asked

std::vector<undelivered_messages> nccl_backend::undelivered() const {
  std::vector<undelivered_messages> all = host_.undelivered();
  std::erase_if(all, [](const undelivered_messages& u) { return u.on == order_lane; });
  return all;
}

std::vector<lane_status> nccl_backend::lanes() const {
  std::vector<lane_status> all = host_.lanes();
  std::erase_if(all, [](const lane_status& l) { return l.on == order_lane; });
  return all;
}

transfer_counters nccl_backend::counters() const noexcept {
  transfer_counters all = host_.counters();
  launches_.add_to(all);
  return all;
}

const char* nccl_backend::transport() const noexcept {
  const std::string_view links = host_.transport();
  if (links == "shm") return "nccl, shm";
  return links == "tcp" ? "nccl, tcp" : "nccl, shm and tcp";
}

device_status nccl_backend::status() const {
  device_status all;
  all.device = member_.device->ordinal();
  all.nccl_version = nccl_library::get().version;
  all.is_ready = communicator_.is_ready();
  all.is_told_by_words =
      all.is_ready && communicator_.completions()->by() == completion_by::words;
  all.occupied = occupied_by(member_.options.device);
  all.given = member_.device->reserved();
  all.multiprocessors = member_.device->multiprocessors();
  all.being_checked = views_.size();
  launches_.add_to(all);
  all.has_places = turns_.are_used();
  all.places = turns_.held();
  all.stuck = member_.device->stuck();
  all.roots = member_.device->roots();
  return all;
}

device_stream nccl_backend::stream() const noexcept {
  if (!communicator_.is_ready()) return {};
  return device_stream(communicator_.stream());
}

void nccl_backend::hold(graph_entry& graph) noexcept {
  member_.is_over ? graph.drop(graph) : graphs_.add(graph);
}

}  // namespace manyworlds::inline v0::detail::nccl
