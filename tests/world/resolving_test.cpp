#include "io/resolve.hpp"

#include <doctest/doctest.h>

#include <memory>

#include "io/dns_query.hpp"
#include "io/name_server.hpp"
#include "support/entries.hpp"
#include "support/eventually.hpp"
#include "support/refused_here.hpp"
#include "world/world_fixture.hpp"

namespace manyworlds::world_tests {

#if MANYWORLDS_HAS_C_ARES

TEST_CASE(
    "a runtime that ends in the middle of a lookup leaves no thread and no socket") {
  testing::name_server silent([](const auto&) { return std::nullopt; });
  const testing::text_file hosts("");
  const testing::text_file settings("nameserver " + silent.address().text());
  resolve_options options;
  options.hosts_file = hosts.path();
  options.settings_file = settings.path();
  const auto look_up = [&]() -> task<void> { co_await resolve("node7.test:1", options); };
  for (const engine_kind kind : {engine_kind::io_uring, engine_kind::epoll}) {
    if (kind == engine_kind::io_uring && testing::io_uring_is_refused_here()) continue;
    const std::size_t descriptors = testing::entries("/proc/self/fd");
    const std::size_t threads = testing::entries("/proc/self/task");
    const int asked = silent.questions();
    {
      runtime_options quiet{.log_from = log_level::silent};
      quiet.engine = kind;
      runtime rt(quiet);
      auto here = rt.start(look_up());
      auto there = rt.start_service(look_up());
      // Each asks for both kinds of address.
      CHECK(testing::eventually([&] { return silent.questions() >= asked + 4; }));
    }
    const auto is_as_before = [&] {
      return testing::entries("/proc/self/fd") == descriptors &&
             testing::entries("/proc/self/task") == threads;
    };
    CHECK(testing::eventually(is_as_before));
  }
}

#endif

}  // namespace manyworlds::world_tests
