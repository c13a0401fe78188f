#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <manyworlds/launch.hpp>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "questions.hpp"
#include "relay.hpp"
#include "rendezvous_nodes.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

using namespace std::chrono_literals;

/// A round that has just formed settles: its nodes watch each other.
constexpr auto settles = 200ms;
constexpr auto etcd_starts = 15s;

mw::socket_address free_address() {
  const doorway taken(mw::socket_address::loopback(0));
  return taken.address();
}

/// A folder of this process, gone with it.
class own_folder {
 public:
  own_folder()
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("mwbench-{}-{}", ::getpid(), now_ns())) {
    std::filesystem::create_directory(path_);
  }
  own_folder(const own_folder&) = delete;
  own_folder& operator=(const own_folder&) = delete;
  ~own_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string text() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// Milliseconds to the last node's news, of each step of a run.
struct run_times {
  double at_once = 0;
  double node_killed = 0;
  double replaced = 0;
  double coordinator_killed = 0;
  bool has_successor = true;
};

/// One run: nodes come, one is killed and replaced, then the coordinator is killed.
class rendezvous_run {
 public:
  /// Every node but the first reaches the coordinator at `elsewhere`, if one is given.
  rendezvous_run(const common_options& common, meeting where, std::string elsewhere)
      : common_(common), where_(std::move(where)), elsewhere_(std::move(elsewhere)) {}

  run_times measure() {
    run_times took;
    for (std::size_t i = 0; i < where_.nodes; ++i) start();
    std::int64_t begin = now_ns();
    for (node& each : nodes_) each.release();
    took.at_once = until_all(begin, where_.nodes);

    begin = kill(false);
    took.node_killed = until_all(begin, where_.nodes - 1);

    start();
    begin = now_ns();
    nodes_.back().release();
    took.replaced = until_all(begin, where_.nodes);

    begin = kill(true);
    took.coordinator_killed = until_all(begin, where_.nodes - 1);
    took.has_successor = !is_alone_;
    return took;
  }

 private:
  void start() {
    meeting where = where_;
    if (!nodes_.empty() && !elsewhere_.empty()) where.endpoint = elsewhere_;
    nodes_.emplace_back(common_, where);
  }

  /// Kills the coordinator, or another node.
  std::int64_t kill(bool coordinator) {
    std::this_thread::sleep_for(settles);
    const auto victim = std::ranges::find_if(
        nodes_, [&](const node& each) { return each.coordinates() == coordinator; });
    if (victim == nodes_.end()) throw std::runtime_error("there is no such node");
    const std::int64_t at = victim->kill();
    nodes_.erase(victim);
    return at;
  }

  /// Waits until all nodes are in a round of that size, or have no coordinator.
  double until_all(std::int64_t begin, std::size_t size) {
    std::int64_t end = begin;
    for (node& each : nodes_) {
      node_news news = each.next();
      while (news.round > 0 && news.size != size) news = each.next();
      if (news.round == 0) is_alone_ = true;
      end = std::max(end, news.at_ns);
    }
    return static_cast<double>(end - begin) / 1e6;
  }

  const common_options& common_;
  const meeting where_;
  const std::string elsewhere_;
  std::deque<node> nodes_;
  bool is_alone_ = false;
};

/// All runs of a backend, and its rows.
class backend_runs {
 public:
  backend_runs(const common_options& common, const rendezvous_options& options,
               report& out, std::string name)
      : common_(common), options_(options), out_(out), name_(std::move(name)) {}

  void add(meeting where, const std::string& elsewhere = {}) {
    out_.progress(
        fmt::format("rendezvous over {}, {} of {}", name_, count_ + 1, options_.repeat));
    where.run = fmt::format("mwbench-{}-{}", ::getpid(), now_ns());
    where.nodes = static_cast<std::size_t>(options_.nodes);
    const run_times took = rendezvous_run(common_, where, elsewhere).measure();
    ++count_;
    at_once_.add(took.at_once);
    node_killed_.add(took.node_killed);
    replaced_.add(took.replaced);
    (took.has_successor ? followed_ : alone_).add(took.coordinator_killed);
  }

  void print() const {
    row("nodes at once, to their round", at_once_);
    row("a node killed, to the next round", node_killed_);
    row("a node more, to the round with it", replaced_);
    row("coordinator killed, to the next round", followed_);
    row("coordinator killed, to no_coordinator", alone_);
  }

 private:
  void row(std::string_view what, const samples& took) const {
    if (took.empty()) return;
    out_.row({
        {"bench", "rendezvous"},
        {"backend", name_},
        {"nodes", options_.nodes},
        {"what", what},
        {"repeats", took.count()},
        {"p50_ms", took.median()},
        {"max_ms", took.largest()},
        {"spread", took.spread()},
    });
  }

  const common_options& common_;
  const rendezvous_options& options_;
  report& out_;
  const std::string name_;
  int count_ = 0;
  samples at_once_, node_killed_, replaced_, followed_, alone_;
};

/// Agents of one host, of which another can follow; then agents that reach the first as
/// from another host, where they cannot listen in its place.
void over_tcp(const common_options& common, const rendezvous_options& o, report& out) {
  backend_runs here(common, o, out, "tcp");
  for (int i = 0; i < o.repeat; ++i) here.add({"tcp", free_address().text(), {}, 0});
  here.print();
  backend_runs apart(common, o, out, "tcp, several hosts");
  for (int i = 0; i < o.repeat; ++i) {
    const mw::socket_address first = free_address();
    doorway door(mw::socket_address::loopback(0));
    const std::string elsewhere = door.address().text();
    auto [never, cut] = line::make();
    const relay network(std::move(door), first, cut.fd());
    apart.add({"tcp", first.text(), {}, 0}, elsewhere);
  }
  apart.print();
}

void over_files(const common_options& common, const rendezvous_options& o, report& out) {
  const own_folder folder;
  backend_runs runs(common, o, out, "file");
  for (int i = 0; i < o.repeat; ++i) runs.add({"file", folder.text(), {}, 0});
  runs.print();
}

void over_etcd(const common_options& common, const rendezvous_options& o, report& out,
               const std::string& endpoint) {
  backend_runs runs(common, o, out, "etcd");
  for (int i = 0; i < o.repeat; ++i) runs.add({"etcd", endpoint, {}, 0});
  runs.print();
}

/// It accepts connections a second before it has elected itself.
mw::task<void> until_it_answers(const std::string& endpoint) {
  mw::etcd_store_options how;
  how.prefix = "mwbench/";
  mw::etcd_store store(endpoint, how);
  co_await store.set("ready", "yes", etcd_starts);
}

/// One member, with its data on this machine's disk, as it is installed.
mw::task<void> with_own_etcd(mw::runtime& rt, const common_options& common,
                             const rendezvous_options& o, report& out) {
  const own_folder folder;
  const mw::socket_address clients = free_address();
  const std::string url = "http://" + clients.text();
  const std::string peers = "http://" + free_address().text();
  mw::process_options how("etcd");
  for (const std::string& each :
       {"--data-dir=" + folder.text(), "--listen-client-urls=" + url,
        "--advertise-client-urls=" + url, "--listen-peer-urls=" + peers,
        "--initial-advertise-peer-urls=" + peers, "--initial-cluster=default=" + peers,
        std::string("--log-level=error")})
    how.argument(each);
  how.output(mw::to_file("/dev/null")).errors(mw::to_file("/dev/null"));
  mw::supervised_process etcd(rt, how);
  bool is_missing = false;
  try {
    co_await etcd.started();
  } catch (const mw::process_error& e) {
    if (e.reason().error != ENOENT) throw;
    is_missing = true;
  }
  if (is_missing) {
    std::fprintf(stderr,
                 "skipped: rendezvous over etcd (Debian: apt-get install "
                 "etcd-server)\n");
    co_return;
  }
  co_await until_it_answers(clients.text());
  over_etcd(common, o, out, clients.text());
  co_await etcd.stop(mw::grace(5s));
}

}  // namespace

void rendezvous(const common_options& common, const rendezvous_options& options) {
  if (!common.leads()) return be_node(common);
  mw::runtime rt(runtime_options_of(common));
  report out(common.json, common.transport());
  out.machine(rt.engine());
  for (const std::string& each : options.backends) {
    if (each == "tcp") over_tcp(common, options, out);
    if (each == "file") over_files(common, options, out);
    if (each == "etcd" && !options.etcd.empty())
      over_etcd(common, options, out, options.etcd);
    if (each == "etcd" && options.etcd.empty())
      rt.run(with_own_etcd(rt, common, options, out));
  }
}

}  // namespace mwbench
