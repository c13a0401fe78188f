// Received command: a command as its worker reads it, and what a reply must be like.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "manyworlds/spmd/argument.hpp"
#include "manyworlds/time.hpp"
#include "spmd/command_wire.hpp"
#include "spmd/message_block.hpp"

namespace manyworlds::inline v0::detail {

/// A head and the block behind it. Precondition of all that reads it: `fits`.
struct received_command {
  command_wire::command_head head;
  received_block block;

  /// Returns whether the lengths of a command agree with each other, and with the bytes
  /// behind its head. It is asked before anything is allocated (law 11).
  [[nodiscard]] static bool fits(const command_wire::command_head& head,
                                 std::size_t bytes) noexcept {
    const std::size_t front = std::size_t{head.name_bytes} + head.values_bytes;
    const bool is_small = head.values_bytes <= command_wire::most_value_bytes &&
                          head.releases <= command_wire::most_releases &&
                          head.beside_bytes <= bytes;
    return is_small && beside_at(front, head.beside_bytes) + head.beside_bytes +
                               head.releases * sizeof(register_id) ==
                           bytes;
  }

  [[nodiscard]] std::string_view name() noexcept {
    const std::span<std::byte> text = block.bytes_at(0, head.name_bytes);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }
  /// Returns whether only this worker knows the types of the function.
  [[nodiscard]] bool is_of_any_types() const noexcept { return head.types == 0; }
  [[nodiscard]] value_reader values() noexcept {
    return block.values_at(head.name_bytes, head.values_bytes, head.beside_bytes);
  }
  /// Calls `use(register_id)` for each register that it releases.
  template <class Use>
  void each_release(Use&& use) noexcept {
    const std::size_t size = head.releases * sizeof(register_id);
    const std::span<const std::byte> all = block.bytes_at(block.size() - size, size);
    for (std::size_t at = 0; at < size; at += sizeof(register_id)) {
      register_id which;
      std::memcpy(&which, all.data() + at, sizeof which);
      use(which);
    }
  }
};

/// What a worker says of the call that it carries out.
struct worker_status {
  std::uint64_t call = 0;  ///< 0 if there is none
  duration in_call{0};
  std::string doing;  ///< what it waits for there; any bytes

  /// Reads a reply that fits. Errors: value_error.
  [[nodiscard]] static worker_status read(const command_wire::reply_head& head,
                                          received_block& block) {
    value_reader in = block.values_at(0, head.values_bytes, 0);
    worker_status told;
    told.call = head.call;
    // None runs for a century.
    told.in_call = std::clamp<duration>(duration(argument<std::int64_t>::read(in)),
                                        duration::zero(), std::chrono::years(100));
    told.doing = argument<std::string>::read(in);
    told.doing.resize(std::min(told.doing.size(), command_wire::longest_doing));
    return told;
  }
};

/// Returns whether the lengths of a reply agree with its kind, with each other, and with
/// the bytes behind its head.
[[nodiscard]] inline bool reply_fits(const command_wire::reply_head& head,
                                     std::size_t bytes) noexcept {
  using command_wire::reply_kind;
  std::size_t most = command_wire::longest_text;
  switch (head.kind) {
    case reply_kind::ended:
      most = command_wire::most_value_bytes;
      break;
    case reply_kind::progress:
      most = 0;
      break;
    case reply_kind::question:
      most = command_wire::most_question_bytes;
      break;
    case reply_kind::failed:
    case reply_kind::skipped:
    case reply_kind::status:
      break;
    default:
      return false;
  }
  return head.values_bytes <= most && head.beside_bytes <= bytes &&
         (head.kind == reply_kind::ended || head.beside_bytes == 0) &&
         beside_at(head.values_bytes, head.beside_bytes) + head.beside_bytes == bytes;
}

}  // namespace manyworlds::inline v0::detail
