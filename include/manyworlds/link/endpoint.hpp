// Endpoint: a runtime's one listening address, and the links to all peers it talks to.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/link/hello.hpp"
#include "manyworlds/link/link.hpp"
#include "manyworlds/memory/pool_registry.hpp"
#include "manyworlds/observe/log.hpp"

namespace manyworlds::inline v0 {

namespace shm {
class mover;
}

struct endpoint_options {
  socket_address listen = socket_address::loopback(0);
  /// What peers dial; not set: the listening address. Must be set when that is a
  /// wildcard, which nobody can dial.
  socket_address advertise;
  secret_text secret;
  /// Allows listening beyond loopback without a secret.
  bool insecure = false;
  duration heartbeat = std::chrono::milliseconds(200);
  /// With peers on this host; needs a user reactor, and real threads or a simulated
  /// kernel.
  bool shared_memory = true;
  /// Whether the memory of such peers is read, where that is allowed.
  bool read_peers = true;
  /// What its peers may map; null for none.
  std::shared_ptr<pool_registry> pools;
  /// A second thread for what is large; null for none.
  std::shared_ptr<shm::mover> mover;
  /// The thread that hears of their deaths.
  std::string death_thread = "mw-deaths";
};

/// What the owner of an endpoint hears. Called on the service reactor.
class endpoint_events : public link_events {
 public:
  /// An authenticated connection for one world's data; the owner keeps or drops it.
  virtual void data_connection(stream connection, const hello& words) = 0;
  /// One question over a short connection of its own.
  virtual task<bytes> answer_query(bytes question) = 0;
  /// After every look at the links, four times a heartbeat: examine silence now.
  virtual void examine_silence(time_point now) noexcept = 0;
  virtual void remark(log_level level, std::string line) noexcept = 0;

 protected:
  ~endpoint_events() = default;
};

/// Keeps a link up while something uses it.
class link_hold {
 public:
  link_hold() noexcept = default;
  explicit link_hold(std::shared_ptr<link> l) noexcept : link_(std::move(l)) {
    if (link_) link_->add_hold(1);
  }
  link_hold(link_hold&& other) noexcept : link_(std::move(other.link_)) {}
  link_hold& operator=(link_hold&& other) noexcept {
    std::swap(link_, other.link_);
    return *this;
  }
  ~link_hold() {
    if (link_) link_->add_hold(-1);
  }

  [[nodiscard]] const std::shared_ptr<link>& get() const noexcept { return link_; }
  link* operator->() const noexcept { return link_.get(); }
  explicit operator bool() const noexcept { return link_ != nullptr; }

 private:
  std::shared_ptr<link> link_;
};

/// Lives on the service reactor, and so do all its calls but the constructor's.
class endpoint {
 public:
  /// Starts to listen. Throws std::system_error naming the address (in use, not ours
  /// ...), or std::invalid_argument if it lies beyond loopback with neither a secret nor
  /// `insecure`.
  endpoint(reactor& service, environment& env, endpoint_options options,
           endpoint_events& events);
  ~endpoint();
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;

  [[nodiscard]] const process_address& self() const noexcept { return greeter_.self(); }

  /// Accepts, greets, beats and runs the links until cancelled, or until `say_goodbye` is
  /// done.
  [[nodiscard]] task<void> run();
  /// Ends all links in order and closes them, at most for `patience`.
  [[nodiscard]] task<void> say_goodbye(duration patience);

  /// The link to a process: the one there is, or a new one. Throws link_error, at
  /// `deadline` at the latest (silent_peer).
  [[nodiscard]] task<link_hold> reach(process_address peer, time_point deadline);
  /// A connection for one world's data to a member.
  [[nodiscard]] task<stream> dial_data(process_address peer, std::uint64_t world_id,
                                       rank_t self, time_point deadline);
  /// Asks a process one question.
  [[nodiscard]] task<bytes> ask(process_address peer, bytes question,
                                time_point deadline);

  /// Runs a task beside the links; it is cancelled with `run`.
  void spawn(task<void> t);

  /// Whose worlds use the links. Beats carry a number that grows while it turns, or is
  /// parked; what peers write to shared memory is read on it.
  /// If it `adapts_spin`, it does not spin while a peer on this host is bound to the same
  /// CPU.
  void serve(reactor& user, bool adapts_spin) noexcept {
    user_ = &user;
    adapts_spin_ = adapts_spin;
  }
  [[nodiscard]] reactor* user() const noexcept { return user_; }
  [[nodiscard]] std::vector<std::shared_ptr<link>> links() const;
  /// The one to that process, if it is up; null otherwise.
  [[nodiscard]] link* link_to(const incarnation& peer) const;
  /// Of a process that there is a link with.
  [[nodiscard]] std::optional<time_point> last_heard(const incarnation& peer) const;
  void remark(log_level level, std::string line) noexcept {
    events_.remark(level, std::move(line));
  }

 private:
  /// For the first words of a connection, and for a goodbye.
  static constexpr duration greeting_limit = std::chrono::seconds(2);

  struct entry {
    std::shared_ptr<link> up;
    bool dialling = false;
    /// Dials of theirs that are welcome and not yet links.
    int accepting = 0;
    bool dialled_by_us = false;
    event changed;
    time_point unused_since{};
  };

  class acceptance;
  class greeting;

  /// What one task throws must not end its siblings: every link and world of the process.
  [[nodiscard]] task<void> contain(task<void> t);

  [[nodiscard]] task<void> accept_all();
  /// As long as too many are in their first words.
  [[nodiscard]] task<void> until_one_more_may_greet();
  [[nodiscard]] task<void> greet_one(stream s, greeting counted);
  [[nodiscard]] task<std::optional<hello>> answer_in_time(stream& s,
                                                          acceptance& welcomed);
  [[nodiscard]] task<void> answer_one(stream s);
  [[nodiscard]] task<void> beat();
  void beat_once();
  [[nodiscard]] bool may_share_only_cpu(const link& l, cpu_binding cpu) const noexcept;
  [[nodiscard]] task<stream> dial(process_address peer, hello words, time_point deadline,
                                  std::optional<process_address>& met);
  [[nodiscard]] hello_status decide(const hello& h);
  [[nodiscard]] std::shared_ptr<entry> entry_of(const incarnation& id);
  std::shared_ptr<link> establish(stream s, process_address peer, bool dialled_by_us);
  [[nodiscard]] task<void> run_link(std::shared_ptr<link> l);

  reactor& service_;
  endpoint_events& events_;
  endpoint_options options_;
  listener listener_;
  greeter greeter_;
  std::unique_ptr<shm::neighbourhood> neighbours_;
  std::map<incarnation, std::shared_ptr<entry>> entries_;
  scope* scope_ = nullptr;
  reactor* user_ = nullptr;
  bool adapts_spin_ = false;
  std::uint64_t beats_parked_ = 0;
  std::size_t greetings_ = 0;
  event greeting_ended_;
  /// Set for a moment: whoever is in its first words then is hung up on.
  event hang_up_;
  bool leaving_ = false;
  event quiet_;
  time_point last_look_{};
};

/// What is wrong with listening at `address` without a secret; empty if nothing.
[[nodiscard]] std::string listening_objection(const socket_address& address,
                                              bool has_secret, bool insecure);

}  // namespace manyworlds::inline v0
