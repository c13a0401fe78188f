// Shm channel: the way to a peer on the same host, through a slot of shared memory.
#pragma once

#include "host/cell_receiver.hpp"
#include "host/cell_sender.hpp"
#include "host/channel.hpp"
#include "link/data_channel.hpp"
#include "link/shared_link.hpp"
#include "manyworlds/detail/member_work.hpp"

namespace manyworlds::inline v0::detail::host {

/// Does not see the peer's death: its link sees it, and breaks the world.
class shm_channel final : public channel, private shm::slot_listener {
 public:
  shm_channel(core& shared, rank_t peer, shm_slot slot);
  ~shm_channel() override;

  void open() noexcept override;
  [[nodiscard]] class sender& sending() noexcept override { return sender_; }
  [[nodiscard]] class receiver& receiving() noexcept override { return receiver_; }
  [[nodiscard]] bool try_send(operation& op) override;
  void pump() noexcept override;
  void cancel_given_up() noexcept override;
  // Announcements are written to the shared memory at once; their notice follows.
  [[nodiscard]] std::uint64_t queued() const noexcept override { return 0; }
  [[nodiscard]] bool has_gone(std::uint64_t) const noexcept override {
    return stopped_ || ended_ || sender_.is_flushed();
  }
  void stop() noexcept override;
  void end_cut_short() override;
  [[nodiscard]] bool at_rest() const noexcept override {
    return !corked_ && !is_next_scheduled_;
  }
  [[nodiscard]] bool is_open() const noexcept override { return !stopped_; }
  [[nodiscard]] bool must_watch() noexcept override;
  void look(time_point now, bool late) override;
  void tidy() override;

 private:
  const char* confirmed() override;
  bool poll() noexcept override;
  void wake_ups_ended() noexcept override;
  bool has_something() noexcept override;
  bool has_something_or_is_told() noexcept override;
  bool give_back_reserved_chunk() noexcept override {
    return sender_.give_back_reserved_chunk();
  }
  void progress(bool reads) noexcept;
  [[nodiscard]] bool has_only_to_flush() noexcept;
  [[nodiscard]] bool may_read_on() noexcept;
  [[nodiscard]] bool is_done();
  void go_on() noexcept;
  void go_on_soon() noexcept;
  /// Ends a step. Returns true if nothing may follow it: the channel was stopped
  /// meanwhile, or something is wrong, which is reported.
  bool is_over(const char* wrong) noexcept;
  void rest() noexcept;

  shm_slot slot_;
  std::shared_ptr<shm::shared_link> link_;
  cell_sender sender_;
  cell_receiver receiver_;
  member_work<&shm_channel::go_on> next_{*this};
  bool is_next_scheduled_ = false;
  bool corked_ = false;
  bool is_pending_ = false;  ///< as the link was told
  bool confirmed_ = false;   ///< the peer has our answer to its leave
  bool said_goodbye_ = false;
};

}  // namespace manyworlds::inline v0::detail::host
