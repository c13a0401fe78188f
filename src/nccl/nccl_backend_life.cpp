// From making the communicator to the end.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "../duration_text.hpp"
#include "cuda_library.hpp"
#include "nccl_backend.hpp"
#include "nccl_library.hpp"

namespace manyworlds::inline v0::nccl {

namespace {

// A kernel that is cut short still counts its step, and completes a peer's over garbage
// (NCCL 2.28.9, prims_simple.h, postPeer). The peer takes that for success unless it has
// heard that the world is broken: it was told before, and gets this long to read it.
constexpr duration head_start = std::chrono::milliseconds(5);
/// Of looks whether the launching thread has done with a view.
constexpr duration check_interval = std::chrono::microseconds(200);
/// For a break to come back as `quiesce`, if there is something to break.
constexpr duration break_patience = std::chrono::milliseconds(100);

}  // namespace

void nccl_backend::make_communicator() {
  for (rank_t r = 0; r < size_; ++r) {
    if (r == self_ || (self_ != 0 && r != 0)) continue;
    posts_.push_back(std::make_unique<order_post>(*this, operation_kind::receive));
    posts_.back()->peer = r;
    unarmed_.push_back(posts_.back().get());
  }
  drain_messages();
  // Views are checked there, whether or not the communicator is made already.
  if (options_.device.launch == launch_on::own_thread &&
      !(device_->launching().start(device_->helpers()) &&
        device_->watching().start(device_->helpers()))) {
    return break_world(self_, cause::out_of_resources, "no thread can be had for NCCL");
  }
  take_seat();
  if (places_.seat) communicator_->connect_later(communicator_stands_);
  const bool adopts = options_.device.communicator != nullptr;
  creation_.capability = device_->capability();
  if (self_ != 0) {
    hello_message hello;
    hello.device = device_->identity();
    hello.version = nccl_library::get().version;
    hello.capability = device_->capability();
    hello.adopts = adopts;
    say(0, hello);
    return order_changed();
  }
  if (size_ > 1) {
    std::random_device random;
    creation_.order = std::uint64_t{random()} << 32 | random();
    places_.seat->set_world(creation_.order);
    return order_changed();
  }
  creating_ = true;
  if (adopts) return communicator_->adopt(0, 1, communicator_made_);
  communicator_->make_unique_id(id_made_);
}

void nccl_backend::id_made() noexcept {
  if (stopping_) return;
  if (communicator_->error()) return communicator_made();
  guarded([this] {
    const ncclUniqueId& id = communicator_->unique_id();
    std::memcpy(creation_.id.data(), id.internal, creation_.id.size());
    say_to_all(creation_);
    communicator_->create(id, self_, size_, communicator_made_);
  });
}

void nccl_backend::communicator_made() noexcept {
  if (stopping_) return;
  if (const objection& wrong = communicator_->error()) {
    // A member that has left is no failure of the world's.
    if (std::find(left_.begin(), left_.end(), true) != left_.end()) {
      close_device("a member has left before the device was ready");
      if (leader_) guarded([this] { leader_->give_up_opening(); });
      give_seat_back();
      return go_if_idle();
    }
    std::string text = "the communicator could not be made: " + wrong.text;
    if (places_.is_made && !places_.is_made_known) {
      text += "; other worlds on the device have operations in flight that do not end";
    }
    if (!creation_.note.empty()) text += "; " + creation_.note;
    return break_world(self_, wrong.why, std::move(text));
  }
  is_open_ = true;
  guarded([this] {
    note_ready();
    note_orderly();
    if (leader_) leader_->open(home_.now());
    answer_proposals();
  });
  pump();
  // What is started meanwhile comes behind it, and must not overtake.
  while (!stopping_ && !wait_for_device_.empty()) {
    operation& op = *wait_for_device_.front();
    wait_for_device_.pop_front();
    guarded([&] { begin(op); });
  }
  go_if_idle();
}

void nccl_backend::note_ready() {
  const device_costs costs = communicator_->costs();
  const device_status now = status();
  events_.note(fmt::format(
      "device {} is ready after {}: NCCL {}, CUDA {}.{}; {} of {} multiprocessors, {} "
      "MiB, told by {}, over {}; NCCL calls it comm {}",
      now.device, duration_text(costs.time), version_text(costs.version),
      cuda_library::get().runtime / 1000, cuda_library::get().runtime % 1000 / 10,
      now.occupied, now.multiprocessors, costs.bytes >> 20,
      now.is_told_by_words ? "words" : "events", host_.transport(),
      fmt::ptr(communicator_->handle())));
}

device_status nccl_backend::status() const {
  device_status all;
  all.device = device_->ordinal();
  all.nccl_version = nccl_library::get().version;
  all.is_ready = communicator_->is_ready();
  all.is_told_by_words =
      all.is_ready && communicator_->completions()->by() == completion_by::words;
  all.occupied = occupied_by(options_.device);
  all.given = device_->reserved();
  all.multiprocessors = device_->multiprocessors();
  all.being_checked = checking_.size();
  all.queued = queue_.size() + places_.decided.size();
  all.handed_over = in_flight_.size();
  all.launched = launches_seen_;
  all.awaited = wait_for_ticket_.size();
  all.has_places = places_.are_used;
  all.places = places_.seat ? places_.seat->places() : 0;
  all.stuck = device_->stuck();
  all.roots = device_->roots();
  return all;
}

device_stream nccl_backend::stream() const noexcept {
  if (!communicator_->is_ready()) return {};
  return device_stream(communicator_->stream());
}

void nccl_backend::hold(graph_entry& graph) noexcept {
  if (stopping_) return graph.drop(graph);
  graph.previous = nullptr;
  graph.next = graphs_;
  if (graphs_) graphs_->previous = &graph;
  graphs_ = &graph;
  graph.is_listed = true;
}

void nccl_backend::let_go(graph_entry& graph) noexcept {
  if (!graph.is_listed) return;
  (graph.previous ? graph.previous->next : graphs_) = graph.next;
  if (graph.next) graph.next->previous = graph.previous;
  graph.is_listed = false;
}

void nccl_backend::drop_graphs() noexcept {
  while (graph_entry* const graph = graphs_) {
    let_go(*graph);
    graph->drop(*graph);
  }
}

// --- leaving: what is matched is done first, as the peers count on it; then the host
// part leaves as ever, and the communicator is freed behind everybody's back.

void nccl_backend::leave(work& gone, time_point deadline) noexcept {
  gone_ = &gone;
  leave_deadline_ = deadline;
  const duration left = std::max(deadline - home_.now(), duration(0));
  // The rest is for the host part.
  home_.timers().arm(ending_timer_, home_.now() + left / 2);
  guarded([this] {
    withdraw_receives("this member has left");
    fail_waiting("this member has left");
  });
  go_if_idle();
}

// It will not be made any more: nothing waits for it, nor starts again.
void nccl_backend::close_device(const std::string& why) {
  never_opens_ = true;
  fail_waiting(why);
  fail_queued(why);
  withdraw_receives(why);
}

void nccl_backend::fail_queued(const std::string& why) {
  while (!queue_.empty()) {
    device_job& first = *queue_.front();
    queue_.pop_front();
    for (device_job* each = &first; each;) {
      device_job* const next = std::exchange(each->next_in_group, nullptr);
      if (each->op) {
        fail(*each, cause::closed, why);
      } else {
        recycle(*each);
      }
      each = next;
    }
  }
}

void nccl_backend::withdraw_receives(const std::string& why) {
  for (const auto& job : jobs_) {
    if (!job->op || job->op->kind != operation_kind::receive ||
        job->stage != job_stage::parked || !host_.withdraw(*job->stand_in)) {
      continue;
    }
    job->proxy_runs = false;
    fail(*job, cause::closed, why);
  }
}

// One at a time: what is resumed may withdraw another.
void nccl_backend::fail_waiting(const std::string& why) {
  while (!wait_for_device_.empty()) {
    operation& op = *wait_for_device_.front();
    wait_for_device_.pop_front();
    refuse(op, cause::closed, why);
  }
}

void nccl_backend::go_if_idle() noexcept {
  if (!gone_ || host_leaves_ || stopping_) return;
  const bool late =
      broke_late_ || home_.now() >= leave_deadline_ || !ending_timer_.is_armed();
  if (broke_late_ && ending_timer_.is_armed()) return;
  // Rank 0 has decided, or may decide, that peers launch what they then wait for here.
  const bool is_promised =
      self_ == 0 ? own_orders_.have_launch() : !places_.undecided.empty();
  const bool connects =
      places_.may_connect && !places_.connects_without && !is_open_ && !never_opens_;
  const bool is_counted_on = is_promised || connects || !in_flight_.empty() ||
                             changing_ || !places_.decided.empty();
  const bool busy =
      is_promised || connects || !own_orders_.empty() || !checking_.empty() ||
      std::any_of(jobs_.begin(), jobs_.end(),
                  [](const auto& job) { return job->op || job->is_in_flight; });
  if (busy && !late) return;
  if (size_ > 1 && is_counted_on) {
    // What the peers count on is cut short: told no more than that we left, they would
    // take what that makes of theirs for success. Nothing breaks if all others have left.
    if (!std::exchange(broke_late_, true)) {
      home_.timers().arm(ending_timer_, home_.now() + break_patience);
      return break_world(self_, cause::overdue,
                         "it left before its operations on the device were done");
    }
  }
  host_leaves_ = true;
  guarded([this] {
    fail_checking("this member has left");
    if (leader_) leader_->retire();
    forget_promises();
  });
  home_.timers().disarm(ending_timer_);
  host_.leave(host_gone_, leave_deadline_);
}

void nccl_backend::ending_timer_expired() noexcept {
  quiet_ ? quiet_communicator() : go_if_idle();
}

void nccl_backend::host_gone() noexcept {
  if (stopping_) return;
  if (change_) change_->drop();
  drop_graphs();
  home_.timers().disarm(watch_);
  if (is_polling_) home_.remove(*this);
  is_polling_ = false;
  stopping_ = true;
  leave_order();
  if (in_flight_.empty() && !changing_) return end_leaving();
  // Late, and the stream is not done: nobody gets buffers back that it may still touch.
  quiet_communicator();
}

void nccl_backend::end_leaving() noexcept {
  communicator_->release();
  if (work* const gone = std::exchange(gone_, nullptr)) home_.schedule(*gone);
}

void nccl_backend::communicator_is_quiet() noexcept {
  if (quiet_) return part_is_quiet();
  communicator_quiets_ = false;
  end_leaving();
}

// --- breaking

void nccl_backend::quiesce(work& quiet) noexcept {
  stopping_ = true;
  leave_order();
  quiet_ = &quiet;
  noisy_parts_ = 2;
  home_.timers().disarm(watch_);
  home_.timers().disarm(ending_timer_);
  if (is_polling_) home_.remove(*this);
  is_polling_ = false;
  if (change_) change_->drop();
  drop_graphs();
  host_.quiesce(host_quiet_);
  if (!give_up_checks()) {
    ++noisy_parts_;
    checks_until_ = home_.now() + options_.device.quiesce;
    home_.timers().arm(checks_timer_, home_.now() + check_interval);
  }
  if (communicator_quiets_) return;
  if (size_ > 1 && !in_flight_.empty()) {
    home_.timers().arm(ending_timer_, home_.now() + head_start);
  } else {
    quiet_communicator();
  }
}

// Law 4: the launching thread may be asking CUDA about the stream of an operation.
void nccl_backend::await_checks() noexcept {
  const time_point now = home_.now();
  if (give_up_checks() || now >= checks_until_) return part_is_quiet();
  home_.timers().arm(checks_timer_, now + check_interval);
}

void nccl_backend::part_is_quiet() noexcept {
  if (--noisy_parts_ > 0) return;
  end_leaving();
  home_.schedule(*std::exchange(quiet_, nullptr));
}

void nccl_backend::quiet_communicator() noexcept {
  if (std::exchange(communicator_quiets_, true)) return;
  communicator_->quiesce(communicator_quiet_);
}

bool nccl_backend::has_lost_buffers(const operation& op) const noexcept {
  if (!op.device || !op.device->state || !communicator_->is_lost()) return false;
  return job_of(op)->is_in_flight;
}

}  // namespace manyworlds::inline v0::nccl
