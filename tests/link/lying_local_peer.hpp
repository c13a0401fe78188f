// A peer on this host that dials a runtime and says what no runtime would.
#pragma once

#include "io/reactor_fixture.hpp"
#include "io/system_environment.hpp"
#include "link/local_peer.hpp"
#include "link/socket_pairing.hpp"
#include "local_peer_fixture.hpp"

namespace manyworlds::link_tests {

inline constexpr std::uint8_t beat_kind = 0;
inline constexpr std::uint8_t nonces_kind = 5;
inline constexpr std::uint8_t outcome_kind = 6;
inline constexpr std::uint8_t slot_kind = 7;
inline constexpr std::uint8_t returns_kind = 8;
inline constexpr std::uint8_t ceded_kind = 9;

inline bytes paired_outcome() {
  wire_writer out;
  out.put(std::uint8_t{0}).put(std::string_view());
  return out.take();
}
struct unpaired final : shm::pairing_listener {
  const shm::pairing_nonces* expected_nonces(const incarnation&) override {
    return nullptr;
  }
  void paired(const incarnation&, shm::shared_parts) override {}
  void log(std::string) noexcept override {}
};

/// Dials a runtime and does what it should, up to the pairing.
class liar {
 public:
  liar(node& victim, unsigned char id)
      : who_(stranger(id)),
        peer_(access::core(victim.rt).self().endpoint),
        f_(engine_kind::epoll),
        pairing_(f_, env_, who_.id, told_) {
    REQUIRE(greet(peer_, who_, connection_purpose::link));
    const bytes said = peer_.hear_link_frame(nonces_kind);
    wire_reader in(said);
    REQUIRE(in.get<std::uint8_t>() == 1);
    std::memcpy(nonces_.request.data(), in.take(16).data(), 16);
    std::memcpy(nonces_.reply.data(), in.take(16).data(), 16);
    in.expect_end();
  }
  void pair_with(node& victim) {
    std::string why_not;
    parts_ =
        f_.run(pairing_.request(access::core(victim.rt).self().id, nonces_, 5s, why_not));
    REQUIRE_MESSAGE(parts_, why_not);
  }
  void say(std::uint8_t kind, const bytes& body) { peer_.say_link_frame(kind, body); }
  [[nodiscard]] const incarnation& id() const { return who_.id; }
  /// Once paired.
  [[nodiscard]] shm::shm_segment& segment() { return *parts_->segment; }
  /// Whether it hears a frame of that kind within `limit`.
  [[nodiscard]] bool hears(std::uint8_t kind, duration limit) const {
    return peer_.hears_link_frame(kind, limit);
  }
  [[nodiscard]] bool is_hung_up_on() const { return peer_.is_hung_up_on(10s); }

 private:
  process_address who_;
  raw_peer peer_;
  testing::reactor_fixture f_;
  system_environment env_;
  unpaired told_;
  shm::socket_pairing pairing_;
  shm::pairing_nonces nonces_;
  std::optional<shm::shared_parts> parts_;
};

}  // namespace manyworlds::link_tests
