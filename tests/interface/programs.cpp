// The interface can say what servers need it to: programs as their users would write
// them. `engine`, `kv_pool` and the like stand for what is theirs. All are compiled and
// linked, those that move much of host memory and of a GPU's; those that need no other
// machine are run.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <latch>
#include <manyworlds/gpu.hpp>
#include <manyworlds/mw.hpp>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

// --- stage k of a pipeline: receives hidden states from stage k-1, computes, sends on

struct step {
  std::uint64_t id;
};
// A list of views: mw::buffer_view, or mw::device_view, each with its stream.
template <class View>
struct batch {
  step head{};
  std::vector<View> hidden;
};
template <class View>
struct engine {
  mw::task<batch<View>> slots(step s) { co_return batch<View>{s, {}}; }
  mw::worker_thread& thread() { return thread_; }
  void forward(batch<View>& b) { ++b.head.id; }

  mw::worker_thread thread_{"engine"};
};

std::string edge_name(int k) { return "edge" + std::to_string(k); }

template <class View>
mw::world_options edge_options(int k, int rank) {
  mw::world_options options{.name = edge_name(k), .rank = rank, .size = 2};
  if (std::is_same_v<View, mw::device_view>) {
    options.backend = mw::backend_kind::nccl;
    options.device = 0;
  }
  return options;
}

template <class View>
mw::task<void> stage(mw::runtime& rt, mw::store& st, engine<View>& eng, int k) {
  mw::channel<batch<View>> ready(4), done(4);
  std::optional<batch<View>> unsent;  // outlives an epoch: we still own it
  auto up = [&](mw::world& w) -> mw::task<void> {
    for (;;) {
      auto m = co_await w.recv_message<step>(mw::from{0});
      batch<View> b = co_await eng.slots(m.head);
      co_await w.recv(b.hidden, mw::from{0}).within(2s);
      co_await ready.push(std::move(b));
    }
  };
  auto down = [&](mw::world& w) -> mw::task<void> {
    for (;;) {
      if (!unsent) unsent = co_await done.pop();
      co_await w.send_message(unsent->head, mw::to{1});
      co_await w.send(unsent->hidden, mw::to{1}).delivered();
      unsent.reset();
    }
  };
  auto compute = [&]() -> mw::task<void> {
    while (auto b = co_await ready.pop()) {
      co_await mw::offload(eng.thread(), [&] { eng.forward(*b); });
      co_await done.push(std::move(*b));
    }
  };
  co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
    s.spawn(mw::keep(rt, st, edge_options<View>(k, 1), up));
    s.spawn(mw::keep(rt, st, edge_options<View>(k + 1, 0), down));
    s.spawn(compute);
    co_return;
  });
}

// --- a leader over elastic workers, with retries and token streaming, that is told to
// stop from another thread

struct request {
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(prompt)); }
  void emit(const std::vector<std::byte>& token) {
    tokens += static_cast<char>(token.at(0));
  }
  void finish() const {
    if (answered && tokens == "abcde") answered->count_down();
  }
  void fail(const mw::failure& why) const { std::printf("%s\n", why.text().c_str()); }

  std::vector<float> prompt;
  mw::duration left = 30s;
  std::stop_token gone;
  int tries = 0;
  std::string tokens;
  std::latch* answered = nullptr;
};
struct policy {
  std::optional<std::size_t> operator()(std::span<const mw::worker_status> all) const {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].is_suspect || all[i].depth == all[i].limit) continue;
      if (!best || all[i].load < all[*best].load) best = i;
    }
    return best;
  }
};

mw::task<void> answer(mw::dispatcher& workers, request r, policy const& pick) {
  for (;;) {
    mw::failure why;
    auto tokens =
        co_await mw::outcome(workers.call(r.bytes(), pick).within(r.left).stop(r.gone));
    if (!tokens)
      why = tokens.error();
    else
      for (;;) {
        auto t = co_await mw::outcome(tokens->next().within(5s).stop(r.gone));
        if (!t) {
          why = t.error();
          break;
        }
        if (!*t) co_return r.finish();
        r.emit(**t);  // a retry resumes after these
      }
    if (why.cause == mw::cause::cancelled || why.cause == mw::cause::no_member_left ||
        ++r.tries == 3)
      co_return r.fail(why);
  }
}

mw::task<void> leader(mw::runtime& rt, mw::store& st, mw::channel<request>& in,
                      policy const& pick) {
  mw::dispatcher workers(mw::dispatch_options{.in_flight_per_worker = 64});
  auto serve = [&](mw::world& w) { return workers.serve(w); };
  co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
    s.spawn(mw::keep(rt, st, {.name = "decode", .rank = 0, .size = 2}, serve));
    while (auto r = co_await in.pop()) s.spawn(answer(workers, std::move(*r), pick));
  });
}

mw::task<void> decode_worker(mw::runtime& rt, mw::store& st) {
  mw::call_server server([](mw::served_call& c) -> mw::task<void> {
    for (char token = 'a'; token <= 'e'; ++token) co_await c.reply(std::span(&token, 1));
  });
  server.publish_load(0);
  auto serve = [&](mw::world& w) { return server.serve(w); };
  co_await mw::keep(rt, st, {.name = "decode", .rank = 1, .size = 2}, serve);
}

int serve() {
  mw::runtime rt({.thread_name = "mw-front", .cpu = 3});
  mw::tcp_store st(rt, "decode-store:29500");
  mw::channel<request> in(4096);
  policy pick;
  auto served = rt.start(leader(rt, st, in, pick));  // from any thread
  if (!in.try_push(request{})) std::puts("429");
  rt.stop(25s);  // SIGTERM: drain, then cancel
  served.get();
  return 0;
}

int run_dispatch() {
  mw::memory_store st;
  mw::runtime front, back;
  mw::channel<request> in(16);
  policy pick;
  auto served = front.start(leader(front, st, in, pick));
  auto working = back.start(decode_worker(back, st));
  constexpr int requests = 3;
  std::latch answered(requests);
  for (int i = 0; i < requests; ++i) {
    request r;
    r.prompt = {1, 2, 3};
    r.answered = &answered;
    if (!in.try_push(std::move(r))) return 1;
  }
  answered.wait();
  front.stop();
  if (!served.wait_for(20s)) return 1;
  back.stop();
  served.get();
  return working.wait_for(20s) ? 0 : 1;
}

// --- members that sum, and go on without those that die

mw::task<void> keep_adding(mw::world w, std::span<const float> mine, std::span<float> x) {
  while (w.size() > 1) {
    const auto summed = co_await mw::outcome(w.all_reduce(mine, x, mw::sum));
    if (!summed) w = co_await w.shrink();  // x may be half a sum; mine is as it was
  }
}

mw::task<void> count_formed(mw::runtime& rt, mw::store& st, std::atomic<int>& formed) {
  const mw::world_manager worlds(rt, st);
  const mw::world_events events = worlds.events();
  for (;;) {
    const mw::world_event e = co_await events.next();
    if (e.kind == mw::world_event_kind::formed) ++formed;
  }
}

mw::task<void> form_and_sum(mw::runtime& rt, mw::store& st, int rank) {
  mw::world w(rt, st, {.name = "sum", .rank = rank, .size = 3});
  co_await w;
  const std::vector<float> mine(8, 1.0f);
  std::vector<float> x(8);
  co_await keep_adding(std::move(w), mine, x);
}

int run_survivors() {
  mw::memory_store st;
  std::array<std::atomic<int>, 3> formed{};
  std::array<mw::runtime, 3> members;
  std::vector<mw::started<void>> summing, counting;
  for (int rank = 0; rank < 3; ++rank) {
    counting.push_back(
        members.at(rank).start(count_formed(members.at(rank), st, formed.at(rank))));
    summing.push_back(members.at(rank).start(form_and_sum(members.at(rank), st, rank)));
  }
  // The last goes first, in the middle of a sum; then the second, out of the next world.
  const auto until = std::chrono::steady_clock::now() + 20s;
  for (int gone = 2; gone > 0; --gone) {
    for (int rank = 0; rank <= gone; ++rank) {
      while (formed.at(rank) < 3 - gone) {
        if (std::chrono::steady_clock::now() >= until) return 1;
        std::this_thread::sleep_for(1ms);
      }
    }
    // Most often the sum has begun by now; the result is the same if it has not.
    std::this_thread::sleep_for(20ms);
    members.at(gone).stop();
  }
  if (!summing.front().wait_for(20s)) return 1;
  summing.front().get();
  return 0;
}

// --- prefill to decode: KV blocks layer by layer, cancelled at any moment

struct kv_ask {
  std::uint64_t request;
  std::uint32_t layers;
};
struct host_memory {
  using view = mw::buffer_view;
  explicit host_memory(int) {}
  static void take_part(mw::world_options&, int) {}

  void resize(std::size_t count) { floats.resize(count); }
  view part(std::size_t offset, std::size_t count) {
    return std::span(floats).subspan(offset, count);
  }
  mw::task<void> write(std::vector<float> values) {
    std::ranges::copy(values, floats.begin());
    co_return;
  }
  mw::task<std::vector<float>> read() { co_return floats; }

  std::vector<float> floats;
};
struct gpu_memory {
  using view = mw::device_view;
  explicit gpu_memory(int device) : pool(device), stream(device) {}
  static void take_part(mw::world_options& options, int device) {
    options.backend = mw::backend_kind::nccl;
    options.device = device;
  }

  void resize(std::size_t count) {
    floats = mw::device_buffer<float>(pool, count, stream);
  }
  view part(std::size_t offset, std::size_t count) { return floats.slice(offset, count); }
  mw::task<void> write(std::vector<float> values) { co_await mw::copy(floats, values); }
  mw::task<std::vector<float>> read() {
    std::vector<float> values(floats.count());
    co_await mw::copy(values, floats);
    co_return values;
  }

  mw::device_pool pool;
  mw::owned_stream stream;
  mw::device_buffer<float> floats;
};

// Blocks of a layer lie apart, and are cut differently at both ends.
template <class Memory>
struct lease {
  std::vector<typename Memory::view>& layer(std::uint32_t l) { return layers[l]; }
  Memory memory;
  std::vector<std::vector<typename Memory::view>> layers;
};
template <class Memory>
struct kv_pool {
  mw::task<lease<Memory>> take(kv_ask ask) {
    lease<Memory> taken{Memory(device), {}};
    taken.memory.resize(std::size_t{8} * ask.layers);
    for (std::size_t l = 0; l < ask.layers; ++l) {
      taken.layers.push_back(
          {taken.memory.part(8 * l, 3), taken.memory.part(8 * l + 3, 5)});
    }
    co_return taken;
  }
  int device = 1;
};
template <class Memory>
struct prefill {
  mw::task<std::vector<typename Memory::view>> computed(kv_ask, std::uint32_t l) {
    memory.resize(8);
    co_await memory.write(std::vector<float>(8, static_cast<float>(l)));
    co_return std::vector{memory.part(0, 6), memory.part(6, 2)};
  }
  Memory memory{0};
};

template <class Memory>
mw::task<lease<Memory>> fetch(mw::world& w, kv_pool<Memory>& pool, kv_ask ask,
                              std::stop_token gone) {
  auto blocks = co_await pool.take(ask);  // returned on unwind
  mw::lane id{ask.request};
  co_await w.send_message(ask, mw::to{0}, id).stop(gone);
  for (std::uint32_t l = 0; l < ask.layers; ++l)
    co_await w.recv(blocks.layer(l), mw::from{0}, id).stop(gone).within(2s);
  co_return blocks;
}

template <class Memory>
mw::task<void> give(mw::world& w, prefill<Memory>& p, kv_ask ask) {
  for (std::uint32_t l = 0; l < ask.layers; ++l) {
    auto blocks = co_await p.computed(ask, l);
    auto sent = co_await mw::outcome(w.send(blocks, mw::to{1}, mw::lane{ask.request}));
    if (!sent) co_return;  // cancelled_by_peer, or the world broke
  }
}

template <class Memory>
mw::task<void> prefill_peer(mw::world& w, prefill<Memory>& p) {  // body of `accept`
  co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
    for (;;) {
      auto ask = co_await w.recv_message<kv_ask>(mw::from{1});  // first of any new lane
      s.spawn(give(w, p, ask.head));
    }
  });
}

// --- beside an engine that has made its own communicator, on its stream

struct tensor_engine {
  ncclComm* communicator = nullptr;
  CUstream_st* stream = nullptr;
  int device = 0;
  /// ncclCommRevoke; it is freed when the world is drained.
  static void give_up(ncclComm* broken, void* self) {
    static_cast<tensor_engine*>(self)->communicator = broken;
  }
};

mw::world_options adopted(tensor_engine& eng, int rank, int size) {
  mw::world_options options{.name = "tensor-parallel", .rank = rank, .size = size};
  options.backend = mw::backend_kind::nccl;
  options.device = eng.device;
  options.on_device.communicator = eng.communicator;  // of the same members and ranks
  options.on_device.stream = eng.stream;
  options.on_device.on_break = tensor_engine::give_up;  // (communicator, context)
  options.on_device.on_break_context = &eng;
  return options;
}

// --- program C between two runtimes, to its end; the others compiled and linked

template <class Memory>
mw::world_options kv_options(int device) {
  mw::world_options options{.form = 10s};
  Memory::take_part(options, device);
  return options;
}

template <class Memory>
mw::task<bool> decode(mw::runtime& rt, mw::store& st) {
  bool is_right = false;
  auto ask = [&](mw::world& w) -> mw::task<void> {
    kv_pool<Memory> pool;
    const std::stop_source gone;
    auto got = co_await fetch(w, pool, {7, 32}, gone.get_token());
    const std::vector<float> values = co_await got.memory.read();
    is_right = values.size() == std::size_t{8} * 32;
    for (std::size_t i = 0; i < values.size(); ++i)
      is_right = is_right && values[i] == static_cast<float>(i / 8);
  };
  co_await mw::connect(rt, st, {.service = "kv", .world = kv_options<Memory>(1)}, ask);
  co_return is_right;
}

template <class Memory>
mw::task<void> prefill_side(mw::runtime& rt, mw::store& st) {
  prefill<Memory> p;
  auto serve_kv = [&](mw::world& w) { return prefill_peer(w, p); };
  co_await mw::accept(rt, st, {.service = "kv", .world = kv_options<Memory>(0)},
                      serve_kv);
}

template <class Memory>
int run_kv() {
  mw::memory_store st;
  mw::runtime first, second;
  auto given = first.start(prefill_side<Memory>(first, st));
  auto fetched = second.start(decode<Memory>(second, st));
  const bool is_over = fetched.wait_for(20s);
  first.stop(10s);  // takes no more peers, and ends with its last one
  if (!is_over || !given.wait_for(20s)) {
    std::printf("not over after 20 s\n%s\n", second.dump().c_str());
    return 1;
  }
  given.get();
  return fetched.get() ? 0 : 1;
}

int run_adopted() {
  mw::runtime rt;
  mw::tcp_store st(rt, "decode-store:29500");
  tensor_engine eng;
  auto use = [](mw::world& w) -> mw::task<void> { co_await w.device_ready(); };
  rt.run(mw::keep(rt, st, adopted(eng, 0, 2), use));
  return 0;
}

template <class View>
int run_stage() {
  mw::runtime rt;
  mw::tcp_store st(rt, "decode-store:29500");
  engine<View> eng;
  rt.run(stage(rt, st, eng, 1));
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string program = argc > 1 ? argv[1] : "kv";
  if (program == "stage") return run_stage<mw::buffer_view>();
  if (program == "stage_nccl") return run_stage<mw::device_view>();
  if (program == "serve") return serve();
  if (program == "dispatch") return run_dispatch();
  if (program == "survivors") return run_survivors();
  if (program == "adopted") return run_adopted();
  return program == "kv_nccl" ? run_kv<gpu_memory>() : run_kv<host_memory>();
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
