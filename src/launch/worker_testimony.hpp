// Worker testimony: what a worker tells of processes of other nodes, for their agents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "link/wire.hpp"

namespace manyworlds::inline v0::detail {

/// A member of a world. No pid: all members, or any.
struct far_member {
  std::string world;
  std::int64_t pid = 0;
  std::string host;

  friend bool operator==(const far_member&, const far_member&) = default;
};

/// Only a worker testifies whom its own agent believes: its beats come in time, and it is
/// not cut off from all its peers.
struct worker_testimony {
  struct wait {
    std::string operation;
    far_member on;

    friend bool operator==(const wait&, const wait&) = default;
  };

  std::int32_t rank = 0;
  /// What it has waited for since long.
  std::optional<wait> waits;
  /// Those that it does not hear.
  std::vector<far_member> suspects;

  friend bool operator==(const worker_testimony&, const worker_testimony&) = default;
};

/// The verdict of one agent on a worker of its own.
struct told_verdict {
  std::string host;
  std::string text;
  /// The ranks that suspect the worker, or wait for it.
  std::vector<std::int32_t> accusers;

  friend bool operator==(const told_verdict&, const told_verdict&) = default;
};

/// Appends them, and leaves out what would make it longer than `most` bytes in all.
void put_testimonies(wire_writer& out, const std::vector<worker_testimony>& all,
                     std::size_t most);
void put_verdicts(wire_writer& out, const std::vector<told_verdict>& all,
                  std::size_t most);
/// Errors: wire_error.
[[nodiscard]] std::vector<worker_testimony> get_testimonies(wire_reader& in);
[[nodiscard]] std::vector<told_verdict> get_verdicts(wire_reader& in);

}  // namespace manyworlds::inline v0::detail
