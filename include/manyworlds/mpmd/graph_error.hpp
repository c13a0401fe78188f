// Graph error: what is wrong with the description of a job, and where it stands.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// Something that is wrong with a graph.
struct graph_objection {
  /// The file, or what stands for it; empty for a graph that was made in C++.
  std::string source;
  /// From 1 on; 0: not known, as in JSON.
  std::uint32_t line = 0;
  std::uint32_t column = 0;
  /// The field, as "role.decode.count.min".
  std::string field;
  /// A sentence, as "edge \"kv\": no role \"decodes\"; did you mean \"decode\"?".
  std::string what;

  /// Returns `job.toml:14:8: edge "kv": no role "decodes"; did you mean "decode"?`.
  [[nodiscard]] std::string text() const;

  friend bool operator==(const graph_objection&, const graph_objection&) = default;
};

/// Thrown where a graph cannot be used. Its text has a line for each objection.
class MANYWORLDS_EXPORT graph_error : public std::exception {
 public:
  explicit graph_error(std::vector<graph_objection> objections);

  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }
  [[nodiscard]] const std::vector<graph_objection>& objections() const noexcept {
    return objections_;
  }

 private:
  std::vector<graph_objection> objections_;
  std::string text_;
};

namespace detail {

class graph_reader;

/// Where the fields of a graph stood in the text that it was read from.
class graph_positions {
 public:
  struct position {
    std::uint32_t line = 0;
    std::uint32_t column = 0;
  };

  graph_positions() = default;
  explicit graph_positions(std::string source) : source_(std::move(source)) {}

  void note(std::string field, position where) { where_[std::move(field)] = where; }
  /// Returns an objection to that field, with the place of the field, or of the nearest
  /// one that it is part of.
  [[nodiscard]] graph_objection object(std::string field, std::string what) const;

 private:
  std::string source_;
  std::map<std::string, position, std::less<>> where_;
};

}  // namespace detail

}  // namespace manyworlds::inline v0
