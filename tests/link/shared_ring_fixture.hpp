// A ring with both of its ends in one place, and cells in which a torn one shows.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

#include "link/cell_ring.hpp"
#include "link/wake_up.hpp"

namespace manyworlds::detail::shm::testing {

/// Every word of a cell follows from its position: a torn one shows.
inline cell_content content_of(std::uint32_t position) {
  cell_content content;
  content.head = position * 2654435761u;
  std::uint64_t word = position;
  for (auto& each : content.body) each = word = word * 6364136223846793005u + 1;
  return content;
}

inline bool whole(const cell_content& content, std::uint32_t position) {
  const auto expected = content_of(position);
  return content.head == expected.head && content.body == expected.body;
}

/// One direction of a link, as it lies in shared memory.
struct direction {
  cell_ring ring;
  receiver_line<hardware_memory> receiver;
  wake_up_line<hardware_memory> wake_ups;
};

/// Both ends in one place.
struct both_ends {
  std::unique_ptr<direction> shared = std::make_unique<direction>();
  ring_writer writer{shared->ring};
  ring_reader reader{shared->ring};
  wake_up_sender sender{shared->receiver, shared->wake_ups};
  wake_up_receiver receiver{shared->receiver, shared->wake_ups};

  void write(std::uint32_t cells) {
    for (std::uint32_t at = 0; at != cells; ++at)
      writer.fill(at, content_of(writer.position() + at));
    writer.publish(cells);
  }
  std::uint32_t read_all() {
    std::uint32_t cells = 0;
    for (; reader.ready(); ++cells) {
      CHECK(whole(reader.front(), reader.position()));
      (void)reader.pop();
    }
    return cells;
  }
};

}  // namespace manyworlds::detail::shm::testing
