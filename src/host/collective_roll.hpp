// Collective roll: which member has entered what, as far as this one must know.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "collective_signature.hpp"
#include "core.hpp"
#include "frame.hpp"

namespace manyworlds::inline v0::host {

/// What the roll tells its collectives.
class roll_events {
 public:
  virtual void tell(rank_t peer, const frame& f) = 0;
  [[nodiscard]] virtual bool has_left(rank_t peer) const = 0;
  /// A member does something else than this one: the world must break.
  virtual void disagree(rank_t peer, std::string detail) = 0;
  /// The collective of that number, and all later ones, cannot end: a member has left.
  virtual void closed_from(std::uint64_t number, rank_t culprit) = 0;

 protected:
  ~roll_events() = default;
};

/// Members are not asked while all goes well. One that waits for long asks the others how
/// far they are (ASK, answered by ENTERED): who is behind is absent, and is named in the
/// log, later to break the world; who does something else under the same number breaks it
/// at once. One whose collective fails while the others' may go on says so unasked
/// (REFUSE): for bad arguments, or because a member has left.
class collective_roll {
 public:
  collective_roll(core& shared, roll_events& told);
  collective_roll(const collective_roll&) = delete;
  collective_roll& operator=(const collective_roll&) = delete;
  ~collective_roll() { stop(); }

  /// Under which this member enters next.
  [[nodiscard]] std::uint64_t next_number() const noexcept { return entered_ + 1; }
  /// Entered by this member; false if another member refused to, and the world breaks.
  bool enter(collective_signature s);
  /// Refused by this member, whose arguments are wrong.
  void refuse(collective_signature s);
  /// The member's collective of that number fails since `culprit` has left.
  void tell_closed(std::uint64_t number, rank_t culprit);

  /// Carried out from now on; the clock runs.
  void begin(std::uint64_t number, operation_kind kind) noexcept;
  void end() noexcept { number_ = 0; }

  /// A frame of a member. Null, or what is wrong with it.
  const char* handle(rank_t peer, const frame& f);
  void stop() noexcept { core_.home.timers().disarm(timer_); }

 private:
  struct hooked_timer : timer {
    explicit hooked_timer(collective_roll& r) noexcept
        : timer([](manyworlds::timer& t) noexcept {
            static_cast<hooked_timer&>(t).owner.look();
          }),
          owner(r) {}
    collective_roll& owner;
  };
  struct refusal {
    rank_t rank = no_rank;
    std::uint64_t number = 0;
    collective_signature signature;
  };
  /// Who asks more often gets no answer, or it could make this member queue them without
  /// end.
  static constexpr duration between_answers = std::chrono::milliseconds(1);
  /// How many signatures are remembered, for who asks late.
  static constexpr std::uint64_t remembered = 64;
  /// Refusals of numbers that this member has not come to, and its own.
  static constexpr std::size_t most_refusals = 1024;

  [[nodiscard]] duration period() const noexcept;
  [[nodiscard]] collective_signature said(std::uint64_t number) const noexcept;
  const char* on_ask(rank_t peer, const frame& f);
  const char* on_entered(rank_t peer, const frame& f);
  const char* on_refuse(rank_t peer, const frame& f);
  void compare(rank_t peer, std::uint64_t number, collective_signature theirs);
  void disagree_about(const refusal& r);
  void look() noexcept;
  void look_later();
  void ask();
  [[nodiscard]] std::vector<rank_t> absent() const;
  [[nodiscard]] std::string waits_for(const std::vector<rank_t>& ranks) const;

  core& core_;
  roll_events& told_;
  std::uint64_t entered_ = 0;  ///< by this member
  std::array<collective_signature, remembered> signatures_{};
  std::vector<std::uint64_t> entered_by_;  ///< as far as they have answered
  std::vector<time_point> may_ask_at_;
  std::deque<std::uint64_t> own_refusals_;
  std::deque<refusal> refusals_;

  std::uint64_t number_ = 0;  ///< of the collective under way, or 0
  operation_kind kind_ = operation_kind::none;
  time_point since_{};
  bool asked_ = false;
  bool remarked_ = false;
  hooked_timer timer_{*this};
};

}  // namespace manyworlds::inline v0::host
