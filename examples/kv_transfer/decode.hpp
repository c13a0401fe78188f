// Decode: asks for requests, receives them into its own pages, gives some of them up.
#pragma once

#include <set>
#include <stop_token>

#include "prefill.hpp"

using namespace std::chrono_literals;

struct plan {
  std::uint64_t requests = 200, seed = 1;
};

template <class Pages>
mw::task<lease<Pages>> fetch(mw::world& w, kv_pool<Pages>& pool, kv_ask ask,
                             std::stop_token gone) {
  auto blocks = co_await pool.take();  // returned on unwind: nothing touches them then
  const mw::lane id{ask.request};
  co_await w.send_message(ask, mw::to{0}, id).stop(gone);
  for (std::uint32_t l = 0; l < ask.layers; ++l)
    co_await w.recv(blocks.layer(l), mw::from{0}, id).stop(gone).within(30s).discarding();
  co_return blocks;
}

template <class Pages>
class decoder {
 public:
  decoder(int device, plan p) : plan_(p), pool_(device), random_(p.seed) {}

  /// One epoch of the world. What was open when the last one broke is asked again.
  mw::task<void> run(mw::world& w) {
    again_ = open_;
    asked_again_ += again_.size();
    co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
      for (std::uint64_t i = 0; i < at_a_time; ++i) s.spawn(ask_in_turn(w));
      co_return;
    });
  }
  [[nodiscard]] std::uint64_t over() const { return whole_ + given_up_ + wrong_; }
  [[nodiscard]] std::size_t open() const { return open_.size(); }
  void tell() const {
    fmt::print(
        "decode: {} requests came whole, {} were given up, {} came wrong; {} were "
        "asked again\n",
        whole_, given_up_, wrong_, asked_again_);
    fmt::print("decode: {}\n", pool_.state());
  }
  [[nodiscard]] bool is_right() const {
    return pool_.is_right() && wrong_ == 0 && over() == plan_.requests;
  }

 private:
  std::uint64_t next() {
    if (!again_.empty()) return again_.extract(again_.begin()).value();
    return last_ < plan_.requests ? ++last_ : 0;
  }
  mw::task<void> ask_in_turn(mw::world& w) {
    while (const std::uint64_t request = next()) {
      open_.insert(request);
      std::stop_source user;
      const auto leave = [&]() -> mw::task<void> {
        if (random_() % 2) co_return;
        co_await mw::sleep_for(std::chrono::microseconds(random_() % 4'000));
        user.request_stop();
      };
      co_await mw::when_all(receive(w, {request, layers}, user.get_token()), leave());
    }
  }
  mw::task<void> receive(mw::world& w, kv_ask ask, std::stop_token gone) {
    const auto got = co_await mw::outcome(fetch(w, pool_, ask, std::move(gone)));
    if (!got && got.error().cause != mw::cause::cancelled)
      throw mw::world_error(got.error());
    if (got) {
      ++(co_await got->holds(ask.request) ? whole_ : wrong_);
    } else {
      ++given_up_;
    }
    open_.erase(ask.request);
    if (got) co_return;
    const kv_ask no_longer{ask.request, 0};
    co_await w.send_message(no_longer, mw::to{0}, mw::lane{ask.request});
  }

  const plan plan_;
  kv_pool<Pages> pool_;
  std::set<std::uint64_t> open_, again_;
  std::uint64_t last_ = 0, whole_ = 0, given_up_ = 0, wrong_ = 0, asked_again_ = 0;
  std::mt19937_64 random_;
};
