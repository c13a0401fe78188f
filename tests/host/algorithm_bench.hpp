// Algorithm bench: runs an algorithm over the backends of a cluster without the table.
#pragma once

#include <deque>

#include "collective_fixture.hpp"
#include "host/algorithm_table.hpp"
#include "host/collective_signature.hpp"
#include "host/schedule.hpp"

namespace manyworlds::host_tests {

/// One member's part, with the messages of its algorithm sent by its backend.
class algorithm_bench final : host::schedule_port {
 public:
  algorithm_bench(cluster& c, collective_run& all, rank_t self,
                  host::collective_function by)
      : backend_(c.at(self)),
        op_(all.ops[static_cast<std::size_t>(self)]),
        core_(c[self], backend_, self, all.size),
        schedule_(core_, *this),
        end_(*this, *c[self].home) {
    host::collective_shape shape = host::shape_of(op_, self, all.size);
    const host::collective_signature signature(shape, algorithm::ring, 1, false);
    schedule_.open(std::move(shape), signature);
    task_ = by(schedule_);
  }

  void start() { task_.promise().start(end_).resume(); }

  static void run(cluster& c, collective_run& all, host::collective_function by) {
    std::deque<algorithm_bench> members;
    for (rank_t r = 0; r < all.size; ++r) members.emplace_back(c, all, r, by);
    for (algorithm_bench& m : members) m.start();
    CHECK(c.until([&] { return all.ended(); }));
    c.settle();
  }

 private:
  struct bench_core final : host::core {
    bench_core(member& m, host_backend& by, rank_t self, rank_t size)
        : core(by, *m.home, m.events, options_, self, size, size) {}

   private:
    host_backend_options options_;
  };
  struct end_of_task final : continuation {
    end_of_task(algorithm_bench& b, reactor& home)
        : continuation(
              [](continuation& k) noexcept -> std::coroutine_handle<> {
                static_cast<end_of_task&>(k).bench.op_.end(operation_end::done);
                return std::noop_coroutine();
              },
              &home),
          bench(b) {}
    algorithm_bench& bench;
  };

  void start_step(operation& op) noexcept override { backend_.start(op); }
  bool withdraw_step(operation& op) noexcept override { return backend_.withdraw(op); }
  void step_failed() noexcept override { FAIL_CHECK("a message of it failed"); }
  void came_to_rest() noexcept override {}

  host_backend& backend_;
  operation& op_;
  bench_core core_;
  host::schedule schedule_;
  end_of_task end_;
  task<void> task_;
};

}  // namespace manyworlds::host_tests
