// TCP store client: the part of a tcp_store that runs on its home reactor.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/seeded_random.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "store/tcp_store_connection.hpp"
#include "store/turnstile.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

/// Manages connections, attempts and pauses. Thread: its home's, except for `trouble`.
///
/// A server may be slow to accept: PyTorch's looks up the name of each peer, one after
/// the other, and takes seconds for each where the resolver does not answer. A
/// connection that is given up there delays the next ones. So only a few are dialled at
/// a time, and a connection waits long for the answer to its greeting. An operation
/// that still waits for its turn to dial takes any connection that another one gives
/// back. A wait needs a connection for itself; while it has none, it asks periodically
/// over a shared one.
class tcp_store::client {
 public:
  client(reactor& home, std::string endpoint, const tcp_store_options& options);

  task<store_reply> run(store_request request);
  /// See store::trouble. Thread: any.
  [[nodiscard]] std::string trouble() const;

 private:
  /// Adds one to a number for its lifetime.
  class counted {
   public:
    explicit counted(std::size_t& number) noexcept : number_(number) { ++number_; }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    ~counted() {
      MW_ASSERT(number_ > 0, "what is counted is counted until its end");
      --number_;
    }

   private:
    std::size_t& number_;
  };
  /// Notes for its lifetime that the store owes an answer.
  class question {
   public:
    explicit question(client& c) : client_(c) { c.begin_question(); }
    question(const question&) = delete;
    question& operator=(const question&) = delete;
    ~question() { client_.end_question(); }

   private:
    client& client_;
  };
  /// Suspends that for its lifetime, since a wait for keys needs no answer now.
  class parked_question {
   public:
    explicit parked_question(client& c) : client_(c) { c.end_question(); }
    parked_question(const parked_question&) = delete;
    parked_question& operator=(const parked_question&) = delete;
    ~parked_question() { client_.begin_question(); }

   private:
    client& client_;
  };
  using connection_ptr = std::unique_ptr<tcp_store_connection>;

  /// One operation over all its attempts.
  struct operation {
    operation(store_request request, time_point now);

    [[nodiscard]] bool waits_for_keys() const noexcept;
    [[nodiscard]] bool is_repeatable() const noexcept;

    store_request request;
    std::vector<std::string> wire_keys;
    time_point start;
    time_point deadline;
    /// The current attempt uses a connection that was idle; the request itself may have
    /// left.
    bool was_reused = false;
    bool was_sent = false;
    /// It is connecting.
    bool is_connecting = false;
  };

  task<store_reply> attempt(operation& op);
  task<store_reply> ask(operation& op);
  task<store_reply> exchange(operation& op, tcp_store_connection& c);
  task<store_reply> get(operation& op);
  task<store_reply> wait(operation& op);

  /// Bounds an answer over a connection that was idle: it may be dead without a notice,
  /// and then another is made.
  template <class T>
  task<T> answered(task<T> reading, bool is_suspect);

  /// Returns an idle connection or a new one, whichever is there first.
  task<connection_ptr> take(operation& op);
  /// Returns the most recent idle connection, or null.
  connection_ptr take_idle(operation& op) noexcept;
  task<turnstile::place> turn_to_dial();
  task<void> until_one_is_idle();
  /// Dials. Precondition: the caller has a turn to dial.
  task<connection_ptr> connect(operation& op);
  task<connection_ptr> dial();
  task<stream> reach();
  void begin_question();
  void end_question();
  void note_failure(std::string reason);
  void note_answer();
  void give_back(connection_ptr c);

  task<std::optional<std::string>> try_get(operation& op, tcp_store_connection& c);
  /// Waits until the keys are set; false at the deadline. It uses `c` if that is open
  /// and may be kept, otherwise a new connection. Afterwards `c` is null if it used
  /// neither.
  task<bool> await_keys(operation& op, connection_ptr& c);
  task<bool> keep_and_wait(operation& op, tcp_store_connection& c);
  task<connection_ptr> own_connection(operation& op);
  task<bool> ask_now_and_then(operation& op);
  /// Says whether a wait may keep a connection for itself: where new ones are slow to
  /// come, one at least is left to the others.
  [[nodiscard]] bool may_keep_one() const noexcept;
  task<bool> wait_for_keys(operation& op, tcp_store_connection& c);
  task<std::vector<std::string>> missing_keys(operation& op, tcp_store_connection& c);

  [[nodiscard]] store_error error(const operation& op, store_error_kind kind,
                                  std::string reason) const;
  [[nodiscard]] time_point now() const noexcept { return home_.now(); }
  duration shortened(duration pause) noexcept;
  /// Distinguishes the replies to pings.
  std::uint32_t nonce() noexcept { return static_cast<std::uint32_t>(random_.next()); }

  reactor& home_;
  std::string endpoint_;
  tcp_store_options options_;
  turnstile places_;
  turnstile dials_;
  /// Operations that wait for a connection.
  std::size_t needy_ = 0;
  /// Connections that were greeted, and those of them that waits keep.
  std::size_t open_ = 0;
  std::size_t kept_ = 0;
  duration last_dial_took_ = duration::zero();
  /// This server closes the connection at a get of a key that is not set.
  bool closes_on_missing_ = false;
  event given_back_;
  std::vector<connection_ptr> idle_;
  seeded_random random_;

  /// Why the store does not answer, for other threads.
  mutable std::mutex trouble_mutex_;
  std::string trouble_;  // guarded by trouble_mutex_, as are these
  std::size_t questions_ = 0;
  std::optional<time_point> no_answer_since_;
};

template <class T>
task<T> tcp_store::client::answered(task<T> reading, bool is_suspect) {
  try {
    co_return co_await within(std::move(reading),
                              is_suspect ? options_.answer_limit : duration::max());
  } catch (const timed_out&) {
    throw connection_lost("no answer");
  }
}

}  // namespace manyworlds::inline v0
