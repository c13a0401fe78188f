// Reading of another process's memory, here of this one by its pid.
#include "link/remote_memory.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "support/refused_here.hpp"

namespace {

using namespace manyworlds;
using namespace manyworlds::detail;

/// Offsets are counted within these, whatever the kernel's pages are.
constexpr std::size_t page = 4096;

std::size_t kernel_page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

/// Bytes with no memory behind them.
class last_bytes {
 public:
  explicit last_bytes(std::size_t bytes)
      : mapped_((bytes + kernel_page() - 1) / kernel_page() * kernel_page()) {
    void* const at = ::mmap(nullptr, mapped_ + kernel_page(), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    base_ = static_cast<std::byte*>(at);
    REQUIRE(::mprotect(base_ + mapped_, kernel_page(), PROT_NONE) == 0);
    data_ = base_ + mapped_ - bytes;
    for (std::size_t i = 0; i < bytes; ++i) {
      data_[i] = static_cast<std::byte>(i * 7 + i / 256);
    }
  }
  last_bytes(const last_bytes&) = delete;
  last_bytes& operator=(const last_bytes&) = delete;
  ~last_bytes() { ::munmap(base_, mapped_ + kernel_page()); }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::size_t mapped_;
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
};

std::optional<shm::remote_memory> own_memory() {
  static const std::array<std::byte, shm::memory_probe::size> secret{std::byte{7}};
  shm::memory_probe probe;
  probe.address = reinterpret_cast<std::uint64_t>(secret.data());
  probe.content = secret;
  int error = 0;
  return shm::remote_memory::of(::getpid(), probe, error);
}

enum class how : std::uint8_t { as_it_chooses, in_parts };

ssize_t read_piece(const shm::remote_memory& memory, how by, std::byte* into,
                   std::byte* from, std::size_t bytes) {
  const iovec here{into, bytes};
  const iovec there{from, bytes};
  return by == how::in_parts ? memory.read_in_parts(here, there)
                             : memory.read({&here, 1}, {&there, 1});
}

}  // namespace

TEST_SUITE("remote memory") {
  TEST_CASE("what is read is whole, however far behind its page it goes") {
    if (testing::reading_is_refused_here()) return;
    const auto memory = own_memory();
    REQUIRE(memory);
    constexpr std::size_t most = 80 * 1024;
    const last_bytes source(most);
    std::vector<std::byte> room(most + 2 * page);
    std::byte* const target =
        room.data() + (page - reinterpret_cast<std::uintptr_t>(room.data()) % page);
    for (const how by : {how::as_it_chooses, how::in_parts}) {
      for (const std::size_t behind : {0U, 1U, 16U, 31U, 32U, 100U}) {
        for (const std::size_t first : {0U, 16U, 4090U}) {
          for (const std::size_t bytes :
               {1U, 2048U, 5000U, 32U * 1024U, 64U * 1024U, 70'000U}) {
            CAPTURE(behind);
            CAPTURE(first);
            CAPTURE(bytes);
            std::fill(room.begin(), room.end(), std::byte{0xee});
            std::byte* const into = target + (first + behind) % page;
            REQUIRE(read_piece(*memory, by, into, source.data() + first, bytes) ==
                    static_cast<ssize_t>(bytes));
            REQUIRE(std::equal(into, into + bytes, source.data() + first));
            REQUIRE(into[-1] == std::byte{0xee});
            REQUIRE(into[bytes] == std::byte{0xee});
          }
        }
      }
    }
  }

  TEST_CASE("memory that ends gives what there is of a part, and none is an error") {
    if (testing::reading_is_refused_here()) return;
    const auto memory = own_memory();
    REQUIRE(memory);
    constexpr std::size_t part = 32 * 1024;
    for (const std::size_t there : {part + 8192, part}) {
      const last_bytes source(there);
      std::vector<std::byte> room(there + 2 * page);
      CAPTURE(there);
      const ssize_t got =
          read_piece(*memory, how::in_parts, room.data(), source.data(), there + page);
      // Why the second part ends is worth more than the first.
      CHECK(got == (there == part ? -1 : static_cast<ssize_t>(there)));
      if (got > 0) CHECK(std::equal(source.data(), source.data() + there, room.data()));
      for (const how by : {how::as_it_chooses, how::in_parts}) {
        errno = 0;
        CHECK(read_piece(*memory, by, room.data(), source.data() + there, page) == -1);
        CHECK(errno == EFAULT);
      }
    }
  }
}
