// How a call is checked, numbered and queued at its workers' links.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "spmd/local_places.hpp"
#include "spmd/register_file.hpp"
#include "spmd/session_core.hpp"

namespace manyworlds::inline v0::detail {

using command_wire::command_flag;
using command_wire::command_head;
using command_wire::command_kind;

std::uint32_t session_core::mesh_of(const std::vector<int>& workers) {
  const auto [mesh, is_new] = meshes_.find_or_add(workers);
  if (is_new) {
    for (const int each : workers) {
      auto [head, block] = mesh->description();
      link_of(each).push(head, std::move(block));
    }
  }
  return mesh->id;
}

std::shared_ptr<call_record> session_core::issue(remote_request& request) {
  check_reactor();
  auto call = std::make_shared<call_record>(*this, last_call_ + 1);
  call->function = std::move(request.function);
  call->where = request.where;
  call->values = std::move(request.values);
  call->wish = request.wish;
  check(request, *call);
  release_dropped();
  check_registers(request, *call);

  ++last_call_;
  command_head& head = call->head;
  head.call = call->id;
  head.kind = call->is_sync() ? command_kind::sync : command_kind::call;
  head.types = request.types;
  for (const int id : request.workers) {
    call->parts.push_back({.worker = id, .incarnation = link_of(id).incarnation()});
  }
  call->taken = std::move(request.takes);
  note_makers(*call);
  if (request.is_alone) head.set(command_flag::is_alone);
  if (request.fills && request.wish < answer_wish::one_value) name_result(request, *call);
  if (!request.is_alone && !call->is_sync()) head.mesh = mesh_of(request.workers);
  const std::span<const std::byte> written = call->values.written();
  head.name_bytes = static_cast<std::uint16_t>(call->function.size());
  head.values_bytes = static_cast<std::uint32_t>(written.size());
  const auto name = std::as_bytes(std::span(call->function));
  call->front.reserve(name.size() + written.size());
  call->front.insert(call->front.end(), name.begin(), name.end());
  call->front.insert(call->front.end(), written.begin(), written.end());
  if (request.wish == answer_wish::one_value) {
    call->from = static_cast<std::size_t>(
        std::ranges::find(request.workers, request.from) - request.workers.begin());
  }
  if (request.wish >= answer_wish::one_value) call->answers.resize(call->parts.size());
  if (request.local) source_->locals(0)->expect(call->id, request.local);
  open_.emplace(call->id, call);
  for (std::size_t rank = 0; rank < call->parts.size(); ++rank) {
    const bool asks = request.wish == answer_wish::all_values ||
                      (request.wish == answer_wish::one_value && rank == call->from);
    command_head own = head;
    if (asks) own.set(command_flag::wants_value);
    if (request.wish == answer_wish::end) own.set(command_flag::wants_end);
    link_of(call->parts[rank].worker).push(own, call);
  }
  call->has_limit = request.limit != duration::max();
  if (call->has_limit || request.token.stop_possible()) {
    call->deadline.begin(home(), later(home().now(), request.limit), request.token);
  }
  return call;
}

/// Refuses what no worker need be asked about.
void session_core::check(const remote_request& request, const call_record& call) const {
  if (is_ending()) refuse(call, failure(cause::closed, "the session has ended"));
  try {
    check_workers(request.workers);
  } catch (const std::invalid_argument& e) {
    refuse(call, failure(cause::invalid_argument, e.what()));
  }
  if (request.is_replayable && !request.is_alone) {
    refuse(call,
           failure(cause::invalid_argument,
                   "a function that takes part in collectives cannot run again on "
                   "one worker: declare it mw::alone, or do not make it replayable"));
  }
  if (call.function.size() > command_wire::longest_name) {
    refuse(call, failure(cause::invalid_argument,
                         "the name of a function has 255 bytes at most"));
  }
  if (request.fills && request.into == register_id() && registers_.is_full()) {
    refuse(call, failure(cause::overloaded,
                         fmt::format("{} drefs live, and there can be no more",
                                     register_file::most_registers)));
  }
  if (call.values.written().size() > command_wire::most_value_bytes) {
    refuse(call, failure(cause::invalid_argument,
                         "the values of a call have 16 MiB at most: larger ones are "
                         "tensors"));
  }
  if (request.wish == answer_wish::one_value &&
      std::ranges::count(request.workers, request.from) == 0) {
    refuse(call, failure(cause::invalid_argument,
                         fmt::format("worker {} is not in the mesh", request.from)));
  }
  if (request.local && source_->locals(0) == nullptr) {
    refuse(call, failure(cause::invalid_argument,
                         "worker 0 is in another process: its values are local with "
                         "mw::processes::worker0 = mw::in_controller(functions)"));
  }
  for (const int id : request.workers) {
    const worker_link& link = link_of(id);
    if (link.state() == worker_state::ready) {
      if (!link.is_stuck()) continue;
      failure f(cause::overdue,
                fmt::format("worker {} is stuck in {}", id, link.stuck_in()));
      f.rank = id;
      refuse(call, std::move(f));
    }
    failure f(link.state() == worker_state::lost && link.why_lost()
                  ? link.why_lost().cause
                  : cause::not_joined,
              fmt::format("worker {} is lost: {}", id, link.loss()));
    f.rank = id;
    refuse(call, std::move(f));
  }
}

/// Refuses registers that do not hold what the call takes, and names why.
void session_core::check_registers(const remote_request& request,
                                   const call_record& call) const {
  for (const int id : request.workers) {
    for (const register_id which : request.takes) {
      const auto why = registers_.why_not(which, id, link_of(id).incarnation());
      if (why) refuse(call, *why);
    }
    if (request.into == register_id() || call.is_sync()) continue;
    if (const auto why = registers_.why_not_filled(request.into, id)) refuse(call, *why);
  }
}

/// Another call may fill a register again behind the one that made it first: who takes it
/// then depends on the later one alone.
void session_core::note_makers(call_record& call) const {
  for (const register_id which : call.taken) {
    for (const call_part& part : call.parts) {
      const std::uint64_t maker = registers_.maker_of(which, part.worker);
      if (open_.contains(maker) && !call.waits_for(maker)) call.makers.push_back(maker);
    }
  }
}

void session_core::refuse(const call_record& call, failure why) const {
  why.world = world_name(name_);
  why.operation = operation_kind::call;
  why.call = fmt::format("{} of {}", call.id, call.is_sync() ? "sync" : call.function);
  throw call_error(std::move(why), call.id, call.function, call.where, {});
}

}  // namespace manyworlds::inline v0::detail
