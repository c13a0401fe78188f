// The order that makes a member a worker of a dispatcher, as member.cpp lists it.
#pragma once

#include <string>

#include "manyworlds/mw.hpp"
#include "traffic_orders.hpp"

namespace manyworlds::process_tests {

/// Answers calls: "echo TEXT" by TEXT, "late TEXT" by TEXT after 100 ms, "tokens N" by N
/// numbers 10 ms apart, "hold" never.
inline task<void> answer_call(served_call& c) {
  const std::string whole(reinterpret_cast<const char*>(c.data().data()),
                          c.data().size());
  tell("asked " + whole);
  const std::string what = whole.substr(0, whole.find(' '));
  const std::string rest = what == whole ? "" : whole.substr(what.size() + 1);
  if (what == "hold") co_await sleep_for(std::chrono::hours(1));
  if (what == "late") co_await sleep_for(std::chrono::milliseconds(100));
  if (what == "tokens") {
    for (int i = 0; i < std::stoi(rest); ++i) {
      const std::string token = std::to_string(i);
      co_await c.reply(token);
      co_await sleep_for(std::chrono::milliseconds(10));
    }
  } else {
    co_await c.reply(rest);
  }
}

/// Comes back when its world breaks or the leader has left.
inline task<void> work_for(runtime& rt, store& st, std::string name) {
  call_server server(answer_call);
  auto body = [&](world& w) { return server.serve(w); };
  const world_options options{.name = name, .rank = 1, .size = 2};
  co_await keep(rt, st, options, body, after_close::form_again);
}

}  // namespace manyworlds::process_tests
