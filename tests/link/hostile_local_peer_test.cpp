// A peer on this host that lies about pairing and slots: its link ends with a named
// error, and nothing else does.
#include "lying_local_peer.hpp"

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("local_peer");

namespace {

bytes slot_frame(std::uint16_t slot) {
  wire_writer out;
  out.put(std::uint64_t{9}).put(rank_t{0}).put(slot);
  return out.take();
}
/// As slots are given back and ceded.
bytes slots_frame(unsigned slot) {
  shm::slot_set set;
  set.insert(slot);
  wire_writer out;
  for (std::size_t at = 0; at < shm::slot_set::words; ++at) out.put(set.word(at));
  return out.take();
}

struct lie {
  const char* named;
  std::uint8_t kind;
  bytes body;
};

}  // namespace

TEST_CASE("law 11: words about a pairing that was none end the link, by name") {
  pair p;
  const lie all[] = {
      {"has paired, and has not", outcome_kind, paired_outcome()},
      {"beyond its last value", outcome_kind, bytes(3, std::byte{9})},
      {"ends within a field", outcome_kind, {}},
      {"nonces that were not expected", nonces_kind, bytes(33, std::byte{1})},
      {"a slot, and no memory is shared", slot_kind, slot_frame(1)},
      {"given back, and no memory is shared", returns_kind, slots_frame(0)},
      {"ceded, and no memory is shared", ceded_kind, slots_frame(0)},
  };
  unsigned char id = 40;
  for (const lie& each : all) {
    CAPTURE(each.named);
    liar peer(p.a, id++);
    peer.say(each.kind, each.body);
    CHECK(peer.is_hung_up_on());
    CHECK(p.a.log.has(each.named));
  }
  check_alive(p.a, p.wa, p.b, p.wb);
}

TEST_CASE("law 11: slots that are not the peer's to give end the link, by name") {
  pair p;
  const lie all[] = {
      {"slot 256 does not exist", slot_kind, slot_frame(256)},
      {"slot 65535 does not exist", slot_kind, slot_frame(65535)},
      {"slot 7 is not the peer's to hand out", slot_kind, slot_frame(7)},
      {"slot 2 is in use already", slot_kind, slot_frame(2)},
      {"gives back slot 200, which it has not", returns_kind, slots_frame(200)},
      {"slot 7 is not the peer's to cede", ceded_kind, slots_frame(7)},
      {"cedes slot 2, which is in use", ceded_kind, slots_frame(2)},
      {"bytes stand behind the last field", returns_kind, bytes(40)},
      {"ends within a field", slot_kind, bytes(5)},
  };
  unsigned char id = 60;
  for (const lie& each : all) {
    CAPTURE(each.named);
    liar peer(p.a, id++);
    peer.pair_with(p.a);
    peer.say(outcome_kind, paired_outcome());
    // One that is right, and is kept.
    peer.say(slot_kind, slot_frame(2));
    peer.say(each.kind, each.body);
    CHECK(peer.is_hung_up_on());
    CHECK(p.a.log.has(each.named));
  }
  check_alive(p.a, p.wa, p.b, p.wb);
}

TEST_CASE("law 11: an outcome is said once") {
  pair p;
  liar peer(p.a, 90);
  peer.pair_with(p.a);
  peer.say(outcome_kind, paired_outcome());
  peer.say(outcome_kind, paired_outcome());
  CHECK(peer.is_hung_up_on());
  CHECK(p.a.log.has("an outcome of no pairing"));
  check_alive(p.a, p.wa, p.b, p.wb);
}

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
