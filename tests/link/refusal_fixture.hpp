// Runtimes with threads that are refused system calls, and whether what they send
// arrives.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "local_peer_fixture.hpp"
#include "support/pattern.hpp"
#include "support/refused_calls.hpp"

namespace manyworlds::link_tests {

using testing::call_filter;
using testing::where_refused;

inline call_filter refused(long call, int error) {
  return call_filter().refuse(call, error);
}

/// The node meets the refusals on all its threads; no other node does.
inline std::unique_ptr<node> node_where(const call_filter& calls,
                                        runtime_options options = {}) {
  std::unique_ptr<node> made;
  where_refused(calls, [&] { made = std::make_unique<node>(options); });
  return made;
}

/// From now on, on one thread of a runtime.
inline void refuse_to_service(node& n, long call, int error) {
  on_service(n, [=](runtime_core&) -> task<void> {
    testing::refuse(call, error);
    co_return;
  });
}
inline void refuse_to_reactor(node& n, call_filter calls) {
  auto there = [](call_filter calls) -> task<void> {
    if (!calls.install()) ::_exit(9);
    co_return;
  };
  n.run(there(std::move(calls)));
}
inline void refuse_to_reactor(node& n, long call, int error) {
  refuse_to_reactor(n, refused(call, error));
}

/// A world of two runtimes that know each other, or meet now.
struct shared_world {
  shared_world(node& a, node& b, const std::string& name) {
    world_options options{.form = 10s};
    options.name = name;
    form_two(options, store, a, of_a, b, of_b);
  }
  memory_store store;
  world of_a;
  world of_b;
};

/// Of a message of every way to travel: in a cell, in a chunk, in several, as an offer in
/// one place and in many.
inline const std::vector<std::size_t>& telling_sizes() {
  static const std::vector<std::size_t> all{1,    16,     17,     200,     8192,
                                            8193, 65'536, 65'537, 300'007, 3'000'000};
  return all;
}

inline task<void> send_all(world& w, rank_t peer, unsigned seed, lane on) {
  for (const std::size_t bytes : telling_sizes()) {
    const auto whole = testing::pattern(bytes, seed);
    co_await w.send(whole, to(peer), on);
    std::vector<const_buffer_view> pieces;
    for (std::size_t at = 0, step = 1; at < bytes; at += step, step = step * 3 % 9973 + 1)
      pieces.emplace_back(whole.data() + at, std::min(step, bytes - at), dtype::uint8);
    co_await w.send(pieces, to(peer), on);
  }
}

/// How many of them were not what was sent.
inline task<int> receive_all(world& w, rank_t peer, unsigned seed, lane on) {
  int wrong = 0;
  for (const std::size_t bytes : telling_sizes()) {
    const auto whole = testing::pattern(bytes, seed);
    for (int form = 0; form < 2; ++form) {
      std::vector<std::uint8_t> got(bytes);
      const message_info info = co_await w.recv(got, from(peer), on);
      wrong += got != whole || info.bytes != bytes;
    }
  }
  co_return wrong;
}

/// Whether all of it arrives as it was sent, both ways and on two lanes at once.
[[nodiscard]] inline bool carries_same_bytes(node& a, node& b, shared_world& w) {
  world& wa = w.of_a;
  world& wb = w.of_b;
  std::vector<started<void>> sends;
  std::vector<std::pair<node*, started<int>>> receives;
  for (unsigned on = 1; on <= 2; ++on) {
    sends.push_back(a.rt.start(send_all(wa, wb.rank(), on, lane(on))));
    sends.push_back(b.rt.start(send_all(wb, wa.rank(), on + 10, lane(on))));
    receives.emplace_back(&b, b.rt.start(receive_all(wb, wa.rank(), on, lane(on))));
    receives.emplace_back(&a, a.rt.start(receive_all(wa, wb.rank(), on + 10, lane(on))));
  }
  int wrong = 0;
  for (auto& [by, r] : receives) wrong += by->finish(std::move(r));
  for (auto& s : sends) a.finish(std::move(s));
  return wrong == 0;
}

}  // namespace manyworlds::link_tests
