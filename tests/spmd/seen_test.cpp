// What a process shows of its session: which worker is in which call.
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "session_fixture.hpp"

namespace manyworlds::spmd_tests {

namespace {

/// Dumps until all of these are found in one. They are at most a few looks away.
task<bool> is_dumped(runtime& rt, std::vector<std::string> words) {
  std::string text;
  for (int tries = 0; tries < 1000; ++tries) {
    text = rt.dump();
    bool has_all = true;
    for (const std::string& each : words)
      has_all = has_all && text.find(each) != text.npos;
    if (has_all) co_return true;
    co_await sleep_for(10ms);
  }
  MESSAGE(text);
  co_return false;
}

/// Calls it until the dump has these words.
template <class Call>
task<void> check_is_dumped(runtime& rt, Call call, std::vector<std::string> words) {
  std::stop_source enough;
  auto looking = [&]() -> task<void> {
    const bool is_found = co_await is_dumped(rt, words);
    CHECK(is_found);
    enough.request_stop();
  };
  auto calling = [&]() -> task<refusal> {
    co_return co_await refusal_of(std::move(call).stop(enough.get_token()));
  };
  const auto [nothing, told] = co_await when_all(looking(), calling());
  CHECK(told.cause == cause::cancelled);
}

/// Braced lists do not stand in awaited expressions.
template <class... Words>
std::vector<std::string> texts(Words... words) {
  std::vector<std::string> all;
  (all.push_back(words), ...);
  return all;
}

}  // namespace

TEST_CASE(
    "a dump says which worker is in a function, and which wait for it in a collective") {
  for (const worker_kind kind : {worker_kind::threads, worker_kind::processes}) {
    CAPTURE(kind == worker_kind::threads);
    runtime rt;
    auto whole = [&]() -> task<void> {
      session s = co_await start_session(rt, kind, 3);
      std::vector<std::string> words =
          texts("worker 1 in all_but_one_enter (call 1) for ",
                "; workers 0, 2 in all_but_one_enter (call 1) for ", ": all_reduce");
      co_await check_is_dumped(rt, s.call(all_but_one_enter, 1, 60'000), words);
      // A thread that is in a function leaves its reactor to answer.
      words = texts("workers 0, 1, 2 in block_ms (call 2) for ");
      co_await check_is_dumped(rt, s.call(block_ms, 1500), words);
      co_await s.close();
      CHECK(rt.dump().find("\nsession ") == std::string::npos);
    };
    rt.run([](task<void> all) -> task<void> {
      co_await within(std::move(all), longest_session());
    }(whole()));
  }
}

}  // namespace manyworlds::spmd_tests
