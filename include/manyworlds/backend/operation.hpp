// Operation: one send, receive or collective of one world, as its backend sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/address.hpp"
#include "manyworlds/coro/timer_queue.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/memory/dtype.hpp"
#include "manyworlds/memory/view_list.hpp"
#include "manyworlds/observe/observed.hpp"
#include "manyworlds/source_position.hpp"

namespace manyworlds::inline v0 {

/// What is known of a message before, and after, it is received.
struct message_info {
  rank_t source = no_rank;
  lane on;
  user_word user;
  /// Bytes behind the head, elements of them, and their type as the sender gave it.
  std::size_t bytes = 0;
  std::size_t count = 0;
  dtype type = dtype::uint8;
  /// Bytes of the head, 0 for a message without one (or whose head was taken already).
  std::size_t head_bytes = 0;
  /// Something follows the head that the lane's next receive takes, be it of no bytes.
  /// False for a message whose sender gave only a head.
  bool has_payload = false;
  /// Its elements lie in device memory, and are received into such.
  bool on_device = false;
};

/// A message of which only a description travels with the head: its payload is brought by
/// another backend. What such a send says of the payload, and what such a receive learns.
struct payload_elsewhere {
  /// Of the payload; a receive says what it has room for.
  std::size_t bytes = 0;
  dtype type = dtype::uint8;
  /// A receive of descriptions alone, whatever their payload.
  bool takes_any = false;
  std::vector<std::byte> description;
};

/// What a send that was not announced yet waits for.
enum class send_obstacle : std::uint8_t {
  none,
  earlier_sends,  ///< those of its lane that were started before it
  lane_window,    ///< the peer has as much of its lane as it takes without a receive
  world_window,   ///< the same of all lanes: other lanes' messages are not received
  room,           ///< the connection is full for now
};
[[nodiscard]] constexpr const char* name_of(send_obstacle o) noexcept {
  switch (o) {
    case send_obstacle::none:
      break;
    case send_obstacle::earlier_sends:
      return "earlier sends of its lane";
    case send_obstacle::lane_window:
      return "the window of its lane";
    case send_obstacle::world_window:
      return "the window of the world, or a receive";
    case send_obstacle::room:
      return "room in the connection";
  }
  return "";
}

struct collective_part;
struct device_part;

enum class operation_end : std::uint8_t {
  done,       ///< it took effect, `info` is set
  failed,     ///< `failed_with` and `failure_detail` say how; the world may be up all the
              ///< same
  withdrawn,  ///< given up before it took effect
};

/// The description and the state of one operation. It lives in the awaiter, in a
/// coroutine's frame; nothing is allocated for it. On the world's reactor only.
class operation {
 public:
  using ended_function = void (*)(operation&, operation_end) noexcept;

  operation(operation_kind k, ended_function ended) noexcept : kind(k), ended_(ended) {}
  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;

  /// Largest head of a message: it travels with the announcement.
  static constexpr std::size_t largest_head = 4096;

  // What to do.
  operation_kind kind;
  /// The peer; `no_rank` of a receive means any.
  rank_t peer = no_rank;
  lane on;
  /// A receive that also takes the first message of a lane nobody has received on yet.
  bool takes_fresh_lanes = false;
  /// A send that ends when the peer's receive has taken the message.
  bool delivered = false;
  /// A receive that discards its lane if it is given up.
  bool discards = false;
  /// Of a receive in a collective, how many members receive at once: a second thread that
  /// reads for it must not take the CPU of one of them. 0: not known, as of any other.
  rank_t receivers = 0;
  user_word user;
  /// A send's head to copy from, or a receive's to copy to.
  void* head = nullptr;
  std::size_t head_bytes = 0;
  /// Of a send with a head: data was given to follow it, be it of no bytes.
  bool gives_payload = false;
  /// What a send reads (not written through), or a receive writes. Refers to the
  /// awaiter's list.
  const_view_list source;
  view_list target;
  /// Of a send, `source` is the description then.
  payload_elsewhere* elsewhere = nullptr;
  /// What a collective on host memory says beyond this; a barrier has none.
  collective_part* collective = nullptr;
  /// What an operation on device memory says beyond this; for the backend that has one.
  device_part* device = nullptr;

  // What came of it.
  message_info info;
  enum cause failed_with = cause::none;
  std::string failure_detail;

  // For dumps.
  time_point started{};
  source_position where;
  observed<std::uint64_t> bytes_moved = 0;
  observed<bool> begun = false;
  observed<send_obstacle> waits_for = send_obstacle::none;

  /// Exactly once, by the backend; the operation may be gone when it returns.
  void end(operation_end how) noexcept { ended_(*this, how); }
  void fail(enum cause why, std::string detail) noexcept {
    failed_with = why;
    failure_detail = std::move(detail);
    end(operation_end::failed);
  }

  /// The world's list of pending operations (hooks), and the backend's own place to keep
  /// track.
  operation* next_pending = nullptr;
  operation* previous_pending = nullptr;
  struct {
    operation* next = nullptr;
    operation* previous = nullptr;
    void* state = nullptr;
    std::uint64_t number = 0;
    std::size_t stage = 0;  ///< an enumeration of its own
  } backend;

 private:
  ended_function ended_;
};

}  // namespace manyworlds::inline v0
