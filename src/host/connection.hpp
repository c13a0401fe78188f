// Connection: the stream to one peer: its two requests, its halves, and how it ends.
#pragma once

#include <string>

#include "core.hpp"
#include "manyworlds/io/stream.hpp"
#include "receiver.hpp"
#include "sender.hpp"

namespace manyworlds::inline v0::host {

/// What a connection tells its backend.
class connection_events {
 public:
  virtual const char* collective_frame(rank_t peer, const frame& f) = 0;
  virtual void peer_left(rank_t peer) = 0;
  /// It knows that we have left, and may end.
  virtual void peer_knows(rank_t peer) = 0;
  /// No request is in flight and none will be.
  virtual void came_to_rest() noexcept = 0;

 protected:
  ~connection_events() = default;
};

class connection final : private frame_handler {
 public:
  connection(core& shared, connection_events& events, rank_t peer, socket stream);

  /// Starts receiving.
  void open() noexcept;

  // Operations. Whoever calls these calls `pump` when it is done with them.
  [[nodiscard]] class sender& sending() noexcept { return sender_; }
  [[nodiscard]] const class sender& sending() const noexcept { return sender_; }
  [[nodiscard]] class receiver& receiving() noexcept { return receiver_; }
  /// Sends what there is to send, unless a request is in flight or we are in the midst of
  /// a receive.
  void pump() noexcept;
  /// Asks for memory back that was given up, from requests in flight.
  void cancel_given_up() noexcept;

  [[nodiscard]] bool has_left() const noexcept { return peer_left_; }

  // Leaving, see host_backend::leave.
  void leave();
  void abandon_sends();
  /// Cancels what is in flight; the socket closes when that has ended.
  void stop() noexcept;
  /// At rest and closed: fails what a leave's deadline has left over.
  void end_cut_short();
  [[nodiscard]] bool at_rest() const noexcept { return !sending_now_ && !receiving_now_; }
  [[nodiscard]] bool is_open() const noexcept { return socket_.is_open(); }

  // Timers of the backend.
  [[nodiscard]] bool must_watch() const noexcept;
  /// Looks for stalled and settling transfers; `late`: we ourselves were not looking.
  void look(time_point now, bool late);
  void tidy();

 private:
  struct request : io_request {
    request(function ended, connection& c) noexcept : io_request(ended), owner(c) {}
    connection& owner;
  };

  template <class Step>
  void guarded(Step&& step) noexcept;
  const char* handle(const frame& f) override;
  void submit_receive();
  void sent() noexcept;
  void received() noexcept;
  void progress_ending();
  void ended(int error);
  void rest() noexcept;

  core& core_;
  connection_events& events_;
  rank_t peer_;
  socket socket_;
  class sender sender_;
  class receiver receiver_;
  request send_;
  request receive_;
  bool sending_now_ = false;
  bool receiving_now_ = false;
  bool corked_ = false;
  bool stopped_ = false;

  bool leaving_ = false;
  bool said_leave_ = false;
  bool peer_left_ = false;   ///< said `leave`
  bool peer_knows_ = false;  ///< said `left`
  bool shut_down_ = false;
  bool ended_ = false;  ///< the stream is at its end, or lost
  int send_error_ = 0;
  time_point send_failed_{};
  time_point last_sent_{};
};

}  // namespace manyworlds::inline v0::host
