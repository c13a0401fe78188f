// Prefill: computes a layer of a request, sends it, computes the next.
#pragma once

#include "pages.hpp"

struct kv_ask {
  std::uint64_t request;
  std::uint32_t layers;  ///< 0: no longer wanted
};

template <class Pages>
class prefiller {
 public:
  explicit prefiller(int device) : pool_(device) {}

  mw::task<void> run(mw::world& w) {
    co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
      for (;;) {
        // Await the first message of any new lane.
        const auto next = co_await w.recv_message<kv_ask>(mw::from{1});
        if (next.head.layers > layers) {
          w.fail(fmt::format("{} layers are asked for, of {}", next.head.layers, layers));
        } else if (next.head.layers > 0) {
          s.spawn(give(w, next.head));
        }
      }
    });
  }
  void tell() const { fmt::print("prefill: {}\n", pool_.state()); }
  [[nodiscard]] bool is_right() const { return pool_.is_right(); }

 private:
  mw::task<void> give(mw::world& w, kv_ask ask) {
    // A message on its lane now says that it is no longer wanted.
    const mw::lane id{ask.request};
    (void)co_await mw::when_any(send_layers(w, ask),
                                w.recv_message<kv_ask>(mw::from{1}, id));
    w.discard(mw::from{1}, id);  // it may also come too late
  }
  mw::task<void> send_layers(mw::world& w, kv_ask ask) {
    const auto blocks = co_await pool_.take();
    for (std::uint32_t l = 0; l < ask.layers; ++l) {
      co_await blocks.fill(l, ask.request);
      const mw::lane id{ask.request};
      const auto sent = co_await mw::outcome(w.send(blocks.layer(l), mw::to{1}, id));
      if (sent) continue;
      if (sent.error().cause == mw::cause::cancelled_by_peer) co_return;  // discarded
      throw mw::world_error(sent.error());
    }
  }

  kv_pool<Pages> pool_;
};
