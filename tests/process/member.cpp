// A member process for tests: it obeys orders, one a line on its standard input, and
// tells what happens to it, one line each on its standard output. Orders run side by
// side.
//
//   member serve                hosts a store until its input ends
//   member KEY=VALUE...         obeys; keys: engine, store, secret, shm=off,
//                               refuse=CALL, user=NUMBER, pool=BYTES (streams come
//                               out of it) and the limits below
//
//   world NAME RANK SIZE        joining NAME | formed NAME EPOCH | failed NAME CAUSE RANK
//                               and, once formed: over NAME CAUSE RANK PID
//   stream NAME PEER BYTES COUNT
//                               numbered messages; streamed NAME N | error NAME CAUSE
//                               RANK N
//   drain NAME PEER BYTES COUNT takes them; drained NAME N | wrong NAME N | error ...
//   echo NAME PEER BYTES        sends back what comes; error NAME CAUSE RANK N
//   answer NAME PEER            the same with messages of any size up to 1 MiB
//   send NAME PEER LANE TEXT    sent NAME LANE | error ...
//   recv NAME PEER LANE         got NAME LANE TEXT | error ...
//   park NAME PEER COUNT        that many receives on lanes from 1; parked NAME | error
//   collect NAME KIND ELEMENTS COUNT
//                               COUNT collectives of that kind; collecting NAME, then
//                               under way NAME (after ten) | collected NAME N | wrong
//                               NAME N | error NAME CAUSE RANK N
//   leave NAME                  left NAME | error ...
//   barrier NAME                passed NAME | error ...
//   shrink NAME, grow NAME, reform NAME
//                               again NAME EPOCH RANK SIZE OLD,OLD... | error ..., and
//                               once formed: over ...
//   suspicions NAME             suspicions NAME N
//   block MILLISECONDS          blocks the reactor's thread; blocking | unblocked
//   touch MEGABYTES             has that much memory, page by page; touched
//   scribble PART SEED          without end, over part of the shared memory; at it
//   flip                        without end, what stands in its cells; at it
//   deaf                        no longer reads; at it
//   deafen NAME PEER BYTES      the same, in the midst of a message; at it
//   unmapped NAME PEER BYTES    offers memory that is not there
//   refuse CALL                 to its reactor's thread; refused
//   hide                        no process may trace it or read its memory; hidden
//   fork                        has a child that holds its descriptors; forked
//   work NAME                   answers a dispatcher's calls (call_orders.hpp)
//   give_blocks NAME            gives blocks to those who ask (block_orders.hpp); error
//   quit
//
// and those of held_transfers.hpp, ending_orders.hpp and of service_orders.hpp.
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "block_orders.hpp"
#include "call_orders.hpp"
#include "collective_orders.hpp"
#include "ending_orders.hpp"
#include "held_transfers.hpp"
#include "manyworlds/mw.hpp"
#include "manyworlds/store/run_on.hpp"
#include "member_rights.hpp"
#include "misdeeds.hpp"
#include "repair_orders.hpp"
#include "service_orders.hpp"
#include "store/tcp_store_server.hpp"
#include "support/burdens.hpp"
#include "traffic_orders.hpp"
#include "world/runtime_core.hpp"

namespace {

using namespace std::chrono_literals;
using namespace mw::process_tests;
using mw::testing::hold_descriptors_in_child;
using mw::testing::touch_memory;

std::string text(const mw::failure& f) {
  return std::string(name_of(f.cause)) + " " + std::to_string(f.rank);
}

words split(const std::string& line) {
  std::istringstream in(line);
  words all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

class member {
 public:
  explicit member(std::map<std::string, std::string> settings)
      : settings_(std::move(settings)),
        rt_(runtime_options()),
        store_(rt_, settings_["store"]) {
    if (settings_.count("pool"))
      pool_.emplace(rt_.pools(), std::stoul(settings_["pool"]));
  }

  void obey() {
    std::thread reader([this] { read_orders(); });
    rt_.run(carry_out_all());
    reader.join();
  }

 private:
  mw::runtime_options runtime_options() {
    mw::runtime_options o;
    if (settings_["engine"] == "epoll") o.engine = mw::engine_kind::epoll;
    if (settings_["engine"] == "io_uring") o.engine = mw::engine_kind::io_uring;
    if (settings_.count("secret")) o.secret = settings_["secret"];
    if (settings_["shm"] == "off") o.shared_memory = false;
    if (settings_.count("heartbeat")) o.heartbeat = limit("heartbeat");
    o.log_from = settings_.count("log") ? mw::log_level::debug : mw::log_level::error;
    return o;
  }
  mw::duration limit(const std::string& key) {
    return std::chrono::milliseconds(std::stol(settings_[key]));
  }
  mw::world_options world_options(const words& order) {
    mw::world_options o = limits();
    o.name = order[1];
    o.rank = std::stoi(order[2]);
    o.size = std::stoi(order[3]);
    return o;
  }
  mw::world_options limits() {
    mw::world_options o;
    o.form = settings_.count("form") ? limit("form") : mw::duration(20s);
    if (settings_.count("suspect")) o.suspect_after = limit("suspect");
    if (settings_.count("broken")) o.broken_after = limit("broken");
    return o;
  }

  void read_orders() {
    for (std::string line; std::getline(std::cin, line);) {
      while (!orders_.try_push(line)) std::this_thread::yield();
      if (line == "quit") break;
    }
    orders_.close();
  }

  mw::task<void> carry_out_all() {
    auto body = [this](mw::scope& s) -> mw::task<void> {
      while (auto line = co_await orders_.pop()) {
        if (*line == "quit") break;
        s.spawn(carry_out(split(*line)));
      }
      s.cancel();
    };
    co_await mw::scope::run(body);
  }

  mw::task<void> carry_out(words order) {
    const std::string what = order[0];
    std::uint64_t count = 0;
    mw::failure failed;
    try {
      if (what == "world") co_await form(order);
      if (what == "stream")
        co_await stream(co_await formed(order[1]), order, count, pool());
      if (what == "drain") co_await drain(co_await formed(order[1]), order, count);
      if (what == "echo") co_await echo(co_await formed(order[1]), order, count);
      if (what == "answer") co_await answer(co_await formed(order[1]), order);
      if (what == "give_blocks") co_await serve_blocks(co_await formed(order[1]));
      if (what == "send") co_await send(co_await formed(order[1]), order);
      if (what == "recv") co_await recv(co_await formed(order[1]), order);
      if (what == "park") co_await park(order);
      if (what == "collect") co_await collect(co_await formed(order[1]), order, count);
      if (what == "barrier") co_await pass_barrier(co_await formed(order[1]), order);
      if (what == "shrink" || what == "grow" || what == "reform")
        co_await repair(worlds_.at(order[1]), order);
      if (what == "leave") co_await leave(order);
      if (what == "work") co_await work_for(rt_, store_, order[1]);
      if (what == "take") co_await transfers_.take(co_await formed(order[1]), order);
      if (what == "offer") co_await transfers_.offer(co_await formed(order[1]), order);
      if (what == "arrival")
        co_await transfers_.arrival(co_await formed(order[1]), order);
      if (what == "accept") co_await accept_peers(rt_, store_, order[1], limits());
      if (what == "connect") co_await connect_to(rt_, store_, order[1], limits());
      if (what == "come_and_go")
        co_await come_and_go(rt_, store_, order[1], std::stoi(order[2]));
      if (what == "unmapped") co_await offer_unmapped(co_await formed(order[1]), order);
      if (what == "deafen") co_await turn_deaf_within(co_await formed(order[1]), order);
    } catch (const mw::world_error& e) {
      failed = e.failure();
    }
    if (failed) {
      const std::string word = what == "world" ? "failed " : "error ";
      tell(word + order[1] + " " + text(failed) + " " + std::to_string(count));
    }
    if (what == "suspicions") {
      const auto times = worlds_.at(order[1]).history().times_suspect;
      tell("suspicions " + order[1] + " " + std::to_string(times));
    }
    if (what == "give_up") transfers_.give_up(order[1]);
    if (what == "canaries") transfers_.look_at_canaries(order[1]);
    if (what == "fork" && hold_descriptors_in_child()) tell("forked");
    if (what == "touch" && touch_memory(std::stoul(order[1]) << 20)) tell("touched");
    if (what == "scribble" || what == "flip" || what == "deaf") {
      tell("at it");
      if (what == "scribble")
        scribble(order[1], static_cast<unsigned>(std::stoul(order[2])));
      if (what == "flip") flip();
      if (what == "deaf") turn_deaf();
    }
    if (what == "refuse") {
      refuse_call(order[1]);
      tell("refused");
    }
    if (what == "hide") {
      hide();
      tell("hidden");
    }
    if (what == "block") {
      tell("blocking");
      std::this_thread::sleep_for(std::chrono::milliseconds(std::stol(order[1])));
      tell("unblocked");
    }
  }

  mw::task<void> form(const words& order) {
    mw::world& w = worlds_[order[1]];
    w = mw::world(rt_, store_, world_options(order));
    tell("joining " + order[1]);
    co_await w;
    tell("formed " + order[1] + " " + std::to_string(w.epoch()));
    const mw::failure f = co_await w.broken();
    tell("over " + order[1] + " " + text(f) + " " + std::to_string(f.peer.pid));
  }

  /// The leader may be up, and have its orders given, before this member has heard of it.
  mw::task<mw::world&> formed(std::string name) {
    mw::world& w = worlds_.at(name);
    co_await w;
    co_return w;
  }

  mw::task<void> park(const words& order) {
    mw::world& w = co_await formed(order[1]);
    const mw::from peer(std::stoi(order[2]));
    auto body = [&](mw::scope& s) -> mw::task<void> {
      for (unsigned long l = 1; l <= std::stoul(order[3]); ++l)
        s.spawn(park_one(w, peer, l));
      // Behind all of them in the home's queue.
      co_await mw::yield();
      tell("parked " + order[1]);
    };
    co_await mw::scope::run(body);
  }
  static mw::task<void> park_one(mw::world& w, mw::from peer, unsigned long on) {
    char byte = 0;
    co_await w.recv(std::span(&byte, 1), peer, mw::lane(on));
  }

  mw::task<void> leave(const words& order) {
    mw::world& w = co_await formed(order[1]);
    co_await w.leave();
    tell("left " + order[1]);
  }

  mw::shared_pool* pool() noexcept { return pool_ ? &*pool_ : nullptr; }

  std::map<std::string, std::string> settings_;
  mw::channel<std::string> orders_{4096};
  held_transfers transfers_{&tell};
  mw::runtime rt_;
  std::optional<mw::shared_pool> pool_;
  mw::tcp_store store_;
  std::map<std::string, mw::world> worlds_;
};

void serve_store() {
  mw::runtime rt;
  mw::tcp_store_server server(mw::access::core(rt).service(),
                              mw::socket_address::loopback(0));
  auto serve = [&]() -> mw::task<void> {
    co_await mw::run_on(rt.service(), server.serve());
  };
  auto served = rt.start(serve());
  tell("listening " + server.address().text());
  for (std::string line; std::getline(std::cin, line);) continue;
  rt.stop();
  served.get();
}

}  // namespace

int main(int argc, char** argv) {
  // Nothing of a test may outlive it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc > 1 && std::strcmp(argv[1], "serve") == 0) {
    serve_store();
    return 0;
  }
  if (argc > 1 && std::strcmp(argv[1], "ending") == 0)
    return end_as_told({argv + 2, argv + argc});
  std::map<std::string, std::string> settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto at = word.find('=');
    settings[word.substr(0, at)] = word.substr(at + 1);
  }
  try {
    if (settings.count("user")) become(static_cast<uid_t>(std::stoul(settings["user"])));
    if (settings.count("refuse")) refuse_call(settings["refuse"]);
    member(std::move(settings)).obey();
  } catch (const std::exception& e) {
    tell(std::string("died ") + e.what());
    return 2;
  }
}
