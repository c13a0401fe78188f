// Relay: a stretch of network before a process, which can be cut.
#pragma once

#include <sys/types.h>

#include <thread>
#include <utility>
#include <vector>

#include "processes.hpp"

namespace mwbench {

/// Carries connections from its own address to another one, both ways, on a thread of its
/// own, until a byte comes over `cut`: from then on nothing passes, no connection ends,
/// and none is answered, as if a cable had been drawn. One that ends in one direction
/// ends in both.
class relay {
 public:
  relay(doorway door, manyworlds::socket_address target, int cut);
  relay(const relay&) = delete;
  relay& operator=(const relay&) = delete;
  ~relay();

 private:
  void run();
  void connect();
  /// False once that connection is over.
  bool carry(std::pair<line, line>& both, short near_events, short far_events);

  doorway door_;
  const manyworlds::socket_address target_;
  const int cut_;
  line end_here_;
  line end_there_;
  std::vector<std::pair<line, line>> connections_;
  std::thread thread_;
};

}  // namespace mwbench
