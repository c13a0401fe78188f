#include "observe/report.hpp"

#include <doctest/doctest.h>

#include <chrono>

#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#endif

using namespace manyworlds;
using namespace std::chrono_literals;

namespace {

runtime_report made_up() {
  runtime_report r;
  r.identity = {4711, "here"};
  r.thread_name = "engine \"0\"";
  r.address = "127.0.0.1:40123";
  r.user = {.engine = "io_uring", .turns = 12, .silent_for = {}, .only_cpu = {}};
  r.user.times.library.counts[0] = 9;
  r.user.times.library.counts[8] = 2;
  r.user.times.library.longest = 180us;
  r.user.times.tasks.counts.back() = 1;
  r.user.times.tasks.longest = 10s;
  r.service = {.engine = "io_uring", .turns = 3, .silent_for = 250ms, .only_cpu = {}};
  world_report w;
  w.name = "left";
  w.epoch = 3;
  w.rank = 0;
  w.size = 2;
  w.state = "broken";
  w.first_cause = failure(cause::peer_died, {});
  w.first_cause.world = "left";
  w.first_cause.epoch = 3;
  w.first_cause.rank = 1;
  w.history = {2s, 1, {{cause::peer_died, 4}}};
  member_report m;
  m.rank = 1;
  m.identity = {4712, "there"};
  m.is_suspect = true;
  m.silence = 1500ms;
  w.members.push_back(m);
  operation_report o;
  o.kind = operation_kind::arrival;
  o.lane = 9;
  o.age = 12ms;
  o.file = "/src/serve.cpp";
  o.line = 17;
  w.pending.push_back(o);
  o.kind = operation_kind::send;
  o.peer = 1;
  o.waits_for = name_of(send_obstacle::world_window);
  w.pending.push_back(o);
  lane_status held;
  held.peer = 1;
  held.on = lane(9);
  held.unexpected_messages = 2;
  held.window_held = 32'896;
  held.held_for = 7s;
  held.window_at_peer = 64;
  held.waits_for = send_obstacle::world_window;
  w.transfers.emplace();
  w.transfers->transport = "shm";
  w.transfers->lanes.push_back(held);
  device_status gpu;
  gpu.device = 3;
  gpu.is_ready = gpu.is_told_by_words = true;
  gpu.occupied = 4;
  gpu.given = 12;
  gpu.multiprocessors = 132;
  gpu.handed_over = 2;
  gpu.launched = 1;
  gpu.roots = 5;
  gpu.has_places = true;
  gpu.places = 6;
  w.transfers->device = gpu;
  r.worlds.push_back(w);
  r.ended_worlds.push_back({"right", 8, "right@8: closed", 3s});
  r.links.emplace();
  session_report& s = r.sessions.emplace().emplace_back();
  s.name = "model.0badcafe";
  s.open_calls = 2;
  for (int id = 0; id < 5; ++id) {
    session_worker_report& worker = s.workers.emplace_back();
    worker.id = id;
    worker.pid = id == 4 ? 0 : 4'800 + id;
    worker.incarnation = 1;
    worker.state = "ready";
    worker.sent = 1;
    worker.call = 17;
    worker.function = "mlp";
    worker.in_call = 3100ms;
    if (id != 2) worker.doing = "all_reduce, waits for worker 2";
  }
  s.workers[1].in_call = 3099ms;
  s.workers[3].in_call.reset();
  s.workers[3].doing.clear();
  s.workers[3].silent_for = 2s;
  s.workers[3].waiting = 3;
  s.workers[4].state = "lost: killed by \"SIGKILL\"";
  s.workers[4].sent = 0;
  s.workers[4].call = 0;
  return r;
}

}  // namespace

TEST_SUITE_BEGIN("report");

TEST_CASE(
    "a report in words names states, causes, suspects, places and what is unknown") {
  const std::string text = text_of(made_up());
  INFO(text);
  for (const char* part :
       {"pid 4711 on here, at 127.0.0.1:40123",
        "reactor: io_uring, 12 turns\n",
        "the library in a turn: at most 0.18 ms; 9 under 0.001 ms, 2 under 0.256 ms\n",
        "tasks in a turn: at most 10 s; 1 longer than 65.5 ms\n",
        "service: io_uring, 3 turns; it has not answered for 250 ms",
        "left@3: broken, rank 0 of 2, formed 2 s ago, 1 suspicions\n",
        "left@3 broken: rank 1 died",
        "4 operations ended with peer_died",
        "rank 1: there (pid 4712)",
        "last heard 1.5 s ago, suspect\n",
        "on device 3: ready, told by words; 4 of 132 multiprocessors, 12 of them given "
        "to "
        "worlds\n",
        "0 queued, 2 handed over and 1 of them launched; 0 tickets awaited\n",
        "6 places held in the order that it shares with other worlds\n",
        "5 creations on the device wait for members that never come\n",
        "pending for 12 ms: arrival from any on lane 9, 0 of 0 bytes, not begun, at "
        "serve.cpp:17\n",
        "not begun, waits for the window of the world, or a receive, at serve.cpp:17\n",
        "its first send waits for the window of the world, or a receive\n",
        "holds 32896 bytes of the window, for 7 s: no receive takes what has come\n",
        "holds 64 bytes of the peer's window\n",
        "3 s ago: right@8: closed\n",
        "session model.0badcafe: 5 workers, 2 calls open\n  worker 3 to do mlp (call "
        "17), "
        "silent for 2 s; worker 2 in mlp (call 17) for 3.1 s; workers 0, 1 in mlp (call "
        "17) for 3.1 s: all_reduce, waits for worker 2\n",
        "worker 2 (pid 4802, incarnation 1): ready; was sent 1 commands, and 0 wait\n",
        "worker 4 (a thread, incarnation 1): lost: killed by \"SIGKILL\"; was sent 0 "}) {
    CHECK_MESSAGE(text.find(part) != text.npos, part);
  }
}

#if __has_include(<nlohmann/json.hpp>)
TEST_CASE("a report as JSON says the same to programs, with null for what is unknown") {
  const auto j = nlohmann::json::parse(json_of(made_up()));
  CHECK(j["name"] == "engine \"0\"");
  CHECK(j["reactor"]["answers"] == true);
  CHECK(j["service"]["silent_ms"] == 250.0);
  const auto& library = j["reactor"]["library"];
  CHECK(library["turns"] == 11);
  CHECK(library["longest_ms"] == doctest::Approx(0.18));
  CHECK(library["histogram"][1]["from_ms"] == doctest::Approx(0.128));
  CHECK(library["histogram"][1]["turns"] == 2);
  CHECK(j["service"]["tasks"]["histogram"].empty());
  CHECK(j["links"].empty());
  const auto& w = j["worlds"][0];
  CHECK(w["first_cause"]["cause"] == "peer_died");
  CHECK(w["errors"]["peer_died"] == 4);
  CHECK(w["times_suspect"] == 1);
  CHECK(w["members"][0]["suspect"] == true);
  CHECK(w["members"][0]["left"].is_null());
  const auto& lane = w["transfers"]["lanes"][0];
  CHECK(lane["waits_for"] == "the window of the world, or a receive");
  CHECK(lane["window_held"] == 32'896);
  CHECK(lane["held_ms"] == 7'000.0);
  CHECK(lane["window_at_peer"] == 64);
  const auto& gpu = w["transfers"]["device"];
  CHECK(gpu["device"] == 3);
  CHECK(gpu["told_by_words"] == true);
  CHECK(gpu["has_places"] == true);
  CHECK(gpu["places"] == 6);
  CHECK(gpu["handed_over"] == 2);
  CHECK(gpu["launched"] == 1);
  CHECK(gpu["roots"] == 5);
  CHECK(w["pending"][1]["waits_for"] == "the window of the world, or a receive");
  runtime_report silent = made_up();
  silent.worlds[0].transfers.reset();
  CHECK(nlohmann::json::parse(json_of(silent))["worlds"][0]["transfers"].is_null());
  CHECK(w["pending"][0]["peer"].is_null());
  CHECK(w["pending"][0]["file"] == "/src/serve.cpp");
  CHECK(j["ended_worlds"][0]["reason"] == "right@8: closed");
  const auto& session = j["sessions"][0];
  CHECK(session["name"] == "model.0badcafe");
  CHECK(session["open_calls"] == 2);
  CHECK(session["workers"][0]["call"] == 17);
  CHECK(session["workers"][0]["function"] == "mlp");
  CHECK(session["workers"][0]["doing"] == "all_reduce, waits for worker 2");
  CHECK(session["workers"][0]["in_call_ms"] == 3'100.0);
  CHECK(session["workers"][0]["silent_ms"].is_null());
  CHECK(session["workers"][3]["in_call_ms"].is_null());
  CHECK(session["workers"][3]["silent_ms"] == 2'000.0);
  CHECK(session["workers"][3]["waiting"] == 3);
  CHECK(session["workers"][4]["pid"] == 0);
  CHECK(session["workers"][4]["state"] == "lost: killed by \"SIGKILL\"");
  auto unknown = made_up();
  unknown.links.reset();
  unknown.sessions.reset();
  const auto unknown_json = nlohmann::json::parse(json_of(unknown));
  CHECK(unknown_json["links"].is_null());
  CHECK(unknown_json["sessions"].is_null());
}
#endif

TEST_SUITE_END();
