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

constexpr std::size_t page = 4096;

/// Pages of their own, with none behind them.
class last_pages {
 public:
  explicit last_pages(std::size_t bytes) : bytes_(bytes) {
    void* const at = ::mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    data_ = static_cast<std::byte*>(at);
    REQUIRE(::mprotect(data_ + bytes, page, PROT_NONE) == 0);
    for (std::size_t i = 0; i < bytes; ++i)
      data_[i] = static_cast<std::byte>(i * 7 + i / 256);
  }
  last_pages(const last_pages&) = delete;
  last_pages& operator=(const last_pages&) = delete;
  ~last_pages() { ::munmap(data_, bytes_ + page); }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

std::optional<shm::remote_memory> own_memory() {
  static const std::array<std::byte, shm::memory_probe::size> secret{std::byte{7}};
  shm::memory_probe probe;
  probe.address = reinterpret_cast<std::uint64_t>(secret.data());
  probe.content = secret;
  int error = 0;
  return shm::remote_memory::of(::getpid(), probe, error);
}

ssize_t read_piece(const shm::remote_memory& memory, std::byte* into, std::byte* from,
                   std::size_t bytes) {
  const iovec here{into, bytes};
  const iovec there{from, bytes};
  return memory.read({&here, 1}, {&there, 1});
}

}  // namespace

TEST_SUITE("remote memory") {
  TEST_CASE("what is read is whole, however far behind its page it goes") {
    if (testing::reading_is_refused_here()) return;
    const auto memory = own_memory();
    REQUIRE(memory);
    constexpr std::size_t most = 80 * 1024;
    const last_pages source(most);
    std::vector<std::byte> room(most + 2 * page);
    std::byte* const target =
        room.data() + (page - reinterpret_cast<std::uintptr_t>(room.data()) % page);
    for (const std::size_t behind : {0, 1, 16, 31, 32, 100}) {
      for (const std::size_t first : {0, 16, 4090}) {
        for (const std::size_t bytes : {1, 2048, 5000, 32 * 1024, 64 * 1024, 70'000}) {
          CAPTURE(behind);
          CAPTURE(first);
          CAPTURE(bytes);
          std::fill(room.begin(), room.end(), std::byte{0xee});
          std::byte* const into = target + (first + behind) % page;
          REQUIRE(read_piece(*memory, into, source.data() + first, bytes) ==
                  static_cast<ssize_t>(bytes));
          REQUIRE(std::equal(into, into + bytes, source.data() + first));
          REQUIRE(into[-1] == std::byte{0xee});
          REQUIRE(into[bytes] == std::byte{0xee});
        }
      }
    }
  }

  TEST_CASE("memory that ends gives what there is, and none is an error") {
    if (testing::reading_is_refused_here()) return;
    const auto memory = own_memory();
    REQUIRE(memory);
    constexpr std::size_t there = 40 * 1024;
    const last_pages source(there);
    std::vector<std::byte> room(there + 3 * page);
    std::byte* const target =
        room.data() + (page - reinterpret_cast<std::uintptr_t>(room.data()) % page);
    for (const std::size_t behind : {0, 16}) {
      CAPTURE(behind);
      std::byte* const into = target + behind;
      CHECK(read_piece(*memory, into, source.data(), there + page) ==
            static_cast<ssize_t>(there));
      CHECK(std::equal(into, into + there, source.data()));
      errno = 0;
      CHECK(read_piece(*memory, into, source.data() + there, page) == -1);
      CHECK(errno == EFAULT);
    }
  }
}
