// etcd trouble: what an error of etcd's store means for a context.
#pragma once

#include "manyworlds/store/store_error.hpp"
#include "mpmd/context_store.hpp"

namespace manyworlds::inline v0::detail {

[[nodiscard]] inline context_error context_error_of(const store_error& error) {
  const store_failure& failure = error.failure();
  context_trouble kind = context_trouble::unreachable;
  const bool is_refused = failure.kind == store_error_kind::refused;
  if (failure.kind == store_error_kind::too_large) {
    kind = context_trouble::too_large;
  } else if (is_refused &&
             failure.reason.find("database space exceeded") != std::string::npos) {
    kind = context_trouble::full;
  } else if (is_refused || failure.kind == store_error_kind::protocol) {
    kind = context_trouble::unsupported;
  }
  return {kind, error.what()};
}

}  // namespace manyworlds::inline v0::detail
