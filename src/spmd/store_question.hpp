// Store question: what a worker asks of the stores through which its meshes' worlds form,
// and what the controller says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "manyworlds/spmd/argument.hpp"
#include "spmd/command_wire.hpp"
#include "spmd/received_command.hpp"

namespace manyworlds::inline v0::detail {

/// On the wire: never renumber them.
enum class question_kind : std::uint8_t {
  get = 1,          ///< is answered when the key is set
  try_get = 2,      ///< the value, or none
  compare_set = 3,  ///< what stands there then, as `store::compare_set` says
  erase = 4,        ///< the value that was there, or none
  withdraw = 5,     ///< of the question of this number: it is answered no more
};

/// One question, with the world that it is about. Its number stands in its head.
struct store_question {
  static constexpr std::size_t longest_key = 128;
  /// The longest value is the view of a world, with the address of each member.
  [[nodiscard]] static constexpr std::size_t longest_value(std::size_t members) noexcept {
    return 1024 + 256 * members;
  }

  question_kind kind = question_kind::withdraw;
  std::uint32_t mesh = 0;
  std::uint64_t number = 0;  ///< of the mesh's worlds
  std::string key;
  std::string value;     ///< of compare_set: the desired one
  std::string expected;  ///< of compare_set

  void write(value_writer& out) const {
    out.unsigned_integer(static_cast<std::uint8_t>(kind));
    out.unsigned_integer(mesh);
    out.unsigned_integer(number);
    out.text(key);
    out.text(value);
    out.text(expected);
  }
  /// Reads a reply that fits. Errors: value_error.
  [[nodiscard]] static store_question read(const command_wire::reply_head& head,
                                           received_block& block) {
    value_reader in = block.values_at(0, head.values_bytes, 0);
    store_question found;
    const auto kind = argument<std::uint8_t>::read(in);
    if (kind < static_cast<std::uint8_t>(question_kind::get) ||
        kind > static_cast<std::uint8_t>(question_kind::withdraw))
      throw value_error("a question of no kind");
    found.kind = static_cast<question_kind>(kind);
    found.mesh = argument<std::uint32_t>::read(in);
    found.number = in.unsigned_integer();
    found.key = in.text();
    found.value = in.text();
    found.expected = in.text();
    if (!in.is_at_end()) throw value_error("a question with more behind it");
    return found;
  }
};

/// What the controller says to it.
struct store_answer {
  int worker = 0;  ///< who has asked
  std::uint64_t question = 0;
  std::optional<std::string> value;
};

}  // namespace manyworlds::inline v0::detail
