#include <cerrno>

#include "manyworlds/coro/sleep.hpp"
#include "simulation/connected_pair.hpp"

using namespace manyworlds_tests;
using namespace std::chrono_literals;

namespace {

/// One request of four bytes on a socket, without a coroutine.
class raw_request final : public mw::io_request {
 public:
  raw_request(simulated_node& node, mw::io_kind what, mw::socket_handle on)
      : io_request([](io_request& r) noexcept { ++static_cast<raw_request&>(r).ends; }),
        node_(node) {
    kind = what;
    socket = on;
    buffers = &vector_;
    buffer_count = 1;
    node_.home().io().submit(*this);
  }
  void cancel() { node_.home().io().cancel(*this); }
  int ends = 0;

 private:
  simulated_node& node_;
  std::array<std::byte, 4> bytes_{};
  iovec vector_{bytes_.data(), bytes_.size()};
};

mw::task<> accept_forever(mw::listener& listening, std::vector<mw::io_result>& results) {
  for (;;) {
    const mw::io_result accepted = co_await listening.accept();
    results.push_back(accepted);
    if (!accepted.ok()) co_await mw::sleep_for(1ms);
  }
}

}  // namespace

TEST_SUITE_BEGIN("simulated engine");

TEST_CASE("a cancelled receive ends once, with its bytes or without, and loses none") {
  std::size_t cancelled = 0;
  std::size_t delivered_though_cancelled = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    mw::simulation_options options;
    options.jitter = 0us;
    connected_pair pair(seed, options);
    mw::socket near = pair.near.release();
    mw::socket far = pair.far.release();
    raw_request in(pair.b, mw::io_kind::receive, far.handle());
    raw_request out(pair.a, mw::io_kind::send, near.handle());
    bool asked = false;
    // The very instant at which the bytes arrive.
    pair.sim.after(options.latency, [&] {
      asked = in.ends == 0;
      if (!asked) return;
      in.cancel();
      CHECK(in.ends == 0);
    });
    pair.sim.run_for(1s);
    CHECK(in.ends == 1);
    CHECK(out.ends == 1);
    REQUIRE(out.result.ok());
    std::size_t heard = in.result.ok() ? in.result.count() : 0;
    if (!in.result.ok()) CHECK(in.result.error() == ECANCELED);
    if (asked) ++(in.result.ok() ? delivered_though_cancelled : cancelled);
    while (heard < out.result.count()) {
      raw_request rest(pair.b, mw::io_kind::receive, far.handle());
      REQUIRE(pair.sim.run_until([&] { return rest.ends == 1; }));
      heard += rest.result.count();
    }
    CHECK(heard == out.result.count());
  }
  CHECK(cancelled > 5);
  CHECK(delivered_though_cancelled > 5);
}

TEST_CASE("a request never ends inside its submission") {
  connected_pair pair(1);
  mw::socket near = pair.near.release();
  raw_request out(pair.a, mw::io_kind::send, near.handle());
  CHECK(out.ends == 0);
  raw_request nowhere(pair.a, mw::io_kind::receive, mw::socket_handle{4});
  CHECK(nowhere.ends == 0);
  pair.sim.run_for(1ms);
  CHECK(out.ends == 1);
  CHECK(nowhere.ends == 1);
  CHECK(nowhere.result.error() == EBADF);
}

TEST_CASE(
    "without descriptors nothing is opened, and a connection waits to be accepted") {
  mw::simulation sim(4);
  simulated_node server(sim, "server");
  simulated_node client(sim, "client");
  mw::listener listening(server.home(), server.process().address(port));
  std::vector<mw::io_result> accepted;
  server.spawn(accept_forever(listening, accepted));
  server.process().limit_descriptors(1);
  mw::network& net = server.home().sockets();
  CHECK(net.listen(server.process().address(), 1).error() == EMFILE);
  CHECK(net.open_stream(server.process().address()).error() == EMFILE);
  mw::stream near;
  std::optional<int> error;
  client.spawn(connect_to(client.home(), server.process().address(port), near, error));
  REQUIRE(sim.run_until([&] { return error == 0 && accepted.size() >= 3; }));
  for (const mw::io_result& r : accepted) CHECK(r.error() == EMFILE);
  server.process().limit_descriptors(2);
  REQUIRE(sim.run_until([&] { return accepted.back().ok(); }));
  mw::socket(net, accepted.back().handle()).close();
  near.close();
  CHECK(server.process().open_sockets() == 1);
  server.end();
}

TEST_SUITE_END();
