// The memory limit of a control group, hit while a segment's pages are reserved.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "link/shm_segment.hpp"
#include "support/sanitizers.hpp"

using namespace manyworlds;
using namespace manyworlds::shm;

namespace {

/// A control group of version 1 kills no process: one over the limit gets ENOMEM.
/// (Under version 2 the kernel ends a process of the group instead, which its peers
/// notice as any death.)
class memory_group {
 public:
  memory_group()
      : path_("/sys/fs/cgroup/memory/manyworlds-test-" + std::to_string(::getpid())) {
    if (::mkdir(path_.c_str(), 0700) != 0) return;
    limit_ = ::open((path_ + "/memory.limit_in_bytes").c_str(), O_WRONLY | O_CLOEXEC);
    is_there_ = limit_ >= 0 && write("memory.oom_control", "1");
  }
  ~memory_group() {
    if (limit_ >= 0) ::close(limit_);
    ::rmdir(path_.c_str());
  }

  [[nodiscard]] bool is_there() const { return is_there_; }
  [[nodiscard]] bool join() const { return write("cgroup.procs", "0"); }
  // One call, that touches no new page: at the limit, one that does would never return.
  [[nodiscard]] bool set_limit(const char* bytes) const {
    return ::write(limit_, bytes, std::strlen(bytes)) > 0;
  }

 private:
  [[nodiscard]] bool write(const char* file, const char* text) const {
    const int fd = ::open((path_ + "/" + file).c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool written = ::write(fd, text, std::strlen(text)) > 0;
    ::close(fd);
    return written;
  }

  std::string path_;
  int limit_ = -1;
  bool is_there_ = false;
};

/// 0 if all is as it should be.
int hit_the_limit(const memory_group& group) {
  std::string why_not;
  const auto segment = shm_segment::make(why_not);
  if (!segment) return 2;
  if (!group.set_limit("524288") || !group.join()) return 3;
  std::size_t reserved = offset::chunks_begin;
  int error = 0;
  for (; error == 0 && reserved < segment_bytes; reserved += page_bytes)
    error = segment->reserve(reserved, page_bytes);
  if (!group.set_limit("-1")) return 4;
  if (error != ENOMEM) return 5;
  // What was reserved is there, and the rest can be had once there is memory again.
  std::memset(segment->at(offset::chunks_begin), 1,
              reserved - page_bytes - offset::chunks_begin);
  return segment->reserve(reserved - page_bytes, page_bytes) == 0 ? 0 : 6;
}

}  // namespace

// A sanitizer's shadow memory counts too, and is touched without asking.
constexpr bool has_shadow_memory =
    testing::has_address_sanitizer || testing::has_thread_sanitizer;

TEST_CASE("a control group's memory limit is an error code, and not a signal") {
  if (has_shadow_memory) {
    MESSAGE("not under a sanitizer: its own memory would meet the limit");
    return;
  }
  const memory_group group;
  if (!group.is_there()) {
    MESSAGE(
        "refused here: a control group of our own for memory (version 1); not tested");
    return;
  }
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(20);
    ::_exit(hit_the_limit(group));
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
