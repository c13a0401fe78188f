// Collective tracker: which member has entered which collective, as far as this one must
// know.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "host/collective_place.hpp"
#include "host/collective_signature.hpp"
#include "host/core.hpp"
#include "host/frame.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/member_work.hpp"

namespace manyworlds::inline v0::detail::host {

class collectives;

/// A member's message that belongs to no collective of this member.
struct contradiction {
  rank_t peer = no_rank;
  /// The number under which this member has entered something else.
  std::uint64_t number = 0;
  collective_signature theirs;
  /// What to say beyond what each member has entered.
  std::string more;
};

/// Tracks which member has entered what. Members are not asked while all goes well. A
/// member that waits for long asks the others how far they are (ASK, answered by
/// ENTERED). A member that is behind is absent: it is named in the log, and later
/// breaks the world. A member that has entered something else under the same number
/// breaks it at once. A member that fails while the others may go on says so unasked
/// (REFUSE): its arguments are wrong, or a member has left.
///
/// What members ask and answer is preceded by the place in the source where each has
/// entered (PLACE). A message carries no place: a member that finds a disagreement in
/// one asks for it, and both name both places.
class collective_tracker {
 public:
  collective_tracker(core& shared, collectives& owner);
  collective_tracker(const collective_tracker&) = delete;
  collective_tracker& operator=(const collective_tracker&) = delete;
  ~collective_tracker() { stop(); }

  /// Returns the number under which this member enters next.
  [[nodiscard]] std::uint64_t next_number() const noexcept { return entered_ + 1; }
  /// Notes that this member has entered. Returns false if another member refused to,
  /// and the world breaks.
  bool enter(collective_signature s, source_position where);
  /// Notes and tells that this member's arguments are wrong.
  void refuse(collective_signature s, source_position where);

  /// Returns the number of a message's collective, of which the message carries the
  /// last bits.
  [[nodiscard]] std::uint64_t number_of(collective_signature s) const noexcept;
  /// Returns whether a member's message cannot belong to a collective that this member
  /// has entered. Then this member has entered something else under its number, or that
  /// collective's messages have all come (`is_over`) and its signature is forgotten.
  [[nodiscard]] bool contradicts(collective_signature theirs, bool is_over) const;
  /// Asks the member where it is in its source; then the world breaks. Only the first
  /// dispute counts.
  void dispute(contradiction c);
  [[nodiscard]] bool is_disputed() const noexcept { return dispute_.has_value(); }
  /// The dispute with a member that has left is settled without its answer.
  void peer_left(rank_t peer);
  void settle_now() {
    if (dispute_ && !is_settled_) settle_dispute();
  }
  /// Returns what each of both has entered, in one line.
  [[nodiscard]] std::string text_of(const contradiction& c) const;

  /// Returns what dumps show. A number of 0 says that nothing is under way.
  [[nodiscard]] collective_status status() const;
  /// Tells the others that the collective of that number fails since `culprit` has
  /// left.
  void tell_closed(std::uint64_t number, rank_t culprit);

  /// Starts the clock of a collective that is carried out from now on, and that the
  /// world gives up after `limit`.
  void begin(std::uint64_t number, operation_kind kind,
             std::optional<duration> limit) noexcept;
  void end() noexcept {
    MW_ASSERT(number_ != 0, "a collective ends that has begun");
    number_ = 0;
  }

  /// Handles a member's frame. Returns null, or what is wrong with it.
  const char* handle(rank_t peer, const frame& f);
  void stop() noexcept {
    core_.home.timers().disarm(timer_);
    core_.home.timers().disarm(dispute_timer_);
  }

 private:
  struct refusal {
    rank_t rank = no_rank;
    std::uint64_t number = 0;
    collective_signature signature;
    collective_place where;
  };
  struct entered {
    collective_signature signature;
    source_position where;
  };
  struct placed {
    std::uint64_t number = 0;
    collective_place where;
  };
  /// More frequent questions get no answer: their answers would queue here without
  /// limit.
  static constexpr duration between_answers = std::chrono::milliseconds(1);
  /// How many signatures are remembered for members that ask late.
  static constexpr std::uint64_t remembered = 64;
  static_assert(remembered < std::uint64_t{1} << 15,
                "the last 16 bits of a number tell all that is remembered apart");
  /// Limits the refusals of numbers that this member has not come to, and its own.
  static constexpr std::size_t most_refusals = 1024;

  [[nodiscard]] duration period() const noexcept;
  [[nodiscard]] const entered* find(std::uint64_t number) const noexcept;
  [[nodiscard]] collective_signature said(std::uint64_t number) const noexcept;
  [[nodiscard]] bool has_refused(std::uint64_t number) const noexcept;
  [[nodiscard]] collective_place place_of(rank_t rank, std::uint64_t number) const;
  /// Tells this member's place, ahead of a frame about the same collective.
  void tell_place(rank_t peer, std::uint64_t number);
  void tell_ask(rank_t peer, std::uint64_t number);
  void settle_dispute();
  void answer_is_overdue() noexcept { settle_dispute(); }
  const char* on_ask(rank_t peer, const frame& f);
  const char* on_entered(rank_t peer, const frame& f);
  const char* on_refuse(rank_t peer, const frame& f);
  void compare(rank_t peer, std::uint64_t number, collective_signature theirs);
  void disagree_about(const refusal& r);
  void look() noexcept;
  void look_at(time_point when);
  void ask();
  [[nodiscard]] std::vector<rank_t> absent() const;

  core& core_;
  collectives& owner_;
  std::uint64_t entered_ = 0;  ///< by this member
  std::array<entered, remembered> said_{};
  std::vector<std::uint64_t> entered_by_;  ///< as far as they have answered
  /// The last place that each member has told; few tell any.
  std::unordered_map<rank_t, placed> places_;
  std::optional<contradiction> dispute_;
  bool is_settled_ = false;
  std::vector<time_point> may_ask_at_;
  std::deque<std::uint64_t> own_refusals_;
  std::deque<refusal> refusals_;

  std::uint64_t number_ = 0;  ///< the number of the collective under way, or 0
  operation_kind kind_ = operation_kind::none;
  time_point since_{};
  duration limit_ = duration::max();
  bool asked_ = false;
  time_point asked_at_{};
  bool logged_ = false;
  member_timer<&collective_tracker::look> timer_{*this};
  member_timer<&collective_tracker::answer_is_overdue> dispute_timer_{*this};
};

}  // namespace manyworlds::inline v0::detail::host
