// Questions: one file answers each. The leader measures and prints; the other processes,
// the same program in another role, do their part and are ended by it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collective_data.hpp"
#include "member.hpp"
#include "report.hpp"

namespace mwbench {

/// How fast are messages between two processes, against plain sockets?
struct p2p_options {
  std::vector<std::size_t> sizes = {8, 64, 1024, 64 << 10, 1 << 20, 64 << 20};
  int rounds = 5;
  int pings = 2000;
  int idle_worlds = 0;
  /// Pieces of each message, scattered.
  int views = 1;
  /// Messages lie in a shared pool.
  bool shared_buffers = false;
  bool pin = false;
  /// Verifies every message.
  bool check = false;
};
void p2p(const common_options& common, const p2p_options& options);

/// How long is a message of 8 bytes on its way while large ones go the same way?
struct beside_options {
  std::size_t size = 64 << 20;
  int pings = 500;
  bool pin = false;
};
void beside(const common_options& common, const beside_options& options);

/// How fast are messages of several pairs of processes at once, where there may be more
/// processes than CPUs? The slower pair's figures: a sum would hide one that starves.
struct pairs_options {
  int pairs = 2;
  std::vector<std::size_t> sizes = {8, 64 << 10};
  double seconds = 1;
  bool pin = false;
};
void pairs(const common_options& common, const pairs_options& options);

/// What do calls of a session take, beside a loop over as many cache lines, and how long
/// is it from a worker's end to the error, and to the next right call? What does another
/// session notice of it, and what do workers cost that are asked for nothing?
struct session_options {
  std::vector<std::size_t> workers = {1, 2, 4, 8};
  int count = 2000;
  int kills = 5;
  double idle_seconds = 2;
  /// Calls with workers that wait like this, or of the floor, and nothing else.
  std::string only = {};
};
void session(const common_options& common, const session_options& options);

/// What do many worlds cost against one? As many messages at a time, from the same
/// processes, in lanes of one world and in worlds of their own, in turns (acceptance case
/// A10: MultiWorld's sweep of sizes).
struct worlds_options {
  int worlds = 8;
  int senders = 1;
  /// 1 to 177,147 floats, as in the sweep.
  std::vector<std::size_t> sizes = {4,    12,   36,    108,   324,    972,
                                    2916, 8748, 26244, 78732, 236196, 708588};
  int rounds = 9;
  bool pin = false;
};
void worlds(const common_options& common, const worlds_options& options);

/// How long do collectives take, and how fast are they in nccl-tests' terms?
struct collectives_options {
  std::vector<std::string> kinds{collective_kinds.begin(), collective_kinds.end()};
  std::vector<std::size_t> sizes = {8,       1 << 10, 8 << 10,  64 << 10, 256 << 10,
                                    1 << 20, 4 << 20, 16 << 20, 64 << 20};
  int members = 2;
  /// For each size.
  double seconds = 0.2;
  bool pin = false;
  /// Verifies every call, not the first of a size alone.
  bool check = false;
};
void collectives(const common_options& common, const collectives_options& options);

/// How soon does each waiter know that a member died, was stopped or cut off, how soon is
/// there a new world, and what does a healthy world beside notice?
struct fail_options {
  std::string fault = "kill";
  int members = 2;
  int repeat = 20;
  bool alone = false;
};
void fail(const common_options& common, const fail_options& options);

/// How soon do the survivors of a killed member have a world of their own?
struct shrink_options {
  int members = 3;
  int repeat = 20;
};
void shrink(const common_options& common, const shrink_options& options);

/// How long does forming take, one world after the other and many at once?
struct form_options {
  int worlds = 64;
  int repeat = 20;
};
void form(const common_options& common, const form_options& options);

/// What does an operation of a store cost, and how soon have many clients met?
struct store_options {
  int count = 2000;
  std::size_t size = 8;
  int clients = 1000;
  /// "host:port" of a server that is there, ours or PyTorch's; empty: one of our own, in
  /// another process.
  std::string server;
  /// Whether the client lives on the reactor of the task that asks, in place of the
  /// service thread: nothing is handed over, and user code can delay it.
  bool is_near = false;
  /// Endpoints of an etcd that is asked instead, by our client of it.
  std::string etcd;
  /// Nothing is asked: this process serves a store to others.
  bool serves = false;
};
void store(const common_options& common, const store_options& options);

/// What do worlds cost in which nothing happens?
struct idle_options {
  int worlds = 64;
  int receives = 1000;
  double seconds = 10;
};
void idle(const common_options& common, const idle_options& options);

/// How soon is a buffer back when a begun transfer is cancelled?
struct cancel_options {
  std::size_t size = 64 << 20;
  int repeat = 20;
};
void cancel(const common_options& common, const cancel_options& options);

/// What does a co_await cost, against the same work without a coroutine?
struct await_options {
  /// Of each kind in a round.
  int count = 100'000;
  int rounds = 9;
  bool pin = false;
};
void await(const common_options& common, const await_options& options);

/// How soon does a program run that is supervised, and how soon is its end told, beside
/// posix_spawn and fork?
struct process_options {
  int repeat = 100;
  /// Memory of this process that is touched before.
  int megabytes = 256;
};
void process(const common_options& common, const process_options& options);

/// How soon do nodes agree on a round, and on the next one after a death, over each
/// backend?
struct rendezvous_options {
  int nodes = 3;
  int repeat = 10;
  std::vector<std::string> backends = {"tcp", "etcd", "file"};
  /// Endpoints of an etcd that is there; empty: one of our own.
  std::string etcd;
};
void rendezvous(const common_options& common, const rendezvous_options& options);

/// How much memory does a world take, of its process's own and shared with its peer?
struct memory_options {
  std::vector<int> worlds = {1, 16, 64};
};
void memory(const common_options& common, const memory_options& options);

/// What does each way of sending and receiving that io_uring has cost over one tcp
/// connection, without the library?
struct uring_options {
  /// Of one send and of one receive.
  std::vector<std::size_t> sizes = {64 << 10, 128 << 10, 256 << 10, 1 << 20};
  /// What is sent from and received into, as often as `times` in a round.
  std::size_t memory = 64 << 20;
  int times = 8;
  int rounds = 5;
  int pings = 5000;
  bool pin = false;
};
void uring(const common_options& common, const uring_options& options);

/// How do costs grow with the worlds between two processes, and with the processes of a
/// world?
struct scale_options {
  std::vector<int> worlds = {1, 10, 100, 1000};
  std::vector<int> members = {2, 4, 8, 16, 32};
  /// Idle, for each row.
  double seconds = 2;
  int pings = 2000;
  /// Formings of a world of many members.
  int repeat = 5;
  /// Whether the two processes with the counted worlds are pinned.
  bool pin = false;
};
void scale(const common_options& common, const scale_options& options);

}  // namespace mwbench
