// The leader: users ask one request after the other, and wait for the tokens.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <manyworlds/mw.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>

using namespace std::chrono_literals;

inline constexpr mw::service_name service = "decode";
inline constexpr std::size_t users = 24;

struct prompt {
  std::uint64_t number = 0;
  std::uint64_t first = 0;  ///< first token that is still to come
};
struct token {
  std::uint64_t value = 0;
  pid_t worker = 0;
};
/// The tokens that the model would say, and their number.
inline std::uint64_t model(std::uint64_t number, std::uint64_t position) {
  return (number * 1'000'003 + position * 7919) % 50'257;
}
inline std::uint64_t length(std::uint64_t number) { return 20 + number * 7 % 40; }

class leader {
 public:
  leader(mw::runtime& rt, mw::store& store, const mw::world_options& options)
      : runtime_(rt), store_(store), options_(options) {}

  /// Runs until `stop`. Users ask one request after the other; each waits for its
  /// answer.
  mw::task<void> run() {
    const auto all = [this](mw::scope& s) -> mw::task<void> {
      const auto serve = [this](mw::world& w) { return use(w); };
      s.spawn(mw::accept(runtime_, store_, {.service = service, .world = options_}, serve,
                         closing_.get_token()));
      const auto ask = [this](mw::scope& asking) -> mw::task<void> {
        for (std::size_t i = 0; i < users; ++i) asking.spawn(ask_in_turn());
        co_return;
      };
      co_await mw::scope::run(ask);
      closing_.request_stop();
      // No call is left: the workers leave in order, also one that is just joining.
      workers_.reset();
    };
    co_await mw::scope::run(all);
  }
  void stop() noexcept { is_stopping_ = true; }
  mw::task<void> tell_each_second() const {
    for (;;) {
      co_await mw::sleep_for(1s);
      fmt::print("{} workers, {} requests answered, {} tokens\n", workers(), answered_,
                 came_);
    }
  }

  [[nodiscard]] std::uint64_t answered() const noexcept { return answered_; }
  /// Returns the tokens of a worker.
  [[nodiscard]] std::uint64_t by(pid_t worker) { return by_[worker]; }
  [[nodiscard]] std::size_t workers() const {
    return workers_ ? workers_->workers().size() : 0;
  }

  [[nodiscard]] std::uint64_t continued() const noexcept { return continued_; }

  [[nodiscard]] bool tell() const {
    fmt::print(
        "{} requests, {} answered, {} failed; {} of {} tokens came, {} wrong or twice; "
        "{} requests went on with another worker\n",
        last_, answered_, failed_, came_, right_, wrong_, continued_);
    return answered_ == last_ && failed_ == 0 && wrong_ == 0 && came_ == right_;
  }

 private:
  mw::task<void> use(mw::world& w) {
    const auto pid = static_cast<pid_t>(w.view().member(1).identity.pid);
    fmt::print("worker {} has come\n", pid);
    if (!workers_) co_return;
    const auto ended = co_await mw::outcome(workers_->serve(w));
    if (ended) co_return;
    fmt::print("worker {} is gone: {}\n", pid, ended.error().text());
    throw mw::world_error(ended.error());
  }

  mw::task<void> ask_in_turn() {
    while (!is_stopping_) {
      prompt p{++last_, 0};
      mw::failure why;
      for (int tries = 0; tries < 5; ++tries) {
        why = co_await answer(p);
        if (!why) break;
        ++continued_;
        fmt::print("request {} continues after token {}: {}\n", p.number, p.first,
                   describe(why.cause));
      }
      ++(why ? failed_ : answered_);
      right_ += length(p.number);
    }
  }

  /// Takes tokens as long as there are any, and counts them in `p`.
  mw::task<mw::failure> answer(prompt& p) {
    const prompt asked = p;
    auto tokens = co_await mw::outcome(workers_->call(mw::object(asked)).within(10s));
    if (!tokens) co_return tokens.error();
    for (;;) {
      const auto next = co_await mw::outcome(tokens->next());
      if (!next) co_return next.error();
      if (!*next) co_return mw::failure();
      token t;
      std::memcpy(&t, (*next)->data(), std::min(sizeof t, (*next)->size()));
      if (t.value != model(p.number, p.first++)) ++wrong_;
      ++came_;
      ++by_[t.worker];
    }
  }

  mw::runtime& runtime_;
  mw::store& store_;
  const mw::world_options options_;
  std::optional<mw::dispatcher> workers_{std::in_place};
  std::stop_source closing_;
  std::map<pid_t, std::uint64_t> by_;
  std::uint64_t last_ = 0, answered_ = 0, failed_ = 0, came_ = 0, right_ = 0, wrong_ = 0,
                continued_ = 0;
  bool is_stopping_ = false;
};
