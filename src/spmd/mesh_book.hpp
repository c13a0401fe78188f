// Mesh book: the meshes of a session, and which of their worlds their workers have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/spmd/argument.hpp"
#include "spmd/command_wire.hpp"
#include "spmd/mesh_keys.hpp"

namespace manyworlds::inline v0::detail {

/// A mesh, as its workers are told of it.
struct session_mesh {
  std::uint32_t id = 0;
  std::vector<int> workers;
  /// Which of its worlds the workers form, or have: 1 for the first.
  std::uint64_t number = 1;
  /// What they say to each other while they form it.
  std::unique_ptr<mesh_keys> keys = std::make_unique<mesh_keys>();

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
  /// Notes that its present world is over.
  void supersede() {
    ++number;
    keys = std::make_unique<mesh_keys>();
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
    if (is_new) {
      meshes_.emplace_back();
      meshes_.back().id = at->second;
      meshes_.back().workers = workers;
    }
    return {&meshes_[at->second - 1], is_new};
  }
  [[nodiscard]] session_mesh& operator[](std::uint32_t id) noexcept {
    MW_ASSERT(id >= 1 && id <= meshes_.size(), "a call's mesh is in the book");
    return meshes_[id - 1];
  }
  [[nodiscard]] std::vector<session_mesh>& all() noexcept { return meshes_; }
  /// Returns the answers that a worker's question brings about, as `mesh_keys::serve`
  /// does. In a world that is over no key is set, or will be: the worker is told by
  /// `resume`. Errors: value_error for what no worker asks.
  [[nodiscard]] std::vector<store_answer> serve(int worker, std::uint64_t question,
                                                store_question q) {
    if (q.mesh < 1 || q.mesh > meshes_.size() || !(*this)[q.mesh].has(worker))
      throw value_error("it asks about a mesh that it is not in");
    const session_mesh& mesh = (*this)[q.mesh];
    const std::size_t most = store_question::longest_value(mesh.workers.size());
    if (q.key.size() > store_question::longest_key || q.value.size() > most ||
        q.expected.size() > most)
      throw value_error("a key or a value is too long");
    if (q.number == mesh.number) return mesh.keys->serve(worker, question, std::move(q));
    if (q.number > mesh.number)
      throw value_error("it asks about a world that is not there yet");
    std::vector<store_answer> due;
    if (q.kind == question_kind::get || q.kind == question_kind::withdraw) return due;
    due.push_back({worker, question, {}});
    if (q.kind == question_kind::compare_set) due.back().value = std::move(q.expected);
    return due;
  }
  /// Drops what a worker waits for that is lost.
  void forget(int worker) noexcept {
    for (const session_mesh& each : meshes_) each.keys->forget(worker);
  }

 private:
  std::map<std::vector<int>, std::uint32_t> ids_;
  std::vector<session_mesh> meshes_;
};

}  // namespace manyworlds::inline v0::detail
