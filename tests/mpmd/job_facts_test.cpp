// What instances record: no workload may fill the context of its job.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "mpmd/instance_fact.hpp"
#include "mpmd/job_context.hpp"

namespace mw = manyworlds;

namespace {

mw::job_graph job_of(std::uint32_t count) {
  mw::job_graph g("facts");
  g.role("many").run({"many"}).count(count);
  return g;
}

/// Records facts of the largest size until one is refused. Returns their number.
std::size_t fill(mw::detail::job_context& job, std::size_t instances) {
  const std::string value(mw::detail::largest_fact, 'x');
  std::size_t taken = 0;
  for (std::size_t n = 0; n < instances; ++n)
    for (std::size_t key = 0; key < 15; ++key, ++taken)
      if (!job.record_fact(n, std::to_string(key), value)) return taken;
  return taken;
}

}  // namespace

TEST_CASE(
    "graph: the facts of a job's instances leave room for what its master records") {
  constexpr std::size_t instances = 100;
  mw::detail::job_context job(job_of(instances));
  const std::size_t taken = fill(job, instances);
  CHECK(taken * mw::detail::largest_fact > mw::detail::most_fact_bytes_of_job * 9 / 10);
  CHECK(taken * mw::detail::largest_fact <= mw::detail::most_fact_bytes_of_job);
  // What replaces a fact needs no other room, and a smaller one makes some.
  const std::string other(mw::detail::largest_fact, 'y');
  CHECK(job.record_fact(0, "0", other));
  CHECK_FALSE(job.record_fact(instances - 1, "new", other));
  CHECK(job.record_fact(0, "0", "small"));
  CHECK(job.record_fact(instances - 1, "new", other));

  // The next master counts what it finds.
  mw::detail::context_values rows;
  for (const mw::detail::context_write& each : job.take_changes())
    rows[each.key] = each.value.value();
  mw::detail::job_context next(rows);
  const std::string large(mw::detail::largest_fact, 'z');
  std::size_t more = 0;
  while (more < 10 &&
         next.record_fact(instances - 1, "more" + std::to_string(more), large))
    ++more;
  CHECK(more < 3);
}
