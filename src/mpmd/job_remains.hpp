// Job remains: what a job that is over has left in etcd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/store/etcd_store.hpp"

namespace manyworlds::inline v0::detail {

enum class remains_state : std::uint8_t {
  not_over,    ///< its status does not say that it is over
  has_master,  ///< a master has its seat, and may still read what it was
  erased,      ///< nothing of it is there
};

struct erased_remains {
  remains_state state = remains_state::not_over;
  std::size_t keys = 0;  ///< that were erased
};

/// Returns the options of a store that has the keys of one job's meeting alone.
[[nodiscard]] etcd_store_options meeting_of_job_options(std::string_view job);

/// Erases all keys of a job that is over: of its context, in a store that was opened with
/// `graph_store_options`, and of its meeting. The status goes last, so that what was
/// begun can be done again. Nothing is erased while a master has the seat. Errors:
/// store_error.
[[nodiscard]] task<erased_remains> erase_job_remains(etcd_store& context,
                                                     etcd_store& meeting);

}  // namespace manyworlds::inline v0::detail
