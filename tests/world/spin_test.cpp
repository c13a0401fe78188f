// Whether a reactor that is bound to one CPU spins: not where a peer has only that one.
#include <sched.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/eventually.hpp"
#include "world/world_fixture.hpp"

using namespace manyworlds;
using namespace manyworlds::world_tests;

namespace {

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

runtime_options bound_to(int cpu, bool shares_memory) {
  runtime_options options;
  options.cpu = cpu;
  options.heartbeat = 20ms;
  options.shared_memory = shares_memory;
  return options;
}

bool comes_to_say(const runtime& rt, const std::string& part) {
  return testing::eventually([&] { return rt.dump().find(part) != std::string::npos; });
}

std::string spinning_on(int cpu) {
  return "bound to CPU " + std::to_string(cpu) + ": spins for 0.05 ms";
}
std::string held_on(int cpu) {
  return "bound to CPU " + std::to_string(cpu) +
         ": does not spin, a peer is bound to it too";
}

}  // namespace

TEST_SUITE_BEGIN("world");

TEST_CASE("members bound to one CPU each spin, unless it is the same one") {
  const std::vector<int> cpus = usable_cpus();
  // Too few for this test, or none to spend on spinning.
  if (cpus.size() < 2 || default_spin() == duration::zero()) return;
  for (const bool shares_memory : {true, false}) {
    CAPTURE(shares_memory);
    {
      pair apart({.name = "apart", .form = 10s}, bound_to(cpus[0], shares_memory),
                 bound_to(cpus[1], shares_memory));
      CHECK(comes_to_say(apart.a.rt, spinning_on(cpus[0])));
      CHECK(comes_to_say(apart.b.rt, spinning_on(cpus[1])));
      check_alive(apart.a, apart.wa, apart.b, apart.wb);
    }
    pair together({.name = "together", .form = 10s}, bound_to(cpus[0], shares_memory),
                  bound_to(cpus[0], shares_memory));
    CHECK(comes_to_say(together.a.rt, held_on(cpus[0])));
    CHECK(comes_to_say(together.b.rt, held_on(cpus[0])));
    check_alive(together.a, together.wa, together.b, together.wb);
  }
}

TEST_CASE("members that are bound to different CPUs spin from the first moment") {
  const std::vector<int> cpus = usable_cpus();
  if (cpus.size() < 2 || default_spin() == duration::zero()) return;
  runtime_options first = bound_to(cpus[0], true);
  runtime_options second = bound_to(cpus[1], true);
  // One side is the first to look at the other, which has not told of its CPU by then.
  first.heartbeat = second.heartbeat = 400ms;
  pair apart({.name = "from the first", .form = 10s}, first, second);
  const auto until = std::chrono::steady_clock::now() + 250ms;
  bool was_held = false;
  while (std::chrono::steady_clock::now() < until) {
    was_held |= apart.a.rt.dump().find(held_on(cpus[0])) != std::string::npos;
    was_held |= apart.b.rt.dump().find(held_on(cpus[1])) != std::string::npos;
    std::this_thread::sleep_for(1ms);
  }
  CHECK_FALSE(was_held);
}

TEST_CASE("a reactor that is told how long to spin does so whatever its peers have") {
  const std::vector<int> cpus = usable_cpus();
  if (cpus.empty()) return;
  runtime_options options = bound_to(cpus[0], true);
  options.spin = 20us;
  pair together({.name = "told", .form = 10s}, options, options);
  const std::string told =
      "bound to CPU " + std::to_string(cpus[0]) + ": spins for 0.02 ms";
  CHECK(comes_to_say(together.a.rt, told));
  check_alive(together.a, together.wa, together.b, together.wb);
  CHECK(comes_to_say(together.b.rt, told));
}

TEST_SUITE_END();
