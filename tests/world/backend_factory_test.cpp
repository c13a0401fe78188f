// A backend with an asynchronous and slow abort, as a GPU's is: law 4 holds all the
// same, and nothing else waits for it.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <thread>

#include "world/backend_factory.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

constexpr std::uint8_t scribble = 0xee;

/// Host memory over tcp, except that after a break "the device" goes on writing to the
/// buffers of pending receives, from a thread of its own, until `let_go`; then the
/// backend is quiet.
class slow_device {
 public:
  ~slow_device() {
    let_go();
    if (thread_.joinable()) thread_.join();
  }

  void abort(reactor& home, work& quiet, std::vector<std::span<std::byte>> targets) {
    thread_ = std::thread([this, &home, &quiet, targets = std::move(targets)] {
      std::unique_lock lock(mutex_);
      aborting_ = true;
      changed_.notify_all();
      while (!may_end_) {
        for (const auto t : targets) std::fill(t.begin(), t.end(), std::byte(scribble));
        ++rounds_;
        changed_.wait_for(lock, 1ms);
      }
      // The last it does: from here on the device is drained.
      has_ended_ = true;
      home.post(quiet);
    });
  }

  void let_go() {
    const std::lock_guard lock(mutex_);
    may_end_ = true;
    changed_.notify_all();
  }
  bool await_abort() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 10s, [this] { return aborting_ && rounds_ > 3; });
  }
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborting_ = false;
  bool may_end_ = false;
  int rounds_ = 0;
  std::atomic<bool> has_ended_{false};
  std::thread thread_;
};

class slow_backend final : public backend {
 public:
  slow_backend(slow_device& device, backend_parts parts)
      : device_(device),
        home_(parts.home()),
        host_(make_host_backend(std::move(parts))) {}

  void start(operation& op) noexcept override {
    if (op.kind == operation_kind::receive) {
      for (std::size_t i = 0; i < op.target.size(); ++i) {
        const buffer_view& view = op.target[i];
        // What is still pending at the break: the small ones have ended by then.
        if (view.size_bytes() < 4096) continue;
        targets_.emplace_back(static_cast<std::byte*>(view.data()), view.size_bytes());
      }
    }
    host_->start(op);
  }
  bool withdraw(operation& op) noexcept override { return host_->withdraw(op); }
  void quiesce(work& quiet) noexcept override {
    quiet_ = &quiet;
    host_->quiesce(host_quiet_);
  }
  void leave(work& gone, time_point deadline) noexcept override {
    host_->leave(gone, deadline);
  }
  [[nodiscard]] std::vector<undelivered_messages> undelivered() const override {
    return host_->undelivered();
  }
  [[nodiscard]] std::vector<lane_status> lanes() const override { return host_->lanes(); }
  void discard(rank_t peer, lane on) noexcept override { host_->discard(peer, on); }
  [[nodiscard]] transfer_counters counters() const noexcept override {
    return host_->counters();
  }
  [[nodiscard]] const char* transport() const noexcept override { return "slow"; }

 private:
  struct host_is_quiet final : work {
    explicit host_is_quiet(slow_backend& b) noexcept
        : work([](work& w) noexcept {
            auto& self = static_cast<host_is_quiet&>(w).owner;
            self.device_.abort(self.home_, *self.quiet_, self.targets_);
          }),
          owner(b) {}
    slow_backend& owner;
  };

  slow_device& device_;
  reactor& home_;
  std::unique_ptr<backend> host_;
  std::vector<std::span<std::byte>> targets_;
  work* quiet_ = nullptr;
  host_is_quiet host_quiet_{*this};
};

/// The first backend is slow, later ones are the default.
class slow_first final : public backend_factory {
 public:
  explicit slow_first(slow_device& device) : device_(device) {}
  std::unique_ptr<backend> make_backend(backend_parts parts) override {
    if (made_++ > 0) return make_host_backend(std::move(parts));
    return std::make_unique<slow_backend>(device_, std::move(parts));
  }
  [[nodiscard]] int made() const noexcept { return made_; }

 private:
  slow_device& device_;
  std::atomic<int> made_{0};
};

}  // namespace

TEST_CASE(
    "waiters of a broken world resume when its device is drained, and their buffers are "
    "theirs") {
  slow_device device;
  slow_first factory(device);
  std::vector<std::uint8_t> buffer(4096, 0);
  pair p({.name = "device", .form = 10s}, {.backends = &factory});
  CHECK(factory.made() == 1);
  check_alive(p.a, p.wa, p.b, p.wb);
  std::atomic<bool> resumed{false};
  bool ended_before = false;
  auto receiving = [&]() -> task<failure> {
    const auto got = co_await outcome(p.wa.recv(buffer, from(1)));
    resumed = true;
    ended_before = device.has_ended();
    // Ours again.
    std::fill(buffer.begin(), buffer.end(), std::uint8_t{7});
    co_return got.error();
  };
  auto waiting = p.a.rt.start(receiving());
  // It has been handed to the backend.
  auto turn = []() -> task<void> { co_await yield(); };
  p.a.run(turn());

  p.wb.fail("enough");
  REQUIRE(device.await_abort());
  // Known at once, here and there; the waiter is not resumed.
  CHECK(p.a.run(p.wa.broken()).cause == cause::broken_by_user);
  CHECK(!resumed);
  auto late = [&]() -> task<failure> {
    std::uint8_t byte = 0;
    co_return (co_await outcome(p.wa.recv(std::span(&byte, 1), from(1)))).error();
  };
  CHECK(p.a.run(late()).cause == cause::broken_by_user);

  // The name is formed again meanwhile, and used.
  world na;
  world nb;
  form_two({.name = "device", .form = 10s}, p.store, p.a, na, p.b, nb);
  CHECK(na.epoch() == p.wa.epoch() + 1);
  check_alive(p.a, na, p.b, nb);
  CHECK(!resumed);
  CHECK(!waiting.is_ready());

  device.let_go();
  const failure f = p.a.finish(waiting);
  CHECK(f.cause == cause::broken_by_user);
  CHECK(f.detail == "enough");
  CHECK(ended_before);
  p.a.run(p.wa.drained());
  CHECK(std::count(buffer.begin(), buffer.end(), std::uint8_t{7}) == 4096);
  check_alive(p.a, na, p.b, nb);
}

TEST_CASE("a runtime that ends waits for a device that is still aborting") {
  slow_device device;
  slow_first factory(device);
  std::vector<std::uint8_t> buffer(4096, 0);
  constexpr duration held_up = 50ms;
  std::thread releases;
  {
    pair p({.name = "device", .form = 10s}, {.backends = &factory});
    auto receiving = [&]() -> task<failure> {
      co_return (co_await outcome(p.wa.recv(buffer, from(1)))).error();
    };
    auto waiting = p.a.rt.start(receiving());
    auto turn = []() -> task<void> { co_await yield(); };
    p.a.run(turn());
    p.wb.fail("enough");
    REQUIRE(device.await_abort());
    releases = std::thread([&] {
      // No event tells that the end has begun to wait.
      std::this_thread::sleep_for(held_up);
      device.let_go();
    });
  }
  CHECK(device.has_ended());
  releases.join();
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
