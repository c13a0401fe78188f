// Simulated engine: the engine of a simulated process.
#pragma once

#include <vector>

#include "testing/simulated_kernel.hpp"
#include "testing/simulated_network.hpp"

namespace manyworlds::inline v0::detail {

/// The network as one process sees it.
class simulated_sockets final : public network {
 public:
  explicit simulated_sockets(simulated_process& process) : process_(process) {}

  io_result listen(const socket_address& address, int backlog) override;
  io_result open_stream(const socket_address& peer) override;
  void close(socket_handle socket) noexcept override;
  void shut_down_sending(socket_handle socket) noexcept override;
  void send_byte(socket_handle socket) noexcept override;
  bool has_ended(socket_handle socket) noexcept override;
  socket_address local_address(socket_handle socket) const override;
  socket_address peer_address(socket_handle socket) const override;

 private:
  simulated_process& process_;
};

/// Performs requests in `poll` only, in an order of the seed, sometimes later than it
/// could. A cancelled request may still be performed, as the seed decides. `wait` lets
/// the rest of the simulation go on.
///
/// Files are those of this machine: a run repeats only if they stay as they are. A read
/// may give less than was asked for, as the seed decides.
class simulated_engine final : public engine {
 public:
  simulated_engine(simulated_process& process, simulated_clockwork& clockwork);
  ~simulated_engine() override;

  std::string_view name() const noexcept override { return "simulated"; }
  network& sockets() noexcept override { return simulated_kernel::sockets(process_); }
  time_point now() const noexcept override { return clockwork_.now; }

  void submit(io_request& request) noexcept override;
  void cancel(io_request& request) noexcept override;
  bool poll() noexcept override;
  void wait(std::optional<time_point> until) noexcept override;
  void wake() noexcept override { noticed_ = true; }
  int descriptor() noexcept override { return -1; }
  bool prepare_foreign_wait() noexcept override { return noticed_; }

  /// Returns true if `poll` may find something to do.
  [[nodiscard]] bool is_noticed() const noexcept { return noticed_; }
  [[nodiscard]] bool is_waiting() const noexcept { return waiting_; }
  [[nodiscard]] const std::vector<io_request*>& in_flight() const noexcept {
    return in_flight_;
  }

 private:
  friend simulation;

  void perform_some();
  [[nodiscard]] simulated_socket* socket_of(const io_request& request) const noexcept;
  std::optional<io_result> try_to_end(io_request& request);
  std::optional<io_result> attempt_now(io_request& request);
  io_result read_some(const io_request& request);
  void count_spinning() noexcept;

  simulated_process& process_;
  simulated_clockwork& clockwork_;
  std::vector<io_request*> in_flight_;
  std::vector<io_request*> performed_;
  bool noticed_ = false;
  bool waiting_ = false;
  std::uint64_t polled_in_step_ = ~std::uint64_t{0};
};

/// Ends the program: the code under test broke the contract of engine or network, and no
/// result could report that.
[[noreturn]] void simulated_contract_broken(const simulated_process& p, const char* what,
                                            socket_handle socket) noexcept;

}  // namespace manyworlds::inline v0::detail
