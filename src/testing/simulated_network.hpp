// Simulated network: the sockets and connections of a simulation, and their faults.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "io/io_request.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "testing/simulated_clockwork.hpp"
#include "testing/simulated_pipe.hpp"

namespace manyworlds::inline v0::detail {

class simulated_engine;

/// Two ends and a pipe from each to the other one. `pipes[i]` leads away from `ends[i]`.
struct simulated_connection {
  socket_handle ends[2];
  simulated_process* processes[2];
  simulated_pipe pipes[2];
  bool stalled = false;
  /// It is a socket pair within one host, which faults of the network do not touch.
  bool is_local = false;
};

struct simulated_socket {
  enum class stage : unsigned char { fresh, listening, connecting, connected, broken };
  struct request_slot {
    io_request* request = nullptr;
    simulated_engine* engine = nullptr;
  };

  simulated_process* owner = nullptr;
  bool counted = false;  ///< as a descriptor of its owner; not before it is accepted
  stage at = stage::fresh;
  int error = 0;  ///< reported once, as SO_ERROR is
  socket_address local;
  socket_address peer;
  std::size_t backlog = 0;
  std::deque<socket_handle> arrived;
  std::shared_ptr<simulated_connection> connection;
  std::size_t side = 0;
  time_point dialled{};
  request_slot reading;
  request_slot writing;
  request_slot watching;

  [[nodiscard]] simulated_pipe& incoming() const {
    MW_ASSERT(connection && side < 2, "only a connected socket has pipes");
    return connection->pipes[1 - side];
  }
  [[nodiscard]] simulated_pipe& outgoing() const {
    MW_ASSERT(connection && side < 2, "only a connected socket has pipes");
    return connection->pipes[side];
  }
  [[nodiscard]] request_slot& slot_of(io_kind kind) noexcept {
    if (kind == io_kind::readable) return watching;
    return kind == io_kind::accept || kind == io_kind::receive ? reading : writing;
  }
};

class simulated_network {
 public:
  explicit simulated_network(simulated_clockwork& clockwork) : clockwork_(clockwork) {}

  io_result listen(simulated_process& p, const socket_address& address, int backlog);
  io_result open_stream(simulated_process& p, const socket_address& peer);
  void close(simulated_process& p, socket_handle handle) noexcept;
  void shut_down_sending(socket_handle handle) noexcept;
  void send_byte(simulated_process& p, socket_handle handle) noexcept;
  [[nodiscard]] bool has_ended(const simulated_process& p,
                               socket_handle handle) const noexcept;
  /// Makes a connected pair, one end for each; both none if either has too many open.
  [[nodiscard]] std::pair<socket_handle, socket_handle> make_pair(simulated_process& a,
                                                                  simulated_process& b);
  [[nodiscard]] simulated_socket* find(socket_handle handle) const noexcept;
  /// Finds a socket of this process: a process may use its own sockets only.
  [[nodiscard]] simulated_socket* find(const simulated_process& p,
                                       socket_handle handle) const noexcept;

  /// Performs a request if that is possible now.
  std::optional<io_result> attempt(simulated_process& p, io_request& request);

  [[nodiscard]] static socket_address address_of(std::size_t host, std::uint16_t port);
  /// Returns the host of an address as `from` sees it, if it is one of this network.
  [[nodiscard]] static std::optional<std::size_t> host_of(const simulated_process& from,
                                                          const socket_address& address);

  void close_all(simulated_process& p);
  void block(std::size_t from, std::size_t to);
  void lose_link(const simulated_process& a, const simulated_process& b);
  void heal(const simulated_process& a, const simulated_process& b);
  void cut(const simulated_process& a, const simulated_process& b);
  void delay(std::size_t from, std::size_t to, duration latency, duration jitter);
  /// Sets the process that answers for a host when nothing listens there.
  void add_host(std::size_t host, simulated_process& p) { hosts_.try_emplace(host, &p); }

 private:
  using direction = std::pair<std::size_t, std::size_t>;
  struct delays {
    duration latency;
    duration jitter;
  };

  static constexpr int first_handle =
      1000;  // above real descriptors: one that is used by mistake is not found
  static constexpr std::uint16_t first_free_port = 32768;
  static constexpr std::size_t longest_segment = 64 * 1024;

  simulated_socket& make_socket(simulated_process& p, socket_handle& handle);
  void notify(const simulated_socket::request_slot& slot) noexcept;
  void notify_all(const simulated_socket& s) noexcept;
  [[nodiscard]] std::uint16_t free_port(std::size_t host);

  [[nodiscard]] duration travel_time(const simulated_process& from,
                                     const simulated_process& to);
  [[nodiscard]] bool is_held(const simulated_connection& c, std::size_t side) const;

  void dial(socket_handle client, simulated_socket& s);
  void dial_arrives(socket_handle client, duration patience);
  void dial_again(socket_handle client, duration patience);
  void dial_refused(socket_handle client);
  void connect_to(simulated_socket& listening, socket_handle client, simulated_socket& s);

  void send_what_fits(const std::shared_ptr<simulated_connection>& c, std::size_t side);
  void launch(const std::shared_ptr<simulated_connection>& c, std::size_t side,
              segment_kind kind, std::size_t bytes);
  void expect(const std::shared_ptr<simulated_connection>& c, std::size_t side,
              time_point arrival);
  void arrive(const std::shared_ptr<simulated_connection>& c, std::size_t side);
  void land(const std::shared_ptr<simulated_connection>& c, std::size_t side,
            const simulated_segment& segment);
  void send_reset(const std::shared_ptr<simulated_connection>& c, std::size_t side);
  void break_end(simulated_socket& s);
  void end_connection(simulated_socket& s, bool reset);
  void close_listener(simulated_socket& s);

  std::optional<io_result> accept(simulated_process& p, simulated_socket& s);
  std::optional<io_result> connect(io_request& request, simulated_socket& s);
  std::optional<io_result> receive(simulated_process& p, io_request& request,
                                   simulated_socket& s);
  std::optional<io_result> send(io_request& request, simulated_socket& s);
  std::size_t may_read(simulated_process& p, std::size_t wanted);
  std::size_t shorten(std::size_t bytes);

  template <class F>
  void each_connection_between(const simulated_process& a, const simulated_process& b,
                               F&& f);

  simulated_clockwork& clockwork_;
  std::vector<std::unique_ptr<simulated_socket>> sockets_;
  std::vector<std::weak_ptr<simulated_connection>> connections_;
  /// The number above which those that have ended are forgotten.
  std::size_t connections_kept_ = 0;
  std::map<std::pair<std::size_t, std::uint16_t>, socket_handle> listeners_;
  std::map<std::size_t, std::uint16_t> last_port_;
  std::map<std::size_t, simulated_process*> hosts_;
  std::set<direction> blocked_;
  std::map<direction, delays> delays_;
};

}  // namespace manyworlds::inline v0::detail
