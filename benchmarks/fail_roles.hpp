// Fail roles: what the other processes of `fail` do, and what the leader does as they do.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

// A number follows: which victim, which rank.
constexpr std::string_view victim_role = "victim";
constexpr std::string_view survivor_role = "survivor";
constexpr std::string_view bystander_role = "bystander";

/// Microseconds between two messages of the healthy world.
class gaps {
 public:
  void message_came() {
    const auto now = now_ns();
    if (last_ != 0) window_.add(static_cast<double>(now - last_) / 1e3);
    last_ = now;
  }
  /// What was seen since the last call.
  [[nodiscard]] samples take() { return std::exchange(window_, {}); }

 private:
  std::int64_t last_ = 0;
  samples window_;
};

/// Takes what the bystander sends and counts on its numbering.
[[nodiscard]] mw::task<void> take_stream(mw::world& w, gaps& seen);

/// Forms the world of the `number`th victim. Before a cut each member makes its link to
/// the victim first, so that all of them lead through its relay.
[[nodiscard]] mw::task<void> join_victim(member& m, const fail_options& o,
                                         mw::rank_t rank, int number, mw::world& into);

/// Until the process at the other end says that it is there; blocks no reactor.
[[nodiscard]] mw::task<void> until_ready(line& from);

/// All that a process which does not lead is there for.
void take_role(common_options& common, const fail_options& options);

}  // namespace mwbench
