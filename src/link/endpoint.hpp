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

#include "link/hello.hpp"
#include "link/link.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/detail/pool_registry.hpp"
#include "manyworlds/observe/log.hpp"

namespace manyworlds::inline v0::detail {

namespace shm {
class copy_thread;
}

struct endpoint_options {
  socket_address listen = socket_address::loopback(0);
  /// The address that peers dial; not set: the listening address. It must be set when
  /// that is a wildcard, which cannot be dialled.
  socket_address advertise;
  secret_text secret;
  /// Allows listening beyond loopback without a secret.
  bool insecure = false;
  duration heartbeat = std::chrono::milliseconds(200);
  /// Share memory with peers on this host. This needs a user reactor, and real threads
  /// or a simulated kernel.
  bool shared_memory = true;
  /// Read the memory of such peers, where that is allowed.
  bool read_peers = true;
  /// Pools that peers may map; null for none.
  std::shared_ptr<pool_registry> pools;
  /// A second thread for large copies; null for none.
  std::shared_ptr<shm::copy_thread> copy_thread;
  /// Name of the thread that waits for the deaths of peers.
  std::string death_thread = "mw-deaths";
};

/// Is told what happens at an endpoint. Thread: the service reactor.
class endpoint_listener : public link_listener {
 public:
  /// Receives an authenticated connection for one world's data; the owner keeps or
  /// drops it.
  virtual void data_connection(stream connection, const hello& words) = 0;
  /// Answers one question that came over a short connection.
  virtual task<bytes> answer_query(bytes question) = 0;
  /// Called after every look at the links, four times a heartbeat, to examine silence.
  virtual void examine_silence(time_point now) noexcept = 0;
  virtual void log(log_level level, std::string line) noexcept = 0;

 protected:
  ~endpoint_listener() = default;
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

/// Listens, dials, greets and beats for all links of a runtime. Thread: the service
/// reactor, except for the constructor.
class endpoint {
 public:
  /// Starts to listen. Errors: std::system_error naming the address (in use, not local
  /// ...); std::invalid_argument if it lies beyond loopback with neither a secret nor
  /// `insecure`.
  endpoint(reactor& service, environment& env, endpoint_options options,
           endpoint_listener& told);
  ~endpoint();
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;

  [[nodiscard]] const process_address& self() const noexcept { return greeter_.self(); }

  /// Accepts, greets, beats and runs the links until cancelled, or until `say_goodbye` is
  /// done.
  [[nodiscard]] task<void> run();
  /// Ends all links in order and closes them, at most for `patience`.
  [[nodiscard]] task<void> say_goodbye(duration patience);

  /// Returns the link to a process: the existing one, or a new one. Errors: link_error,
  /// at `deadline` at the latest (silent_peer).
  [[nodiscard]] task<link_hold> reach(process_address peer, time_point deadline);
  /// Dials a connection for one world's data to a member. Errors: link_error.
  [[nodiscard]] task<stream> dial_data(process_address peer, std::uint64_t world_id,
                                       rank_t self, time_point deadline);
  /// Asks a process one question and returns its answer. Errors: link_error.
  [[nodiscard]] task<bytes> ask(process_address peer, bytes question,
                                time_point deadline);

  /// Runs a task beside the links; it is cancelled with `run`, and dropped outside it.
  void spawn(task<void> t);

  /// Sets the reactor that runs the worlds of the links. Beats carry a number that
  /// grows while it turns or is parked. It also reads what peers write to shared
  /// memory. With `adapts_spin` it does not spin while a peer on this host is bound to
  /// the same CPU.
  void serve(reactor& user, bool adapts_spin) noexcept {
    user_ = &user;
    adapts_spin_ = adapts_spin;
  }
  [[nodiscard]] reactor* user() const noexcept { return user_; }
  [[nodiscard]] std::vector<std::shared_ptr<link>> links() const;
  /// Returns the link to that process if it is up, else null.
  [[nodiscard]] link* link_to(const incarnation& peer) const;
  /// Returns when the peer was last heard, or nothing without a link to it.
  [[nodiscard]] std::optional<time_point> last_heard(const incarnation& peer) const;
  void log(log_level level, std::string line) noexcept {
    told_.log(level, std::move(line));
  }

 private:
  /// Limit of the first words of a connection, and of a goodbye.
  static constexpr duration greeting_limit = std::chrono::seconds(2);

  struct entry {
    std::shared_ptr<link> up;
    bool dialling = false;
    /// Welcome dials of the peer that are not links yet.
    int accepting = 0;
    bool dialled_by_us = false;
    event changed;
    time_point unused_since{};
  };

  class acceptor;

  /// Logs what the task throws: it must not end its siblings, every link and world of
  /// the process.
  [[nodiscard]] task<void> contain(task<void> t);

  [[nodiscard]] task<void> beat();
  void beat_once();
  [[nodiscard]] bool shares_only_cpu_with(const link& l, cpu_binding cpu) const noexcept;
  [[nodiscard]] task<stream> dial(process_address peer, hello words, time_point deadline,
                                  std::optional<process_address>& met);
  [[nodiscard]] std::shared_ptr<entry> entry_of(const incarnation& id);
  std::shared_ptr<link> establish(stream s, process_address peer, bool dialled_by_us);
  [[nodiscard]] task<void> run_link(std::shared_ptr<link> l);

  reactor& service_;
  endpoint_listener& told_;
  endpoint_options options_;
  greeter greeter_;
  std::unique_ptr<acceptor> acceptor_;
  std::unique_ptr<shm::local_discovery> discovery_;
  std::map<incarnation, std::shared_ptr<entry>> entries_;
  scope* scope_ = nullptr;
  reactor* user_ = nullptr;
  bool adapts_spin_ = false;
  std::uint64_t beats_parked_ = 0;
  bool leaving_ = false;
  event quiet_;
  time_point last_look_{};
};

}  // namespace manyworlds::inline v0::detail
