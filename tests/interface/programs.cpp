// The interface can say what servers need it to: programs as their users would write
// them. `engine`, `kv_pool` and the like stand for what is theirs. All are compiled and
// linked; the one that needs no other machine is run.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <manyworlds/manyworlds.hpp>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

// --- stage k of a pipeline: receives hidden states from stage k-1, computes, sends on

struct step {
  std::uint64_t id;
};
struct batch {
  step head{};
  std::vector<mw::buffer_view> hidden;
};
struct engine {
  mw::task<batch> slots(step s) { co_return batch{s, {}}; }
  mw::worker_thread& thread() { return thread_; }
  void forward(batch& b) { ++b.head.id; }

  mw::worker_thread thread_{"engine"};
};

std::string edge_name(int k) { return "edge" + std::to_string(k); }

mw::task<void> stage(mw::runtime& rt, mw::store& st, engine& eng, int k) {
  mw::channel<batch> ready(4), done(4);
  std::optional<batch> unsent;  // outlives an epoch: we still own it
  auto up = [&](mw::world& w) -> mw::task<void> {
    for (;;) {
      auto m = co_await w.recv_message<step>(mw::from{0});
      batch b = co_await eng.slots(m.head);
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
    s.spawn(mw::keep(rt, st, {.name = edge_name(k), .rank = 1, .size = 2}, up));
    s.spawn(mw::keep(rt, st, {.name = edge_name(k + 1), .rank = 0, .size = 2}, down));
    s.spawn(compute);
    co_return;
  });
}

// --- a leader that is told to stop from another thread, with its requests behind a queue

struct request {
  std::vector<float> prompt;
  std::stop_token gone;
};

mw::task<void> answer(mw::world& w, request r, mw::lane id) {
  auto asked = co_await mw::outcome(w.send(r.prompt, mw::to{1}, id).stop(r.gone));
  while (asked) {
    std::uint32_t token = 0;
    auto next = w.recv(std::span(&token, 1), mw::from{1}, id).within(5s);
    auto got = co_await mw::outcome(std::move(next).stop(r.gone));
    if (!got && got.error().cause != mw::cause::cancelled)
      std::printf("%s\n", got.error().text().c_str());
    if (!got || token == 0) co_return;
  }
}

mw::task<void> leader(mw::runtime& rt, mw::store& st, mw::channel<request>& in) {
  auto ask = [&](mw::world& w) -> mw::task<void> {
    co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
      std::uint64_t number = 0;
      while (auto r = co_await in.pop())
        s.spawn(answer(w, std::move(*r), mw::lane{++number}));
    });
  };
  co_await mw::keep(rt, st, {.name = "decode", .rank = 0, .size = 2}, ask);
}

int serve() {
  mw::runtime rt({.thread_name = "mw-front", .cpu = 3});
  mw::tcp_store st(rt, "decode-store:29500");
  mw::channel<request> in(4096);
  auto served = rt.start(leader(rt, st, in));  // from any thread
  if (!in.try_push(request{})) std::puts("429");
  rt.stop(25s);  // SIGTERM: drain, then cancel
  served.get();
  return 0;
}

// --- prefill to decode: KV blocks layer by layer, cancelled at any moment

struct kv_ask {
  std::uint64_t request;
  std::uint32_t layers;
};
// Blocks of a layer lie apart, and are cut differently at both ends.
struct lease {
  std::vector<mw::buffer_view>& layer(std::uint32_t l) { return layers[l]; }
  std::vector<float> memory;
  std::vector<std::vector<mw::buffer_view>> layers;
};
struct kv_pool {
  mw::task<lease> take(kv_ask ask) {
    lease taken;
    taken.memory.resize(std::size_t{8} * ask.layers);
    for (std::size_t l = 0; l < ask.layers; ++l) {
      const std::span whole = std::span(taken.memory).subspan(8 * l, 8);
      taken.layers.push_back({whole.first(3), whole.last(5)});
    }
    co_return taken;
  }
};
struct prefill {
  mw::task<std::vector<mw::buffer_view>> computed(kv_ask, std::uint32_t l) {
    memory.assign(8, static_cast<float>(l));
    const std::span whole(memory);
    co_return std::vector<mw::buffer_view>{whole.first(6), whole.last(2)};
  }
  std::vector<float> memory;
};

mw::task<lease> fetch(mw::world& w, kv_pool& pool, kv_ask ask, std::stop_token gone) {
  lease blocks = co_await pool.take(ask);  // returned on unwind
  mw::lane id{ask.request};
  co_await w.send_message(ask, mw::to{0}, id).stop(gone);
  for (std::uint32_t l = 0; l < ask.layers; ++l)
    co_await w.recv(blocks.layer(l), mw::from{0}, id).stop(gone).within(2s);
  co_return blocks;
}

mw::task<void> give(mw::world& w, prefill& p, kv_ask ask) {
  for (std::uint32_t l = 0; l < ask.layers; ++l) {
    auto blocks = co_await p.computed(ask, l);
    auto sent = co_await mw::outcome(w.send(blocks, mw::to{1}, mw::lane{ask.request}));
    if (!sent) co_return;  // cancelled_by_peer, or the world broke
  }
}

mw::task<void> prefill_peer(mw::world& w, prefill& p) {
  co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
    for (;;) {
      auto ask = co_await w.recv_message<kv_ask>(mw::from{1});  // first of any new lane
      s.spawn(give(w, p, ask.head));
    }
  });
}

// --- the last of them between two runtimes, to its end; the others compiled and linked

mw::task<bool> decode(mw::runtime& rt, mw::store& st) {
  bool is_right = true;
  auto ask = [&](mw::world& w) -> mw::task<void> {
    kv_pool pool;
    const std::stop_source gone;
    const lease got = co_await fetch(w, pool, {7, 32}, gone.get_token());
    for (std::size_t i = 0; i < got.memory.size(); ++i)
      is_right = is_right && got.memory[i] == static_cast<float>(i / 8);
  };
  co_await mw::keep(rt, st, {.name = "kv", .rank = 1, .size = 2, .form = 10s}, ask);
  co_return is_right;
}

mw::task<void> prefill_side(mw::runtime& rt, mw::store& st) {
  prefill p;
  auto serve_kv = [&](mw::world& w) { return prefill_peer(w, p); };
  co_await mw::keep(rt, st, {.name = "kv", .rank = 0, .size = 2, .form = 10s}, serve_kv);
}

int run_kv() {
  mw::memory_store st;
  mw::runtime first, second;
  auto given = first.start(prefill_side(first, st));
  auto fetched = second.start(decode(second, st));
  if (!fetched.wait_for(20s) || !given.wait_for(20s)) {
    std::printf("not over after 20 s\n%s\n", second.dump().c_str());
    return 1;
  }
  given.get();
  return fetched.get() ? 0 : 1;
}

int run_stage() {
  mw::runtime rt;
  mw::tcp_store st(rt, "decode-store:29500");
  engine eng;
  rt.run(stage(rt, st, eng, 1));
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string program = argc > 1 ? argv[1] : "kv";
  return program == "stage" ? run_stage() : program == "serve" ? serve() : run_kv();
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
