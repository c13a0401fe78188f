#include "spmd/worker_process.hpp"

#include <exception>
#include <optional>
#include <string>

#include "exception_text.hpp"
#include "manyworlds/store/store_error.hpp"
#include "spmd/mesh_name.hpp"

namespace manyworlds::inline v0::detail {

/// Says why it cannot join, where the store is there.
static task<void> tell_refusal(store& meeting, const worker_seat& seat,
                               std::string trouble) {
  try {
    co_await meeting.set(refusal_key(seat.session, seat.id, seat.incarnation),
                         std::move(trouble));
  } catch (const store_error&) {
    // The trouble itself is thrown.
  }
}

task<void> serve_controller(runtime& rt, store& meeting, const function_table& functions,
                            worker_seat seat, last_alarm& at_last) {
  std::optional<worker_loop> loop;
  std::exception_ptr trouble;
  try {
    loop.emplace(rt, meeting, functions, seat);
  } catch (...) {
    trouble = std::current_exception();
  }
  if (trouble) {
    co_await tell_refusal(meeting, seat, exception_text(trouble));
    std::rethrow_exception(trouble);
  }
  loop->when_controller_is_gone([&at_last] { at_last.set(); });
  co_await loop->run();
}

}  // namespace manyworlds::inline v0::detail
