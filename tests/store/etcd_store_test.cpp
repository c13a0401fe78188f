// A store in etcd against a real one: what it has beyond the table of all stores, and how
// it fails. The numbers are those of the cases of the rendezvous (E1 and so on).
#include "manyworlds/store/etcd_store.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "store/child.hpp"
#include "store/etcd_http_peer.hpp"
#include "store/etcd_server.hpp"
#include "store/store_fixture.hpp"

using namespace manyworlds_tests;

#if MANYWORLDS_HAS_ETCD

namespace {

bool is_long_run() { return std::getenv("MANYWORLDS_TEST_LONG") != nullptr; }

etcd_store_options own_prefix() {
  etcd_store_options options;
  options.prefix = new_etcd_prefix();
  return options;
}

template <class T>
T done(task<T> t, duration limit = patience) {
  return sync_wait(within(std::move(t), limit));
}

/// The failure of one question to a place.
store_failure failure_at(const std::string& endpoints, duration limit,
                         etcd_store_options options = {}) {
  etcd_store st(endpoints, std::move(options));
  return done(failure_of(st.try_get("k", limit)));
}

}  // namespace

TEST_SUITE_BEGIN("etcd store");

TEST_CASE(
    "E1: the server's version is told, and an endpoint is checked when it is made") {
  for (const char* const wrong : {"", "host", "host:", ":2379", "host:0", "host:99999",
                                  "a:1,,b:2", "ftp://a:1", "a:1/v3", "u@h:1"}) {
    INFO("endpoint: ", wrong);
    CHECK_THROWS_AS(etcd_store st(wrong), std::invalid_argument);
  }
  if (etcd_is_missing_here()) return;
  etcd_store st(shared_etcd().endpoint());
  const std::string version = done(st.server_version());
  CHECK(version.find("3.") == 0);
  CHECK(st.trouble().empty());
}

TEST_CASE("E1: what is no etcd, or too old a one, is named within 2 s") {
  const auto asked = [](const std::string& endpoint) {
    const auto began = std::chrono::steady_clock::now();
    store_failure f = failure_at(endpoint, 10s);
    CHECK(f.kind == store_error_kind::protocol);
    // Long before the limit: 2 s on a machine that is not busy.
    CHECK(std::chrono::steady_clock::now() - began < 8s);
    CHECK(f.reason.find("at http://" + endpoint) != std::string::npos);
    return f.reason;
  };
  const auto http = [](const std::string& status, const std::string& body) {
    return "HTTP/1.1 " + status +
           "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body;
  };
  const http_peer web(http("404 Not Found", "<html>no such page</html>"));
  CHECK(asked(web.endpoint()).find("is no etcd: HTTP 404 with \"<html>no such page") !=
        std::string::npos);
  const http_peer second(
      http("200 OK", R"({"etcdserver":"2.3.8","etcdcluster":"2.3.0"})"));
  CHECK(
      asked(second.endpoint()).find("is etcd \"2.3.8\", which speaks version 2 alone") !=
      std::string::npos);
  const http_peer beta(http("200 OK", R"({"etcdserver":"3.3.27"})"));
  CHECK(asked(beta.endpoint())
            .find("is etcd \"3.3.27\", the gateway of which is /v3beta: "
                  "3.4 or later is needed") != std::string::npos);
  const http_peer noise("-ERR unknown command\r\n");
  CHECK(asked(noise.endpoint()).find("is no etcd: ") != std::string::npos);
  if (etcd_is_missing_here()) return;
  const etcd_server without({"--enable-grpc-gateway=false"});
  const store_failure f = failure_at(without.endpoint(), 10s);
  CHECK(f.kind == store_error_kind::protocol);
  CHECK(f.reason.find("has no JSON gateway (--enable-grpc-gateway)") !=
        std::string::npos);
}

TEST_CASE(
    "E1, E5: what does not answer is unreachable by the limit, and told meanwhile") {
  const std::string closed = "127.0.0.1:" + std::to_string(free_port());
  const store_failure f = failure_at(closed, 300ms);
  CHECK(f.kind == store_error_kind::unreachable);
  CHECK(f.elapsed < 5s);
  CHECK(f.reason.find("http://" + closed) != std::string::npos);
  const store_failure unknown = failure_at("no-such-host.invalid:2379", 500ms);
  CHECK(unknown.kind == store_error_kind::unreachable);
  CHECK(unknown.elapsed < 5s);

  // It listens, and says nothing.
  const http_peer silent("");
  etcd_store st(silent.endpoint());
  auto asking = std::async(std::launch::async,
                           [&] { return done(failure_of(st.try_get("k", 700ms))).kind; });
  CHECK(comes_true([&] { return !st.trouble().empty(); }));
  CHECK(asking.get() == store_error_kind::unreachable);
}

TEST_CASE("E10: of several endpoints the first that is an etcd is used") {
  if (etcd_is_missing_here()) return;
  const std::string closed = "127.0.0.1:" + std::to_string(free_port());
  const http_peer web("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
  etcd_store st(closed + "," + web.endpoint() + "," + shared_etcd().endpoint(),
                own_prefix());
  CHECK(done(st.add("n", 1)) == 1);
  CHECK(done(st.add("n", 1)) == 2);
  CHECK(st.trouble().empty());
}

TEST_CASE(
    "E7: of sixteen that claim one key by a transaction one wins, and all know who") {
  if (etcd_is_missing_here()) return;
  const etcd_store_options options = own_prefix();
  etcd_store one(shared_etcd().endpoint(), options);
  etcd_store two(shared_etcd().endpoint(), options);
  int winners = 0;
  std::vector<std::string> seen;
  const auto claiming = [&](int i) -> task<void> {
    const std::string me = "node " + std::to_string(i);
    etcd_transaction claim;
    claim.when(etcd_target::create_revision, "leader", 0)
        .then_set("leader", me)
        .otherwise_get("leader");
    etcd_outcome o = co_await (i % 2 ? one : two).commit(std::move(claim));
    winners += o.succeeded;
    seen.push_back(o.succeeded ? me : o.entries.at(0)->value);
    co_await (i % 2 ? one : two).add("count", 1);
  };
  done(scope_of(16, claiming));
  CHECK(winners == 1);
  CHECK(std::count(seen.begin(), seen.end(), seen.front()) == 16);
  CHECK(done(one.get("count", 5s)) == "16");
}

TEST_CASE("a transaction compares values, revisions, versions and leases") {
  if (etcd_is_missing_here()) return;
  etcd_store st(shared_etcd().endpoint(), own_prefix());
  const auto body = [](etcd_store& st) -> task<void> {
    co_await st.set("k", "b");
    co_await st.set("k", "c");
    const std::optional<etcd_entry> entry = co_await st.entry("k");
    REQUIRE(entry.has_value());
    CHECK(entry->key == "k");
    CHECK(entry->version == 2);
    CHECK(entry->mod_revision > entry->create_revision);
    CHECK(!(co_await st.entry("other")).has_value());
    const auto holds = [&st](etcd_transaction t) -> task<bool> {
      t.then_get("k").then_erase("nothing").otherwise_get("nothing");
      etcd_outcome o = co_await st.commit(std::move(t));
      CHECK(o.entries.size() == (o.succeeded ? 2 : 1));
      co_return o.succeeded;
    };
    using relation = etcd_relation;
    using target = etcd_target;
    const auto compared = [](target what, std::int64_t number, relation r) {
      etcd_transaction t;
      t.when(what, "k", number, r);
      return t;
    };
    const auto valued = [](std::string value, relation r) {
      etcd_transaction t;
      t.when_value("k", std::move(value), r);
      return t;
    };
    CHECK(co_await holds(valued("c", relation::equal)));
    CHECK(!co_await holds(valued("b", relation::equal)));
    CHECK(co_await holds(valued("b", relation::not_equal)));
    CHECK(co_await holds(valued("b", relation::greater)));
    CHECK(!co_await holds(valued("b", relation::less)));
    const std::int64_t made = entry->create_revision;
    CHECK(co_await holds(compared(target::create_revision, made, relation::equal)));
    CHECK(!co_await holds(compared(target::create_revision, 0, relation::equal)));
    const std::int64_t last = entry->mod_revision;
    CHECK(co_await holds(compared(target::mod_revision, last, relation::equal)));
    CHECK(co_await holds(compared(target::mod_revision, last + 1, relation::less)));
    CHECK(co_await holds(compared(target::version, 1, relation::greater)));
    CHECK(co_await holds(compared(target::lease, 0, relation::equal)));
    etcd_transaction twice;
    twice.then_set("x", "1").then_set("x", "2");
    const store_failure f = co_await failure_of(st.commit(std::move(twice)));
    CHECK(f.kind == store_error_kind::refused);
    CHECK(f.reason.find("duplicate key") != std::string::npos);
  };
  done(body(st));
  CHECK_THROWS_AS(etcd_transaction().when(etcd_target::value, "k", 1),
                  std::invalid_argument);
}

TEST_CASE("more keys than one transaction takes are set, read and checked in several") {
  if (etcd_is_missing_here()) return;
  etcd_store st(shared_etcd().endpoint(), own_prefix());
  const auto body = [](etcd_store& st) -> task<void> {
    std::vector<store_entry> entries;
    std::vector<std::string> names;
    for (int i = 0; i < 300; ++i) {
      names.push_back("key " + std::to_string(i));
      entries.push_back({names.back(), std::to_string(i)});
    }
    // The same key twice in one request, which etcd refuses.
    entries.push_back({"key 7", "last"});
    co_await st.multi_set(std::move(entries));
    CHECK(co_await st.num_keys() == 300);
    // With a name each: g++ 12.2 frees a temporary of an awaited call twice.
    store_keys checked(names);
    CHECK(co_await st.check(std::move(checked)));
    store_keys read(names);
    std::vector<std::string> values = co_await st.multi_get(std::move(read), 5s);
    REQUIRE(values.size() == 300);
    CHECK(values[7] == "last");
    CHECK(values[299] == "299");
  };
  done(body(st));
}

TEST_CASE("a key and its queue, and keys with NUL bytes, do not meet in etcd") {
  if (etcd_is_missing_here()) return;
  etcd_store st(shared_etcd().endpoint(), own_prefix());
  const auto body = [](etcd_store& st) -> task<void> {
    const std::string nul("a\0\1x", 4);
    co_await st.push("a", "queued");
    co_await st.set(nul, "key");
    CHECK(co_await st.queue_size("a") == 1);
    CHECK(!(co_await st.try_get("a")).has_value());
    CHECK(co_await st.num_keys() == 1);
    CHECK((co_await st.keys()).front() == nul);
    CHECK(co_await st.pop("a", 5s) == "queued");
    CHECK(!co_await st.check("a"));
    CHECK(co_await st.check(store_keys(nul)));
  };
  done(body(st));
}

TEST_CASE("a store without a prefix is all of etcd") {
  if (etcd_is_missing_here()) return;
  const std::string key = own_prefix().prefix + "key";
  etcd_store st(shared_etcd().endpoint(), {.prefix = ""});
  const auto body = [&](etcd_store& st) -> task<void> {
    const etcd_listing before = co_await st.list("");
    co_await st.set(key, "value");
    etcd_watch all = st.watch_prefix("", before.revision + 1);
    const std::vector<std::string> found = co_await st.keys();
    CHECK(std::find(found.begin(), found.end(), key) != found.end());
    const etcd_changes news = co_await all.next();
    CHECK(news.changes.front().entry.key == key);
    co_await st.erase(key);
  };
  done(body(st));
}

TEST_CASE("E3, E13: a lease lives by its granted time, and is kept alive") {
  if (etcd_is_missing_here()) return;
  etcd_store st(shared_etcd().endpoint(), own_prefix());
  const auto body = [](etcd_store& st) -> task<void> {
    {
      // etcd's least is 2 s with its default timing.
      etcd_lease shortest = co_await st.grant(1s);
      CHECK(shortest.granted() == 2s);
      etcd_lease lease = co_await st.grant(4s);
      CHECK(lease.granted() == 4s);
      co_await st.set_leased("alive", "here", lease);
      CHECK((co_await st.entry("alive"))->lease == lease.id());
      co_await sleep_for(4500ms);
      CHECK(!lease.is_lost());
      CHECK((co_await st.try_get("alive")).has_value());
      // E9: its end erases its keys.
      co_await lease.revoke();
      co_await lease.revoke();
      CHECK(!(co_await st.try_get("alive")).has_value());
      etcd_lease dropped = co_await st.grant(60s);
      co_await st.set_leased("dropped", "1", dropped);
    }
    // Revoked in the background.
    for (int i = 0; i < 400 && (co_await st.try_get("dropped")).has_value(); ++i)
      co_await sleep_for(5ms);
    CHECK((co_await st.list("")).entries.empty());
  };
  done(body(st));
}

TEST_CASE("E3, E8: a client that is stopped loses its lease, is told so, and is fenced") {
  if (etcd_is_missing_here()) return;
  const etcd_store_options options = own_prefix();
  const std::string endpoint = shared_etcd().endpoint();
  child holder([&] {
    const auto body = [](etcd_store& st) -> task<int> {
      etcd_lease lease = co_await st.grant(1s);
      etcd_transaction claim;
      claim.when(etcd_target::create_revision, "leader", 0)
          .then_set("leader", "child", lease.id());
      const etcd_outcome mine = co_await st.commit(std::move(claim));
      const std::string why = co_await lease.lost();
      const bool was_known = lease.is_lost() && !why.empty();
      // Guarded by the revision at which its key was made.
      etcd_transaction late;
      late.when(etcd_target::create_revision, "leader", mine.revision)
          .then_set("round", "of the deposed");
      const etcd_outcome fenced = co_await st.commit(std::move(late));
      const bool is_fenced = mine.succeeded && was_known && !fenced.succeeded;
      std::string verdict = "fenced";
      if (!is_fenced) verdict = "not fenced: " + why;
      co_await st.set("verdict", std::move(verdict));
      co_return 0;
    };
    etcd_store st(endpoint, options);
    return sync_wait(body(st));
  });
  etcd_store st(endpoint, options);
  const auto body = [&](etcd_store& st) -> task<void> {
    CHECK(co_await st.get("leader", 10s) == "child");
    const std::int64_t revision = (co_await st.entry("leader"))->mod_revision;
    etcd_watch leader = st.watch("leader", revision + 1);
    holder.signal(SIGSTOP);
    const etcd_changes gone = co_await leader.next();
    REQUIRE(gone.changes.size() == 1);
    CHECK(gone.changes[0].is_erased);
    co_await st.set("leader", "next");
    holder.signal(SIGCONT);
    CHECK(co_await st.get("verdict", 10s) == "fenced");
    CHECK(!(co_await st.try_get("round")).has_value());
  };
  done(body(st));
}

TEST_CASE("E9: keys get another lease when that of their store was lost unseen") {
  if (etcd_is_missing_here()) return;
  etcd_store_options leased = own_prefix();
  leased.key_lease = 60s;
  etcd_store st(shared_etcd().endpoint(), leased);
  std::optional<etcd_entry> first;
  std::optional<etcd_entry> last;
  std::int64_t sum = 0;
  const auto set = [&](std::string key, std::optional<etcd_entry>& seen) -> task<void> {
    co_await st.set(key, "1");
    seen = co_await st.entry(key);
  };
  done(set("first", first));
  REQUIRE(first);
  REQUIRE(first->lease != 0);
  const auto revoke = [&] {
    http_post(shared_etcd().endpoint(), "/v3/lease/revoke",
              "{\"ID\":\"" + std::to_string(last ? last->lease : first->lease) + "\"}");
  };
  // The store asks about its lease in 20 s only.
  revoke();
  done(set("last", last));
  REQUIRE(last);
  CHECK(last->lease != first->lease);
  revoke();
  const auto meet = [&]() -> task<void> {
    // The first of two does not pass.
    try {
      co_await st.barrier("both", 2, 50ms);
    } catch (const store_error& e) {
      CHECK(e.kind() == store_error_kind::timed_out);
    }
    sum = co_await st.add("both", 0);
  };
  done(meet());
  CHECK(sum == 1);
}

TEST_CASE("a lease that another client revokes is lost, and says why") {
  if (etcd_is_missing_here()) return;
  etcd_store st(shared_etcd().endpoint(), own_prefix());
  const auto body = [](etcd_store& st) -> task<void> {
    etcd_lease lease = co_await st.grant(1s);
    http_post(shared_etcd().endpoint(), "/v3/lease/revoke",
              R"({"ID":")" + std::to_string(lease.id()) + R"("})");
    const std::string why = co_await lease.lost();
    CHECK(why.find("is lost: etcd has ended it") != std::string::npos);
    CHECK(lease.is_lost());
    etcd_transaction late;
    late.then_set("k", "v", lease.id());
    const store_failure f = co_await failure_of(st.commit(std::move(late)));
    CHECK(f.kind == store_error_kind::refused);
    CHECK(f.reason.find("lease not found") != std::string::npos);
  };
  done(body(st));
}

TEST_CASE("a watch tells each change in its order, from any revision, and loses none") {
  if (etcd_is_missing_here()) return;
  etcd_store st(shared_etcd().endpoint(), own_prefix());
  const auto body = [](etcd_store& st) -> task<void> {
    co_await st.set("n/0", "0");
    const std::int64_t first = (co_await st.entry("n/0"))->mod_revision;
    for (int i = 1; i < 20; ++i) co_await st.set("n/" + std::to_string(i), "x");
    co_await st.erase("n/0");
    co_await st.push("n/queue", "is told to no user");
    etcd_watch watch = st.watch_prefix("n/", first);
    std::vector<etcd_change> seen;
    for (int i = 0; i < 50 && seen.size() < 21; ++i) {
      // A wait that is given up loses nothing.
      try {
        co_await within(watch.next(), 0ms);
        FAIL("it was given up");
      } catch (const timed_out&) {}
      etcd_changes told = co_await watch.next();
      CHECK(!told.is_listing);
      for (etcd_change& c : told.changes) seen.push_back(std::move(c));
    }
    REQUIRE(seen.size() == 21);
    for (std::size_t i = 0; i < 20; ++i)
      CHECK(seen[i].entry.key == "n/" + std::to_string(i));
    CHECK(seen[20].is_erased);
    CHECK(seen[20].entry.key == "n/0");
    const auto later = [](etcd_store& st) -> task<void> {
      co_await sleep_for(20ms);
      co_await st.set("n/late", "1");
    };
    const auto telling = [](etcd_watch& w) -> task<void> {
      const etcd_changes told = co_await w.next();
      CHECK(told.changes.front().entry.key == "n/late");
    };
    co_await when_all(telling(watch), later(st));
  };
  done(body(st));
}

TEST_CASE("E4: a watch and a wait go on after etcd was killed and started again") {
  if (etcd_is_missing_here()) return;
  etcd_server server;
  etcd_store st(server.endpoint(), own_prefix());
  const auto body = [&](etcd_store& st) -> task<void> {
    co_await st.set("before", "1");
    const std::int64_t revision = (co_await st.list("")).revision;
    etcd_watch watch = st.watch_prefix("", revision + 1);
    int told = 0;
    const auto telling = [](etcd_watch& w, int& told) -> task<void> {
      while (told < 2) told += static_cast<int>((co_await w.next()).changes.size());
    };
    const auto restarting = [&](etcd_store& st) -> task<void> {
      co_await sleep_for(100ms);
      co_await st.set("one", "1");
      server.kill();
      const store_failure f = co_await failure_of(st.try_get("one", 200ms));
      CHECK(f.kind == store_error_kind::unreachable);
      CHECK(!st.trouble().empty());
      server.start();
      co_await st.set("two", "2", 10s);
      CHECK(st.trouble().empty());
    };
    co_await when_all(telling(watch, told), st.wait("two", 15s), restarting(st));
    CHECK(told == 2);
    CHECK(co_await st.get("before", 5s) == "1");

    // What was compacted is replaced by a listing, and told as one.
    etcd_watch late = st.watch_prefix("", 1);
    for (int i = 0; i < 5; ++i) co_await st.set("more", std::to_string(i));
    co_await st.erase("two");
    co_await st.compact((co_await st.list("")).revision);
    const etcd_changes all = co_await late.next();
    CHECK(all.is_listing);
    std::vector<std::string> names;
    for (const etcd_change& c : all.changes) names.push_back(c.entry.key);
    CHECK(names == std::vector<std::string>{"before", "more", "one"});
    co_await st.set("after", "1");
    const etcd_changes next = co_await late.next();
    CHECK(!next.is_listing);
    CHECK(next.changes.front().entry.key == "after");
  };
  done(body(st), 40s);
}

TEST_CASE("an etcd that is stopped is unreachable by the limit, and used again after") {
  if (etcd_is_missing_here()) return;
  etcd_server server;
  etcd_store_options options = own_prefix();
  options.answer_limit = 300ms;
  options.probe_interval = 200ms;
  etcd_store st(server.endpoint(), options);
  const auto body = [&](etcd_store& st) -> task<void> {
    CHECK(co_await st.add("n", 1) == 1);
    server.stop();
    const store_failure f = co_await failure_of(st.try_get("n", 500ms));
    CHECK(f.kind == store_error_kind::unreachable);
    const store_failure g = co_await failure_of(st.get("never", 500ms));
    CHECK(g.kind == store_error_kind::unreachable);
    server.go_on();
    CHECK(co_await st.get("n", 10s) == "1");
    // E5: none is there at first.
    server.kill();
    const auto starting = [&]() -> task<void> {
      server.start();
      co_return;
    };
    co_await when_all(st.get("n", 15s), starting());
  };
  done(body(st), 40s);
}

TEST_CASE("E14: users and passwords; a token that has expired is renewed") {
  if (etcd_is_missing_here()) return;
  const int seconds = is_long_run() ? 5 : 1;
  etcd_server server({"--auth-token-ttl=" + std::to_string(seconds), "--bcrypt-cost=4",
                      "--max-request-bytes=1572864", "--quota-backend-bytes=8388608"});
  const auto post = [&](const std::string& path, const std::string& body) {
    return http_post(server.endpoint(), "/v3/auth/" + path, body);
  };
  post("user/add", R"({"name":"root","password":"se\"cret"})");
  post("user/add", R"({"name":"guest","password":"g"})");
  post("user/grant", R"({"user":"root","role":"root"})");
  post("enable", "{}");
  etcd_store_options options = own_prefix();
  const store_failure none = failure_at(server.endpoint(), 5s, options);
  CHECK(none.kind == store_error_kind::refused);
  CHECK(none.reason.find("etcd demands a user and a password") != std::string::npos);
  options.user = "root";
  options.password = "wrong";
  const store_failure wrong = failure_at(server.endpoint(), 5s, options);
  CHECK(wrong.kind == store_error_kind::refused);
  CHECK(wrong.reason.find("etcd does not take user \"root\"") != std::string::npos);
  options.user = "guest";
  options.password = "g";
  const store_failure poor = failure_at(server.endpoint(), 5s, options);
  CHECK(poor.kind == store_error_kind::refused);
  CHECK(poor.reason.find("permission denied") != std::string::npos);
  etcd_store guest(server.endpoint(), options);
  etcd_watch forbidden = guest.watch("k");
  CHECK(done(failure_of(forbidden.next())).kind == store_error_kind::refused);

  options.user = "root";
  options.password = "se\"cret";
  etcd_store st(server.endpoint(), options);
  const auto body = [](etcd_store& st, duration expired) -> task<void> {
    co_await st.set("k", "1");
    etcd_lease lease = co_await st.grant(4s);
    etcd_watch watch = st.watch("late");
    const auto telling = [](etcd_watch& w) -> task<void> {
      CHECK((co_await w.next()).changes.front().entry.value == "x");
    };
    const auto idling = [](etcd_store& st, duration expired) -> task<void> {
      co_await sleep_for(expired);
      CHECK(co_await st.add("n", 1) == 1);
      co_await st.set("late", "x");
    };
    co_await when_all(telling(watch), idling(st, expired));
    CHECK(!lease.is_lost());

    // Too large for this etcd, and no room.
    const store_failure f =
        co_await failure_of(st.set("large", std::string(2 << 20, 'x')));
    CHECK(f.kind == store_error_kind::too_large);
    store_failure full(store_error_kind::timed_out, "", store_operation::set, {}, {}, "");
    for (int i = 0; i < 20 && full.kind == store_error_kind::timed_out; ++i) {
      try {
        co_await st.set("fill " + std::to_string(i), std::string(1 << 20, 'x'));
      } catch (const store_error& e) {
        full = e.failure();
      }
    }
    CHECK(full.kind == store_error_kind::refused);
    CHECK(full.reason.find("database space exceeded") != std::string::npos);
  };
  done(body(st, std::chrono::seconds(2 * seconds + 1)), 40s);
}

TEST_CASE("E1: certificates of the server and of the client are checked, both ways") {
  if (etcd_is_missing_here()) return;
  if (!is_program_here("openssl")) {
    MESSAGE("skipped: openssl is not installed (Debian: apt-get install openssl)");
    return;
  }
  const own_folder files;
  std::filesystem::create_directories(files.path);
  const certificates made(files.path);
  etcd_server server(
      {"--cert-file=" + made.file("server.pem"), "--key-file=" + made.file("server.key"),
       "--client-cert-auth", "--trusted-ca-file=" + made.file("ca.pem")},
      true);
  etcd_store_options options = own_prefix();
  options.ca_file = made.file("ca.pem");
  options.certificate_file = made.file("client.pem");
  options.key_file = made.file("client.key");
  {
    etcd_store st(server.endpoint(), options);
    CHECK(done(st.add("n", 1)) == 1);
    CHECK(done(st.get("n", 5s)) == "1");
  }
  const auto refused = [&](const etcd_store_options& with) {
    const auto began = std::chrono::steady_clock::now();
    const store_failure f = failure_at(server.endpoint(), 10s, with);
    CHECK(f.kind == store_error_kind::refused);
    CHECK(f.reason.find(server.endpoint()) != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - began < 8s);
  };
  etcd_store_options stranger = options;
  stranger.ca_file = made.file("other.pem");
  refused(stranger);
  stranger = options;
  stranger.certificate_file.clear();
  stranger.key_file.clear();
  refused(stranger);
  stranger = options;
  stranger.ca_file = made.file("missing.pem");
  refused(stranger);
  std::string plain = server.endpoint();
  plain.replace(0, 5, "http");
  // It hangs up on what is no TLS.
  const store_failure insecure = failure_at(plain, 500ms);
  CHECK(insecure.kind != store_error_kind::timed_out);
  CHECK(insecure.reason.find(plain) != std::string::npos);
}

TEST_CASE("a value of 10 MB is refused before anything is sent") {
  etcd_store st("127.0.0.1:1");
  const auto asking = [](etcd_store& st) -> task<void> {
    const store_failure f = co_await failure_of(st.set("k", std::string(10 << 20, 'x')));
    CHECK(f.kind == store_error_kind::too_large);
  };
  done(asking(st));
}

TEST_CASE("a store may be destroyed with operations, leases and watches in use") {
  if (etcd_is_missing_here()) return;
  const etcd_store_options options = own_prefix();
  std::optional<etcd_lease> lease;
  std::optional<etcd_watch> watch;
  std::optional<task<store_reply>> waiting;
  {
    etcd_store st(shared_etcd().endpoint(), options);
    lease.emplace(done(st.grant(10s)));
    watch.emplace(st.watch("k", 1));
    waiting.emplace(st.perform(store_request(store_operation::get, {"k"}, 10s)));
  }
  const auto waited = [](task<store_reply> t) -> task<void> {
    CHECK((co_await std::move(t)).value == "v");
  };
  const auto told = [](etcd_watch& w) -> task<void> {
    CHECK((co_await w.next()).changes.front().entry.value == "v");
  };
  etcd_store other(shared_etcd().endpoint(), options);
  const auto setting = [](etcd_store& st) -> task<void> {
    co_await sleep_for(50ms);
    co_await st.set("k", "v");
  };
  const auto all = [&]() -> task<void> {
    co_await when_all(waited(std::move(*waiting)), told(*watch), setting(other));
  };
  done(all());
  CHECK(!lease->is_lost());
  done(lease->revoke());
}

TEST_CASE("waits that are cancelled leave nothing behind, on whatever they waited") {
  if (etcd_is_missing_here()) return;
  etcd_store st(shared_etcd().endpoint(), own_prefix());
  const auto body = [](etcd_store& st) -> task<void> {
    for (int i = 0; i < 40; ++i) {
      const auto limit = std::chrono::microseconds(150 * i);
      const auto waiting = [](etcd_store& st, duration limit) -> task<void> {
        try {
          co_await within(st.pop("q", 10s), limit);
        } catch (const timed_out&) {}
      };
      const auto granting = [](etcd_store& st, duration limit) -> task<void> {
        try {
          co_await within(st.grant(5s), limit);
        } catch (const timed_out&) {}
      };
      co_await when_all(waiting(st, limit), granting(st, limit));
    }
    CHECK(co_await st.queue_size("q") == 0);
    // More keys at a time than watches of their own.
    co_await scope::run([&](scope& s) -> task<void> {
      for (int i = 0; i < 100; ++i) s.spawn(st.wait("k" + std::to_string(i), 10s));
      co_await sleep_for(100ms);
      for (int i = 0; i < 100; ++i) co_await st.set("k" + std::to_string(i), "v");
    });
  };
  done(body(st));
}

TEST_CASE("E10: three members; the leader is killed, and all goes on (long)") {
  if (etcd_is_missing_here()) return;
  if (!is_long_run()) {
    MESSAGE("skipped: three members of etcd run with MANYWORLDS_TEST_LONG set");
    return;
  }
  etcd_cluster cluster;
  etcd_store st(cluster.endpoints(), own_prefix());
  const auto body = [&](etcd_store& st) -> task<void> {
    co_await st.set("n", "0", 15s);
    etcd_lease lease = co_await st.grant(10s);
    etcd_watch watch = st.watch_prefix("");
    const auto telling = [](etcd_watch& w) -> task<void> {
      std::string last;
      while (last != "end") last = (co_await w.next()).changes.back().entry.value;
    };
    const auto changing = [&](etcd_store& st) -> task<void> {
      co_await sleep_for(200ms);
      for (std::size_t killed = 0; killed < 3; ++killed) {
        cluster.kill(killed);
        co_await st.set("n", std::to_string(killed), 20s);
        CHECK(co_await st.get("n", 20s) == std::to_string(killed));
        cluster.start(killed);
        // Two of three must have what was agreed on before the next is killed.
        co_await sleep_for(2s);
      }
      co_await st.set("n", "end", 20s);
    };
    co_await when_all(telling(watch), changing(st));
    CHECK(!lease.is_lost());
  };
  done(body(st), 100s);
}

TEST_SUITE_END();

#else

TEST_CASE("an etcd store that this build lacks says what is missing") {
  CHECK_THROWS_WITH_AS(
      manyworlds::etcd_store("127.0.0.1:2379"),
      "etcd store: this build of manyworlds has none: it was made without the headers of "
      "libcurl or nlohmann-json (Debian: libcurl4-openssl-dev, nlohmann-json3-dev)",
      std::runtime_error);
}

#endif
