// Tcp channel: the tcp stream to one peer, with its two requests.
#pragma once

#include "host/channel.hpp"
#include "host/stream_receiver.hpp"
#include "host/stream_sender.hpp"
#include "io/stream.hpp"

namespace manyworlds::inline v0::detail::host {

class tcp_channel final : public channel {
 public:
  tcp_channel(core& shared, rank_t peer, socket stream);

  void open() noexcept override;
  [[nodiscard]] class sender& sending() noexcept override { return sender_; }
  [[nodiscard]] class receiver& receiving() noexcept override { return receiver_; }
  [[nodiscard]] bool try_send(operation& op) override;
  void pump() noexcept override;
  void cancel_given_up() noexcept override;
  [[nodiscard]] std::uint64_t queued() const noexcept override {
    return sender_.batch().appended();
  }
  [[nodiscard]] bool has_gone(std::uint64_t queued) const noexcept override {
    return stopped_ || ended_ || shut_down_ || send_error_ != 0 ||
           sender_.batch().gone() >= queued;
  }
  void stop() noexcept override;
  void end_cut_short() override;
  [[nodiscard]] bool at_rest() const noexcept override {
    return !sending_now_ && !receiving_now_;
  }
  [[nodiscard]] bool is_open() const noexcept override { return socket_.is_open(); }
  [[nodiscard]] bool must_watch() noexcept override;
  void look(time_point now, bool late) override;
  void tidy() override;

 private:
  struct request : io_request {
    request(function ended, tcp_channel& c) noexcept : io_request(ended), owner(c) {}
    tcp_channel& owner;
  };

  void submit_receive();
  void sent() noexcept;
  void received() noexcept;
  void progress_ending();
  void ended(int error);
  void rest() noexcept;

  socket socket_;
  stream_sender sender_;
  stream_receiver receiver_;
  request send_;
  request receive_;
  bool sending_now_ = false;
  bool receiving_now_ = false;
  bool corked_ = false;
  bool shut_down_ = false;
  int send_error_ = 0;
  time_point send_failed_{};
  time_point last_sent_{};
};

}  // namespace manyworlds::inline v0::detail::host
