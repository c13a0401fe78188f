// Contexts and seats of masters in etcd. The numbers are those of the catalogue of role
// graphs (B59 and so on).
#include "mpmd/etcd_context.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <future>
#include <optional>
#include <string>

#include "io/descriptor.hpp"
#include "mpmd/master_seat.hpp"
#include "mpmd/support/context_fixture.hpp"
#include "store/child.hpp"
#include "support/eventually.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("etcd context");

namespace {

/// Returns what this etcd says of itself, asked over HTTP/1.0.
std::string metrics_of(const manyworlds_tests::etcd_server& etcd) {
  const std::string at = etcd.endpoint();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port =
      htons(static_cast<std::uint16_t>(std::stoi(at.substr(at.rfind(':') + 1))));
  const detail::unique_descriptor link(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(link.get(), reinterpret_cast<const sockaddr*>(&address),
                    sizeof address) == 0);
  const std::string question = "GET /metrics HTTP/1.0\r\n\r\n";
  REQUIRE(::write(link.get(), question.data(), question.size()) ==
          static_cast<ssize_t>(question.size()));
  std::string all;
  std::array<char, 4096> some{};
  for (ssize_t got = 0; (got = ::read(link.get(), some.data(), some.size())) > 0;)
    all.append(some.data(), static_cast<std::size_t>(got));
  return all;
}

/// Returns how often this etcd was asked for keys.
std::uint64_t questions_to(const manyworlds_tests::etcd_server& etcd) {
  const std::string all = metrics_of(etcd);
  const std::string name = "\netcd_debugging_mvcc_range_total ";
  const std::size_t found = all.find(name);
  REQUIRE(found != std::string::npos);
  return static_cast<std::uint64_t>(std::stod(all.substr(found + name.size())));
}

}  // namespace

TEST_CASE("graph B59: what another hand changes or erases in etcd is damage") {
  if (!can_use_etcd_for_contexts()) return;
  const std::string endpoint = manyworlds_tests::shared_etcd().endpoint();
  const std::string job = new_job_name();
  etcd_store hand(endpoint, graph_store_options(job));
  etcd_context kept(hand);
  const std::uint64_t term = take_next_term(kept);
  set_context_value(kept, term, "a", "1");
  set_context_value(kept, term, "b", "2");
  const auto load_after = [&](const std::string& key,
                              const std::optional<std::string>& value) {
    const auto before = context_result(hand.entry(key));
    REQUIRE(before.has_value());
    if (value) {
      context_result(hand.set(key, *value));
    } else {
      context_result(hand.erase(key));
    }
    etcd_context reader(hand);
    const told_trouble told = context_trouble_of(reader.load());
    context_result(hand.set(key, before->value));
    CHECK(context_trouble_of(etcd_context(hand).load()).text.empty());
    return told;
  };
  CHECK(load_after("context/value/a", "3") == context_trouble::damaged);
  CHECK(load_after("context/value/a", std::nullopt) == context_trouble::damaged);
  CHECK(load_after("context/head", std::nullopt) == context_trouble::damaged);
  CHECK(load_after("context/head", "1 2 3 4") == context_trouble::damaged);
  CHECK(load_after("context/head", "no numbers") == context_trouble::damaged);
  CHECK(load_after("context/term", std::nullopt) == context_trouble::damaged);
  CHECK(load_after("context/term", "-1") == context_trouble::damaged);
  // The revisions have changed, and what stands is whole.
  set_context_value(kept, term, "a", "4");
  CHECK(context_result(kept.load()) == context_values{{"a", "4"}, {"b", "2"}});
}

TEST_CASE("graph B65: a write during which etcd stands still is repeated and done once") {
  if (!can_use_etcd_for_contexts()) return;
  manyworlds_tests::etcd_server own;
  etcd_store store(own.endpoint(), graph_store_options("job"));
  etcd_context kept(store);
  etcd_context hasty(store, 300ms);
  const std::uint64_t term = take_next_term(kept);
  for (int n = 1; n <= 4; ++n) {
    // Now it knows the head.
    CHECK(eventually([&] { return !context_trouble_of(hasty.load()).kind; }));
    own.stop();
    const std::string value = std::to_string(n);
    CHECK(context_trouble_of(hasty.write(term, one_change("n", value))) ==
          context_trouble::unreachable);
    own.go_on();
    // The first attempt arrives now, or later, or never.
    const auto is_written = [&] {
      return !context_trouble_of(hasty.write(term, one_change("n", value))).kind;
    };
    CHECK(eventually(is_written));
    CHECK(context_result(kept.load()) == context_values{{"n", value}});
  }
  own.kill();
  CHECK(context_trouble_of(hasty.load()) == context_trouble::unreachable);
  CHECK(context_trouble_of(hasty.term()) == context_trouble::unreachable);
  own.start();
  CHECK(eventually([&] { return !context_trouble_of(kept.load()).kind; }));
  CHECK(context_result(kept.load()) == context_values{{"n", "4"}});
}

TEST_CASE("a context in etcd grows to what can be read back, and no further") {
  if (!can_use_etcd_for_contexts()) return;
  manyworlds_tests::etcd_server own;
  etcd_store store(own.endpoint(), graph_store_options("job"));
  etcd_context kept(store);
  const std::uint64_t term = take_next_term(kept);
  const std::string longest(context_longest_value, 'v');
  const auto seven = [&](int number, const std::string& value) {
    std::vector<context_write> some;
    for (int i = 0; i < 7; ++i) some.push_back({std::to_string(7 * number + i), value});
    return some;
  };
  told_trouble told;
  int written = 0;
  for (; written < 60 && !told.kind; ++written)
    told = context_trouble_of(kept.write(term, seven(written, longest)));
  CHECK(told == context_trouble::full);
  CHECK(told.text.find("may have 32 MiB") != std::string::npos);
  const context_values all = context_result(etcd_context(store).load());
  CHECK(all.size() * (context_longest_value + 1) > etcd_context_most_bytes * 9 / 10);
  CHECK(all.size() == 7 * static_cast<std::size_t>(written - 1));
  // What takes no room goes on, also with values in place of others.
  context_result(kept.write(term, seven(0, "short")));
  context_result(kept.write(term, seven(written, longest)));
  CHECK(context_trouble_of(kept.write(term, seven(0, longest))) == context_trouble::full);
  context_result(kept.write(term, seven(1, "short")));
  context_result(kept.write(term, seven(0, longest)));
}

TEST_CASE("graph B61: keys of a job in etcd are as many as its values") {
  if (!can_use_etcd_for_contexts()) return;
  etcd_store store(manyworlds_tests::shared_etcd().endpoint(),
                   graph_store_options(new_job_name()));
  etcd_context kept(store);
  const std::uint64_t term = take_next_term(kept);
  for (int i = 0; i < 100; ++i)
    set_context_value(kept, term, "k" + std::to_string(i % 5), std::to_string(i));
  // And the term, and the head.
  CHECK(context_result(store.list("")).entries.size() == 7);
}

TEST_CASE("a seat in etcd has one holder, and another when that leaves") {
  if (!can_use_etcd_for_contexts()) return;
  const std::string endpoint = manyworlds_tests::shared_etcd().endpoint();
  const std::string job = new_job_name();
  etcd_store first_store(endpoint, graph_store_options(job));
  etcd_store second_store(endpoint, graph_store_options(job));
  etcd_master_seat first(first_store);
  etcd_master_seat second(second_store);
  CHECK_FALSE(context_result(second.holder()).has_value());
  CHECK(context_result(first.take("node0:4000")));
  CHECK_FALSE(context_result(second.take("node1:4000")));
  const std::optional<seat_holder> leader = context_result(second.holder());
  REQUIRE(leader.has_value());
  CHECK(leader->address == "node0:4000");
  auto waiting =
      std::async(std::launch::async, [&] { context_result(second.until_free(*leader)); });
  CHECK(waiting.wait_for(100ms) == std::future_status::timeout);
  context_result(first.leave());
  waiting.get();
  CHECK(context_result(second.take("node1:4000")));
  const std::optional<seat_holder> next = context_result(first.holder());
  REQUIRE(next.has_value());
  CHECK(next->claim != leader->claim);
  // It is free at once for one that asks about the taking before.
  context_result(first.until_free(*leader));
}

TEST_CASE(
    "graph B67: a standby that saw the leader die frees its seat before the lease") {
  if (!can_use_etcd_for_contexts()) return;
  const std::string endpoint = manyworlds_tests::shared_etcd().endpoint();
  const std::string job = new_job_name();
  etcd_store leader_store(endpoint, graph_store_options(job));
  etcd_store standby_store(endpoint, graph_store_options(job));
  etcd_master_seat leader(leader_store, 60s);
  etcd_master_seat standby(standby_store, 60s);
  REQUIRE(context_result(leader.take("dead:1")));
  const seat_holder dead = context_result(standby.holder()).value();
  auto losing =
      std::async(std::launch::async, [&] { return context_result(leader.lost()); });
  CHECK(losing.wait_for(100ms) == std::future_status::timeout);
  context_result(standby.free(dead));
  // Freed wrongly, it is harmless: the leader learns it, and may take it again.
  CHECK(losing.get().find("freed") != std::string::npos);
  CHECK(context_result(standby.take("standby:1")));
  // What comes late frees no other taking.
  context_result(leader.free(dead));
  CHECK(context_result(leader.holder())->address == "standby:1");
  CHECK_FALSE(context_result(leader.take("dead:1")));
}

TEST_CASE("graph B67: the seat of a master that is cut off is free after its lease") {
  if (!can_use_etcd_for_contexts()) return;
  const std::string endpoint = manyworlds_tests::shared_etcd().endpoint();
  const std::string job = new_job_name();
  {
    // Before this process has threads of stores.
    manyworlds_tests::child cut_off([&] {
      etcd_store own(endpoint, graph_store_options(job));
      etcd_master_seat seat(own, 2s);
      // With no time to leave it.
      ::_exit(context_result(seat.take("cut off:1")) ? 0 : 1);
      return 0;
    });
    REQUIRE(cut_off.status() == 0);
  }
  etcd_store standby_store(endpoint, graph_store_options(job));
  etcd_master_seat standby(standby_store);
  const std::optional<seat_holder> leader = context_result(standby.holder());
  REQUIRE(leader.has_value());
  CHECK(leader->address == "cut off:1");
  context_result(standby.until_free(*leader));
  CHECK(context_result(standby.take("standby:1")));
}

TEST_CASE("a standby asks nothing while a seat stands, though etcd has compacted") {
  if (!can_use_etcd_for_contexts()) return;
  manyworlds_tests::etcd_server own;
  etcd_store leader_store(own.endpoint(), graph_store_options("job"));
  etcd_store standby_store(own.endpoint(), graph_store_options("job"));
  etcd_master_seat leader(leader_store, 60s);
  etcd_master_seat standby(standby_store, 60s);
  REQUIRE(context_result(leader.take("leader:1")));
  const seat_holder held = context_result(standby.holder()).value();
  for (int i = 0; i < 3; ++i) context_result(leader_store.set("other", "value"));
  const auto listing = context_result(leader_store.list(""));
  context_result(leader_store.compact(listing.revision));
  auto waiting =
      std::async(std::launch::async, [&] { context_result(standby.until_free(held)); });
  CHECK(waiting.wait_for(300ms) == std::future_status::timeout);
  const std::uint64_t before = questions_to(own);
  CHECK(waiting.wait_for(1s) == std::future_status::timeout);
  CHECK(questions_to(own) - before < 5);
  context_result(leader.leave());
  waiting.get();
  CHECK(context_result(standby.take("standby:1")));
}

TEST_CASE("the seat of one host is always free: terms fence") {
  host_master_seat first;
  host_master_seat second;
  CHECK(context_result(first.take("a:1")));
  CHECK(context_result(second.take("b:1")));
  CHECK_FALSE(context_result(first.holder()).has_value());
  context_result(first.free({"b:1", 1}));
  context_result(first.until_free({"b:1", 1}));
  CHECK_THROWS_AS(sync_wait(within(first.lost(), 20ms)), timed_out);
  context_result(first.leave());
}

TEST_SUITE_END();
