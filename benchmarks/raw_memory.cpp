#include "raw_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace mwbench {

namespace {

constexpr std::size_t page_bytes = 4096;

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

struct place {
  pid_t pid;
  int fd;
};

void pass(int socket, int fd) {
  const place where{::getpid(), fd};
  if (::send(socket, &where, sizeof where, MSG_NOSIGNAL) != sizeof where) {
    fail("passing shared memory");
  }
}

/// The line is tcp, which passes no descriptors; the leader waits until it is opened.
int receive(int socket) {
  place where{};
  if (::recv(socket, &where, sizeof where, MSG_WAITALL) != sizeof where) {
    fail("taking shared memory");
  }
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", where.pid, where.fd);
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  const char opened = 1;
  if (::send(socket, &opened, 1, MSG_NOSIGNAL) != 1) fail("taking shared memory");
  return fd;
}

}  // namespace

raw_memory::raw_memory(int fd, bool leads) : own_(leads ? 0 : 1) {
  const int memory = leads ? ::memfd_create("mwbench", MFD_CLOEXEC) : receive(fd);
  if (memory < 0) fail("memfd_create");
  if (leads) {
    if (::ftruncate(memory, page_bytes) != 0) fail("ftruncate");
    pass(fd, memory);
    char opened = 0;
    if (::recv(fd, &opened, 1, MSG_WAITALL) != 1) fail("passing shared memory");
  }
  void* mapped =
      ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  ::close(memory);
  if (mapped == MAP_FAILED) fail("mmap");
  page_ = static_cast<page*>(mapped);
  static_assert(sizeof(page) <= page_bytes);
  page_->of[own_].pid = ::getpid();
}

raw_memory::~raw_memory() { ::munmap(page_, page_bytes); }

void raw_memory::give(std::span<char> buffer) {
  side& mine = page_->of[own_];
  if (buffer.size() <= sizeof mine.line) {
    std::memcpy(mine.line, buffer.data(), buffer.size());
  } else {
    mine.address.store(reinterpret_cast<std::uintptr_t>(buffer.data()),
                       std::memory_order_relaxed);
  }
  mine.turn.store(++given_, std::memory_order_release);
}

void raw_memory::take(std::span<char> buffer) {
  side& theirs = page_->of[1 - own_];
  ++taken_;
  while (theirs.turn.load(std::memory_order_acquire) < taken_) {}
  if (buffer.size() <= sizeof theirs.line) {
    std::memcpy(buffer.data(), theirs.line, buffer.size());
  } else {
    read_peer(buffer);
  }
}

void raw_memory::read_peer(std::span<char> into) {
  const side& theirs = page_->of[1 - own_];
  std::size_t done = 0;
  while (can_read_ && done < into.size()) {
    const iovec here{into.data() + done, into.size() - done};
    const iovec there{
        reinterpret_cast<void*>(theirs.address.load(std::memory_order_relaxed) + done),
        into.size() - done};
    const ssize_t got = ::process_vm_readv(theirs.pid.load(), &here, 1, &there, 1, 0);
    if (got <= 0) {
      can_read_ = false;
    } else {
      done += static_cast<std::size_t>(got);
    }
  }
}

samples raw_memory::ping(std::span<char> buffer, int count) {
  samples halves;
  for (int i = 0; i < count; ++i) {
    const auto begin = now_ns();
    give(buffer);
    take(buffer);
    halves.add(us_since(begin) / 2);
  }
  return halves;
}

void raw_memory::echo(std::span<char> buffer, int count) {
  for (int i = 0; i < count; ++i) {
    take(buffer);
    give(buffer);
  }
}

double raw_memory::stream(std::span<char> buffer, int count) {
  char done = 0;
  const auto begin = now_ns();
  for (int i = 0; i < count; ++i) {
    give(buffer);
    // A line holds one message; what is read from memory stays there.
    if (buffer.size() <= sizeof(side::line)) take(std::span(&done, 1));
  }
  if (buffer.size() > sizeof(side::line)) take(std::span(&done, 1));
  return us_since(begin) / 1e6;
}

void raw_memory::drain(std::span<char> buffer, int count) {
  char done = 0;
  for (int i = 0; i < count; ++i) {
    take(buffer);
    if (buffer.size() <= sizeof(side::line)) give(std::span(&done, 1));
  }
  if (buffer.size() > sizeof(side::line)) give(std::span(&done, 1));
}

}  // namespace mwbench
