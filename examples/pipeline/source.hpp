// The source of a pipeline, which is also its end: it gives requests out, and counts
// answers.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "stage.hpp"

/// Keeps a fixed number of requests open. A request that is not answered for a while is
/// given out again, since a stage may have died with it. If two answers come, the
/// second is dropped: each request is answered once.
class source {
 public:
  static constexpr std::size_t window = 12, elements = 4096;
  static constexpr auto patience = 300ms;

  source(mw::runtime& rt, const arguments& given, std::uint32_t stages)
      : edges_(rt, given, "s"), stages_(stages) {}

  /// Runs until `stop` was called and all answers are there.
  mw::task<void> run() { co_await mw::when_all(edges_.run(), give_out(), take_in()); }
  mw::task<void> tell_each_second() {
    for (;;) {
      co_await mw::sleep_for(1s);
      fmt::print("s: {}", summary());
      for (const auto& [name, count] : via_) fmt::print("; {} by {}", count, name.view());
      fmt::print("\n");
    }
  }
  void stop() noexcept { is_stopping_ = true; }

  [[nodiscard]] std::uint64_t answered() const noexcept { return answered_; }
  /// Returns the answers that went through a stage.
  /// Returns how many edges of that stage answers have come over.
  [[nodiscard]] auto edges_of(const stage_name& s) const {
    return std::count_if(taken_.begin(), taken_.end(), [&s](const auto& edge) {
      return edge.first == s || edge.second == s;
    });
  }
  [[nodiscard]] std::uint64_t via(const stage_name& s) const {
    const auto found = via_.find(s);
    return found == via_.end() ? 0 : found->second;
  }
  [[nodiscard]] std::size_t open() const noexcept { return open_.size(); }
  [[nodiscard]] bool is_right() const noexcept {
    return open_.empty() && wrong_ == 0 && answered_ == last_;
  }
  [[nodiscard]] std::string summary() const {
    return fmt::format(
        "{} requests, {} answered; {} given out again, {} second answers dropped, {} "
        "wrong",
        last_, answered_, again_, dropped_, wrong_);
  }

 private:
  using clock = std::chrono::steady_clock;

  mw::task<void> give_out() {
    while (!is_stopping_ || !open_.empty()) {
      if (!is_stopping_ && open_.size() < window) {
        co_await give(++last_);
      } else if (const auto late = std::ranges::find_if(open_, is_late);
                 late != open_.end()) {
        ++again_;
        co_await give(late->first);
      } else {
        changed_.reset();
        (void)co_await mw::when_any(changed_, mw::sleep_for(patience / 4));
      }
    }
    edges_.out.close();
  }
  mw::task<void> give(std::uint64_t request) {
    open_[request] = clock::now();
    batch b;
    b.head.request = request;
    b.hidden.assign(elements, value_of(request));
    co_await edges_.out.push(std::move(b));
  }

  mw::task<void> take_in() {
    while (const auto b = co_await edges_.in.pop()) {
      if (open_.erase(b->head.request) == 0) {
        ++dropped_;
        continue;
      }
      ++answered_;
      const float right = value_of(b->head.request) + static_cast<float>(stages_);
      if (b->hidden != std::vector<float>(elements, right)) ++wrong_;
      stage_name before = "s";
      for (std::uint32_t i = 0; i < b->head.stages; ++i) {
        const stage_name& at = b->head.via.at(i);
        ++via_[at];
        taken_.emplace(before, at);
        before = at;
      }
      changed_.set();
    }
  }

  static float value_of(std::uint64_t request) noexcept {
    return static_cast<float>(request % 1000);
  }
  static bool is_late(const std::pair<const std::uint64_t, clock::time_point>& each) {
    return clock::now() - each.second > patience;
  }

  edges edges_;
  const std::uint32_t stages_;
  std::uint64_t last_ = 0, answered_ = 0, again_ = 0, dropped_ = 0, wrong_ = 0;
  std::map<std::uint64_t, clock::time_point> open_;
  std::map<stage_name, std::uint64_t> via_;
  std::set<std::pair<stage_name, stage_name>> taken_;
  mw::event changed_;
  bool is_stopping_ = false;
};
