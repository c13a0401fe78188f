#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <utility>

#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

constexpr mw::duration patience = std::chrono::seconds(60);

/// One kind of operation, many times, each after the other has been answered.
template <class Operation>
mw::task<samples> timed(int count, Operation operation) {
  samples took;
  for (int i = -count / 10; i < count; ++i) {
    const std::int64_t begin = now_ns();
    co_await operation(i);
    // The first of them make the connection, and warm the server.
    if (i >= 0) took.add(us_since(begin));
  }
  co_return took;
}

void print(const store_options& o, report& out, std::string_view operation,
           const samples& took) {
  out.row({
      {"bench", "store"},
      {"operation", operation},
      {"client", !o.etcd.empty() ? "etcd"
                 : o.is_near     ? "near"
                                 : "service"},
      {"repeats", took.count()},
      {"p50_us", took.median()},
      {"p99_us", took.p99()},
  });
}

mw::task<void> ask(mw::store& st, const store_options& o, report& out) {
  const std::string value(o.size, 'v');
  co_await st.set("bench/key", value);
  auto get = [&](int) -> mw::task<void> { co_await st.get("bench/key", patience); };
  print(o, out, "get", co_await timed(o.count, get));
  auto set = [&](int) -> mw::task<void> { co_await st.set("bench/set", value); };
  print(o, out, "set", co_await timed(o.count, set));
  auto add = [&](int) -> mw::task<void> { co_await st.add("bench/add", 1); };
  print(o, out, "add", co_await timed(o.count, add));
  auto check = [&](int) -> mw::task<void> { co_await st.check("bench/key"); };
  print(o, out, "check", co_await timed(o.count, check));
  std::string before;
  auto compare = [&](int i) -> mw::task<void> {
    const std::string after = fmt::format("{} {}", i, value);
    co_await st.compare_set("bench/compare", before, after);
    before = after;
  };
  print(o, out, "compare_set", co_await timed(o.count, compare));
}

/// Bytes of memory that this process has in use.
std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t all = 0;
  std::int64_t resident = 0;
  statm >> all >> resident;
  return resident * 4096;
}

/// Two descriptors for each client in the process that has them, one in the server's.
void allow_descriptors(int clients) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t wanted = static_cast<rlim_t>(clients) * 2 + 256;
  if (limit.rlim_cur >= wanted) return;
  if (limit.rlim_max < wanted) {
    throw std::runtime_error(fmt::format(
        "store: {} clients need {} descriptors, and {} are allowed (ulimit -n)", clients,
        wanted, limit.rlim_max));
  }
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

using client_list = std::vector<std::unique_ptr<mw::tcp_store>>;

/// Each client connects at its first operation, and stays connected.
mw::task<double> crowd(mw::runtime& rt, const std::string& server, int clients,
                       client_list& all) {
  for (int i = 0; i < clients; ++i)
    all.push_back(std::make_unique<mw::tcp_store>(rt, server));
  const std::int64_t begin = now_ns();
  co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
    for (const auto& each : all)
      s.spawn(each->barrier("bench/barrier", clients, patience));
    co_return;
  });
  co_return ms_since(begin);
}

/// The other process: serves a store, and says how it has grown.
mw::task<void> host(mw::runtime& rt, mw::store& control) {
  const mw::hosted_store served(rt, "127.0.0.1:0");
  const std::int64_t before = resident_bytes();
  co_await control.set("bench/server", served.address());
  co_await control.get("bench/crowd", patience);
  co_await control.set("bench/grown", std::to_string(resident_bytes() - before));
  co_await control.get("bench/end", patience);
}

mw::task<void> lead(mw::runtime& rt, mw::store& control, const store_options& o,
                    report& out) {
  std::string server = o.server;
  if (server.empty()) server = co_await control.get("bench/server", patience);
  {
    mw::tcp_store client(o.is_near ? rt.home() : rt.service(), server);
    co_await ask(client, o, out);
  }
  double grown = 0;
  double took = 0;
  if (o.clients > 0) {
    client_list all;
    took = co_await crowd(rt, server, o.clients, all);
    co_await control.set("bench/crowd", "met");
    if (o.server.empty()) {
      const std::string text = co_await control.get("bench/grown", patience);
      grown = std::stod(text) / (1 << 20);
    }
    out.row({
        {"bench", "store"},
        {"operation", "connect and barrier"},
        {"clients", o.clients},
        {"took_ms", rounded(took)},
        {"server_mib", rounded(grown)},
    });
  }
  co_await control.set("bench/crowd", "met");
  co_await control.set("bench/end", "now");
}

mw::task<void> ask_etcd(const store_options& o, report& out) {
  mw::etcd_store_options how;
  how.prefix = fmt::format("mwbench/{}/", now_ns());
  mw::etcd_store client(o.etcd, how);
  co_await ask(client, o, out);
  co_await client.erase("bench/key");
}

/// Serves until this process is ended.
void serve(const common_options& common) {
  mw::runtime rt(runtime_options_of(common));
  const mw::hosted_store served(rt, "127.0.0.1:0");
  fmt::print("{}\n", served.address());
  std::fflush(stdout);
  for (;;) ::pause();
}

}  // namespace

void store(const common_options& common, const store_options& options) {
  allow_descriptors(options.clients);
  if (options.serves) return serve(common);
  member m(common);
  if (!common.leads()) {
    m.runtime().run(host(m.runtime(), m.store()));
    return;
  }
  report out(common.json, common.transport());
  out.machine(m.engine());
  out.progress("asking a store in another process");
  if (!options.etcd.empty()) {
    m.runtime().run(ask_etcd(options, out));
    return;
  }
  if (!options.server.empty()) {
    m.runtime().run(lead(m.runtime(), m.store(), options, out));
    return;
  }
  const child peer = m.start();
  m.runtime().run(lead(m.runtime(), m.store(), options, out));
}

}  // namespace mwbench
