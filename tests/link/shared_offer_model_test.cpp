// Reused chunks, and offers that are taken and withdrawn, in all interleavings.
#include <doctest/doctest.h>

#include <cstdint>

#include "link/chunk_slab.hpp"
#include "link/model_verdicts.hpp"
#include "link/offer_table.hpp"

TEST_SUITE_BEGIN("link/shared memory");

namespace {

namespace shm = manyworlds::shm;
using interleaving::holds;
using interleaving::memory;
using interleaving::memory_model;
using interleaving::mutation;
using interleaving::none;
using interleaving::require;
using interleaving::verdict;

/// A run of two chunks for several messages, each of a word a chunk; a mailbox stands for
/// the cells.
enum class freeing { after_the_copy, before_the_copy };

verdict chunk_reuse(memory_model model, mutation planted,
                    freeing when = freeing::after_the_copy) {
  constexpr std::uint32_t messages = 3;
  interleaving::explorer explorer{model, planted};
  shm::basic_chunk_states<memory, 2> states;
  interleaving::atomic<std::uint32_t> left, right;
  std::array<interleaving::atomic<std::uint32_t>, messages> named;
  interleaving::socket_bytes socket;
  name(states.states[0], "state of the run");
  name(left, "first chunk");
  name(right, "second chunk");

  explorer.add_thread("writer", [&] {
    shm::basic_chunk_writer writer{states};
    for (std::uint32_t message = 1; message != messages + 1; ++message) {
      auto got = writer.allocate(2);
      while (got.result == shm::allocated_chunk::outcome::none_free) {
        if (writer.must_wait_for_chunk()) socket.sleep();
        got = writer.allocate(2);
      }
      require(got.result == shm::allocated_chunk::outcome::allocated, "it is believed");
      left.store(message, std::memory_order_relaxed);
      right.store(message, std::memory_order_relaxed);
      named[message - 1].store(1, std::memory_order_release);
    }
  });
  explorer.add_thread("reader", [&] {
    shm::basic_chunk_reader reader{states};
    for (std::uint32_t message = 1; message != messages + 1; ++message) {
      wait_until(named[message - 1], [](std::uint32_t is) { return is == 1; });
      (void)named[message - 1].load(std::memory_order_acquire);
      require(reader.valid(0, 2), "a run that was named is in use");
      const auto copy = [&] {
        const auto first = right.load(std::memory_order_relaxed);
        require(first == message && left.load(std::memory_order_relaxed) == message,
                "a chunk is written again only after it was read");
      };
      if (when == freeing::after_the_copy) copy();
      reader.free(0);
      if (reader.writer_waits()) socket.write();
      if (when == freeing::before_the_copy) copy();
    }
  });
  return explorer.run();
}

/// Who had the offer in the end. Assigned by the threads.
struct ending {
  bool delivered = false;
  bool withdrawn = false;
};

using offers = shm::basic_offer_table<memory, 1>;
using sender = shm::basic_offer_sender<offers>;
using receiver = shm::basic_offer_receiver<offers>;
constexpr std::uint32_t message = 7, other_use = 99;

/// A receiver pulls a buffer of two words while its sender gives up, and then uses the
/// buffer, and the table's only word, for something else.
verdict take_against_withdraw(memory_model model, mutation planted) {
  interleaving::explorer explorer{model, planted};
  offers table;
  interleaving::atomic<std::uint32_t> left{message}, right{message};
  interleaving::atomic<std::uint32_t> offered;
  name(table.words[0], "offer");
  name(left, "left half");
  name(right, "right half");
  ending end;

  explorer.add_thread("sender", [&] {
    sender mine{table};
    const auto ticket = *mine.offer();
    offered.store(1, std::memory_order_release);
    const auto how = mine.withdraw(ticket);
    require(how == sender::status::withdrawn || how == sender::status::taken,
            "an honest receiver is believed");
    end.withdrawn = how == sender::status::withdrawn;
    mine.finish(ticket);
    left.store(other_use, std::memory_order_relaxed);
    right.store(other_use, std::memory_order_relaxed);
    require(mine.offer()->generation != ticket.generation, "a ticket never comes again");
  });
  explorer.add_thread("receiver", [&] {
    receiver theirs{table};
    wait_until(offered, [](std::uint32_t is) { return is == 1; });
    (void)offered.load(std::memory_order_acquire);
    const auto first = left.load(std::memory_order_relaxed);
    const auto second = right.load(std::memory_order_relaxed);
    end.delivered = theirs.take({0, 1});
    if (end.delivered)
      require(first == message && second == message,
              "what counts as delivered was read before the buffer's next use");
  });
  explorer.at_the_end(
      [&] { require(end.delivered != end.withdrawn, "exactly one of them had it"); });
  return explorer.run();
}

}  // namespace

TEST_CASE(
    "a chunk is written again only after it was read, and a waiting writer is told") {
  for (const auto model : {memory_model::tso, memory_model::weak})
    holds(chunk_reuse(model, none));
}

TEST_CASE("planted: a chunk freed before it was copied is found") {
  for (const auto model : {memory_model::tso, memory_model::weak})
    CHECK(chunk_reuse(model, none, freeing::before_the_copy)
              .failure.starts_with("a chunk is written again"));
}

TEST_CASE("planted: waiting for a chunk without a fence on either side is found") {
  for (const auto model : {memory_model::tso, memory_model::weak})
    for (const int thread : {0, 1})
      CHECK(chunk_reuse(model, {.without_fences = thread})
                .failure.starts_with("a thread waits without end"));
}

TEST_CASE(
    "of take and withdraw exactly one wins, and what is withdrawn is never delivered") {
  for (const auto model : {memory_model::tso, memory_model::weak})
    holds(take_against_withdraw(model, none));
}

TEST_CASE("planted: take and withdraw without compare_exchange are found") {
  for (const auto model : {memory_model::tso, memory_model::weak})
    // Which claim fails first depends on who is too late.
    CHECK_FALSE(take_against_withdraw(model, {.split_exchange = true}).failure.empty());
}

TEST_SUITE_END();
