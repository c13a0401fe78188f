// TCP store client: what a tcp_store does on its home reactor.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/io/simulated_random.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "tcp_store_connection.hpp"
#include "turnstile.hpp"

namespace manyworlds::inline v0 {

/// Connections, attempts and pauses. On its home's thread only.
///
/// A server may be slow to accept: PyTorch's looks up the name of each peer, one after
/// the other, and takes seconds for each where the resolver does not answer. Every
/// connection that is given up there keeps the next ones waiting. So only a few are
/// dialled at a time, what is connected waits long for the answer to its greeting, and
/// an operation whose turn to dial has not come takes whatever connection another one
/// gives back. A wait needs a connection of its own; as long as it has none, it asks now
/// and then over one that is shared.
class tcp_store::client {
 public:
  client(reactor& home, std::string endpoint, const tcp_store_options& options);

  task<store_reply> run(store_request request);
  /// See store::trouble. Any thread.
  [[nodiscard]] std::string trouble() const;

 private:
  /// One more in a number, for as long as it lives.
  class counted {
   public:
    explicit counted(std::size_t& number) noexcept : number_(number) { ++number_; }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    ~counted() { --number_; }

   private:
    std::size_t& number_;
  };
  /// Something is asked of the store to which an answer is due, for as long as it lives.
  class question {
   public:
    explicit question(client& c) : client_(c) { c.begin_question(); }
    question(const question&) = delete;
    question& operator=(const question&) = delete;
    ~question() { client_.end_question(); }

   private:
    client& client_;
  };
  /// A question that the store need not answer now, since it waits for keys.
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
    /// Of the current attempt: over a connection that had been idle, and whether the
    /// request itself may have left.
    bool was_reused = false;
    bool was_sent = false;
    /// It is about to get a connection.
    bool is_connecting = false;
  };

  task<store_reply> attempt(operation& op);
  task<store_reply> ask(operation& op);
  task<store_reply> exchange(operation& op, tcp_store_connection& c);
  task<store_reply> get(operation& op);
  task<store_reply> wait(operation& op);

  /// What was idle may be dead without a notice: it must answer soon, or another is made.
  template <class T>
  task<T> answered(task<T> reading, bool is_suspect);

  /// An idle connection, or a new one, whichever is there first.
  task<connection_ptr> take(operation& op);
  /// The most recent of the idle ones; null if there is none.
  connection_ptr take_idle(operation& op) noexcept;
  task<turnstile::place> turn_to_dial();
  task<void> until_one_is_idle();
  /// With a turn to dial.
  task<connection_ptr> connect(operation& op);
  task<connection_ptr> dial();
  task<stream> reach();
  void begin_question();
  void end_question();
  void note_failure(std::string reason);
  void note_answer();
  void give_back(connection_ptr c);

  task<std::optional<std::string>> look(operation& op, tcp_store_connection& c);
  /// Waits until the keys are set; false at the deadline. Over `c` if it is open and may
  /// be kept so long, otherwise over one that is dialled; null afterwards if it was
  /// neither.
  task<bool> await_keys(operation& op, connection_ptr& c);
  task<bool> keep_and_wait(operation& op, tcp_store_connection& c);
  task<connection_ptr> own_connection(operation& op);
  task<bool> ask_now_and_then(operation& op);
  /// Whether a wait may keep a connection for itself: one at least is left to the others,
  /// where new ones are slow to come.
  [[nodiscard]] bool may_keep_one() const noexcept;
  task<bool> wait_for_keys(operation& op, tcp_store_connection& c);
  task<std::vector<std::string>> missing_keys(operation& op, tcp_store_connection& c);

  [[nodiscard]] store_error error(const operation& op, store_error_kind kind,
                                  std::string reason) const;
  [[nodiscard]] time_point now() const noexcept { return home_.now(); }
  duration shortened(duration pause) noexcept;
  /// Tells a reply to one ping from those to others.
  std::uint32_t nonce() noexcept { return static_cast<std::uint32_t>(random_.next()); }

  reactor& home_;
  std::string endpoint_;
  tcp_store_options options_;
  turnstile places_;
  turnstile dials_;
  /// Operations that have no connection and wait for one.
  std::size_t needy_ = 0;
  /// Connections that were greeted, and those of them that waits keep.
  std::size_t open_ = 0;
  std::size_t kept_ = 0;
  duration last_dial_took_ = duration::zero();
  /// To a get of a key that is not set, this server closes the connection.
  bool closes_on_missing_ = false;
  event given_back_;
  std::vector<connection_ptr> idle_;
  simulated_random random_;

  /// What keeps the store from answering, for other threads.
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
