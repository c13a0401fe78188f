#include "raw_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "raw_copy.hpp"

namespace mwbench {

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t words_bytes = 4 * page_bytes;

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

struct place {
  pid_t pid;
  int fd;
  const void* probe;
};

/// Returns whether the other process may read this one's memory.
bool pass(int socket, int fd) {
  const place where{::getpid(), fd, &where};
  char can_read = 0;
  if (::send(socket, &where, sizeof where, MSG_NOSIGNAL) != sizeof where ||
      ::recv(socket, &can_read, 1, MSG_WAITALL) != 1) {
    fail("passing shared memory");
  }
  return can_read != 0;
}

/// The channel is tcp, which passes no descriptors; the leader waits until the memory
/// is opened.
int receive(int socket, bool& can_read) {
  place where{};
  if (::recv(socket, &where, sizeof where, MSG_WAITALL) != sizeof where) {
    fail("taking shared memory");
  }
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", where.pid, where.fd);
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  place seen{};
  const iovec here{&seen, sizeof seen};
  const iovec there{const_cast<void*>(where.probe), sizeof seen};
  can_read = ::process_vm_readv(where.pid, &here, 1, &there, 1, 0) == sizeof seen;
  const char answer = can_read ? 1 : 0;
  if (::send(socket, &answer, 1, MSG_NOSIGNAL) != 1) fail("taking shared memory");
  return fd;
}

}  // namespace

raw_memory::raw_memory(int fd, bool leads, way how, std::size_t largest,
                       std::size_t places)
    : own_(leads ? 0 : 1), how_(how), places_(places) {
  shared_bytes_ = how == way::copy
                      ? (largest * places + page_bytes - 1) / page_bytes * page_bytes
                      : cells * cell_bytes;
  mapped_bytes_ = words_bytes + 2 * shared_bytes_;
  bool can_read = false;
  const int memory =
      leads ? ::memfd_create("mwbench", MFD_CLOEXEC) : receive(fd, can_read);
  if (memory < 0) fail("memfd_create");
  if (leads) {
    if (::ftruncate(memory, static_cast<off_t>(mapped_bytes_)) != 0) fail("ftruncate");
    can_read = pass(fd, memory);
  }
  if (how_ == way::read && !can_read) how_ = way::ring;
  void* mapped =
      ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  ::close(memory);
  if (mapped == MAP_FAILED) fail("mmap");
  page_ = static_cast<page*>(mapped);
  static_assert(sizeof(page) <= words_bytes);
  page_->of[own_].pid = ::getpid();
  // Take the page faults that a warmed-up library has already had.
  std::memset(shared(own_), 'x', shared_bytes_);
}

raw_memory::~raw_memory() { ::munmap(page_, mapped_bytes_); }

char* raw_memory::shared(int of) const noexcept {
  return reinterpret_cast<char*>(page_) + words_bytes +
         static_cast<std::size_t>(of) * shared_bytes_;
}

bool raw_memory::goes_by_ring(std::size_t bytes) const noexcept {
  return bytes > sizeof(side::line) &&
         (how_ == way::ring || (how_ == way::read && bytes <= cell_bytes));
}

void raw_memory::give(std::span<char> buffer) {
  if (goes_by_ring(buffer.size())) return fill_cells(buffer);
  side& mine = page_->of[own_];
  const bool in_line = buffer.size() <= sizeof mine.line;
  if (in_line) {
    std::memcpy(mine.line, buffer.data(), buffer.size());
  } else {
    mine.address.store(reinterpret_cast<std::uintptr_t>(buffer.data()),
                       std::memory_order_relaxed);
  }
  mine.turn.store(++given_, std::memory_order_release);
}

void raw_memory::take(std::span<char> buffer, std::size_t place) {
  if (goes_by_ring(buffer.size())) return empty_cells(buffer);
  side& theirs = page_->of[1 - own_];
  ++taken_;
  while (theirs.turn.load(std::memory_order_acquire) < taken_) {}
  if (buffer.size() <= sizeof theirs.line) {
    std::memcpy(buffer.data(), theirs.line, buffer.size());
  } else if (how_ == way::read) {
    lists_.empty() ? read_peer(buffer) : read_list(lists_[place]);
  } else {
    // The world's buffers are shared memory too: a message is sent from the place where
    // it was received.
    char* const into = shared(own_) + place * buffer.size();
    std::memcpy(into, shared(1 - own_), buffer.size());
  }
}

std::size_t raw_memory::read_some(std::span<const iovec> here,
                                  std::span<const iovec> there) const {
  const pid_t peer = page_->of[1 - own_].pid.load();
  const ssize_t got =
      ::process_vm_readv(peer, here.data(), here.size(), there.data(), there.size(), 0);
  if (got <= 0) fail("process_vm_readv");
  return static_cast<std::size_t>(got);
}

void raw_memory::read_peer(std::span<char> into) {
  const std::uint64_t address =
      page_->of[1 - own_].address.load(std::memory_order_relaxed);
  for (std::size_t done = 0; done < into.size();) {
    const iovec here{into.data() + done, into.size() - done};
    const iovec there{reinterpret_cast<void*>(address + done), into.size() - done};
    done += read_some({&here, 1}, {&there, 1});
  }
}

void raw_memory::read_list(const pieces& into) {
  constexpr std::size_t most = IOV_MAX;
  const std::uint64_t address =
      page_->of[1 - own_].address.load(std::memory_order_relaxed);
  std::vector<iovec> here;
  std::vector<iovec> there;
  for (std::size_t begin = 0; begin < into.size(); begin += most) {
    here.clear();
    there.clear();
    std::size_t wanted = 0;
    for (std::size_t i = begin; i < std::min(into.size(), begin + most); ++i) {
      const auto offset = static_cast<std::uint64_t>(lists_[0][i].data() - first_);
      here.push_back({into[i].data(), into[i].size()});
      there.push_back({reinterpret_cast<void*>(address + offset), into[i].size()});
      wanted += into[i].size();
    }
    if (read_some(here, there) != wanted) {
      throw std::runtime_error("process_vm_readv read less than the list");
    }
  }
}

void raw_memory::fill_cells(std::span<const char> from) {
  side& mine = page_->of[own_];
  for (; !from.empty(); ++filled_) {
    while (filled_ - seen_emptied_ == cells) {
      seen_emptied_ = mine.emptied.load(std::memory_order_acquire);
    }
    const std::size_t part = std::min(from.size(), cell_bytes);
    copy_in_pieces(shared(own_) + filled_ % cells * cell_bytes, from.data(), part);
    mine.filled.store(filled_ + 1, std::memory_order_release);
    from = from.subspan(part);
  }
}

void raw_memory::empty_cells(std::span<char> into) {
  side& theirs = page_->of[1 - own_];
  for (; !into.empty(); ++emptied_) {
    while (theirs.filled.load(std::memory_order_acquire) <= emptied_) {}
    const std::size_t part = std::min(into.size(), cell_bytes);
    copy_in_pieces(into.data(), shared(1 - own_) + emptied_ % cells * cell_bytes, part);
    theirs.emptied.store(emptied_ + 1, std::memory_order_release);
    into = into.subspan(part);
  }
}

void raw_memory::put_line(std::span<const char> message) {
  side& mine = page_->of[own_];
  while (put_ - seen_read_ == lines) {
    seen_read_ = mine.read.load(std::memory_order_acquire);
  }
  line_of_ring& next = mine.ring[put_ % lines];
  std::memcpy(next.message, message.data(), message.size());
  next.number.store(++put_, std::memory_order_release);
}

void raw_memory::get_line(std::span<char> into) {
  side& theirs = page_->of[1 - own_];
  line_of_ring& next = theirs.ring[got_ % lines];
  ++got_;
  while (next.number.load(std::memory_order_acquire) != got_) {}
  std::memcpy(into.data(), next.message, into.size());
  if (got_ % quarter == 0) theirs.read.store(got_, std::memory_order_release);
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
  const bool in_lines = buffer.size() <= sizeof(line_of_ring::message);
  for (int i = 0; i < count; ++i) {
    // A message that is read from memory stays there, and its place is told anew.
    in_lines ? put_line(buffer) : give(buffer);
  }
  take(std::span(&done, 1));
  return us_since(begin) / 1e6;
}

void raw_memory::drain(std::span<char> memory, int count) {
  char done = 0;
  const std::size_t size = memory.size() / places_;
  const bool in_lines = size <= sizeof(line_of_ring::message);
  for (int i = 0; i < count; ++i) {
    const std::size_t place = static_cast<std::size_t>(i) % places_;
    const std::span<char> into = memory.subspan(place * size, size);
    in_lines ? get_line(into) : take(into, place);
  }
  give(std::span(&done, 1));
}

}  // namespace mwbench
