// Chronicle: what a member tells of its worlds, operations and messages as they come, and
// who writes it down: the history of a simulation, or a file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/failure.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds_tests {

namespace mw = manyworlds;

enum class op_fate : unsigned char { pending, done, failed, given_up };

struct op_entry {
  std::size_t process = 0;
  std::uint64_t instance = 0;
  mw::operation_kind kind = mw::operation_kind::none;
  mw::rank_t peer = mw::no_rank;
  std::uint64_t lane = 0;
  /// Of a message to send, or of a collective.
  std::uint64_t number = 0;
  bool delivered = false;
  /// The caller may give it up: a stop token, or a cancelled task.
  bool may_be_given_up = false;
  bool may_disagree_in_size = false;
  std::optional<mw::duration> limit;
  mw::time_point started{};
  mw::time_point ended{};
  op_fate fate = op_fate::pending;
  mw::cause cause = mw::cause::none;
};

/// One member's end of one incarnation of a world.
struct world_entry {
  std::size_t process = 0;
  std::uint64_t instance = 0;
  std::string name;
  std::uint64_t epoch = 0;
  std::uint64_t id = 0;
  mw::rank_t rank = 0;
  /// Survivors may have formed it by themselves: the store need not know of it.
  bool may_be_unknown = false;
  std::vector<std::size_t> members;  ///< processes, by rank
  mw::time_point formed{};
  std::optional<mw::time_point> left;
  std::optional<mw::time_point> broken;
  mw::failure first_cause;
};

/// A message, as both sides see it.
struct message_key {
  std::string world;
  std::uint64_t epoch = 0;
  std::uint64_t id = 0;
  mw::rank_t source = 0;
  mw::rank_t target = 0;
  std::uint64_t lane = 0;
  friend auto operator<=>(const message_key&, const message_key&) = default;
};

/// Told of everything at the moment it happens, an operation before it is started.
class chronicle {
 public:
  chronicle() = default;
  chronicle(const chronicle&) = delete;
  chronicle& operator=(const chronicle&) = delete;
  virtual ~chronicle() = default;

  virtual void complain(std::string what) = 0;

  virtual void formed(world_entry entry) = 0;
  virtual void leaving(std::size_t process, std::uint64_t instance,
                       mw::time_point when) = 0;
  /// The first cause, as any operation or `broken()` gives it.
  virtual void broke(std::size_t process, std::uint64_t instance, const mw::failure& f,
                     mw::time_point when) = 0;

  /// Gives the operation its number.
  virtual std::size_t started(op_entry op) = 0;
  virtual void done(std::size_t op, mw::time_point when) = 0;
  virtual void failed(std::size_t op, const mw::failure& f, mw::time_point when) = 0;
  virtual void unwound(std::size_t op, mw::time_point when) = 0;

  /// That operation sends the message.
  virtual void sent(const message_key& key, std::size_t op) = 0;
  virtual void received(const message_key& key, std::uint64_t number, std::size_t bytes,
                        mw::time_point when) = 0;
};

/// Records one operation; one that is destroyed before it was told how it ended was
/// unwound.
class op_watch {
 public:
  template <class Clock>
  op_watch(chronicle& c, op_entry op, Clock&& clock)
      : chronicle_(c),
        op_(c.started(std::move(op))),
        clock_(std::forward<Clock>(clock)) {}
  op_watch(const op_watch&) = delete;
  op_watch& operator=(const op_watch&) = delete;
  ~op_watch() {
    if (!ended_) chronicle_.unwound(op_, clock_());
  }
  void done() {
    ended_ = true;
    chronicle_.done(op_, clock_());
  }
  void failed(const mw::failure& f) {
    ended_ = true;
    chronicle_.failed(op_, f, clock_());
  }
  [[nodiscard]] std::size_t number() const { return op_; }

 private:
  chronicle& chronicle_;
  std::size_t op_;
  std::function<mw::time_point()> clock_;
  bool ended_ = false;
};

}  // namespace manyworlds_tests
