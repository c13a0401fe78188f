// A peer on this host that dials a runtime and says what no runtime would.
#pragma once

#include "io/reactor_fixture.hpp"
#include "io/system_environment.hpp"
#include "link/neighbour.hpp"
#include "link/same_host.hpp"
#include "neighbour_fixture.hpp"

namespace manyworlds::link_tests {

inline constexpr std::uint8_t beat_kind = 0;
inline constexpr std::uint8_t invitation_kind = 5;
inline constexpr std::uint8_t outcome_kind = 6;
inline constexpr std::uint8_t slot_kind = 7;
inline constexpr std::uint8_t returns_kind = 8;
inline constexpr std::uint8_t ceded_kind = 9;

inline bytes met() {
  wire_writer out;
  out.put(std::uint8_t{0}).put(std::string_view());
  return out.take();
}
struct unvisited final : shm::same_host_events {
  const shm::invitation* invited(const incarnation&) override { return nullptr; }
  void visited(const incarnation&, shm::shared_parts) override {}
  void remark(std::string) noexcept override {}
};

/// Dials a runtime and does what it should, up to the visit.
class liar {
 public:
  liar(node& victim, unsigned char id)
      : who_(stranger(id)),
        peer_(access::core(victim.rt).self().endpoint),
        f_(engine_kind::epoll),
        place_(f_, env_, who_.id, events_) {
    REQUIRE(greet(peer_, who_, connection_purpose::link));
    const bytes said = peer_.hear_link_frame(invitation_kind);
    wire_reader in(said);
    REQUIRE(in.get<std::uint8_t>() == 1);
    std::memcpy(words_.visitor.data(), in.take(16).data(), 16);
    std::memcpy(words_.host.data(), in.take(16).data(), 16);
    in.expect_end();
  }
  void visit(node& victim) {
    std::string why_not;
    parts_ = f_.run(place_.visit(access::core(victim.rt).self().id, words_, 5s, why_not));
    REQUIRE_MESSAGE(parts_, why_not);
  }
  void say(std::uint8_t kind, const bytes& body) { peer_.say_link_frame(kind, body); }
  [[nodiscard]] const incarnation& id() const { return who_.id; }
  /// After the visit.
  [[nodiscard]] shm::shared_arena& arena() { return *parts_->arena; }
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
  unvisited events_;
  shm::same_host place_;
  shm::invitation words_;
  std::optional<shm::shared_parts> parts_;
};

}  // namespace manyworlds::link_tests
