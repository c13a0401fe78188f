#include "manyworlds/world/runtime.hpp"
#include "observe/reporter.hpp"
#include "world/runtime_core.hpp"
#include "world/runtime_roots.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {
// Mutexes that another thread held at the fork stay locked.
constexpr const char* forked_text =
    "this is a forked child: the runtime lives in its parent, ask that process\n";
constexpr const char* forked_json =
    "{\"error\": \"forked: the runtime lives in the parent process\"}\n";
}  // namespace

runtime_report runtime::report() const {
  runtime_report all = core_->reports().report();
  roots_->report(all);
  service_roots_->report(all);
  return all;
}

std::string runtime::dump() const {
  if (core_->is_forked_child()) return forked_text;
  return text_of(report());
}

std::string runtime::dump_json() const {
  if (core_->is_forked_child()) return forked_json;
  return json_of(report());
}

}  // namespace manyworlds::inline v0
