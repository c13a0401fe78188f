// Stores to run tests over: in memory, over tcp with the server hosted by a thread of its
// own, and the one that src/EXTENDING.md shows.
#pragma once

#include <doctest/doctest.h>

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "interface/folder_store.hpp"
#include "io/reactor.hpp"
#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/root.hpp"
#include "manyworlds/store/etcd_store.hpp"
#include "manyworlds/store/file_store.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/store/run_on.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "store/etcd_features.hpp"
#include "store/etcd_server.hpp"
#include "store/tcp_store_server.hpp"
#include "support/refused_here.hpp"

namespace manyworlds_tests {

using namespace manyworlds;
using namespace std::chrono_literals;

/// Longer than anything here takes, so that a hang becomes a failure.
inline constexpr duration patience = 20s;

/// A reactor on a thread, as a runtime's service thread is.
class service_thread {
 public:
  explicit service_thread(engine_kind kind)
      : reactor_(std::make_unique<reactor>(make_engine(kind).engine,
                                           reactor_options{duration::zero()})),
        thread_([this] {
          reactor_->run_until([this] { return stop_.has_run; });
          reactor_.reset();
        }) {}
  ~service_thread() {
    // Set on the reactor's own thread: once it has ended no thread may wake it.
    reactor_->post(stop_);
    thread_.join();
  }

  [[nodiscard]] reactor& home() noexcept { return *reactor_; }

 private:
  struct stop_work final : work {
    stop_work()
        : work([](work& w) noexcept { static_cast<stop_work&>(w).has_run = true; }) {}
    bool has_run = false;
  };

  stop_work stop_;
  std::unique_ptr<reactor> reactor_;
  std::thread thread_;
};

/// Runs on the service thread, awaited by the calling one.
template <class T>
T run_there(reactor& home, task<T> t) {
  return sync_wait(within(run_on(home, std::move(t)), patience));
}

/// A server that is served from its construction to `stop`.
class hosted_server {
 public:
  /// `at` is what a server can be made with: an address, several, or listeners.
  template <class Place>
  hosted_server(reactor& home, Place at, tcp_store_server_options options = {})
      : home_(home),
        server_(home, std::move(at), std::move(options)),
        serving_(server_.serve()),
        root_(
            home, [](void* self) noexcept { static_cast<hosted_server*>(self)->end(); },
            this) {
    root_.start(serving_.promise());
  }
  ~hosted_server() { stop(); }

  /// Returns when nothing of any connection is left.
  void stop() {
    if (stopped_) return;
    stopped_ = true;
    run_there(home_, stop_there());
    REQUIRE(has_ended_.get_future().wait_for(patience) == std::future_status::ready);
    // The notice comes from within the task's last suspension: one more turn.
    run_there(home_, nothing());
  }

  [[nodiscard]] tcp_store_server& get() noexcept { return server_; }
  [[nodiscard]] socket_address address() const noexcept { return server_.address(); }
  [[nodiscard]] std::size_t connections() {
    return run_there(home_, count_connections());
  }

 private:
  void end() noexcept { has_ended_.set_value(); }
  task<void> stop_there() {
    server_.stop();
    co_return;
  }
  task<void> nothing() { co_return; }
  task<std::size_t> count_connections() { co_return server_.connections(); }

  reactor& home_;
  tcp_store_server server_;
  task<void> serving_;
  task_root root_;
  std::promise<void> has_ended_;
  bool stopped_ = false;
};

/// Has the patience to look until a condition of another thread holds, without sleeping a
/// fixed time.
template <class Condition>
bool comes_true(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

enum class store_kind { memory, tcp_io_uring, tcp_epoll, file, etcd, folder };

inline const char* text_of(store_kind kind) {
  switch (kind) {
    case store_kind::memory:
      return "memory";
    case store_kind::tcp_io_uring:
      return "tcp on io_uring";
    case store_kind::tcp_epoll:
      return "tcp on epoll";
    case store_kind::file:
      return "file";
    case store_kind::etcd:
      return "etcd";
    case store_kind::folder:
      return "folder";
  }
  return "";
}

/// A folder of this process, removed at the end.
struct own_folder {
  own_folder() = default;
  own_folder(const own_folder&) = delete;
  own_folder& operator=(const own_folder&) = delete;
  ~own_folder() { std::filesystem::remove_all(path); }

  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("mw-store-" + std::to_string(::getpid()));
};

/// Returns whether this build has an etcd store, and this machine an etcd.
inline bool can_use_etcd_here() { return MANYWORLDS_HAS_ETCD && is_program_here("etcd"); }

/// One store of a kind, with all that it needs.
class store_under_test {
 public:
  explicit store_under_test(store_kind kind) {
    if (kind == store_kind::memory) {
      memory_.emplace();
      return;
    }
    if (kind == store_kind::folder || kind == store_kind::file) {
      folder_.emplace();
      if (kind == store_kind::file) {
        file_.emplace(folder_->path.string());
      } else {
        own_.emplace(folder_->path);
      }
      return;
    }
    if (kind == store_kind::etcd) {
      etcd_store_options own;
      own.prefix = new_etcd_prefix();
      etcd_.emplace(shared_etcd().endpoint(), own);
      return;
    }
    const bool on_epoll = kind == store_kind::tcp_epoll;
    service_.emplace(on_epoll ? engine_kind::epoll : engine_kind::io_uring);
    server_.emplace(service_->home(), socket_address::loopback(0));
    client_.emplace(service_->home(), server_->address().text());
  }

  [[nodiscard]] store& get() noexcept {
    if (own_) return *own_;
    if (file_) return *file_;
    if (etcd_) return *etcd_;
    return memory_ ? static_cast<store&>(*memory_) : *client_;
  }

 private:
  std::optional<memory_store> memory_;
  std::optional<own_folder> folder_;
  std::optional<folder_store> own_;
  std::optional<file_store> file_;
  std::optional<etcd_store> etcd_;
  std::optional<service_thread> service_;
  std::optional<hosted_server> server_;
  std::optional<tcp_store> client_;
};

template <class Body>
void with_store(store_kind kind, Body& body) {
  if (kind == store_kind::tcp_io_uring && testing::io_uring_is_refused_here()) return;
  if (kind == store_kind::etcd && !can_use_etcd_here()) return;
  const std::string which = text_of(kind);
  INFO("store: ", which);
  store_under_test under_test(kind);
  sync_wait(within(body(under_test.get()), patience));
}

/// Runs a test's body once per kind of store that has all operations, with the test's
/// own thread as the home of its tasks.
template <class Body>
void for_each_whole_store(Body body) {
  for (const store_kind kind :
       {store_kind::memory, store_kind::tcp_io_uring, store_kind::tcp_epoll,
        store_kind::file, store_kind::etcd}) {
    with_store(kind, body);
  }
}

/// The same for the operations that worlds need, which a user's own store has at least.
template <class Body>
void for_each_store(Body body) {
  for_each_whole_store(body);
  with_store(store_kind::folder, body);
}

/// The failure that an operation ends with; fails the test if it does not.
template <class T>
task<store_failure> failure_of(task<T> operation) {
  std::optional<store_failure> failure;
  try {
    co_await std::move(operation);
  } catch (const store_error& e) {
    failure = e.failure();
  }
  REQUIRE(failure.has_value());
  co_return std::move(*failure);
}

}  // namespace manyworlds_tests
