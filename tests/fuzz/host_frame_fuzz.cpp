// Whatever a peer's stream holds and however it is cut, the incoming half of a connection
// reads it without touching what is not its own.
#include <array>
#include <cstring>
#include <vector>

#include "host/stream_receiver.hpp"
#include "host/stream_sender.hpp"

using namespace manyworlds;

namespace {

class silent_engine final : public engine {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "silent"; }
  [[nodiscard]] network& sockets() noexcept override { std::abort(); }
  [[nodiscard]] time_point now() const noexcept override { return {}; }
  void submit(io_request&) noexcept override {}
  void cancel(io_request&) noexcept override {}
  bool poll() noexcept override { return false; }
  void wait(std::optional<time_point>) noexcept override {}
  void wake() noexcept override {}
  [[nodiscard]] int descriptor() noexcept override { return -1; }
  [[nodiscard]] bool prepare_foreign_wait() noexcept override { return true; }
};

struct silent_world final : backend_events {
  void connection_ended(rank_t, int) noexcept override {}
  void must_break(rank_t, cause, std::string) noexcept override {}
  void peer_left(rank_t) noexcept override {}
  void heard(rank_t) noexcept override {}
  void remark(std::string) noexcept override {}
};

struct target final : host::core, host::match_events, host::frame_handler {
  explicit target(reactor& r) : core(r, world, options, 0, 2), matcher_(2, 64, *this) {
    matcher = &matcher_;
    peer_window = options.lane_window;
    for (std::size_t i = 0; i < receives.size(); ++i) {
      operation& op = receives[i].emplace(operation_kind::receive,
                                          [](operation&, operation_end) noexcept {});
      op.peer = 1;
      views[i] =
          buffer_view(std::span(memory[i]).first(i % 2 == 0 ? 8 : memory[i].size()));
      op.target = view_list(std::span(&views[i], 1));
      op.takes_fresh_lanes = i % 3 == 0;
      matcher_.post(op);
    }
  }
  void watch() noexcept override {}
  void tidy_soon() noexcept override {}
  void pull(host::inbound_message& m) override { in.pull(m); }
  void consumed(host::inbound_message& m, bool was_received) override {
    in.consumed(m, was_received);
  }
  const char* handle(const host::frame& f) override {
    if (f.kind == host::frame_kind::leave) in.drop_offers();
    return nullptr;
  }

  silent_world world;
  host_backend_options options;
  std::array<std::array<std::byte, 40'000>, 6> memory;
  std::array<buffer_view, 6> views;
  std::array<std::optional<operation>, 6> receives;
  host::lane_matcher matcher_;
  host::stream_sender out{*this};
  host::stream_receiver in{*this, 1, out, *this};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  reactor home(std::make_unique<silent_engine>());
  auto t = std::make_unique<target>(home);
  std::size_t step = 1;
  while (size > 0) {
    std::size_t count = 0;
    for (const iovec& entry : t->in.entries()) {
      const std::size_t part = std::min({entry.iov_len, size, step - count});
      std::memcpy(entry.iov_base, data, part);
      data += part;
      size -= part;
      count += part;
    }
    if (t->in.received(count)) break;
    t->in.return_credit(step % 2 == 0);
    step = step * 7 % 501 + 1;
  }
  return 0;
}
