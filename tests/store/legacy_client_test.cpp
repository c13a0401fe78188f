// Clients of PyTorch before 2.2: their dialect has no handshake (S1, S3).
#include <doctest/doctest.h>

#include <string>

#include "store/served.hpp"

using namespace manyworlds_tests;
using namespace std::string_literals;

namespace {

std::string legacy_add(const std::string& key, std::uint64_t delta) {
  return "\3" + text(key) + u64(delta);
}
std::string legacy_set(const std::string& key, const std::string& value) {
  return "\0"s + text(key) + text(value);
}

}  // namespace

TEST_SUITE_BEGIN("tcp_store_server");

TEST_CASE("S3: both dialects are served at one port, and share the keys") {
  for_each_engine([](engine_kind kind) {
    served server(kind);
    raw_client modern = server.client();
    raw_client legacy(server.address());
    legacy.send(legacy_add("init/", 1));
    CHECK(legacy.receive(8) == u64(1));
    legacy.send(legacy_set("/k", "value"));
    legacy.send("\4" + u64(2) + text("/k") + text("init/"));
    CHECK(legacy.receive(1) == "\0"s);
    modern.send(request(op::get, {"/k"}));
    CHECK(modern.receive(13) == text("value"));
    legacy.send("\6");
    CHECK(legacy.receive(8) == u64(2));
    legacy.send("\5" + u64(1) + text("/late"));
    modern.send(request(op::set, {"/late"}, {""}));
    CHECK(legacy.receive(1) == "\0"s);
    legacy.send("\1" + text("/k") + text("value") + text("new"));
    CHECK(legacy.receive(11) == text("new"));
    legacy.send("\2" + text("/k"));
    CHECK(legacy.receive(11) == text("new"));
    legacy.send("\x08" + text("/k"));
    CHECK(legacy.receive(8) == u64(1));
  });
}

TEST_CASE("S3: the dialect is told also when the first byte comes alone") {
  for_each_engine([](engine_kind kind) {
    served server(kind);
    raw_client modern(server.address());
    raw_client legacy(server.address());
    const std::string setting = legacy_set("/k", "v");
    const std::string greeting = "\x00\xce\xf7\x85\x3c\x0d\x78\x56\x34\x12"s;
    modern.send(greeting.substr(0, 1));
    legacy.send(setting.substr(0, 1));
    // The server has read both: another client's request, sent later, is answered.
    raw_client other = server.client();
    other.send(ping());
    CHECK(other.receive(4) == pong);
    modern.send(greeting.substr(1));
    legacy.send(setting.substr(1) + "\6");
    CHECK(modern.receive(4) == pong);
    CHECK(legacy.receive(8) == u64(1));
  });
}

TEST_CASE("S5: a legacy client that gives up a wait stays in step, which it cannot say") {
  for_each_engine([](engine_kind kind) {
    served server(kind);
    raw_client legacy(server.address());
    legacy.send("\5" + u64(1) + text("/never") + "\6");
    CHECK(legacy.receive(8) == u64(0));
    // Another wait, and the key of the first is set before that of the second.
    legacy.send("\5" + u64(1) + text("/second"));
    raw_client modern = server.client();
    modern.send(request(op::set, {"/never"}, {"late"}));
    modern.send(request(op::set, {"/second"}, {"now"}));
    CHECK(legacy.receive(1) == "\0"s);
    legacy.send("\2" + text("/second"));
    CHECK(legacy.receive(11) == text("now"));
  });
}

TEST_CASE("a legacy client is told of each change of a key that it watches") {
  for_each_engine([](engine_kind kind) {
    served server(kind);
    raw_client writer = server.client();
    raw_client watcher(server.address());
    watcher.send("\7" + text("/k") + "\7" + text("/k"));
    CHECK(watcher.receive(2) == "\3\3");
    writer.send(request(op::set, {"/k"}, {"1"}));
    CHECK(watcher.receive(28) == "\1" + text("/k") + text("") + text("1"));
    writer.send(request(op::add, {"/k"}, {}, 1));
    CHECK(writer.receive(8) == u64(2));
    CHECK(watcher.receive(29) == "\0"s + text("/k") + text("1") + text("2"));
    writer.send(request(op::set, {"/other"}, {"1"}));
    writer.send(request(op::delete_key, {"/k"}));
    CHECK(writer.receive(8) == u64(1));
    CHECK(watcher.receive(28) == "\2" + text("/k") + text("2") + text(""));
  });
}

TEST_CASE("S4: a silent connection is ended, but for the second one of a legacy client") {
  tcp_store_server_options options;
  options.handshake_limit = 50ms;
  served server(engine_kind::epoll, options);
  raw_client alone(server.address());
  CHECK(alone.is_ended_by_server());
  CHECK(server.reports("no handshake in time"));

  raw_client legacy(server.address());
  legacy.send(legacy_add("init/", 1));
  CHECK(legacy.receive(8) == u64(1));
  raw_client second(server.address());
  // Longer than a silent one has: another is ended in that time... by its half request.
  raw_client half(server.address());
  half.send("\0"s);
  CHECK(half.is_ended_by_server());
  second.send("\7" + text("/k"));
  CHECK(second.receive(1) == "\3");

  raw_client third(server.address());
  legacy.close();
  second.close();
  CHECK(third.is_ended_by_server());
}

TEST_SUITE_END();
