// What the model checker runs: shm's structures, made small, between a writer and a
// reader.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "link/cell_ring.hpp"
#include "link/interleaving.hpp"
#include "link/wake_up.hpp"

namespace scenarios {

namespace shm = manyworlds::shm;
using interleaving::memory;
using interleaving::memory_model;
using interleaving::mutation;
using interleaving::require;
using interleaving::verdict;

template <std::uint32_t Capacity>
using small_ring = shm::basic_ring<memory, 1, Capacity>;

template <std::uint32_t Capacity>
void name_words(small_ring<Capacity>& ring) {
  for (auto& cell : ring.cells) {
    const auto which = " of cell " + std::to_string(&cell - ring.cells.data());
    name(cell.sequence, "sequence" + which);
    name(cell.head, "head" + which);
    name(cell.body[0], "body" + which);
  }
  name(ring.consumed, "consumed");
}

/// Both lines of one direction; only slot 0 is used.
struct wake_up_lines {
  shm::receiver_line<memory> receiver;
  shm::wake_up_line<memory> wake_ups;

  wake_up_lines() {
    name(receiver.polled[0], "polled");
    name(wake_ups.slots[0], "wake_ups");
    for (std::size_t at = 1; at != shm::slot_set::words; ++at) {
      freeze(receiver.polled[at]);
      freeze(wake_ups.slots[at]);
    }
  }
};

using sender = shm::basic_wake_up_sender<memory>;
using receiver = shm::basic_wake_up_receiver<memory>;

/// The orders in which a batch can be written; the second is a planted bug.
enum class batch_order { filled_then_published, published_then_filled };

/// Cells in batches over a ring, which wraps; the writer waits for room when it is full.
inline verdict ring_in_batches(memory_model model, mutation planted, std::uint32_t batch,
                               std::uint32_t batches,
                               batch_order order = batch_order::filled_then_published) {
  interleaving::explorer explorer{model, planted};
  using ring_type = small_ring<4>;
  ring_type ring;
  name_words(ring);

  explorer.add_thread("writer", [&] {
    shm::basic_ring_writer<ring_type> writer{ring};
    for (std::uint32_t sent = 0; sent != batches; ++sent) {
      while (writer.reserve(batch) == shm::room::full)
        wait_until(ring.consumed, [&](std::uint32_t consumed) {
          return ring_type::capacity - (writer.position() - consumed) >= batch;
        });
      require(writer.reserve(batch) == shm::room::enough, "an honest reader is believed");
      if (order == batch_order::published_then_filled) {
        writer.publish(batch);
        for (std::uint32_t at = 0; at != batch; ++at)
          shm::basic_ring_writer<ring_type>{ring, sent * batch}.fill(
              at, {sent * batch + at + 1, {(sent * batch + at + 1) * 10}});
        continue;
      }
      for (std::uint32_t at = 0; at != batch; ++at)
        writer.fill(at,
                    {writer.position() + at + 1, {(writer.position() + at + 1) * 10}});
      writer.publish(batch);
    }
  });
  explorer.add_thread("reader", [&] {
    shm::basic_ring_reader<ring_type> reader{ring};
    for (std::uint32_t expected = 1; expected != batch * batches + 1; ++expected) {
      if (!reader.ready()) {
        require((expected - 1) % batch == 0, "a batch shows whole or not at all");
        wait_until(ring.at(reader.position()).sequence,
                   [&](std::uint32_t sequence) { return sequence == expected; });
        require(reader.ready(), "what is seen stays");
      }
      const auto content = reader.front();
      require(content.head == expected && content.body[0] == expected * 10,
              "each cell comes once, whole and in order");
      (void)reader.pop();
    }
  });
  return explorer.run();
}

/// The reader sleeps until it is woken whenever it finds nothing; `prepare` is the
/// product's way to fall asleep or a planted bug. It reads `cells` cells of a slot that
/// is polled or parked.
using prepare_sleep =
    std::function<bool(receiver&, wake_up_lines&, const std::function<bool()>&)>;

inline bool as_product(receiver& in, wake_up_lines&, const std::function<bool()>& look) {
  return in.prepare_sleep(look);
}

inline verdict parking(memory_model model, mutation planted, bool polled,
                       std::uint32_t cells = 2,
                       const prepare_sleep& prepare = as_product) {
  interleaving::explorer explorer{model, planted};
  using ring_type = small_ring<4>;
  ring_type ring;
  name_words(ring);
  wake_up_lines lines;
  interleaving::socket_bytes socket;

  explorer.add_thread("writer", [&] {
    shm::basic_ring_writer<ring_type> writer{ring};
    sender out{lines.receiver, lines.wake_ups};
    for (std::uint32_t at = 1; at != cells + 1; ++at) {
      require(writer.reserve(1) == shm::room::enough, "it fits");
      writer.fill(0, {at, {at}});
      writer.publish(1);
      if (out.notify(0u)) socket.write();
    }
  });
  explorer.add_thread("reader", [&] {
    shm::basic_ring_reader<ring_type> reader{ring};
    receiver in{lines.receiver, lines.wake_ups};
    if (polled) in.start_polling(0);
    // A schedule may wake it for nothing as often as there are cells.
    while (reader.position() != cells) {
      const bool look = in.take().contains(0) || polled;
      while (look && reader.ready()) (void)reader.pop();
      if (reader.position() == cells) break;
      const auto look_again = [&] { return polled && reader.ready(); };
      if (!prepare(in, lines, std::ref(look_again))) continue;
      socket.sleep();
      in.cancel_sleep();
    }
  });
  return explorer.run();
}

/// A reader that has found nothing parks its slot, and from then on waits for a
/// wake-up.
using park_slot =
    std::function<bool(receiver&, wake_up_lines&, const std::function<bool()>&)>;

inline bool park_as_product(receiver& in, wake_up_lines&,
                            const std::function<bool()>& look) {
  return in.park(0, look);
}

inline verdict going_cold(memory_model model, mutation planted,
                          const park_slot& cool = park_as_product) {
  constexpr std::uint32_t cells = 2;
  interleaving::explorer explorer{model, planted};
  using ring_type = small_ring<4>;
  ring_type ring;
  name_words(ring);
  wake_up_lines lines;

  explorer.add_thread("writer", [&] {
    shm::basic_ring_writer<ring_type> writer{ring};
    sender out{lines.receiver, lines.wake_ups};
    for (std::uint32_t at = 1; at != cells + 1; ++at) {
      require(writer.reserve(1) == shm::room::enough, "it fits");
      writer.fill(0, {at, {at}});
      writer.publish(1);
      require(!out.notify(0u), "no receiver sleeps");
    }
  });
  explorer.add_thread("reader", [&] {
    shm::basic_ring_reader<ring_type> reader{ring};
    receiver in{lines.receiver, lines.wake_ups};
    in.start_polling(0);
    const auto look_again = [&] { return reader.ready(); };
    for (;;) {
      while (reader.ready()) (void)reader.pop();
      if (reader.position() == cells) return;
      if (!cool(in, lines, std::ref(look_again))) continue;
      // A lost cell shows as a wait without end.
      wait_until(lines.wake_ups.slots[0], [](std::uint64_t slots) { return slots != 0; });
      require(in.take().contains(0), "the wake-up is for the slot");
      in.start_polling(0);
    }
  });
  return explorer.run();
}

/// A writer that finds the ring full sleeps until the reader notifies it.
inline verdict waiting_for_room(memory_model model, mutation planted) {
  constexpr std::uint32_t cells = 4;
  interleaving::explorer explorer{model, planted};
  using ring_type = small_ring<2>;
  ring_type ring;
  name_words(ring);
  interleaving::socket_bytes socket;

  explorer.add_thread("writer", [&] {
    shm::basic_ring_writer<ring_type> writer{ring};
    while (writer.position() != cells) {
      if (writer.reserve(1) == shm::room::full) {
        if (writer.must_wait_for_room(1)) socket.sleep();
        continue;
      }
      writer.fill(0, {writer.position(), {}});
      writer.publish(1);
    }
  });
  explorer.add_thread("reader", [&] {
    shm::basic_ring_reader<ring_type> reader{ring};
    while (reader.position() != cells) {
      const auto next = reader.position() + 1;
      if (!reader.ready())
        wait_until(ring.at(reader.position()).sequence,
                   [&](std::uint32_t sequence) { return sequence == next; });
      if (reader.pop()) socket.write();
    }
  });
  return explorer.run();
}

}  // namespace scenarios
