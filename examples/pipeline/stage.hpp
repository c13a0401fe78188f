// A stage of a pipeline: batches come in over some worlds, are computed on the engine's
// own thread, and go out over others.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>

#include "../shared/tensor.hpp"
#include "../shared/terminal.hpp"

using stage_name = mw::inline_text<7>;

struct batch_head {
  std::uint64_t request = 0;
  /// The stages that the batch went through.
  std::array<stage_name, 4> via;
  std::uint32_t stages = 0;
};

struct batch {
  batch_head head;
  std::vector<float> hidden;
};

/// Keeps a stage's worlds, each of two members: rank 0 sends, rank 1 receives. Batches
/// that came in are taken from `in`; batches put into `out` go to any peer that is
/// free.
class edges {
 public:
  edges(mw::runtime& rt, const arguments& given, std::string who)
      : runtime_(rt),
        stores_(rt, given),
        given_(given),
        memory_(given.on_gpus() ? given.device : -1),
        who_(std::move(who)) {}

  mw::channel<batch> in{4}, out{4};

  /// Ends when no more can come in, and `out` was closed and is empty.
  mw::task<void> run() {
    const auto all = [this](mw::scope& s) -> mw::task<void> {
      for (const membership& m : given_.worlds)
        s.spawn(m.rank == 0 ? send(m) : receive(m));
      co_return;
    };
    co_await mw::scope::run(all);
  }

 private:
  mw::task<void> receive(membership m) {
    ++receiving_;
    const auto body = [this](mw::world& w) -> mw::task<void> {
      for (;;) {
        const auto next = co_await w.recv_message<batch_head>(mw::from{0});
        tensor x(next.info.count, memory_);
        co_await x.recv(w, mw::from{0});
        const std::span<float> came = x.values();
        batch b{next.head, std::vector<float>(came.begin(), came.end())};
        co_await in.push(std::move(b));
      }
    };
    co_await keep(m, body);
    if (--receiving_ == 0) in.close();
  }

  mw::task<void> send(membership m) {
    std::optional<batch> unsent;  // outlives an epoch: we still own it
    const auto body = [this, &unsent](mw::world& w) -> mw::task<void> {
      for (;;) {
        if (!unsent) {
          // An edge that waits for work must form again when it breaks, not when work
          // comes.
          auto first = co_await mw::when_any(out.pop(), w.broken());
          if (!std::get<0>(first)) throw mw::world_error(*std::get<1>(first));
          unsent = std::move(*std::get<0>(first));
        }
        if (!unsent) co_return;
        tensor x(unsent->hidden.size(), memory_);
        std::ranges::copy(unsent->hidden, x.values().begin());
        co_await x.send_behind(unsent->head, w, mw::to{1});
        unsent.reset();
      }
    };
    co_await keep(m, body);
  }

  template <class Body>
  mw::task<void> keep(const membership& m, const Body& body) {
    mw::task<void> kept = mw::keep(runtime_, stores_.of(m), given_.world(m, 2),
                                   telling(given_, who_, body));
    co_await std::move(kept);
  }

  mw::runtime& runtime_;
  stores stores_;
  const arguments& given_;
  const tensor_memory memory_;
  const std::string who_;
  int receiving_ = 0;
};

/// Adds one to every element, and its name to the head.
class stage {
 public:
  stage(mw::runtime& rt, const arguments& given, const std::string& name)
      : edges_(rt, given, name), name_(name) {}

  mw::task<void> run() { co_await mw::when_all(edges_.run(), compute()); }

 private:
  mw::task<void> compute() {
    while (auto b = co_await edges_.in.pop()) {
      co_await mw::offload(engine_, [&] {
        for (float& x : b->hidden) x += 1;
      });
      b->head.via.at(b->head.stages++) = name_;
      co_await edges_.out.push(std::move(*b));
    }
    edges_.out.close();
  }

  edges edges_;
  const stage_name name_;
  mw::worker_thread engine_{"mw-engine"};
};
