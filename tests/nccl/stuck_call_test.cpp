#include "nccl/stuck_call.hpp"

#include <doctest/doctest.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <semaphore>
#include <thread>

#include "support/eventually.hpp"

using namespace manyworlds;
using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

namespace {

/// A thread inside something that does not return before the test ends.
class caller {
 public:
  template <class Call>
  explicit caller(Call call) : thread_([this, call] { begin(call); }) {
    began_.acquire();
  }
  caller(const caller&) = delete;
  caller& operator=(const caller&) = delete;
  ~caller() {
    may_end_ = true;
    may_end_.notify_all();
    thread_.join();
  }
  [[nodiscard]] pid_t id() const { return id_; }

 private:
  template <class Call>
  void begin(Call call) {
    id_ = ::gettid();
    began_.release();
    call(may_end_);
  }

  std::atomic<pid_t> id_{0};
  std::binary_semaphore began_{0};
  std::atomic<bool> may_end_{false};
  std::thread thread_;
};

void stay_on_cpu(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ::sched_setaffinity(0, sizeof one, &one);
}

void compute(const std::atomic<bool>& may_end) {
  while (!may_end) continue;
}

}  // namespace

TEST_SUITE_BEGIN("stuck call");

TEST_CASE("a thread that sleeps in a call is in it for as long as it sleeps") {
  const caller sleeps([](std::atomic<bool>& may_end) { may_end.wait(false); });
  nccl::stuck_call call(sleeps.id());
  CHECK(testing::eventually([&] { return call.lasted() >= 10ms; }));
}

TEST_CASE("a thread that computes in a call is in it for as long as it has a CPU") {
  const caller computes(compute);
  nccl::stuck_call call(computes.id());
  CHECK(testing::eventually([&] { return call.lasted() >= 10ms; }));
}

TEST_CASE("the time in which a thread gets no CPU is not its call's") {
  const int cpu = ::sched_getcpu();
  const caller computes([cpu](std::atomic<bool>& may_end) {
    stay_on_cpu(cpu);
    // Runs only when nothing else wants the CPU.
    const sched_param none{};
    ::sched_setscheduler(0, SCHED_IDLE, &none);
    compute(may_end);
  });
  const caller in_front([cpu](std::atomic<bool>& may_end) {
    stay_on_cpu(cpu);
    compute(may_end);
  });
  nccl::stuck_call call(computes.id());
  duration counted{0};
  const auto begin = clock_type::now();
  while (clock_type::now() - begin < 200ms) {
    counted = call.lasted();
    std::this_thread::sleep_for(1ms);
  }
  CHECK(counted < 100ms);
}

TEST_CASE("of a thread that has ended all time counts") {
  pid_t ended = 0;
  std::thread([&] { ended = ::gettid(); }).join();
  nccl::stuck_call call(ended);
  CHECK(testing::eventually([&] { return call.lasted() >= 10ms; }));
}

TEST_SUITE_END();
