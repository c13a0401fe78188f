// Conversation: one member's part in the traffic of one incarnation of a world.
#pragma once

#include <memory>
#include <stop_token>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/world/world.hpp"
#include "simulation/pattern.hpp"
#include "simulation/talk_site.hpp"
#include "simulation/world_plan.hpp"

namespace manyworlds_tests {

class conversation {
 public:
  conversation(const talk_site& site, const world_plan& plan, mw::world& w);
  conversation(const conversation&) = delete;
  conversation& operator=(const conversation&) = delete;

  /// Talks, and takes part in `collectives`, until all have said their last or the world
  /// is over: then throws its failure.
  [[nodiscard]] mw::task<void> hold(mw::task<void> collectives);
  /// In collectives: barriers, and reductions among all.
  [[nodiscard]] mw::task<void> take_part();

 private:
  [[nodiscard]] mw::task<void> note_the_end();
  [[nodiscard]] mw::task<void> send_all(mw::rank_t peer, lane_style style);
  [[nodiscard]] mw::task<void> receive_all(mw::rank_t peer, lane_style style);
  [[nodiscard]] mw::task<void> receive_from_any();
  /// No member leaves before all are to.
  [[nodiscard]] mw::task<void> stay();
  [[nodiscard]] mw::task<void> counted(mw::task<void> part);
  [[nodiscard]] mw::task<void> ended(std::size_t parts);
  /// The others' last message is on its way to rank 0 while they leave.
  [[nodiscard]] mw::task<void> part();
  void say_goodbye();
  /// Each of them counted.
  [[nodiscard]] std::size_t spawn_lanes(mw::scope& s);
  /// False if the world is over.
  [[nodiscard]] mw::task<bool> reduce_with_all(std::uint64_t number);
  struct head {
    std::uint64_t tag;
    std::uint64_t bytes;
  };
  /// How one operation may be cut short.
  struct patience {
    std::optional<mw::duration> limit;
    std::optional<mw::duration> stop_after;
    std::optional<mw::duration> cancel_after;
  };
  static constexpr std::size_t small_size = 24;
  static constexpr std::size_t parting_size = 70'000;
  static constexpr std::uint64_t parting_lane = 9;
  enum class step : unsigned char { done, again, over };

  [[nodiscard]] mw::simulated_random& random() { return site_.random; }
  [[nodiscard]] mw::time_point now() const { return site_.now(); }
  [[nodiscard]] auto clock() const { return site_.now; }
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] mw::duration pause();
  [[nodiscard]] std::size_t any_size();
  [[nodiscard]] patience any_patience();
  [[nodiscard]] message_key key(mw::rank_t source, mw::rank_t target,
                                std::uint64_t lane) const;
  [[nodiscard]] op_entry entry(mw::operation_kind kind, mw::rank_t peer,
                               std::uint64_t lane, const patience& p) const;
  template <class Operation>
  [[nodiscard]] Operation modified(Operation op, const patience& p);
  [[nodiscard]] step judged(op_watch& watch, const mw::failure& f);
  [[nodiscard]] mw::task<step> patiently(mw::task<step> attempt, patience p);

  [[nodiscard]] mw::task<step> send_one(mw::rank_t peer, lane_style style,
                                        message_word word, std::size_t size, patience p);
  [[nodiscard]] mw::task<step> look(mw::rank_t peer, lane_style style, patience p,
                                    mw::message_info& next);
  [[nodiscard]] mw::task<step> take_head(mw::rank_t peer, patience p,
                                         mw::message<head>& taken);
  [[nodiscard]] mw::task<step> take(mw::rank_t peer, lane_style style, std::size_t size,
                                    patience p, const head* announced, message_word& came,
                                    mw::rank_t& from, mw::cause* why = nullptr);
  [[nodiscard]] mw::task<step> receive_sized(mw::rank_t peer, message_word& came);
  [[nodiscard]] mw::task<step> receive_headed(mw::rank_t peer, message_word& came);
  [[nodiscard]] mw::task<void> receive_pairs(mw::rank_t peer);
  void check(const mw::message_info& info, std::span<const std::byte> bytes,
             std::uint64_t lane, const head* announced);

  const talk_site& site_;
  const world_plan& plan_;
  mw::world& world_;
  std::uint64_t instance_;
  std::uint64_t epoch_;
  mw::time_point formed_;
  mw::scope* scope_ = nullptr;
  std::size_t ended_ = 0;
  mw::event progress_;
};

// --------------------------------------------------------------------------------------

template <class Operation>
Operation conversation::modified(Operation op, const patience& p) {
  if (p.limit) op = std::move(op).within(*p.limit);
  if (p.stop_after) {
    std::stop_source source;
    op = std::move(op).stop(source.get_token());
    auto later = [](std::stop_source s, mw::duration span) -> mw::task<void> {
      co_await mw::sleep_for(span);
      s.request_stop();
    };
    scope_->spawn(later(std::move(source), *p.stop_after));
  }
  return op;
}

}  // namespace manyworlds_tests
