#include "mpmd/context_store.hpp"

#include <fmt/format.h>

namespace manyworlds::inline v0::detail {

namespace {

[[noreturn]] void refuse_as_too_large(std::string text) {
  throw context_error(context_trouble::too_large, std::move(text));
}

}  // namespace

void check_context_write(const std::vector<context_write>& changes) {
  if (changes.size() > context_most_changes)
    refuse_as_too_large(fmt::format("{} changes in one write: at most {} are one step",
                                    changes.size(), context_most_changes));
  std::size_t bytes = 0;
  for (const context_write& change : changes) {
    if (change.key.empty() || change.key.size() > context_longest_key)
      refuse_as_too_large(fmt::format("a key has 1 to {} bytes, and this one {}: \"{}\"",
                                      context_longest_key, change.key.size(),
                                      change.key.substr(0, 60)));
    const std::size_t size = change.value ? change.value->size() : 0;
    if (size > context_longest_value)
      refuse_as_too_large(fmt::format("\"{}\" has {} bytes: a value has at most {}",
                                      change.key, size, context_longest_value));
    bytes += change.key.size() + size;
  }
  if (bytes > context_most_bytes)
    refuse_as_too_large(fmt::format("{} bytes in one write: at most {} are one step",
                                    bytes, context_most_bytes));
}

}  // namespace manyworlds::inline v0::detail
