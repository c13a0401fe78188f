// Operations that remember how they ended, and what a backend tells its world.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "host/host_backend.hpp"
#include "manyworlds/memory/gather_list.hpp"

namespace manyworlds::host_tests {

/// An operation that remembers how it ended.
struct test_operation : operation {
  explicit test_operation(operation_kind k)
      : operation(k, [](operation& op, operation_end how) noexcept {
          auto& self = static_cast<test_operation&>(op);
          ++self.ends;
          self.how = how;
        }) {}

  int ends = 0;
  operation_end how = operation_end::failed;
  gather_list from_list;
  scatter_list into_list;

  [[nodiscard]] bool ended() const { return ends > 0; }
  [[nodiscard]] bool done() const { return ends == 1 && how == operation_end::done; }
  [[nodiscard]] bool failed(enum cause why) const {
    return ends == 1 && how == operation_end::failed && failed_with == why;
  }
  [[nodiscard]] bool withdrawn() const {
    return ends == 1 && how == operation_end::withdrawn;
  }
};

struct send_op : test_operation {
  send_op() : test_operation(operation_kind::send) {}
};
struct receive_op : test_operation {
  receive_op() : test_operation(operation_kind::receive) {}
};
struct arrival_op : test_operation {
  arrival_op() : test_operation(operation_kind::arrival) {}
};
struct barrier_op : test_operation {
  barrier_op() : test_operation(operation_kind::barrier) {}
};

struct recorded_events final : backend_listener {
  void connection_ended(rank_t peer, int error) noexcept override {
    ended.push_back(peer);
    last_error = error;
    if (on_trouble) on_trouble();
  }
  void must_break(rank_t peer, enum cause why, std::string detail) noexcept override {
    broken_by.push_back(peer);
    cause = why;
    reason = std::move(detail);
    if (on_trouble) on_trouble();
  }
  void peer_left(rank_t peer) noexcept override { left.push_back(peer); }
  void heard(rank_t) noexcept override { ++times_heard; }
  void log(log_level level, std::string line) noexcept override {
    if (level == log_level::warning) warnings.push_back(std::move(line));
  }

  [[nodiscard]] bool quiet() const { return ended.empty() && broken_by.empty(); }

  std::vector<rank_t> ended;
  std::vector<rank_t> broken_by;
  enum cause cause = cause::none;
  std::string reason;
  int last_error = 0;
  std::vector<rank_t> left;
  std::vector<std::string> warnings;
  int times_heard = 0;
  std::function<void()> on_trouble;
};

struct flag_work : work {
  flag_work() : work([](work& w) noexcept { ++static_cast<flag_work&>(w).runs; }) {}
  int runs = 0;
};

struct waited_request : io_request {
  waited_request()
      : io_request([](io_request& r) noexcept {
          static_cast<waited_request&>(r).ended_ = true;
        }) {}
  bool ended_ = false;
};

}  // namespace manyworlds::host_tests
