// Rendezvous nodes: processes that take part in a rendezvous and tell of their rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "member.hpp"

namespace mwbench {

/// Where a node meets the others.
struct meeting {
  std::string backend;
  std::string endpoint;
  std::string run;
  std::size_t nodes = 3;
};

/// What has happened to a node, by its own clock, which is that of the whole machine.
struct node_news {
  std::int64_t at_ns = 0;
  std::uint64_t round = 0;  ///< 0: it has found no coordinator
  std::uint32_t size = 0;
  std::uint32_t coordinates = 0;
};

/// A node as a process. Killed at its end.
class node {
 public:
  /// Starts it, and waits until it has only to be released.
  node(const common_options& common, const meeting& where);

  /// Lets it take part.
  void release() { process_.line().signal(); }
  /// Kills it, and returns when that was.
  std::int64_t kill();
  /// Waits for its next news. Throws std::runtime_error if it ends before.
  [[nodiscard]] node_news next();
  [[nodiscard]] bool coordinates() const noexcept { return coordinates_; }

 private:
  child process_;
  bool coordinates_ = false;
};

/// What the process does that `node` starts.
void be_node(const common_options& common);

}  // namespace mwbench
