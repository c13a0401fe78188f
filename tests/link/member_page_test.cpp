// The file of a page: what is mapped, and what is refused.
#include "link/member_page.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

using namespace manyworlds;
using namespace manyworlds::shm;

namespace {

/// Spelled out: what a stranger must have done to its file.
constexpr int right_seals =
    F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE;

page_header header_of_one() {
  page_header h;
  h.world_id = 42;
  h.rank = 1;
  h.members = 3;
  return h;
}

unique_descriptor test_page_file(std::size_t bytes, int seals,
                                 const page_header& header) {
  unique_descriptor file(::memfd_create("test-page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(file);
  REQUIRE(::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
  REQUIRE(::pwrite(file.get(), &header, sizeof header, 0) == sizeof header);
  if (seals != 0) REQUIRE(::fcntl(file.get(), F_ADD_SEALS, seals) == 0);
  return file;
}

std::string wrong_with(const unique_descriptor& file) {
  const char* wrong = nullptr;
  std::string why_not;
  const auto page = peer_page::map(file, header_of_one(), wrong, why_not);
  CHECK_FALSE(page);
  CHECK(why_not == "");
  return wrong ? wrong : "";
}

}  // namespace

TEST_SUITE("link/member page") {
  TEST_CASE("what its owner writes the others see, and only its owner can write") {
    std::string why_not;
    const auto own = own_page::make(header_of_one(), why_not);
    REQUIRE_MESSAGE(own, why_not);
    const unique_descriptor file(::dup(own->descriptor()));
    const char* wrong = nullptr;
    const auto seen = peer_page::map(file, header_of_one(), wrong, why_not);
    REQUIRE(seen);
    own->words().entries[2].number.store(7);
    CHECK(seen->words().entries[2].number.load() == 7);
    std::memset(own->place_of(1), 0x5a, page_layout::place_bytes);
    CHECK(seen->place_of(1)[page_layout::place_bytes - 1] == std::byte{0x5a});
    CHECK(::mmap(nullptr, page_layout::bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                 file.get(), 0) == MAP_FAILED);
    CHECK(::write(file.get(), "x", 1) == -1);
    CHECK(::ftruncate(file.get(), 0) == -1);
    CHECK(::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) ==
          -1);
  }

  TEST_CASE("a file that is not sealed, of another size or of another world is refused") {
    const page_header right = header_of_one();
    CHECK(wrong_with(test_page_file(page_layout::bytes, 0, right)) ==
          "a page that is not sealed");
    // Its owner, or one it has passed it to, could cut it off.
    CHECK(wrong_with(test_page_file(page_layout::bytes, F_SEAL_GROW | F_SEAL_SEAL,
                                    right)) == "a page that is not sealed");
    // Others than its owner could write to it.
    CHECK(wrong_with(test_page_file(page_layout::bytes,
                                    F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, right)) ==
          "a page that is not sealed");
    CHECK(wrong_with(test_page_file(page_layout::bytes - 4096, right_seals, right)) ==
          "a page of another size");
    for (int field = 0; field < 4; ++field) {
      page_header other = right;
      if (field == 0) other.magic ^= 1;
      if (field == 1) other.world_id ^= 1;
      if (field == 2) other.rank ^= 1;
      if (field == 3) other.members ^= 1;
      CHECK(wrong_with(test_page_file(page_layout::bytes, right_seals, other)) ==
            "a page of another world or member");
    }
    const unique_descriptor no_memory(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    CHECK(wrong_with(no_memory) == "a page that is not sealed");
  }
}
