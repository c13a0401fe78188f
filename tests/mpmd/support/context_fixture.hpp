// Context stores to run tests over: in memory, in a file of SQLite's, and in etcd.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/store/etcd_store.hpp"
#include "mpmd/etcd_context.hpp"
#include "mpmd/sqlite_context.hpp"
#include "mpmd/support/memory_context.hpp"
#include "store/etcd_features.hpp"
#include "store/etcd_server.hpp"

namespace manyworlds::testing {

using namespace std::chrono_literals;

/// Longer than anything here takes, so that a hang becomes a failure.
inline constexpr duration context_patience = 30s;

template <class T>
T context_result(task<T> operation) {
  return sync_wait(within(std::move(operation), context_patience));
}

/// The trouble that an operation ends with, and its text; nothing if it ends well.
struct told_trouble {
  std::optional<context_trouble> kind;
  std::string text;

  friend bool operator==(const told_trouble& t, context_trouble kind) {
    return t.kind == kind;
  }
};

template <class T>
told_trouble context_trouble_of(task<T> operation) {
  try {
    static_cast<void>(context_result(std::move(operation)));
    return {};
  } catch (const context_error& e) {
    return {e.kind(), e.what()};
  }
}

inline std::vector<context_write> one_change(std::string key, std::string value) {
  std::vector<context_write> one;
  one.push_back({std::move(key), std::move(value)});
  return one;
}

inline void set_context_value(context_store& kept, std::uint64_t term, std::string key,
                              std::string value) {
  context_result(kept.write(term, one_change(std::move(key), std::move(value))));
}

/// Takes the next term, as a master does that begins.
inline std::uint64_t take_next_term(context_store& kept) {
  return context_result(kept.take_term(context_result(kept.term())));
}

/// A folder of this process, removed at the end; in memory where it can be.
class context_folder {
 public:
  context_folder() { std::filesystem::create_directories(path_); }
  context_folder(const context_folder&) = delete;
  context_folder& operator=(const context_folder&) = delete;
  ~context_folder() { std::filesystem::remove_all(path_); }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::string file() const { return (path_ / "job.context").string(); }

 private:
  static std::filesystem::path new_path() {
    static int number = 0;
    const bool has_memory = std::filesystem::is_directory("/dev/shm");
    const std::filesystem::path base =
        has_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    return base /
           ("mw-context-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
  }

  const std::filesystem::path path_ = new_path();
};

/// Makes connections to one context.
using connect_context = std::function<std::unique_ptr<context_store>()>;

/// A connection to etcd with the store that it uses.
class own_etcd_context final : public context_store {
 public:
  own_etcd_context(const std::string& endpoint, const std::string& job)
      : store_(endpoint, graph_store_options(job)), context_(store_) {}

  task<std::uint64_t> term() override { return context_.term(); }
  task<std::uint64_t> take_term(std::uint64_t seen) override {
    return context_.take_term(seen);
  }
  task<context_values> load() override { return context_.load(); }
  task<void> write(std::uint64_t term, std::vector<context_write> changes) override {
    return context_.write(term, std::move(changes));
  }
  [[nodiscard]] std::string where() const override { return context_.where(); }

 private:
  etcd_store store_;
  etcd_context context_;
};

inline bool can_use_etcd_for_contexts() {
  return MANYWORLDS_HAS_ETCD && !manyworlds_tests::etcd_is_missing_here();
}

inline std::string new_job_name() {
  static int number = 0;
  return "job" + std::to_string(number++);
}

/// Runs a test's body over a new context of each kind that several threads may connect
/// to.
template <class Body>
void for_each_kept_context(Body body) {
  {
    INFO("context: SQLite");
    const context_folder folder;
    body(
        connect_context([&] { return std::make_unique<sqlite_context>(folder.file()); }));
  }
  if (!can_use_etcd_for_contexts()) return;
  INFO("context: etcd");
  const std::string endpoint = manyworlds_tests::shared_etcd().endpoint();
  const std::string job = new_job_name();
  body(
      connect_context([&] { return std::make_unique<own_etcd_context>(endpoint, job); }));
}

/// Runs a test's body over a new context of each kind.
template <class Body>
void for_each_context(Body body) {
  {
    INFO("context: memory");
    shared_context shared;
    body(connect_context([&] { return std::make_unique<memory_context>(shared); }));
  }
  for_each_kept_context(body);
}

}  // namespace manyworlds::testing
