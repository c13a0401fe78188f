#include "manyworlds/failure.hpp"

#include <fmt/format.h>

#include "duration_text.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

static_assert(cause::none < cause::peer_died && cause::forked < cause::closed,
              "the causes that break a world are one group");
static_assert(operation_kind::barrier < operation_kind::all_to_all &&
                  operation_kind::all_to_all < operation_kind::suspend_device &&
                  operation_kind::suspend_device < operation_kind::resume_device,
              "collectives are one group of kinds");

struct cause_words {
  std::string_view name;
  std::string_view description;
};

cause_words words_of(cause c) noexcept {
  switch (c) {
    case cause::none:
      return {"none", "nothing failed"};
    case cause::peer_died:
      return {"peer_died", "died"};
    case cause::silent_peer:
      return {"silent_peer", "was silent too long"};
    case cause::connection_lost:
      return {"connection_lost", "lost its connection"};
    case cause::replaced:
      return {"replaced", "was replaced by another process"};
    case cause::abandoned:
      return {"abandoned", "abandoned the world"};
    case cause::stalled:
      return {"stalled", "stalled within a transfer"};
    case cause::overdue:
      return {"overdue", "was late for a collective"};
    case cause::mismatch:
      return {"mismatch", "disagrees with the others about the operation"};
    case cause::protocol_error:
      return {"protocol_error", "violated the protocol"};
    case cause::out_of_resources:
      return {"out_of_resources", "ran out of resources"};
    case cause::broken_by_user:
      return {"broken_by_user", "broke the world on purpose"};
    case cause::runtime_stopped:
      return {"runtime_stopped", "stopped its runtime"};
    case cause::not_turned:
      return {"not_turned", "did not turn its reactor"};
    case cause::device_failed:
      return {"device_failed", "lost its GPU"};
    case cause::nccl_failed:
      return {"nccl_failed", "had an NCCL error"};
    case cause::forked:
      return {"forked", "is a forked child"};
    case cause::closed:
      return {"closed", "has left"};
    case cause::not_formed:
      return {"not_formed", "the world is not formed"};
    case cause::cancelled:
      return {"cancelled", "cancelled by its stop token"};
    case cause::timed_out:
      return {"timed_out", "timed out"};
    case cause::cancelled_by_peer:
      return {"cancelled_by_peer", "gave up the message"};
    case cause::size_mismatch:
      return {"size_mismatch", "sizes differ"};
    case cause::type_mismatch:
      return {"type_mismatch", "element types differ"};
    case cause::memory_mismatch:
      return {"memory_mismatch", "buffer and message lie in different kinds of memory"};
    case cause::buffers_lost:
      return {"buffers_lost", "the buffers may still be touched and are lost"};
    case cause::unsupported:
      return {"unsupported", "this is not supported"};
    case cause::invalid_argument:
      return {"invalid_argument", "invalid argument"};
    case cause::overloaded:
      return {"overloaded", "overloaded"};
    case cause::no_member_left:
      return {"no_member_left", "no member is left"};
    case cause::handler_failed:
      return {"handler_failed", "failed in its handler"};
    case cause::register_lost:
      return {"register_lost", "the value of an argument is not there"};
    case cause::not_joined:
      return {"not_joined", "did not join"};
    case cause::expelled:
      return {"expelled", "has gone on without this member"};
    case cause::rank_taken:
      return {"rank_taken", "is taken"};
    case cause::size_disagrees:
      return {"size_disagrees", "disagrees on the size"};
    case cause::backend_disagrees:
      return {"backend_disagrees", "chose another backend"};
    case cause::device_unavailable:
      return {"device_unavailable", "the GPU cannot be used"};
    case cause::device_busy:
      return {"device_busy", "the GPU has no multiprocessors left for this world"};
    case cause::device_degraded:
      return {"device_degraded",
              "the GPU holds too many communicators that are stuck or half made"};
    case cause::store_unreachable:
      return {"store_unreachable", "the store cannot be reached"};
    case cause::wrong_secret:
      return {"wrong_secret", "has another secret"};
    case cause::wrong_version:
      return {"wrong_version", "speaks another protocol version"};
  }
  return {"unknown", "failed"};
}

/// Returns whether the words say what a member did, not what happened to the operation.
bool is_about_member(cause c) noexcept {
  switch (c) {
    case cause::none:
    case cause::cancelled:
    case cause::timed_out:
    case cause::size_mismatch:
    case cause::type_mismatch:
    case cause::memory_mismatch:
    case cause::buffers_lost:
    case cause::unsupported:
    case cause::device_unavailable:
    case cause::device_busy:
    case cause::device_degraded:
    case cause::invalid_argument:
    case cause::not_formed:
    case cause::no_member_left:
    case cause::register_lost:
    case cause::store_unreachable:
      return false;
    default:
      return true;
  }
}

/// Returns the subject if no rank is known. What another member does is noticed with
/// its rank, but for a few things that several may have done.
std::string_view unnamed_subject(cause c) noexcept {
  switch (c) {
    case cause::peer_died:
    case cause::silent_peer:
    case cause::connection_lost:
    case cause::replaced:
    case cause::stalled:
    case cause::overdue:
    case cause::mismatch:
    case cause::protocol_error:
    case cause::cancelled_by_peer:
    case cause::not_joined:
    case cause::expelled:
    case cause::size_disagrees:
    case cause::backend_disagrees:
      return "a member";
    case cause::rank_taken:
      return "the rank";
    case cause::overloaded:
    case cause::handler_failed:
      return "";
    default:
      return "this member";
  }
}

/// Returns the name of the operation, and of a message its peer and lane.
std::string operation_text(const failure& f) {
  std::string text(name_of(f.operation));
  if (!is_message(f.operation) && f.operation != operation_kind::arrival) return text;
  if (f.operation_peer == no_rank && !f.operation_lane) return text;
  text += f.operation == operation_kind::send ? " to " : " from ";
  text += f.operation_peer == no_rank ? "any" : fmt::format("rank {}", f.operation_peer);
  if (f.operation_lane) text += fmt::format(" on lane {}", f.operation_lane->number());
  return text;
}

/// Returns the subject with a space behind it, or an empty text.
std::string subject_of(const failure& f) {
  if (!is_about_member(f.cause)) return {};
  if (f.rank == no_rank) {
    std::string subject(unnamed_subject(f.cause));
    return subject.empty() ? subject : subject + " ";
  }
  if (f.peer.pid == 0) return fmt::format("rank {} ", f.rank);
  return fmt::format("rank {} (pid {}) ", f.rank, f.peer.pid);
}

}  // namespace

std::string_view describe(cause c) noexcept { return words_of(c).description; }
std::string_view name_of(cause c) noexcept { return words_of(c).name; }

std::string_view name_of(operation_kind k) noexcept {
  switch (k) {
    case operation_kind::none:
      return "no operation";
    case operation_kind::form:
      return "forming";
    case operation_kind::send:
      return "send";
    case operation_kind::receive:
      return "recv";
    case operation_kind::arrival:
      return "arrival";
    case operation_kind::barrier:
      return "barrier";
    case operation_kind::broadcast:
      return "broadcast";
    case operation_kind::reduce:
      return "reduce";
    case operation_kind::all_reduce:
      return "all_reduce";
    case operation_kind::gather:
      return "gather";
    case operation_kind::all_gather:
      return "all_gather";
    case operation_kind::scatter:
      return "scatter";
    case operation_kind::reduce_scatter:
      return "reduce_scatter";
    case operation_kind::all_to_all:
      return "all_to_all";
    case operation_kind::device_ready:
      return "device_ready";
    case operation_kind::settle:
      return "settled";
    case operation_kind::native:
      return "native";
    case operation_kind::suspend_device:
      return "suspend_device";
    case operation_kind::resume_device:
      return "resume_device";
    case operation_kind::leave:
      return "leave";
    case operation_kind::call:
      return "call";
  }
  return "unknown";
}

std::string failure::text() const {
  if (cause == cause::none) return "nothing failed";
  // A call that was not given to a worker has no world.
  const bool is_bare_call = world.empty() && operation == operation_kind::call;
  std::string text = world.empty() ? std::string("world") : world.str();
  if (is_bare_call) text = call.empty() ? "call" : "call " + call;
  if (epoch != 0) text += fmt::format("@{}", epoch);
  if (epoch != 0 && breaks_world()) {
    text += " broken: ";
  } else if (epoch == 0 && operation == operation_kind::form) {
    text += " not formed: ";
  } else {
    text += ": ";
  }
  text += subject_of(*this);
  text += describe(cause);
  if (breaks_world() && noticed_after > duration::zero()) {
    text += "; noticed after at most " + duration_text(noticed_after);
  }
  if (operation != operation_kind::none && operation != operation_kind::form &&
      !is_bare_call) {
    text += ", in " + operation_text(*this);
    if (!call.empty()) text += " " + call;
    if (!is_about_member(cause) && rank != no_rank && operation_peer == no_rank)
      text += fmt::format(" with rank {}", rank);
    if (!is_about_member(cause) && operation == operation_kind::call && peer.pid != 0)
      text += fmt::format(" (pid {})", peer.pid);
  }
  if (!detail.empty()) text += " (" + detail + ")";
  for (const undelivered_messages& u : undelivered) {
    text +=
        fmt::format("; {} message{} ({} bytes) to rank {} on lane {} {} not confirmed",
                    u.messages, u.messages == 1 ? "" : "s", u.bytes, u.rank,
                    u.on.number(), u.messages == 1 ? "was" : "were");
  }
  return text;
}

world_error::world_error(manyworlds::failure f) {
  std::string text = f.text();
  state_ = std::make_shared<const state>(state{std::move(f), std::move(text)});
}

const char* world_error::what() const noexcept { return state_->text.c_str(); }

}  // namespace manyworlds::inline v0
