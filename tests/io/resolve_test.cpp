#include "io/resolve.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

#include "io/dns_query.hpp"
#include "io/name_files.hpp"
#include "io/name_server.hpp"
#include "io/reactor_fixture.hpp"
#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/testing/simulation.hpp"
#include "simulation/connected_pair.hpp"
#include "support/entries.hpp"
#include "support/eventually.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

namespace {

/// What a lookup uses in place of the machine's files, so that no test depends on them.
struct names {
  text_file hosts;
  text_file settings;

  explicit names(const std::string& resolv_conf, const std::string& hosts_text = "")
      : hosts(hosts_text), settings(resolv_conf) {}

  [[nodiscard]] resolve_options options() const {
    resolve_options o;
    o.hosts_file = hosts.path();
    o.settings_file = settings.path();
    return o;
  }
};

std::string nameserver(const name_server& s) {
  return "nameserver " + s.address().text() + "\n";
}

std::vector<std::string> texts(const resolution& r) {
  std::vector<std::string> all;
  for (const socket_address& a : r.addresses()) all.push_back(a.text());
  return all;
}

bool says(const resolution& r, const std::string& what) {
  INFO("it says: ", r.failure());
  const bool does = !r.ok() && r.failure().find(what) != std::string::npos;
  CHECK(does);
  return does;
}

std::optional<std::string> nothing(const dns_question&) { return std::nullopt; }

}  // namespace

TEST_SUITE_BEGIN("resolve");

TEST_CASE("a numeric address needs no lookup") {
  reactor_fixture f(engine_kind::epoll);
  running<resolution> r(f, resolve("[::1]:80"));
  f.get().turn();
  REQUIRE(r.ended());
  CHECK(r.result().addresses().at(0).text() == "[::1]:80");
}

TEST_CASE("localhost is this host, without a file or a server, on any executor") {
  const names none("nameserver 127.0.0.1:1");
  for (const char* name : {"localhost:29500", "LocalHost:29500", "a.localhost:29500"}) {
    const resolution r = sync_wait(resolve(name, none.options()));
    CHECK(texts(r) == std::vector<std::string>{"127.0.0.1:29500", "[::1]:29500"});
  }
}

TEST_CASE("what is neither a name nor an address is refused with what was asked for") {
  reactor_fixture f(engine_kind::epoll);
  for (const char* text : {"", "nohost", ":80", "host:", "host:99999", "fe80::1:80"}) {
    const resolution r = f.run(resolve(text));
    CHECK(!r.ok());
    CHECK(r.failure().find("'" + std::string(text) + "'") != std::string::npos);
  }
}

TEST_CASE("a name below invalid has no address, and no server is asked") {
  name_server server(nothing);
  const names machine(nameserver(server));
  reactor_fixture f(engine_kind::epoll);
  says(f.run(resolve("no-such-host.invalid:1", machine.options())),
       "cannot resolve host 'no-such-host.invalid': no such name");
  CHECK(server.questions() == 0);
}

TEST_CASE(
    "the hosts file gives a name's addresses in its order, and no server is asked") {
  name_server server(nothing);
  const std::string many(200'000, '#');
  const names machine(
      nameserver(server),
      "127.0.0.1 localhost\n# 10.0.0.9 node7\n10.0.0.7\tnode7.test Node7 # x\n" + many +
          "\n::7 node7\nnonsense node7\n10.0.0.7 node7\n10.0.0.8 last");
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    const resolution r = f.run(resolve("node7:80", machine.options()));
    CHECK(texts(r) == std::vector<std::string>{"10.0.0.7:80", "[::7]:80"});
    CHECK(texts(f.run(resolve("last:1", machine.options()))).at(0) == "10.0.0.8:1");
  }
  CHECK(server.questions() == 0);
}

TEST_CASE("settings are read as resolv.conf has them, and the rest is skipped") {
  const dns_settings s = read_dns_settings(
      "# comment\nnameserver 10.0.0.2\nnameserver ::1 ; here\nnameserver nonsense\n"
      "nameserver [::2]:5353\nnameserver 10.0.0.9\ndomain old.test\n"
      "search a.test . b.test\noptions ndots:5 timeout:2 attempts:99 rotate edns0\n"
      "sortlist 1.2.3.4\noptions ndots:x timeout:\nnameserver");
  CHECK(text_of(s.servers) == "10.0.0.2:53, [::1]:53, [::2]:5353");
  CHECK(s.search == std::vector<std::string>{"a.test", "b.test"});
  CHECK(s.dots == 5);
  CHECK(s.first_try == 2s);
  CHECK(s.tries == 5);
  CHECK(s.takes_turns);
  CHECK(load_dns_settings("/no/such/file").servers.at(0).text() == "127.0.0.1:53");
}

TEST_CASE("names are looked up on a reactor of this machine, and elsewhere it says so") {
  const names machine("nameserver 127.0.0.1:1");
  says(sync_wait(resolve("node7:1", machine.options())),
       "names are looked up on a reactor");
  simulation sim(1);
  manyworlds_tests::simulated_node node(sim, "node");
  std::optional<resolution> asked;
  const auto asking = [&]() -> task<void> { asked = co_await resolve("node7:1"); };
  node.spawn(asking());
  REQUIRE(sim.run_until([&] { return asked.has_value(); }));
  says(*asked, "the simulated network has no names");
  node.end();
}

#if MANYWORLDS_HAS_C_ARES

TEST_CASE("a name server gives a name's addresses, of both kinds") {
  name_server server(
      [](const dns_question& q) { return q.address(q.wants_ipv6 ? "::7" : "10.0.0.7"); });
  const names machine(nameserver(server));
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    const resolution r = f.run(resolve("node7.test:29500", machine.options()));
    INFO(r.failure());
    auto all = texts(r);
    std::sort(all.begin(), all.end());
    CHECK(all == std::vector<std::string>{"10.0.0.7:29500", "[::7]:29500"});
  }
}

TEST_CASE("search domains are tried in turn, and dots decide what is asked first") {
  name_server server([](const dns_question& q) {
    if (q.name != "node7.b.test") return q.no_such_name();
    return q.wants_ipv6 ? q.no_address() : q.address("10.0.0.7");
  });
  const names machine(nameserver(server) + "search a.test b.test\noptions ndots:2\n");
  reactor_fixture f(engine_kind::epoll);
  CHECK(texts(f.run(resolve("node7:1", machine.options()))).at(0) == "10.0.0.7:1");
  CHECK(server.names().at(0) == "node7.a.test");
  const int before = server.questions();
  says(f.run(resolve("x.y.z:1", machine.options())), "no such name");
  CHECK(server.names().at(static_cast<std::size_t>(before)) == "x.y.z");
}

TEST_CASE("a name that no server has fails naming it and the server") {
  name_server server([](const dns_question& q) { return q.no_such_name(); });
  const names machine(nameserver(server));
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    says(f.run(resolve("node7.test:1", machine.options())),
         "cannot resolve host 'node7.test': no such name, said " +
             server.address().text());
  }
}

TEST_CASE("a server that never answers ends at the limit, with nothing left open") {
  name_server server(nothing);
  const names machine(nameserver(server));
  resolve_options options = machine.options();
  options.limit = 50ms;
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    const std::size_t before = entries("/proc/self/fd");
    const resolution r = f.run(resolve("node7.test:1", options));
    says(r,
         "no answer from the name server " + server.address().text() + " within 50 ms");
    CHECK(entries("/proc/self/fd") == before);
  }
}

TEST_CASE("what a name server sends instead of an answer is an error, or is no answer") {
  name_server server([](const dns_question& q) -> std::optional<std::string> {
    if (q.name == "header.test") return q.reply(0, 9) + "\xc0\xff garbage";
    if (q.name == "other.test") return std::string(100, '\xff');
    return std::string("\0", 1);
  });
  const names machine(nameserver(server) + "options timeout:1 attempts:1");
  resolve_options options = machine.options();
  options.limit = 100ms;
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    for (const char* name : {"header.test:1", "other.test:1", "short.test:1"}) {
      const resolution r = f.run(resolve(name, options));
      INFO(name, ": ", r.failure());
      CHECK(says(r, server.address().text()));
    }
  }
}

TEST_CASE(
    "a question that was lost is asked again, and another server is asked in turn") {
  const auto answer = [](const dns_question& q) {
    return q.address(q.wants_ipv6 ? "::7" : "10.0.0.7");
  };
  name_server silent(nothing);
  name_server other(answer);
  name_server forgetful([&](const dns_question& q) -> std::optional<std::string> {
    if (q.number < 2) return std::nullopt;
    return answer(q);
  });
  const names two(nameserver(silent) + nameserver(other));
  const names one(nameserver(forgetful));
  reactor_fixture f(engine_kind::epoll);
  running<resolution> in_turn(f, resolve("node7.test:1", two.options()));
  running<resolution> again(f, resolve("node7.test:1", one.options()));
  f.run_until([&] { return in_turn.ended() && again.ended(); });
  CHECK(in_turn.result().failure().empty());
  CHECK(again.result().failure().empty());
  CHECK(silent.questions() > 0);
  CHECK(forgetful.questions() >= 4);
}

TEST_CASE("an answer that is too long for a datagram is asked for by TCP") {
  name_server server([](const dns_question& q) {
    if (!q.by_tcp) return q.come_by_tcp();
    return q.wants_ipv6 ? q.no_address() : q.address("10.0.0.7");
  });
  const names machine(nameserver(server));
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    const resolution r = f.run(resolve("node7.test:1", machine.options()));
    INFO(r.failure());
    CHECK(texts(r) == std::vector<std::string>{"10.0.0.7:1"});
  }
}

TEST_CASE("a server that is not there is an error that names it") {
  std::string gone;
  {
    name_server server(nothing);
    gone = server.address().text();
  }
  const names machine("nameserver " + gone + "\noptions timeout:1 attempts:1");
  reactor_fixture f(engine_kind::epoll);
  says(f.run(resolve("node7.test:1", machine.options())), gone);
}

TEST_CASE("a cancelled lookup has closed its sockets when its frame is gone") {
  name_server server(nothing);
  const names machine(nameserver(server));
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    const std::size_t before = entries("/proc/self/fd");
    const std::size_t threads = entries("/proc/self/task");
    for (int n = 0; n < 50; ++n) {
      {
        const int asked = server.questions();
        running<resolution> r(f, resolve("node7.test:1", machine.options()));
        // Each time at another place, and in mid-query as well.
        for (int turns = 0; turns < n % 8; ++turns) f.get().turn();
        if (n % 2 == 0) {
          f.run_until([&] {
            f.get().wake();
            return server.questions() > asked;
          });
        }
        r.cancel();
        f.run_until([&] { return r.ended(); });
        CHECK(r.cancelled());
      }
      CHECK(entries("/proc/self/fd") == before);
      CHECK(entries("/proc/self/task") == threads);
    }
  }
}

TEST_CASE("what the environment says about names is not looked at") {
  name_server server([](const dns_question& q) { return q.no_such_name(); });
  const text_file aliases("node7 elsewhere.test\n");
  const names machine(nameserver(server) + "search a.test\n");
  ::setenv("LOCALDOMAIN", "environment.test", 1);
  ::setenv("RES_OPTIONS", "ndots:9 attempts:9", 1);
  ::setenv("HOSTALIASES", aliases.path().c_str(), 1);
  reactor_fixture f(engine_kind::epoll);
  const resolution r = f.run(resolve("node7:1", machine.options()));
  const resolution dotted = f.run(resolve("x.y:1", machine.options()));
  for (const char* name : {"LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES"}) ::unsetenv(name);
  CHECK(!r.ok());
  CHECK(!dotted.ok());
  bool asked_as_it_is = false;
  for (const std::string& name : server.names()) {
    CHECK(name.find("environment") == std::string::npos);
    CHECK(name.find("elsewhere") == std::string::npos);
    if (name == "x.y.a.test") CHECK(asked_as_it_is);
    asked_as_it_is |= name == "x.y";
  }
}

#endif

TEST_SUITE_END();
