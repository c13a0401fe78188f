// Plugin book: the plugins that a session's workers were given.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/spmd/dref.hpp"
#include "manyworlds/spmd/mesh.hpp"
#include "spmd/content_file.hpp"

namespace manyworlds::inline v0::detail {

/// Keeps what a worker that is replaced loads again: a register for each plugin and mesh,
/// which its call fills as any `replayable` one, and the content of uploads. Thread: the
/// session's reactor.
class plugin_book {
 public:
  /// Errors: those of `mesh::load` and `mesh::upload`.
  [[nodiscard]] static task<void> load(std::shared_ptr<session_core> core,
                                       std::vector<int> workers, std::string file,
                                       source_position where);
  [[nodiscard]] static task<void> upload(std::shared_ptr<session_core> core,
                                         std::vector<int> workers, std::string file,
                                         source_position where);

 private:
  /// A file as the workers have it, or the digest of an upload, and the workers.
  using key = std::pair<std::string, std::vector<int>>;

  /// Keeps it, unless there is one of the same.
  void keep(std::string what, std::vector<int> workers, dref<plugin> given);

  std::map<key, dref<plugin>> loaded_;
  /// By digest. None where memory was refused.
  std::map<std::string, content_file> contents_;
};

}  // namespace manyworlds::inline v0::detail
