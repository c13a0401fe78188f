#include "manyworlds/observe/reporter.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/runtime_core.hpp"

namespace manyworlds::inline v0 {

namespace {
// Mutexes that another thread held at the fork stay locked for ever.
constexpr const char* forked_text =
    "this is a forked child: the runtime lives in its parent, ask that process\n";
constexpr const char* forked_json =
    "{\"error\": \"forked: the runtime lives in the parent process\"}\n";
}  // namespace

std::string runtime::dump() const {
  if (core_->is_forked_child()) return forked_text;
  return text_of(core_->reports().report());
}

std::string runtime::dump_json() const {
  if (core_->is_forked_child()) return forked_json;
  return json_of(core_->reports().report());
}

}  // namespace manyworlds::inline v0
