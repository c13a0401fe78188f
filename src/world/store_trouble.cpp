#include "world/store_trouble.hpp"

#include <fmt/format.h>

#include "manyworlds/coro/sleep.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

std::string trouble_with(const store& st) {
  const std::string trouble = st.trouble();
  if (trouble.empty()) return trouble;
  return fmt::format("the store {} cannot be reached: {}", st.address(), trouble);
}

task<void> tell_of_trouble(runtime_core& rt, std::string who, const store& st) {
  constexpr duration poll_interval = std::chrono::milliseconds(400);
  std::string told;
  for (;;) {
    co_await sleep_for(poll_interval);
    std::string trouble = trouble_with(st);
    if (!trouble.empty() && trouble != told) {
      rt.log(log_level::warning, fmt::format("{}: {}", who, trouble));
    }
    told = std::move(trouble);
  }
}

}  // namespace manyworlds::inline v0::detail
