// Mesh book: the meshes of a session, and which of their worlds their workers have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/spmd/argument.hpp"
#include "spmd/command_wire.hpp"

namespace manyworlds::inline v0::detail {

/// A mesh, as its workers are told of it.
struct session_mesh {
  std::uint32_t id = 0;
  std::vector<int> workers;
  /// Which of its worlds the workers form, or have: 1 for the first.
  std::uint64_t number = 1;

  [[nodiscard]] bool has(int worker) const noexcept {
    return std::ranges::find(workers, worker) != workers.end();
  }
  /// Makes the command that describes it.
  [[nodiscard]] std::pair<command_wire::command_head, std::vector<std::byte>>
  description() const {
    command_wire::command_head head{};
    head.kind = command_wire::command_kind::mesh;
    head.mesh = id;
    head.types = number;
    value_writer values;
    argument<std::vector<int>>::write(values, workers);
    const std::span<const std::byte> written = values.written();
    head.values_bytes = static_cast<std::uint32_t>(written.size());
    return {head, {written.begin(), written.end()}};
  }
  /// Makes the word that its present world is over, and that `number` is the next.
  [[nodiscard]] command_wire::command_head next_world() const noexcept {
    command_wire::command_head head{};
    head.kind = command_wire::command_kind::resume;
    head.mesh = id;
    head.types = number;
    head.set(command_wire::command_flag::forms_again);
    return head;
  }
};

/// Thread: the session's reactor.
class mesh_book {
 public:
  /// Returns the mesh of these workers, and whether it is new.
  std::pair<session_mesh*, bool> find_or_add(const std::vector<int>& workers) {
    const auto [at, is_new] =
        ids_.emplace(workers, static_cast<std::uint32_t>(meshes_.size() + 1));
    if (is_new) meshes_.push_back({at->second, workers});
    return {&meshes_[at->second - 1], is_new};
  }
  [[nodiscard]] session_mesh& operator[](std::uint32_t id) noexcept {
    MW_ASSERT(id >= 1 && id <= meshes_.size(), "a call's mesh is in the book");
    return meshes_[id - 1];
  }
  [[nodiscard]] std::vector<session_mesh>& all() noexcept { return meshes_; }

 private:
  std::map<std::vector<int>, std::uint32_t> ids_;
  std::vector<session_mesh> meshes_;
};

}  // namespace manyworlds::inline v0::detail
