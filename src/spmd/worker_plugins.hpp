// Worker plugins: the functions of one worker: its program's, those that every worker
// has, and those of the plugins that it has loaded.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/spmd/function_table.hpp"
#include "manyworlds/spmd/plugin.hpp"
#include "spmd/content_file.hpp"

namespace manyworlds::inline v0::detail {

/// A plugin stays loaded for as long as its process lives: values that its functions made
/// have their destructors in it, exceptions their texts, threads their code. What is
/// refused is unloaded, as nothing is kept of it.
///
/// Thread: one call at a time; `load` in a turn of an executor. Lifetime: the table of
/// the program outlives it.
class worker_plugins {
 public:
  explicit worker_plugins(const function_table& of_program) noexcept
      : of_program_(of_program) {}

  /// Returns the function of that name, or null.
  [[nodiscard]] const function_table::entry* find(std::string_view name) const noexcept;

  /// Loads a file, as dlopen finds it. What is loaded already stays as it is. Errors:
  /// std::runtime_error, which names the file and what is wrong with it.
  plugin load(const std::string& file);

  /// Returns whether the content is here, or can be opened as a descriptor of another
  /// process.
  [[nodiscard]] bool find_content(const std::string& digest, std::uint64_t bytes,
                                  std::int64_t pid, int descriptor);
  /// Loads it: what is here, or was just given. `name` is for errors. Errors: those of
  /// `load`; std::runtime_error if it is not here, and given as another.
  plugin load_content(const std::string& name, const std::string& digest,
                      std::span<const std::byte> given);

 private:
  struct loaded {
    std::string name;
    const void* library;
    const plugin* object;
    const function_table* functions;
  };

  /// Returns content that is here, or was just given. Errors: those of `load_content`;
  /// std::system_error.
  [[nodiscard]] content_file take_content(const std::string& name,
                                          const std::string& digest,
                                          std::span<const std::byte> given);
  /// Returns the plugin of a library that dlopen finds by that path.
  const loaded& open(const std::string& name, const std::string& path);
  /// Errors: std::runtime_error for a name that is there.
  void check_names(const function_table& more, const std::string& of) const;

  const function_table& of_program_;
  std::vector<loaded> all_;
  /// Uploaded content that was not loaded yet, by its digest, and what was.
  std::map<std::string, content_file> contents_;
  std::map<std::string, plugin> uploaded_;
};

}  // namespace manyworlds::inline v0::detail
