// What a server does when it is misused or short of something.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <vector>

#include "store/served.hpp"

using namespace manyworlds_tests;
using namespace std::string_literals;

TEST_SUITE_BEGIN("tcp_store_server_limits");

TEST_CASE(
    "disco A65: a socket that says nothing, or stops within a request, is ended after "
    "its limit") {
  for_each_engine([](engine_kind kind) {
    tcp_store_server_options options;
    options.handshake_limit = 400ms;
    options.stall_limit = 400ms;
    served server(kind, options);
    raw_client idle = server.client();
    idle.send(request(op::wait, {"/k"}));
    raw_client silent(server.address());
    CHECK(silent.is_ended_by_server());
    CHECK(server.reports("no handshake in time"));
    raw_client half = server.client();
    half.send("\x01\x05\0\0"s);
    CHECK(half.is_ended_by_server());
    CHECK(server.reports("begun, but not finished in time"));
    idle.send(ping());
    CHECK(idle.receive(4) == pong);
  });
}

TEST_CASE("a client that reads no replies holds up no other and costs bounded memory") {
  for_each_engine([](engine_kind kind) {
    tcp_store_server_options options;
    options.stall_limit = 500ms;
    served server(kind, options);
    raw_client writer = server.client();
    writer.send(request(op::set, {"/large"}, {std::string(1 << 20, 'x')}));
    writer.send(ping());
    CHECK(writer.receive(4) == pong);
    raw_client slow = server.client();
    std::string gets;
    for (int i = 0; i < 200; ++i) encode(request(op::get, {"/large"}), gets);
    slow.send(gets);
    for (int i = 0; i < 100; ++i) {
      writer.send(ping());
      CHECK(writer.receive(4) == pong);
    }
    CHECK(server.reports("replies were not taken in time"));
    slow.close();
  });
}

TEST_CASE("connections beyond the limit are closed, and taken again when there is room") {
  for_each_engine([](engine_kind kind) {
    tcp_store_server_options options;
    options.connections = 3;
    served server(kind, options);
    std::vector<raw_client> clients;
    for (int i = 0; i < 3; ++i) {
      clients.push_back(server.client());
      clients.back().send(ping());
      CHECK(clients.back().receive(4) == pong);
    }
    raw_client refused = server.client();
    CHECK(refused.is_ended_by_server());
    CHECK(server.reports("more than 3 connections"));
    clients.pop_back();
    CHECK(comes_true([&] { return server.get().connections() == 2; }));
    raw_client taken = server.client();
    taken.send(ping());
    CHECK(taken.receive(4) == pong);
  });
}

TEST_CASE("a store that is full refuses what would make it grow, and keeps what it has") {
  for_each_engine([](engine_kind kind) {
    tcp_store_server_options options;
    options.bytes = 4096;
    served server(kind, options);
    raw_client c = server.client();
    c.send(request(op::set, {"/k"}, {std::string(3000, 'x')}));
    c.send(request(op::set, {"/l"}, {std::string(3000, 'x')}));
    CHECK(c.is_ended_by_server());
    CHECK(server.reports("the store is full"));
    raw_client d = server.client();
    d.send(request(op::check, {"/k"}));
    d.send(request(op::check, {"/l"}));
    CHECK(d.receive(2) == "\0\x01"s);
  });
}

TEST_CASE("neither barriers nor empty queues grow a store beyond its limit") {
  for_each_engine([](engine_kind kind) {
    for (const op grows : {op::barrier, op::queue_push}) {
      tcp_store_server_options options;
      options.bytes = 16 * 1024;
      served server(kind, options);
      raw_client c = server.client();
      for (char last : "abcd"s) {
        const std::string key = "/" + std::string(6000, 'k') + last;
        c.send(grows == op::barrier ? request(op::barrier, {key}, {}, 1)
                                    : request(op::queue_push, {key}, {""}));
      }
      CHECK(server.reports("the store is full"));
    }
  });
}

TEST_CASE("waits and half requests are bounded for all connections together") {
  for_each_engine([](engine_kind kind) {
    tcp_store_server_options options;
    options.connection_bytes = 256 * 1024;
    served server(kind, options);
    const auto waiting = [&](int n) {
      std::vector<std::string> keys;
      for (int k = 0; k < 20; ++k) {
        keys.push_back("/" + std::to_string(n) + std::string(100, 'w') +
                       std::to_string(k));
      }
      raw_client c = server.client();
      c.send(request(op::wait, keys));
      return c;
    };
    {
      raw_client half = server.client();
      half.send("\x01"s + text("/k") + u64(1 << 20) + std::string(300 * 1024, 'x'));
      CHECK(half.is_ended_by_server());
      CHECK(server.reports("hold all the memory that the store may use"));
      std::vector<raw_client> waits;
      for (int n = 0; n < 100; ++n) waits.push_back(waiting(n));
      CHECK(waits.back().is_ended_by_server());
      // Who was there is served.
      waits.front().send(ping());
      CHECK(waits.front().receive(4) == pong);
    }
    CHECK(comes_true([&] { return server.get().connections() == 0; }));
    raw_client next = waiting(0);
    next.send(ping());
    CHECK(next.receive(4) == pong);
  });
}

TEST_CASE("with no descriptor left connections wait, and are served when there is one") {
  for_each_engine([](engine_kind kind) {
    served server(kind);
    raw_client before = server.client();
    before.send(ping());
    CHECK(before.receive(4) == pong);
    std::vector<raw_client> later;
    rlimit old{};
    ::getrlimit(RLIMIT_NOFILE, &old);
    // The client's own descriptors are taken before the limit, the server's would come
    // after it.
    std::vector<int> spare;
    for (int i = 0; i < 3; ++i) spare.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    const int highest = *std::max_element(spare.begin(), spare.end());
    std::vector<int> fill;
    do fill.push_back(::dup(0));
    while (fill.back() >= 0 && fill.back() < highest);
    rlimit low = old;
    low.rlim_cur = static_cast<rlim_t>(fill.back()) + 1;
    ::setrlimit(RLIMIT_NOFILE, &low);
    alignas(8) unsigned char native[32];
    const unsigned size = server.address().to_native(native);
    for (const int fd : spare) {
      CHECK(::connect(fd, reinterpret_cast<const sockaddr*>(native), size) == 0);
    }
    CHECK(server.reports("cannot accept"));
    before.send(ping());
    CHECK(before.receive(4) == pong);
    ::setrlimit(RLIMIT_NOFILE, &old);
    CHECK(comes_true([&] { return server.get().connections() == 4; }));
    for (const int fd : spare) ::close(fd);
    for (const int fd : fill) ::close(fd);
  });
}
