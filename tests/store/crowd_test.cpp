// As many clients as a large job has meet at a server in another process (S16).
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "manyworlds/coro/scope.hpp"
#include "store/etcd_server.hpp"
#include "store/raw_client.hpp"
#include "store/store_fixture.hpp"
#include "support/sanitizers.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("mwstore");

#if defined(MANYWORLDS_MWSTORE)

namespace {

/// Lets this process open that many descriptors while it lives, if it may.
class more_descriptors {
 public:
  explicit more_descriptors(rlim_t wanted) : wanted_(wanted) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    rlimit now = before_;
    now.rlim_cur = std::min(std::max(wanted, before_.rlim_cur), before_.rlim_max);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &now) == 0);
  }
  more_descriptors(const more_descriptors&) = delete;
  more_descriptors& operator=(const more_descriptors&) = delete;
  ~more_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

  [[nodiscard]] bool may_be_had() const noexcept { return before_.rlim_max >= wanted_; }

 private:
  rlimit before_{};
  const rlim_t wanted_;
};

/// mwstore as a shell starts it that allows few descriptors, but more where asked.
class served_crowd {
 public:
  served_crowd() {
    std::filesystem::create_directories(folder_.path);
    pid_ = start_program(
        {"sh", "-c",
         "ulimit -S -n 1024; exec " MANYWORLDS_MWSTORE " serve --listen 127.0.0.1:0"},
        folder_.path / "serve");
    REQUIRE(comes_true([&] { return said().ends_with('\n'); }));
  }
  served_crowd(const served_crowd&) = delete;
  served_crowd& operator=(const served_crowd&) = delete;
  ~served_crowd() {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }

  [[nodiscard]] std::string said() const {
    std::ifstream file(folder_.path / "serve");
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  [[nodiscard]] std::string endpoint() const {
    constexpr std::string_view scheme = "tcp://";
    const std::string all = said();
    return all.substr(scheme.size(), all.find('\n') - scheme.size());
  }
  [[nodiscard]] std::size_t resident_mib() const {
    std::ifstream statm("/proc/" + std::to_string(pid_) + "/statm");
    std::size_t all = 0;
    std::size_t resident = 0;
    statm >> all >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) >> 20;
  }

 private:
  const own_folder folder_;
  pid_t pid_ = 0;
};

/// Each is a store of its own, and connects at its first operation.
task<void> meet_at(reactor& home, const std::string& endpoint, std::string barrier,
                   int clients) {
  std::vector<std::unique_ptr<tcp_store>> all;
  for (int i = 0; i < clients; ++i)
    all.push_back(std::make_unique<tcp_store>(home, endpoint));
  const auto meeting = [&](scope& s) -> task<void> {
    for (const auto& each : all) s.spawn(each->barrier(barrier, clients, 100s));
    co_return;
  };
  co_await scope::run(meeting);
  for (const auto& each : all) co_await each->add("met/" + barrier, 1, 100s);
}

/// Asks for 80 MB and reads nothing of it.
raw_client reads_nothing(const socket_address& server) {
  raw_client c(server);
  c.greet();
  c.send(request(tcp_store_opcode::set, {"/large"}, {std::string(1 << 20, 'x')}));
  std::string gets;
  for (int i = 0; i < 80; ++i) encode(request(tcp_store_opcode::get, {"/large"}), gets);
  c.send(gets);
  return c;
}

}  // namespace

TEST_CASE(
    "S16: clients by the thousand connect and meet at a barrier, twice, beside some that "
    "read no replies; the server's memory is bounded, and does not grow again") {
  const int clients = std::getenv("MANYWORLDS_TEST_LONG") ? 10'000 : 1000;
  const more_descriptors allowed(static_cast<rlim_t>(clients) + 512);
  if (!allowed.may_be_had()) {
    MESSAGE("skipped: ", clients, " clients need as many descriptors (ulimit -H -n)");
    return;
  }
  served_crowd server;
  const socket_address address = *socket_address::parse(server.endpoint());
  std::vector<raw_client> slow;
  for (int i = 0; i < 8; ++i) slow.push_back(reads_nothing(address));
  service_thread service(engine_kind::automatic);
  std::vector<std::size_t> held;
  for (const char* barrier : {"first", "second"}) {
    const auto begun = std::chrono::steady_clock::now();
    sync_wait(within(run_on(service.home(),
                            meet_at(service.home(), server.endpoint(), barrier, clients)),
                     200s));
    held.push_back(server.resident_mib());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    if (clients > 1000) {
      MESSAGE(clients, " clients met and counted in ", took.count(), " s, server holds ",
              held.back(), " MiB");
    }
  }
  tcp_store st(service.home(), server.endpoint());
  CHECK(sync_wait(st.add("met/first", 0, 20s)) == clients);
  CHECK(sync_wait(st.add("met/second", 0, 20s)) == clients);
  // What a sanitizer keeps of its own is not the server's.
  const std::size_t of_sanitizer =
      testing::has_address_sanitizer || testing::has_thread_sanitizer ? 512 : 0;
  CHECK(held[0] < 64 + static_cast<std::size_t>(clients) / 40 + of_sanitizer);
  CHECK(held[1] < held[0] + 32 + of_sanitizer);
  CHECK(server.said().find("cannot accept") == std::string::npos);
}

#endif

TEST_SUITE_END();
