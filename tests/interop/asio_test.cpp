#include "manyworlds/interop/asio.hpp"

#include <asio/awaitable.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "coro/test_executor.hpp"
#include "manyworlds/coro/channel.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/sync_wait.hpp"

namespace manyworlds::testing {
namespace {

/// A home on a thread of its own, until destroyed.
class home_thread {
 public:
  home_thread() : thread_([this] { home_.run(wait_for_end(end_)); }) {}
  ~home_thread() {
    end_.close();
    thread_.join();
  }
  [[nodiscard]] executor& home() { return home_; }
  [[nodiscard]] std::thread::id id() const { return thread_.get_id(); }

 private:
  static task<void> wait_for_end(channel<int>& end) { co_await end.pop(); }

  local_executor home_;
  channel<int> end_{1};
  std::thread thread_;
};

task<std::string> answer(std::thread::id& ran_on) {
  co_await sleep_for(1ms);
  ran_on = std::this_thread::get_id();
  co_return "answer";
}
task<void> waits_for_ever(lifetimes& l) {
  tracked local(l);
  co_await sleep_for(1h);
}

}  // namespace

TEST_SUITE_BEGIN("asio");

// Asio 1.22 knows no coroutines with clang.
#if defined(ASIO_HAS_CO_AWAIT)

TEST_CASE("an asio::awaitable awaits a task and goes on on its own executor") {
  asio::io_context io;
  home_thread ours;
  std::string got;
  std::thread::id ran_on, resumed_on;
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        got = co_await asio_await(ours.home(), answer(ran_on), asio::use_awaitable);
        resumed_on = std::this_thread::get_id();
      },
      asio::detached);
  io.run();
  CHECK(got == "answer");
  CHECK(ran_on == ours.id());
  CHECK(resumed_on == std::this_thread::get_id());
}

TEST_CASE("what a task throws is thrown in the asio::awaitable") {
  asio::io_context io;
  home_thread ours;
  std::string what;
  auto fails = []() -> task<void> {
    co_await yield();
    throw std::runtime_error("ours");
  };
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        try {
          co_await asio_await(ours.home(), fails(), asio::use_awaitable);
        } catch (const std::runtime_error& e) {
          what = e.what();
        }
      },
      asio::detached);
  io.run();
  CHECK(what == "ours");
}

#endif

TEST_CASE("other completion tokens work: a future") {
  asio::io_context io;
  home_thread ours;
  std::thread::id ran_on;
  // Without an executor Asio would start a pool of its own that outlives the test.
  std::future<std::string> f =
      asio_await(ours.home(), answer(ran_on), asio::bind_executor(io, asio::use_future));
  io.run();
  CHECK(f.get() == "answer");
}

TEST_CASE("Asio's cancellation unwinds the task") {
  lifetimes l;
  asio::io_context io;
  home_thread ours;
  asio::cancellation_signal signal;
  bool was_stopped = false;
  asio_await(ours.home(), waits_for_ever(l),
             asio::bind_cancellation_slot(
                 signal.slot(), asio::bind_executor(io, [&](std::exception_ptr e) {
                   try {
                     if (e) std::rethrow_exception(e);
                   } catch (const stopped&) {
                     was_stopped = true;
                   }
                 })));
  asio::post(io, [&] { signal.emit(asio::cancellation_type::terminal); });
  io.run();
  CHECK(was_stopped);
  CHECK(l.alive() == 0);
}

TEST_CASE("a cancellation that races the end leaves one outcome") {
  asio::io_context io;
  home_thread ours;
  int outcomes = 0;
  for (int i = 0; i < 200; ++i) {
    io.restart();
    asio::cancellation_signal signal;
    auto op = [](int turns) -> task<int> {
      for (int t = 0; t < turns; ++t) co_await yield();
      co_return 1;
    };
    asio_await(ours.home(), op(i % 20),
               asio::bind_cancellation_slot(
                   signal.slot(), asio::bind_executor(
                                      io, [&](std::exception_ptr, int) { ++outcomes; })));
    asio::post(io, [&] { signal.emit(asio::cancellation_type::partial); });
    io.run();
  }
  CHECK(outcomes == 200);
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
