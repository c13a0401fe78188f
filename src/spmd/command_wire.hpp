// Command wire: the protocol between a controller and one worker, all of it on lane 0 of
// their control world. The controller, or its node's agent, is rank 0.
//
// Commands are counted; the worker carries them out in the order in which they came, and
// says in each reply how many it has done. The controller never has more on their way
// than fit the window, so that `end`, `resume`, `alert`, `ask` and `answer`, which are
// not counted and are read at once, never wait behind what the worker cannot take.
//
// A command that asks for an answer gets one `ended`. A call that fails by itself is
// answered by `failed`, asked or not; the worker then holds all later commands until
// `resume`. A call that the controller ends by `end` is answered too, by `skipped` when
// it is held there in the same way, or by `ended` if it was over before.
//
// A message is a `head_and_block`: a small block stands in it, any other is its payload.
// A block has the name, the values, zeros up to a multiple of 64, the data beside the
// values with each part at such a multiple, the releases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "manyworlds/spmd/value_writer.hpp"

namespace manyworlds::inline v0::detail::command_wire {

/// Larger ones are no values: they are tensors.
inline constexpr std::size_t most_value_bytes = std::size_t{16} << 20;
inline constexpr std::size_t longest_text = 4096;
inline constexpr std::size_t longest_name = 255;
/// Of what a call waits for: what is longer is cut.
inline constexpr std::size_t longest_doing = 256;
inline constexpr std::size_t most_releases = 1024;
inline constexpr std::size_t most_members = 4096;
/// Of a `question`: a key, and two values that may name each member.
inline constexpr std::size_t most_question_bytes = 4096 + 2 * 256 * most_members;

enum class command_kind : std::uint8_t {
  call = 1,     ///< run a function
  sync = 2,     ///< answer when all before it is done
  mesh = 3,     ///< the values are the ids of a mesh's workers: form its world
  release = 4,  ///< nothing but its releases
  close = 5,    ///< the last one: end
  end = 6,      ///< of `call`: do not begin it, or cancel it. Not counted
  resume = 7,   ///< go on behind `call`; the world of `mesh` forms anew. Not counted
  alert = 8,    ///< do not sleep for a while: calls come. Not counted
  ask = 9,      ///< say what is going on. Not counted
  answer = 10,  ///< to the question `call`: the value is a text, or none. Not counted
};

enum class command_flag : std::uint8_t {
  wants_end = 1,
  wants_value = 2,
  is_alone = 4,
  fills = 8,        ///< `result` is to hold what the function gives
  forms_again = 16  ///< of a resume: the world of the mesh is over
};

struct command_head {
  std::uint64_t call;
  /// The code of a call's types, 0 if the controller does not know them; of a mesh, and
  /// of a resume that forms one again, which of the mesh's worlds it is: each has a name
  /// of its own, so that no member takes one for another, whatever it still waits for.
  std::uint64_t types;
  std::uint64_t beside_bytes;
  std::uint32_t values_bytes;
  std::uint32_t releases;
  register_id result;
  std::uint32_t mesh;
  std::uint16_t name_bytes;
  command_kind kind;
  std::uint8_t flags;

  [[nodiscard]] bool has(command_flag f) const noexcept {
    return (flags & static_cast<std::uint8_t>(f)) != 0;
  }
  void set(command_flag f) noexcept { flags |= static_cast<std::uint8_t>(f); }
};

enum class reply_kind : std::uint8_t {
  ended = 1,    ///< well; with the value if it was asked for
  failed = 2,   ///< by itself, and is held; the values are a text
  skipped = 3,  ///< as it was told, and is held
  /// Only says what is done; with a call, that it was ended before its turn.
  progress = 4,
  /// Answers `ask`: with the call that is being carried out, and as values for how many
  /// nanoseconds it has been, and what it waits for.
  status = 5,
  /// Asks the store through which a mesh's world forms: `call` is the question's number,
  /// the values are a `store_question`. It says nothing of calls.
  question = 6,
};

struct reply_head {
  std::uint64_t call;
  std::uint64_t done;  ///< commands that it has carried out so far
  std::uint64_t beside_bytes;
  /// Collectives that it has begun on the mesh's world in this call, and messages.
  std::uint64_t collectives;
  std::uint64_t sent;
  std::uint64_t received;
  std::uint32_t values_bytes;
  reply_kind kind;
  std::uint8_t why;  ///< of `failed`, a `cause`
  /// Whether the world of the mesh is over, or not known to be as it was.
  std::uint8_t world_is_over;
  std::uint8_t unused;
};

/// Returns how long the block behind such a head is that has nothing beside its values.
[[nodiscard]] constexpr std::size_t bytes_without_beside(const command_head& h) noexcept {
  return std::size_t{h.name_bytes} + h.values_bytes + h.releases * sizeof(register_id);
}
[[nodiscard]] constexpr std::size_t bytes_without_beside(const reply_head& h) noexcept {
  return h.values_bytes;
}

static_assert(std::is_trivially_copyable_v<command_head> && sizeof(command_head) == 48);
static_assert(std::is_trivially_copyable_v<reply_head> && sizeof(reply_head) == 56);

}  // namespace manyworlds::inline v0::detail::command_wire
