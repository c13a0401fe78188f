// A member of a world of two, with a real backend, that sends, receives and takes part in
// collectives; its peer is the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/host_backend.hpp"
#include "input.hpp"
#include "manyworlds/detail/collective_part.hpp"

namespace manyworlds::fuzzing {

/// With memory of its own, so that nothing is written beside it unseen.
struct busy_operation : operation {
  busy_operation(operation_kind kind, rank_t with)
      : operation(kind, [](operation& op, operation_end) noexcept {
          must(!std::exchange(static_cast<busy_operation&>(op).has_ended, true));
        }) {
    peer = with;
    if (is_collective(kind)) collective = &part;
  }

  void read_from(std::size_t size, dtype type = dtype::uint8) {
    in.resize(size);
    from = const_buffer_view(in.data(), size / size_of(type), type);
    source = const_view_list(std::span(&from, 1));
  }
  void write_to(std::size_t size, dtype type = dtype::uint8) {
    out.resize(size);
    into = buffer_view(out.data(), size / size_of(type), type);
    target = view_list(std::span(&into, 1));
  }

  bool has_ended = false;
  std::vector<std::byte> in;
  std::vector<std::byte> out;
  const_buffer_view from;
  buffer_view into;
  collective_part part;
  std::vector<std::size_t> counts;
};

struct indifferent_world final : backend_listener {
  void connection_ended(rank_t, int) noexcept override { is_broken = true; }
  void must_break(rank_t, cause, std::string) noexcept override { is_broken = true; }
  void peer_left(rank_t) noexcept override {}
  void heard(rank_t) noexcept override {}
  void log(log_level, std::string) noexcept override {}

  bool is_broken = false;
};

class member {
 public:
  member(reactor& home, rank_t self, data_channel way) : home_(home), peer_(1 - self) {
    std::vector<data_channel> ways(2);
    ways[static_cast<std::size_t>(peer_)] = std::move(way);
    host_backend_options options;
    // So that what is offered is not too long for an input.
    options.eager_limit = operation::largest_head;
    // So that some sends wait for a receive.
    options.lane_window = 16 * 1024;
    options.world_window = 32 * 1024;
    // Soon enough for who waits to ask.
    options.collective_log = std::chrono::milliseconds(20);
    backend_ =
        std::make_unique<host_backend>(home, world_, options, self, std::move(ways));
    start_messages();
    start_collectives();
  }
  member(const member&) = delete;
  member& operator=(const member&) = delete;
  /// As its world does when it breaks.
  ~member() {
    struct noted final : work {
      noted() noexcept
          : work([](work& w) noexcept { static_cast<noted&>(w).has_run = true; }) {}
      bool has_run = false;
    } quiet;
    backend_->quiesce(quiet);
    for (int i = 0; i < 100 && !quiet.has_run; ++i) home_.turn();
    must(quiet.has_run);
    backend_.reset();
  }

  /// False once its world must break.
  bool turn() {
    for (int i = 0; i < 3; ++i) home_.turn();
    return !world_.is_broken;
  }
  /// The next one, if it has not ended.
  void give_up_one() {
    if (given_up_ == operations_.size()) return;
    if (given_up_ % 3 == 2) backend_->discard(peer_, lane(given_up_ % 5));
    busy_operation& op = operations_[given_up_++];
    if (!op.has_ended && backend_->withdraw(op)) op.has_ended = true;
  }

 private:
  busy_operation& add(operation_kind kind) {
    return operations_.emplace_back(kind, is_collective(kind) ? no_rank : peer_);
  }
  void start_messages() {
    for (std::size_t i = 0; i < 6; ++i) {
      busy_operation& op = add(operation_kind::receive);
      op.write_to(i % 2 == 0 ? 8 : 5'000);
      op.takes_fresh_lanes = i % 3 == 0;
      backend_->start(op);
    }
    for (const std::size_t size : {std::size_t{8}, std::size_t{5'000}}) {
      busy_operation& op = add(operation_kind::send);
      op.read_from(size);
      op.delivered = true;
      op.on = lane(size);
      backend_->start(op);
    }
    // More than may be sent before a receive.
    for (std::size_t i = 0; i < 12; ++i) {
      busy_operation& op = add(operation_kind::send);
      op.read_from(i % 2 == 0 ? 4'000 : 20);
      op.on = lane(100 + i / 3);
      backend_->start(op);
    }
  }
  busy_operation& add(operation_kind kind, std::size_t in, std::size_t out,
                      rank_t root = no_rank) {
    busy_operation& op = add(kind);
    if (in > 0) op.read_from(in, dtype::int32);
    if (out > 0) op.write_to(out, dtype::int32);
    op.part.root = root;
    return op;
  }
  void start_collectives() {
    const auto self = static_cast<std::size_t>(1 - peer_);
    const std::size_t first = operations_.size();
    add(operation_kind::barrier);
    add(operation_kind::broadcast, 0, 40, 1);
    add(operation_kind::all_reduce, 400, 400);
    busy_operation& uneven = add(operation_kind::all_gather, self == 0 ? 12 : 20, 32);
    uneven.part.is_variable = true;
    uneven.counts = {3, 5};
    uneven.part.target_counts = uneven.counts;
    add(operation_kind::scatter, self == 1 ? 56 : 0, 28, 1);
    add(operation_kind::all_to_all, 32, 32);
    add(operation_kind::broadcast, 0, 5'000, 1);
    add(operation_kind::reduce, 120, self == 0 ? 120 : 0, 0);
    // Refused: there is no such root.
    add(operation_kind::gather, 8, 16, 9);
    add(operation_kind::barrier);
    for (std::size_t i = first; i < operations_.size(); ++i) {
      busy_operation& op = operations_[i];
      // Its root sends what the others receive.
      if (op.kind == operation_kind::broadcast) {
        op.from = const_buffer_view(op.out.data(), op.into.count(), dtype::int32);
        op.source = const_view_list(std::span(&op.from, 1));
      }
      backend_->start(op);
    }
  }

  reactor& home_;
  const rank_t peer_;
  indifferent_world world_;
  std::deque<busy_operation> operations_;
  std::size_t given_up_ = 0;
  std::unique_ptr<host_backend> backend_;
};

}  // namespace manyworlds::fuzzing
