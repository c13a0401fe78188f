#include "host/read_buffer.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

using namespace manyworlds;
using namespace manyworlds::host;
using namespace std::chrono_literals;

namespace {

/// Returns how many whole pages of the buffer are memory of this machine.
std::ptrdiff_t resident_pages(const read_buffer& buffer) {
  std::vector<unsigned char> is_there(buffer.capacity() / read_buffer::page);
  REQUIRE(mincore(buffer.data(), buffer.capacity(), is_there.data()) == 0);
  return std::count_if(is_there.begin(), is_there.end(),
                       [](unsigned char page) { return (page & 1) != 0; });
}

TEST_SUITE("read_buffer") {
  TEST_CASE("what a stream's reader at rest holds is one page") {
    read_buffer buffer(64 * 1024 + 40);
    REQUIRE(buffer.capacity() == 17 * read_buffer::page);
    const time_point begin{};
    std::memset(buffer.data(), 'x', buffer.capacity());
    buffer.note_written(buffer.capacity(), begin);
    REQUIRE(resident_pages(buffer) == 17);

    // A channel that is busy keeps its memory: pages that come and go are not free.
    buffer.rest(begin + read_buffer::until_rest - 1ms);
    CHECK(resident_pages(buffer) == 17);
    buffer.rest(begin + read_buffer::until_rest);
    CHECK(resident_pages(buffer) == 1);
    CHECK(buffer.data()[0] == std::byte{'x'});

    // It has room as before.
    std::memset(buffer.data(), 'y', buffer.capacity());
    CHECK(resident_pages(buffer) == 17);
  }

  TEST_CASE("small messages keep no memory busy, and large ones keep theirs") {
    read_buffer buffer(64 * 1024 + 40);
    const time_point begin{};
    std::memset(buffer.data(), 'x', buffer.capacity());
    buffer.note_written(buffer.capacity(), begin);
    buffer.note_written(buffer.capacity(), begin + 400ms);
    buffer.rest(begin + read_buffer::until_rest);
    CHECK(resident_pages(buffer) == 17);
    buffer.note_written(read_buffer::page, begin + 800ms);
    buffer.rest(begin + 400ms + read_buffer::until_rest);
    CHECK(resident_pages(buffer) == 1);
  }
}

}  // namespace
