// Whatever a peer's stream holds and however it is cut, a member of its world reads it
// without touching what is not its own, and each of its operations ends once at most.
#include <algorithm>
#include <memory>
#include <span>

#include "fed_engine.hpp"
#include "member.hpp"

using namespace manyworlds;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto made = std::make_unique<fuzzing::fed_engine>();
  fuzzing::fed_engine& peer = *made;
  reactor home(std::move(made), {.spin = duration::zero()});
  fuzzing::member us(home, 0, manyworlds::socket(peer.sockets(), peer.stream));
  auto rest = std::as_bytes(std::span(data, size));
  std::size_t step = 1;
  int pieces = 0;
  while (us.turn() && !rest.empty()) {
    const std::size_t given = peer.give(rest.first(std::min(step, rest.size())));
    if (given == 0) break;
    rest = rest.subspan(given);
    static_cast<void>(peer.take_sent());
    peer.let_pass(std::chrono::milliseconds(step % 8));
    step = step * 7 % 501 + 1;
    if (++pieces % 8 == 0) us.give_up_one();
  }
  return 0;
}
