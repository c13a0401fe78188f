// A process that is killed at any of its stores to shared memory: what its peer sees then
// is all of a batch, or nothing.
#include <sys/mman.h>

#include <cstring>
#include <new>

#include "death_fixture.hpp"
#include "link/cell_ring.hpp"
#include "link/chunk_slab.hpp"
#include "link/offer_table.hpp"

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("killed writer");

namespace {

/// Kills its process after `count` more stores: where the writers of this file's
/// processes die. Only a forked child counts, so only it dies.
struct stores_left {
  int count = -1;
  void spend() noexcept {
    if (count < 0) return;
    if (count-- == 0) ::kill(::getpid(), SIGKILL);
  }
};
stores_left& left() {
  static stores_left of_this_process;
  return of_this_process;
}

/// std::atomic, which may be the last thing that its process does.
template <class T>
class last_atomic {
 public:
  T load(std::memory_order order) const noexcept { return word_.load(order); }
  void store(T value, std::memory_order order) noexcept {
    left().spend();
    word_.store(value, order);
  }
  T exchange(T value, std::memory_order order) noexcept {
    left().spend();
    return word_.exchange(value, order);
  }

 private:
  std::atomic<T> word_;
};
struct lethal_memory {
  template <class T>
  using atomic = last_atomic<T>;
  static void full_fence() noexcept { shm::hardware_memory::full_fence(); }
};

// The same memory as the product's.
using lethal_ring = shm::basic_ring<lethal_memory, 7, shm::cell_ring::capacity>;
using lethal_chunks = shm::basic_chunk_states<lethal_memory, shm::chunk_states::chunks>;
using lethal_offers = shm::basic_offer_table<lethal_memory, shm::offer_table::offers>;
static_assert(sizeof(lethal_ring) == sizeof(shm::cell_ring));
static_assert(sizeof(lethal_chunks) == sizeof(shm::chunk_states));
static_assert(sizeof(lethal_offers) == sizeof(shm::offer_table));

/// Zeroed, and shared with forked children.
template <class T>
class shared_page {
 public:
  shared_page() {
    at_ = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                 -1, 0);
    REQUIRE(at_ != MAP_FAILED);
  }
  shared_page(const shared_page&) = delete;
  shared_page& operator=(const shared_page&) = delete;
  ~shared_page() { ::munmap(at_, sizeof(T)); }
  template <class As = T>
  [[nodiscard]] As& as() const {
    static_assert(sizeof(As) == sizeof(T));
    return *static_cast<As*>(at_);
  }

 private:
  void* at_ = nullptr;
};

constexpr std::uint32_t batch = 3;

shm::cell_content content(std::uint32_t n) {
  shm::cell_content c;
  c.head = n + 1;
  c.body.fill(0x1111111111111111U * (n + 1));
  return c;
}

/// Has `body` done in a process that dies at the store of this number. True if it came to
/// the end before.
template <class Body>
bool survives(int store, Body body) {
  child_process child([&](child_process::voice) {
    left().count = store;
    body();
  });
  return WIFEXITED(child.reap());
}

/// Makes the ring as it is once its writer has come to `position`.
void fill_lap_before(shm::cell_ring& ring, std::uint32_t position) {
  for (std::uint32_t back = shm::cell_ring::capacity; back > 0; --back)
    ring.at(position - back).sequence = position - back + 1;
  ring.consumed = position;
}

/// How much of the batch a reader sees: a cell with another's content is a failure.
std::uint32_t whole_cells(shm::cell_ring& ring, std::uint32_t position) {
  shm::ring_reader reader(ring, position);
  std::uint32_t seen = 0;
  for (; reader.ready(); ++seen) {
    const shm::cell_content c = reader.front();
    const shm::cell_content expected = content(seen);
    CHECK(c.head == expected.head);
    CHECK(c.body == expected.body);
    static_cast<void>(reader.pop());
  }
  return seen;
}

}  // namespace

TEST_CASE("a writer killed at any store of a batch has shown all of it or nothing") {
  // At the beginning, where the ring ends, and where positions wrap.
  for (const std::uint32_t position : {64U, 126U, ~std::uint32_t{0}}) {
    CAPTURE(position);
    bool nothing = false;
    bool everything = false;
    for (int store = 0;; ++store) {
      CAPTURE(store);
      shared_page<shm::cell_ring> ring;
      fill_lap_before(ring.as(), position);
      const bool through = survives(store, [&] {
        shm::basic_ring_writer<lethal_ring> writer(ring.as<lethal_ring>(), position);
        if (writer.reserve(batch) != shm::room::enough) ::_exit(2);
        for (std::uint32_t n = 0; n < batch; ++n) writer.fill(n, content(n));
        writer.publish(batch);
      });
      const std::uint32_t seen = whole_cells(ring.as(), position);
      CHECK((seen == 0 || seen == batch));
      nothing = nothing || seen == 0;
      everything = everything || seen == batch;
      if (through) {
        // A cell has a head, seven words and a sequence.
        CHECK(store == static_cast<int>(batch) * 9);
        CHECK(seen == batch);
        break;
      }
      // The store that shows it is the very last.
      CHECK(seen == 0);
    }
    CHECK((nothing && everything));
  }
}

TEST_CASE("a writer killed between taking a chunk and naming it has shown nothing") {
  for (int store = 0;; ++store) {
    CAPTURE(store);
    shared_page<shm::chunk_states> chunks;
    shared_page<shm::cell_ring> ring;
    const bool through = survives(store, [&] {
      shm::basic_chunk_writer<lethal_chunks> slab(chunks.as<lethal_chunks>());
      shm::basic_ring_writer<lethal_ring> writer(ring.as<lethal_ring>());
      for (std::uint32_t n = 0; n < batch; ++n) {
        if (slab.allocate().index != n) ::_exit(2);
        writer.fill(0, content(n));
        writer.publish(1);
      }
    });
    // Whatever is named is a chunk in use.
    const std::uint32_t seen = whole_cells(ring.as(), 0);
    shm::chunk_reader reader(chunks.as());
    for (std::uint32_t n = 0; n < seen; ++n) CHECK(reader.valid(n));
    CHECK(static_cast<int>(seen) == store / 10);
    if (through) break;
  }
}

TEST_CASE("a sender killed between an offer and its cell has offered nothing") {
  for (int store = 0;; ++store) {
    CAPTURE(store);
    shared_page<shm::offer_table> offers;
    shared_page<shm::cell_ring> ring;
    const bool through = survives(store, [&] {
      shm::basic_offer_sender<lethal_offers> sender(offers.as<lethal_offers>());
      shm::basic_ring_writer<lethal_ring> writer(ring.as<lethal_ring>());
      if (!sender.offer()) ::_exit(2);
      writer.fill(0, content(0));
      writer.publish(1);
    });
    const std::uint32_t seen = whole_cells(ring.as(), 0);
    const shm::offer_ticket ticket{0, 1};
    shm::offer_receiver receiver(offers.as());
    CHECK(receiver.still_offered(ticket) == (store > 0));
    // What is shown can be taken, though its writer is gone.
    CHECK(seen == (through ? 1U : 0U));
    if (through) {
      CHECK(receiver.take(ticket));
      break;
    }
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
