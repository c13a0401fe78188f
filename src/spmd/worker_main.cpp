#include "manyworlds/spmd/worker_main.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "exception_text.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "spmd/worker_invitation.hpp"
#include "spmd/worker_process.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

/// Takes it out of the environment: it is for this process and not for what it starts.
std::string session_variable(const char* name) {
  const char* const found = std::getenv(name);
  std::string value = found ? found : "";
  ::unsetenv(name);
  return value;
}

}  // namespace

int worker_main(const function_table& functions, int, const char* const* argv) noexcept {
  const char* const program = argv != nullptr && argv[0] != nullptr ? argv[0] : "worker";
  try {
    const std::string invited = session_variable(worker_invitation::variable);
    if (invited.empty()) {
      std::fprintf(stderr,
                   "%s: this is a worker of a Manyworlds session; its controller starts "
                   "it (mw::session::start)\n",
                   program);
      return 2;
    }
    worker_invitation given = worker_invitation::of(invited);
    runtime_options options;
    options.listen = given.listen;
    options.insecure = given.insecure;
    options.secret = session_variable(worker_invitation::link_secret_variable);
    tcp_store_options how;
    how.secret = session_variable(worker_invitation::store_secret_variable);
    last_alarm at_last;
    runtime rt(options);
    tcp_store meeting(rt, given.store, how);
    rt.run(serve_controller(rt, meeting, functions, std::move(given.seat), at_last));
    return 0;
  } catch (...) {
    std::fprintf(stderr, "%s: %s\n", program, handled_exception_text().c_str());
    return 1;
  }
}

}  // namespace manyworlds::inline v0
