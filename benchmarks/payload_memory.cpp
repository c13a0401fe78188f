#include "payload_memory.hpp"

#include <algorithm>
#include <cstring>
#include <random>

namespace mwbench {

payload_memory::payload_memory(mw::runtime& rt, const p2p_options& o, std::size_t bytes)
    : views_(static_cast<std::size_t>(o.views)) {
  if (o.shared_buffers) {
    // Lists of pieces lie in the pool as well, while they are sent.
    mw::shared_pool pool(rt.pools(), bytes + (views_ + 1) * 256);
    shared_ = pool.allocate(bytes);
    bytes_ = {reinterpret_cast<char*>(shared_.data()), bytes};
    std::memset(bytes_.data(), 'x', bytes);
  } else {
    plain_.assign(bytes, 'x');
    bytes_ = plain_;
  }
}

pieces payload_memory::scattered(std::size_t offset, std::size_t size) const {
  const std::size_t count = std::min(views_, size);
  const std::size_t piece = size / count;
  pieces made;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = offset + i * piece;
    const std::size_t bytes = i + 1 < count ? piece : offset + size - begin;
    made.push_back(bytes_.subspan(begin, bytes));
  }
  // The last one is longer: it stays, so that both sides need not agree on the order.
  std::minstd_rand random(static_cast<unsigned>(offset) + 1);
  std::shuffle(made.begin(), made.end() - 1, random);
  return made;
}

}  // namespace mwbench
