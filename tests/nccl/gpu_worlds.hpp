// Members of GPU worlds: each a runtime and a thread of its own in this process, on a
// device of its own, or a process where there are too few devices.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "device_fixture.hpp"
#include "manyworlds/gpu.hpp"
#include "manyworlds/mw.hpp"
#include "rank_processes.hpp"

namespace manyworlds::nccl_tests {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

constexpr duration patience = 60s;

/// What a member's task has at hand. Lives as long as the member's runtime.
class member {
 public:
  member(int rank, const device_pool& pool, device_stream stream, runtime& rt, store& st)
      : rank(rank), device(pool.device()), pool(pool), stream(stream), rt(rt), st(st) {}

  const int rank;
  const int device;
  const device_pool& pool;
  const device_stream stream;
  runtime& rt;
  store& st;

  template <class T>
  task<device_buffer<T>> on_device(std::vector<T> values) {
    device_buffer<T> there(pool, values.size(), stream);
    co_await copy(there.view(), values);
    co_return there;
  }
  template <class T>
  task<std::vector<T>> read(const device_buffer<T>& from) {
    std::vector<T> values(from.count());
    co_await copy(values, from.view());
    co_return values;
  }
};

/// The variable that a test program is run with in several ways, or the default.
inline std::string setting(const char* name, const char* otherwise) {
  const char* found = std::getenv(name);
  return found ? found : otherwise;
}

class no_lines final : public log_sink {
 public:
  void write(log_level, std::string_view) noexcept override {}
};

using member_body = std::function<task<void>(member&, world_options)>;

/// One rank's part, on the calling thread, within `limit`. Without a store there is one
/// at `address`.
inline void run_member(int rank, const member_body& body, world_options options,
                       runtime_options how, store* shared,
                       const std::string& address = {}, duration limit = patience) {
  try {
    no_lines quiet;
    if (!how.log) how.log = &quiet;
    const int device = (testing::first_device() + rank) % devices_here();
    const device_pool pool(device);
    const owned_stream stream(device);
    runtime rt(how);
    std::optional<tcp_store> remote;
    if (!shared) remote.emplace(rt, address);
    member m(rank, pool, stream, rt, shared ? *shared : *remote);
    if (options.name.empty()) options.name = "gpus";
    options.backend = backend_kind::nccl;
    options.rank = rank;
    options.device = device;
    const auto whole = [&]() -> task<void> { co_await within(body(m, options), limit); };
    rt.run(whole());
  } catch (const std::exception& e) {
    const std::string said = e.what();
    ADD_FAIL_CHECK_AT(__FILE__, __LINE__, "rank " << rank << ": " << said);
  }
}

/// Runs `body(member, options)` for each rank at the same time and waits for all; what
/// they throw fails the test. `options` has the name, the rank, the size and the device.
/// In a process of a rank's own: for that rank.
inline void run_members(int size, const member_body& body, world_options base = {},
                        const runtime_options& how = {}) {
  base.size = size;
  if (const auto alone = rank_process::here()) {
    if (alone->rank >= size) return;
    return run_member(alone->rank, body, base, how, nullptr, alone->store);
  }
  memory_store st;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { run_member(rank, body, base, how, &st); });
  }
  for (auto& t : threads) t.join();
}

/// The same in one world that is formed before and left afterwards.
inline void in_world(int size, const std::function<task<void>(member&, world&)>& body,
                     world_options base = {}, const runtime_options& how = {}) {
  run_members(
      size,
      [&](member& m, world_options options) -> task<void> {
        world w(m.rt, m.st, options);
        co_await w;
        co_await body(m, w);
        co_await w.leave();
      },
      base, how);
}

inline std::vector<float> ramp(std::size_t count, float from) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = from + static_cast<float>(i % 1000);
  }
  return values;
}

}  // namespace manyworlds::nccl_tests
