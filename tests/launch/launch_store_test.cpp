// Launch store: who hosts it and for how long, and that no attempt meets keys of another.
#include "manyworlds/launch/launch_store.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "../world/world_fixture.hpp"
#include "io/descriptor.hpp"
#include "support/eventually.hpp"

namespace manyworlds::launch_tests {

using namespace std::chrono_literals;
using testing::eventually;
using world_tests::node;

TEST_SUITE_BEGIN("launch");

namespace {

launch_context member(rank_t rank, rank_t size, store_place place, std::string store) {
  launch_context job;
  job.launcher = launcher_kind::by_hand;
  job.rank = job.local_rank = rank;
  job.size = job.local_size = size;
  job.place = place;
  job.store = std::move(store);
  job.run_id = "run";
  return job;
}

/// A port that is free now.
/// Below the ports that the kernel gives to those that ask for any, as each runtime does:
/// it is still free when it is used.
std::string free_endpoint() {
  std::random_device random;
  for (int tries = 0; tries < 100; ++tries) {
    const std::string at = "127.0.0.1:" + std::to_string(20'000 + random() % 12'000);
    try {
      node n;
      return hosted_store(n.rt, at).address();
    } catch (const std::system_error&) {
      // It is taken.
    }
  }
  throw std::runtime_error("no port is free below 32000");
}

task<void> put(store& st, std::string key, std::string value) {
  co_await st.set(std::move(key), std::move(value));
}
task<std::string> take(store& st, std::string key) {
  co_return co_await st.get(std::move(key), 10s);
}
task<bool> has(store& st, std::string key) {
  co_return co_await st.check(std::move(key));
}

/// A member with a runtime of its own. Two of them are as two processes.
struct process_like {
  process_like(const launch_context& job, launch_store_options options = {})
      : store(self.rt, job, options) {}
  [[nodiscard]] std::string nonce() {
    REQUIRE(eventually([&] { return !store.prefix().empty(); }));
    return store.prefix();
  }
  node self;
  launch_store store;
};

/// Members of a store that outlives attempts, as torchrun's.
class attempts {
 public:
  explicit attempts(rank_t size) : size_(size), host_(host_node_.rt, "127.0.0.1:0") {}

  [[nodiscard]] std::unique_ptr<process_like> start(rank_t rank) {
    return std::make_unique<process_like>(
        member(rank, size_, store_place::launcher, host_.address()));
  }
  /// Starts all members in that order, and returns their nonce, which must be one.
  std::string run(const std::vector<rank_t>& order) {
    std::vector<std::unique_ptr<process_like>> all;
    for (const rank_t rank : order) all.push_back(start(rank));
    const std::string nonce = all.front()->nonce();
    for (const auto& each : all) CHECK(each->nonce() == nonce);
    all.front()->self.run(put(all.front()->store, "key", nonce));
    for (const auto& each : all) CHECK(each->self.run(take(each->store, "key")) == nonce);
    return nonce;
  }

 private:
  rank_t size_;
  node host_node_;
  hosted_store host_;
};

}  // namespace

TEST_CASE("rank 0 hosts the store where no launcher does, and a world forms through it") {
  const std::string at = free_endpoint();
  // The client comes first.
  process_like other(member(1, 2, store_place::rank_zero, at));
  launch_store_options brief;
  brief.linger = 200ms;
  process_like zero(member(0, 2, store_place::rank_zero, at), brief);
  CHECK(zero.store.is_host());
  CHECK_FALSE(other.store.is_host());
  CHECK(other.store.address() == "tcp://" + at);
  const auto join = [](process_like& p, rank_t rank) -> task<int> {
    world w(p.self.rt, p.store, {.name = "main", .rank = rank, .size = 2});
    co_await w;
    int total = rank + 1;
    co_await w.all_reduce(std::span(&total, 1), manyworlds::sum);
    co_await w.leave();
    co_return total;
  };
  auto one = other.self.rt.start(join(other, 1));
  CHECK(zero.self.run(join(zero, 0)) == 3);
  CHECK(other.self.finish(one) == 3);
}

TEST_CASE("a process alone has a store of its own") {
  process_like alone((launch_context()));
  CHECK(alone.store.is_host());
  alone.self.run(put(alone.store, "key", "value"));
  CHECK(alone.self.run(take(alone.store, "key")) == "value");
}

TEST_CASE("keys stand under run and nonce, and others do not see them") {
  node n;
  const hosted_store host(n.rt, "127.0.0.1:0");
  launch_context job = member(1, 2, store_place::launcher, host.address());
  job.attempt = 4;
  job.is_attempt_agreed = true;
  // It does not wait for rank 0: all were told the same attempt.
  process_like p(job);
  p.self.run(put(p.store, "key", "value"));
  tcp_store plain(n.rt, host.address());
  CHECK(p.store.prefix() == "manyworlds/run/attempt-4/");
  CHECK(n.run(take(plain, "manyworlds/run/attempt-4/key")) == "value");
  job.attempt = 5;
  process_like next(job);
  CHECK_FALSE(next.self.run(has(next.store, "key")));
}

TEST_CASE("S21 members of an attempt agree on a nonce in whichever order they start") {
  attempts all(3);
  std::vector<rank_t> order{0, 1, 2};
  std::vector<std::string> seen;
  do {
    const std::string nonce = all.run(order);
    CHECK(std::find(seen.begin(), seen.end(), nonce) == seen.end());
    seen.push_back(nonce);
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(seen.size() == 6);
}

TEST_CASE("S21 what a dead attempt has left half done is met by no member of the next") {
  attempts all(3);
  SUBCASE("rank 0 never came, and the others had left their tokens") {
    const auto one = all.start(1);
    const auto two = all.start(2);
    std::this_thread::sleep_for(50ms);
    CHECK(one->store.prefix().empty());
  }
  SUBCASE("rank 0 came alone") { CHECK(all.start(0)->nonce() == "manyworlds/run/1/"); }
  SUBCASE("rank 0 had answered one of two") {
    const auto zero = all.start(0);
    const auto one = all.start(1);
    CHECK(one->nonce() == zero->nonce());
    one->self.run(put(one->store, "key", "of a dead one"));
  }
  SUBCASE("rank 0 died, and the others began again before it") {
    {
      const auto zero = all.start(0);
      (void)zero->nonce();
    }
    const auto one = all.start(1);
    std::this_thread::sleep_for(50ms);
    CHECK(one->store.prefix().empty());
    const auto zero = all.start(0);
    CHECK(zero->nonce() == "manyworlds/run/2/");
    CHECK(one->nonce() == zero->nonce());
  }
  const std::string nonce = all.run({2, 1, 0});
  CHECK(all.run({1, 2, 0}) != nonce);
}

TEST_CASE("S21 no key of an attempt is seen in the next") {
  attempts all(2);
  for (int i = 0; i < 3; ++i) {
    const auto one = all.start(1);
    const auto zero = all.start(0);
    CHECK_FALSE(one->self.run(has(one->store, "key")));
    zero->self.run(put(zero->store, "key", "value"));
    CHECK(one->self.run(has(one->store, "key")));
  }
}

TEST_CASE("a member that is replaced under a living rank 0 gets the same nonce") {
  attempts all(2);
  const auto zero = all.start(0);
  for (int i = 0; i < 3; ++i) CHECK(all.start(1)->nonce() == zero->nonce());
}

TEST_CASE("operations say that rank 0 is not there, within their limit") {
  attempts all(2);
  const auto one = all.start(1);
  const auto ask = [](store& st) -> task<std::string> {
    std::string text;
    try {
      (void)co_await st.add("n", 1, 100ms);
    } catch (const store_error& e) {
      text = e.what();
      CHECK(e.kind() == store_error_kind::unreachable);
    }
    co_return text;
  };
  const std::string text = one->self.run(ask(one->store));
  CAPTURE(text);
  CHECK(text.find("rank 0 of this attempt has not come") != std::string::npos);
  CHECK(one->store.trouble().find("rank 0") != std::string::npos);
}

TEST_CASE("what is no store at the launcher's address is told at once") {
  const unique_descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* const address = reinterpret_cast<sockaddr*>(&at);
  REQUIRE(::bind(listener.get(), address, size) == 0);
  REQUIRE(::listen(listener.get(), 8) == 0);
  REQUIRE(::getsockname(listener.get(), address, &size) == 0);
  std::thread web([&] {
    for (int fd = 0;
         (fd = ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      char asked[64];
      CHECK(::recv(fd, asked, sizeof asked, 0) > 0);
      const std::string_view text = "HTTP/1.1 400 Bad Request\r\n\r\n";
      CHECK(::send(fd, text.data(), text.size(), MSG_NOSIGNAL) > 0);
      ::close(fd);
    }
  });
  for (const rank_t rank : {0, 1}) {
    process_like one(member(rank, 2, store_place::launcher,
                            fmt::format("127.0.0.1:{}", ntohs(at.sin_port))));
    const auto ask = [](store& st) -> task<store_error_kind> {
      try {
        (void)co_await st.get("key", 60s);
      } catch (const store_error& e) {
        CHECK(e.failure().keys == std::vector<std::string>{"key"});
        CHECK(e.failure().reason.find("a ping of") == 0);
        CHECK(e.failure().elapsed < 20s);
        co_return e.kind();
      }
      co_return store_error_kind::timed_out;
    };
    CHECK(one.self.run(ask(one.store)) == store_error_kind::protocol);
  }
  ::shutdown(listener.get(), SHUT_RD);
  web.join();
}

TEST_CASE("rank 0 keeps the store until the others are gone") {
  const std::string at = free_endpoint();
  auto zero = std::make_unique<process_like>(member(0, 2, store_place::rank_zero, at));
  auto other = std::make_unique<process_like>(member(1, 2, store_place::rank_zero, at));
  other->self.run(put(other->store, "key", "value"));
  std::atomic<bool> is_over{false};
  std::thread ending([&] {
    zero.reset();
    is_over = true;
  });
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(5ms);
    CHECK(other->self.run(take(other->store, "key")) == "value");
  }
  CHECK_FALSE(is_over);
  other.reset();
  CHECK(eventually([&] { return is_over.load(); }, 9s));
  ending.join();
}

TEST_CASE("rank 0 waits for a member that has not come yet, for a bounded time") {
  const std::string at = free_endpoint();
  launch_store_options brief;
  brief.linger = 200ms;
  const auto begun = std::chrono::steady_clock::now();
  { process_like zero(member(0, 2, store_place::rank_zero, at), brief); }
  const auto took = std::chrono::steady_clock::now() - begun;
  CHECK(took >= 200ms);
  CHECK(took < 8s);
  // One that stays is told of.
  node n;
  process_like other(member(1, 2, store_place::rank_zero, at));
  {
    const launch_store zero(n.rt, member(0, 2, store_place::rank_zero, at), brief);
    other.self.run(put(other.store, "key", "value"));
  }
  CHECK(n.log.has("ends with rank 0, while"));
}

TEST_CASE("rank 0 does not wait where its runtime is stopping") {
  const auto begun = std::chrono::steady_clock::now();
  {
    process_like zero(member(0, 2, store_place::rank_zero, free_endpoint()));
    zero.self.rt.stop();
  }
  CHECK(std::chrono::steady_clock::now() - begun < 8s);
}

TEST_CASE("an address that is taken is an error that names it") {
  node n;
  const hosted_store first(n.rt, "127.0.0.1:0");
  CHECK_THROWS_WITH_AS(
      process_like(member(0, 2, store_place::rank_zero, first.address())),
      doctest::Contains(first.address().c_str()), std::system_error);
  // With the agent's store it is that.
  process_like client(member(0, 1, store_place::launcher, first.address()));
  CHECK_FALSE(client.store.is_host());
  client.self.run(put(client.store, "key", "value"));
}

TEST_CASE("a job with a secret has a store that asks for it") {
  const std::string at = free_endpoint();
  char name[] = "/tmp/mw-secret-XXXXXX";
  const int fd = ::mkstemp(name);
  REQUIRE(fd >= 0);
  REQUIRE(::write(fd, "the secret\n", 11) == 11);
  ::close(fd);
  launch_context job = member(0, 2, store_place::rank_zero, at);
  job.secret_file = name;
  launch_store_options brief;
  brief.linger = 100ms;
  process_like zero(job, brief);
  job.rank = 1;
  process_like one(job);
  one.self.run(put(one.store, "key", "value"));
  CHECK(zero.self.run(take(zero.store, "key")) == "value");
  // One of a job without it is refused.
  process_like stranger(member(1, 2, store_place::rank_zero, at));
  const auto ask = [](store& st) -> task<bool> {
    bool was_refused = false;
    try {
      co_await st.set("key", "of a stranger", 500ms);
    } catch (const store_error&) {
      was_refused = true;
    }
    co_return was_refused;
  };
  CHECK(stranger.self.run(ask(stranger.store)));
  CHECK(zero.self.run(take(zero.store, "key")) == "value");
  ::unlink(name);
}

TEST_CASE("a store that PMIx would tell of needs a context that has asked PMIx") {
  CHECK_THROWS_AS(process_like(member(1, 2, store_place::published, "127.0.0.1:0")),
                  launch_error);
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
