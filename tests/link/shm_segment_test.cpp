// The segment of a link: what is believed of a descriptor that a peer has passed.
#include "link/shm_segment.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

using namespace manyworlds;
using namespace manyworlds::shm;

namespace {

int memory_of(std::size_t bytes, int seals) {
  const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(fd >= 0);
  REQUIRE(::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
  if (seals != 0) REQUIRE(::fcntl(fd, F_ADD_SEALS, seals) == 0);
  return fd;
}

constexpr int all_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string refusal_of(int fd) {
  std::string why_not;
  CHECK(shm_segment::attach(fd, why_not) == nullptr);
  return why_not;
}

}  // namespace

TEST_CASE("what one side of a segment writes, the other reads") {
  std::string why_not;
  const auto mine = shm_segment::make(why_not);
  REQUIRE_MESSAGE(mine, why_not);
  const auto theirs = shm_segment::attach(::dup(mine->descriptor()), why_not);
  REQUIRE_MESSAGE(theirs, why_not);
  CHECK(mine->side() == 0);
  CHECK(theirs->side() == 1);
  const std::size_t last = segment_bytes - 8;
  REQUIRE(mine->reserve(last, 8) == 0);
  std::memcpy(mine->at(last), "manyword", 8);
  CHECK(std::memcmp(theirs->at(last), "manyword", 8) == 0);
}

TEST_CASE("law 11: a segment that could be cut off under its reader is refused") {
  for (const int missing : {all_seals, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL,
                            F_SEAL_SHRINK | F_SEAL_SEAL}) {
    CAPTURE(missing);
    CHECK(refusal_of(memory_of(segment_bytes, all_seals & ~missing)).find("sealed") !=
          std::string::npos);
  }
}

TEST_CASE("law 11: a segment that is sealed against its reader's writing is refused") {
  for (const int too_much : {F_SEAL_WRITE, F_SEAL_FUTURE_WRITE}) {
    CAPTURE(too_much);
    CHECK(refusal_of(memory_of(segment_bytes, all_seals | too_much))
              .find("Operation not permitted") != std::string::npos);
  }
}

TEST_CASE("law 11: a segment of another size or layout is refused") {
  CHECK(refusal_of(memory_of(segment_bytes / 2, all_seals)).find("size") !=
        std::string::npos);
  CHECK(refusal_of(memory_of(segment_bytes, all_seals)).find("layout") !=
        std::string::npos);
}

TEST_CASE("law 11: a descriptor that is no shared memory is refused") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  CHECK_FALSE(refusal_of(ends[0]).empty());
  ::close(ends[1]);
  CHECK_FALSE(refusal_of(::open("/dev/zero", O_RDWR | O_CLOEXEC)).empty());
}

TEST_CASE("a segment can be neither cut off nor grown once it is made") {
  std::string why_not;
  const auto mine = shm_segment::make(why_not);
  REQUIRE_MESSAGE(mine, why_not);
  CHECK(::ftruncate(mine->descriptor(), 0) == -1);
  CHECK(::ftruncate(mine->descriptor(), 2 * segment_bytes) == -1);
  CHECK(mine->reserve(segment_bytes, page_bytes) != 0);
}

TEST_CASE("law 12: a forked child has no segment to write to") {
  std::string why_not;
  const auto mine = shm_segment::make(why_not);
  REQUIRE_MESSAGE(mine, why_not);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // mincore does not touch: it answers ENOMEM for what is not mapped.
    unsigned char there = 0;
    const bool mapped = ::mincore(mine->at(0), page_bytes, &there) == 0;
    ::_exit(mapped ? 1 : 0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
