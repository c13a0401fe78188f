#include "io/cpu_binding.hpp"

#include <sched.h>

namespace manyworlds::inline v0::detail {

cpu_binding cpu_binding::of_thread(int thread) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  // The call fails if there are more CPUs than the set can hold: they are several then.
  if (::sched_getaffinity(thread, sizeof set, &set) != 0 || CPU_COUNT(&set) != 1) {
    return to_several();
  }
  unsigned cpu = 0;
  while (!CPU_ISSET(cpu, &set)) ++cpu;
  return to(cpu);
}

}  // namespace manyworlds::inline v0::detail
