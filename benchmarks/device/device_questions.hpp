// Device questions: what GPU worlds cost. One file answers each.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "../member.hpp"
#include "../report.hpp"

namespace mwbench {

/// What does awaiting cost, over enqueueing and waiting by hand on the same communicator?
struct await_options {
  std::vector<std::size_t> sizes = {1 << 10, 16 << 10, 128 << 10, 1 << 20};
  int ranks = 1;
  int rounds = 5;
  int operations = 200;
};
void await(const common_options& common, const await_options& options);

/// What does matching before the launch cost messages?
struct matched_options {
  std::vector<std::size_t> sizes = {1 << 10, 64 << 10, 1 << 20, 64 << 20};
  int pings = 50;
  int messages = 16;
};
void matched(const common_options& common, const matched_options& options);

/// What does a communicator cost, and what does a host world of the same runtime notice
/// while they come and go?
struct create_options {
  int ranks = 1;
  int repeat = 10;
  double seconds = 3;
};
void create(const common_options& common, const create_options& options);

/// How much of one world's operations do each of many on one device get?
struct worlds_options {
  int worlds = 64;
  double seconds = 2;
};
void worlds(const common_options& common, const worlds_options& options);

/// What does an operation cost while other worlds are on the same devices, of two
/// processes that start them in opposite orders?
struct order_options {
  std::vector<int> worlds = {1, 2, 4, 8, 16};
  int rounds = 200;
};
void order(const common_options& common, const order_options& options);

/// How soon does a waiter in NCCL's kernel have its error, and its buffers?
struct kill_options {
  std::string fault = "kill";
  int repeat = 10;
  /// A thread of the application stands in cudaFree meanwhile.
  bool frees = false;
};
void kill(const common_options& common, const kill_options& options);

}  // namespace mwbench
