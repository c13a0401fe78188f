#include "manyworlds/serve/call_server.hpp"

#include <stdexcept>
#include <utility>

#include "serve/server_session.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

task<void> serve_session(call_server::state& server, world& w) {
  if (server.is_draining) co_return;
  server_session session(server, w);
  co_await session.run();
}

task<void> drain_server(call_server::state& server) {
  server.begin_drain();
  while (!server.sessions.empty()) co_await server.session_ended;
}

}  // namespace

task<void> served_call::reply(gather_list data) {
  return session_.reply(slot_, std::move(data));
}

call_server::call_server(handler handle, call_server_options options)
    : state_(std::make_unique<state>()) {
  if (!handle) throw std::invalid_argument("a call server needs a handler");
  state_->handle = std::move(handle);
  state_->options = options;
}

call_server::~call_server() = default;

task<void> call_server::serve(world& w) { return serve_session(*state_, w); }

task<void> call_server::drain() { return drain_server(*state_); }

void call_server::publish_load(std::uint64_t word) noexcept {
  if (state_->has_load && state_->load == word) return;
  state_->load = word;
  state_->has_load = true;
  for (server_session* session : state_->sessions) session->note_load();
}

}  // namespace manyworlds::inline v0
