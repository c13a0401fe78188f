#include "store/tcp_store_server.hpp"

#include <doctest/doctest.h>

#include <string>
#include <system_error>
#include <vector>

#include "store/served.hpp"
#include "support/entries.hpp"

using namespace manyworlds_tests;
using namespace std::string_literals;
using manyworlds::testing::open_descriptors;

TEST_SUITE_BEGIN("tcp_store_server");

TEST_CASE("each request has PyTorch's reply, byte for byte") {
  for_each_engine([](engine_kind kind) {
    served server(kind);
    raw_client c = server.client();
    c.send(ping());
    CHECK(c.receive(4) == pong);
    c.send(request(op::add, {"init/"}, {}, 1));
    CHECK(c.receive(8) == u64(1));
    c.send(request(op::set, {"/k"}, {"value"}));
    c.send(request(op::get, {"/k"}));
    CHECK(c.receive(13) == text("value"));
    c.send(request(op::get, {"/none"}));
    CHECK(c.receive(8) == u64(0));
    c.send(request(op::compare_set, {"/k"}, {"value", "new"}));
    CHECK(c.receive(11) == text("new"));
    c.send(request(op::check, {"/k", "/none"}));
    CHECK(c.receive(1) == "\x01");
    c.send(request(op::check, {"/k"}));
    CHECK(c.receive(1) == "\0"s);
    c.send(request(op::wait, {"/k"}));
    CHECK(c.receive(1) == "\0"s);
    c.send(request(op::num_keys));
    CHECK(c.receive(8) == u64(2));
    c.send(request(op::append, {"/k"}, {"er"}));
    c.send(request(op::multi_set, {"/a", "/b"}, {"1", ""}));
    c.send(request(op::multi_get, {"/k", "/a", "/b"}));
    CHECK(c.receive(30) == text("newer") + text("1") + text(""));
    c.send(request(op::delete_key, {"/a"}));
    c.send(request(op::delete_key, {"/a"}));
    CHECK(c.receive(16) == u64(1) + u64(0));
    c.send(request(op::queue_push, {"/q"}, {"x"}));
    c.send(request(op::queue_size, {"/q"}));
    CHECK(c.receive(8) == u64(1));
    c.send(request(op::queue_pop, {"/q"}));
    c.send(request(op::queue_pop, {"/q"}));
    CHECK(c.receive(25) == u64(1) + text("x") + u64(0));
    c.send(request(op::list_keys));
    const std::string keys = c.receive(8 + 3 * 8 + 5 + 2 + 2);
    CHECK(keys.substr(0, 8) == u64(3));
    for (const char* key : {"init/", "/k", "/b"})
      CHECK(keys.find(text(key)) != std::string::npos);
    c.send(request(op::barrier, {"/barrier"}, {}, 1));
    CHECK(c.receive(1) == "\0"s);
    c.send(request(op::cancel_wait));
    CHECK(c.receive(1) == "\x01");
    CHECK(c.has_nothing());
  });
}

TEST_CASE("a waiting client can give up, ask something else, and wait again") {
  for_each_engine([](engine_kind kind) {
    served server(kind);
    raw_client c = server.client();
    c.send(request(op::wait, {"/late"}));
    c.send(ping());
    CHECK(c.receive(4) == pong);
    c.send(request(op::cancel_wait));
    CHECK(c.receive(1) == "\x01");
    c.send(request(op::wait, {"/late"}));
    c.send(ping());
    CHECK(c.receive(4) == pong);
    raw_client other = server.client();
    other.send(request(op::compare_set, {"/late"}, {"", "1"}));
    CHECK(other.receive(9) == text("1"));
    CHECK(c.receive(1) == "\0"s);
    // Given up too late: the reply to the wait was out, the cancellation is answered all
    // the same.
    c.send(request(op::cancel_wait));
    CHECK(c.receive(1) == "\x01");
    CHECK(c.has_nothing());
  });
}

TEST_CASE("a waiter goes away with its connection, and a second wait ends it") {
  for_each_engine([](engine_kind kind) {
    served server(kind);
    raw_client gone = server.client();
    gone.send(request(op::wait, {"/k"}));
    gone.send(ping());
    CHECK(gone.receive(4) == pong);
    gone.close();
    raw_client greedy = server.client();
    greedy.send(request(op::wait, {"/k"}));
    greedy.send(request(op::wait, {"/k"}));
    CHECK(greedy.is_ended_by_server());
    CHECK(server.reports("a second wait"));
    CHECK(comes_true([&] { return server.get().connections() == 0; }));
    raw_client c = server.client();
    c.send(request(op::set, {"/k"}, {"v"}));
    c.send(ping());
    CHECK(c.receive(4) == pong);
  });
}

TEST_CASE("S12: a wake-up for a queue that its client does not use wakes the next") {
  for_each_engine([](engine_kind kind) {
    served server(kind);
    raw_client writer = server.client();
    raw_client gone = server.client();
    raw_client other = server.client();
    raw_client both = server.client();
    raw_client last = server.client();
    // Each has waited before the next does.
    const auto waits = [&](raw_client& c, std::vector<std::string> keys) {
      c.send(request(op::wait, std::move(keys)));
      c.send(ping());
      CHECK(c.receive(4) == pong);
    };
    waits(both, {"/q", "/k"});
    waits(gone, {"/q"});
    waits(other, {"/q"});
    waits(last, {"/q"});
    writer.send(request(op::queue_push, {"/q"}, {"v"}));
    CHECK(gone.receive(1) == "\0"s);
    gone.close();
    CHECK(other.receive(1) == "\0"s);
    other.send(request(op::num_keys, {}));
    CHECK(other.receive(8) == u64(0));
    CHECK(last.receive(1) == "\0"s);
    last.send(request(op::queue_pop, {"/q"}));
    CHECK(last.receive(17) == u64(1) + text("v"));
  });
}

TEST_CASE("S12: a wait for a queue that takes no wake-up passes none on, nor keeps one") {
  for_each_engine([](engine_kind kind) {
    served server(kind);
    raw_client writer = server.client();
    raw_client both = server.client();
    raw_client first = server.client();
    raw_client second = server.client();
    const auto has_waited = [&](raw_client& c, std::vector<std::string> keys) {
      c.send(request(op::wait, std::move(keys)));
      c.send(ping());
      CHECK(c.receive(4) == pong);
    };
    // It waits for the queue alone by then, but asks for no value of it.
    has_waited(both, {"/q", "/k"});
    writer.send(request(op::set, {"/k"}, {"v"}));
    has_waited(first, {"/q"});
    has_waited(second, {"/q"});
    writer.send(request(op::queue_push, {"/q"}, {"v"}));
    CHECK(both.receive(1) == "\0"s);
    CHECK(first.receive(1) == "\0"s);
    // The value is that of `first`, whatever one does that has not waited for it.
    writer.send(request(op::wait, {"/q"}));
    CHECK(writer.receive(1) == "\0"s);
    writer.send(ping());
    CHECK(writer.receive(4) == pong);
    second.send(ping());
    CHECK(second.receive(4) == pong);
    first.send(request(op::queue_pop, {"/q"}));
    CHECK(first.receive(17) == u64(1) + text("v"));
  });
}

TEST_CASE("garbage ends its own connection with a named error, and no other") {
  struct bad_bytes {
    const char* name;
    std::string bytes;
    const char* reason;
  };
  const std::string magic = "\x00\xce\xf7\x85\x3c"s;
  const std::string huge = "\xff\xff\xff\xff\xff\xff\xff\x7f";
  const bad_bytes all[] = {
      {"HTTP", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "first byte is 0x47"},
      {"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc"s, "first byte is 0x16"},
      {"ping first", "\x0d\x01\0\0\0"s, "first byte is 0x0d"},
      {"bad magic", "\x00\xde\xad\xbe\xef"s, "magic number 0xefbeadde"},
      {"unknown operation", magic + "\x42", "unknown operation 0x42"},
      {"huge key", magic + "\x03" + huge, "a key of 9223372036854775807 bytes"},
      {"huge value", magic + "\x01" + text("/k") + huge,
       "a value of 9223372036854775807 bytes"},
      {"huge list", magic + "\x06" + huge, "a list of 9223372036854775807 keys"},
      {"add to a word",
       magic + "\x01" + text("/w") + text("x") + "\x04" + text("/w") + u64(1),
       "no number"},
  };
  for_each_engine([&](engine_kind kind) {
    served server(kind);
    raw_client good = server.client();
    for (const bad_bytes& bad : all) {
      const std::string name = bad.name;
      INFO(name);
      raw_client c(server.address());
      c.send(bad.bytes);
      CHECK(c.is_ended_by_server());
      CHECK(server.reports(bad.reason));
      good.send(ping());
      CHECK(good.receive(4) == pong);
    }
    CHECK(comes_true([&] { return server.get().connections() == 1; }));
  });
}

TEST_CASE("stopping ends every connection, frees the port and leaks no descriptor") {
  for_each_engine([](engine_kind kind) {
    service_thread service(kind);
    const std::size_t before = open_descriptors();
    socket_address address = socket_address::loopback(0);
    for (int round = 0; round < 3; ++round) {
      hosted_server server(service.home(), address);
      address = server.address();
      raw_client waiting(address);
      waiting.greet();
      waiting.send(request(op::wait, {"/k"}));
      waiting.send(ping());
      CHECK(waiting.receive(4) == pong);
      raw_client silent(address);
      server.stop();
      CHECK(waiting.is_ended_by_server());
      CHECK(server.get().connections() == 0);
    }
    CHECK(open_descriptors() == before);
  });
}

TEST_CASE("a port in use is an error that names it") {
  service_thread service(engine_kind::epoll);
  hosted_server first(service.home(), socket_address::loopback(0));
  try {
    tcp_store_server second(service.home(), first.address());
    FAIL("listened twice");
  } catch (const std::system_error& e) {
    CHECK(std::string(e.what()).find(first.address().text()) != std::string::npos);
    CHECK(e.code() == std::errc::address_in_use);
  }
}

TEST_CASE("four hundred clients meet at a barrier") {
  for_each_engine([](engine_kind kind) {
    served server(kind);
    constexpr int members = 400;
    std::vector<raw_client> clients;
    for (int i = 0; i < members; ++i) {
      clients.push_back(server.client());
      if (i > 0) CHECK(clients.front().has_nothing());
      clients.back().send(request(op::barrier, {"/all"}, {}, members));
    }
    for (raw_client& c : clients) CHECK(c.receive(1) == "\0"s);
  });
}
