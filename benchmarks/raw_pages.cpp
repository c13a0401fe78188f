#include "raw_pages.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "raw_copy.hpp"

namespace mwbench {

namespace {

constexpr mw::lane place_of_pages{1'000'002};

[[noreturn]] void cannot(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

/// A descriptor of this process's memory, which others open by its place.
struct descriptor {
  explicit descriptor(int opened) : fd(opened) {
    if (fd < 0) cannot("opening shared pages");
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() { ::close(fd); }
  int fd;
};

struct pages_place {
  pid_t pid;
  int fd;
};

void* map_pages(int fd, std::size_t bytes) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) cannot("mapping shared pages");
  return mapped;
}

/// Rank 0 keeps its descriptor until all others have opened it.
mw::task<void*> made_by_first(mw::world& w, std::size_t bytes) {
  const descriptor memory(::memfd_create("mwbench-pages", MFD_CLOEXEC));
  if (::ftruncate(memory.fd, static_cast<off_t>(bytes)) != 0) cannot("ftruncate");
  const pages_place where{::getpid(), memory.fd};
  for (mw::rank_t rank = 1; rank < w.size(); ++rank) {
    co_await w.send_message(where, mw::to{rank}, place_of_pages);
  }
  void* const mapped = map_pages(memory.fd, bytes);
  co_await w.barrier();
  co_return mapped;
}

mw::task<void*> opened_by_others(mw::world& w, std::size_t bytes) {
  const auto told = co_await w.recv_message<pages_place>(mw::from{0}, place_of_pages);
  const std::string path =
      "/proc/" + std::to_string(told.head.pid) + "/fd/" + std::to_string(told.head.fd);
  const descriptor memory(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  void* const mapped = map_pages(memory.fd, bytes);
  co_await w.barrier();
  co_return mapped;
}

bool shows(collective_kind kind, mw::rank_t rank) noexcept {
  if (kind == collective_kind::broadcast || kind == collective_kind::scatter) {
    return rank == 0;
  }
  return rank != 0 ||
         (kind != collective_kind::reduce && kind != collective_kind::gather);
}

bool takes_from(collective_kind kind, mw::rank_t rank, mw::rank_t giver) noexcept {
  switch (kind) {
    case collective_kind::broadcast:
      return giver == 0 && rank != 0;
    case collective_kind::scatter:
      return giver == 0;
    case collective_kind::reduce:
    case collective_kind::gather:
      return rank == 0;
    default:
      return true;
  }
}

void add(std::byte* into, const std::byte* from, std::size_t bytes) noexcept {
  auto* const sums = reinterpret_cast<float*>(into);
  const auto* const values = reinterpret_cast<const float*>(from);
  for (std::size_t i = 0; i < bytes / sizeof(float); ++i) sums[i] += values[i];
}

std::span<const std::byte> bytes_of(mw::const_buffer_view v) noexcept {
  return {static_cast<const std::byte*>(v.data()), v.size_bytes()};
}

}  // namespace

mw::task<std::unique_ptr<raw_pages>> raw_pages::of(mw::world& w, bool takes_turns) {
  std::unique_ptr<raw_pages> made;
  if (w.transport() != "shm") co_return made;
  const std::size_t bytes = static_cast<std::size_t>(w.size()) * sizeof(page);
  void* mapped = nullptr;
  if (w.rank() == 0) {
    mapped = co_await made_by_first(w, bytes);
  } else {
    mapped = co_await opened_by_others(w, bytes);
  }
  made.reset(new raw_pages(static_cast<page*>(mapped), w.rank(), w.size(), takes_turns));
  // Takes the page faults that a warmed-up library has already had.
  std::memset(made->pages_[w.rank()].bytes, 'x', largest);
  co_await w.barrier();
  co_return made;
}

raw_pages::~raw_pages() {
  ::munmap(pages_, static_cast<std::size_t>(members_) * sizeof(page));
}

void raw_pages::show(std::span<const std::byte> bytes) {
  page& own = pages_[rank_];
  std::uint64_t shown = calls_ * step;
  if (bytes.size() <= sizeof own.line) {
    if (!bytes.empty()) std::memcpy(own.line, bytes.data(), bytes.size());
    own.shown.store(shown + bytes.size(), std::memory_order_release);
    return;
  }
  for (std::size_t at = 0; at < bytes.size(); at += slice) {
    const std::size_t count = std::min(slice, bytes.size() - at);
    copy_in_pieces(own.bytes + at, bytes.data() + at, count);
    own.shown.store(shown += count, std::memory_order_release);
  }
}

void raw_pages::await(mw::rank_t member, std::size_t bytes) const {
  const std::uint64_t wanted = calls_ * step + bytes;
  while (pages_[member].shown.load(std::memory_order_acquire) < wanted) {
    if (takes_turns_) ::sched_yield();
  }
}

template <class Use>
void raw_pages::read(mw::rank_t member, std::size_t whole, std::size_t from,
                     std::size_t count, Use use) const {
  const page& theirs = pages_[member];
  const std::byte* const bytes = whole <= sizeof theirs.line ? theirs.line : theirs.bytes;
  for (std::size_t done = 0; done < count; done += slice) {
    const std::size_t part = std::min(slice, count - done);
    await(member, from + done + part);
    use(done, bytes + from + done, part);
  }
}

void raw_pages::barrier() {
  ++calls_;
  show({});
  for (mw::rank_t member = 0; member < members_; ++member) await(member, 0);
}

void raw_pages::call(collective_data& d) {
  const collective_kind kind = d.kind();
  if (kind == collective_kind::barrier) return barrier();
  ++calls_;
  const bool is_broadcast = kind == collective_kind::broadcast;
  const std::span<const std::byte> own =
      bytes_of(is_broadcast ? mw::const_buffer_view(d.target()) : d.source());
  if (shows(kind, rank_)) show(own);
  auto* const target = static_cast<std::byte*>(d.target().data());
  const std::size_t part = d.bytes() / static_cast<std::size_t>(members_);
  const bool is_sliced = kind == collective_kind::scatter ||
                         kind == collective_kind::reduce_scatter ||
                         kind == collective_kind::all_to_all;
  const bool is_placed = kind == collective_kind::gather ||
                         kind == collective_kind::all_gather ||
                         kind == collective_kind::all_to_all;
  const std::size_t count = is_sliced || is_placed ? part : d.bytes();
  const std::size_t from = is_sliced ? static_cast<std::size_t>(rank_) * part : 0;
  const std::size_t whole = is_placed && !is_sliced ? part : d.bytes();
  // Each begins with itself, so that not all read the same page at a time.
  for (mw::rank_t nth = 0; nth < members_; ++nth) {
    const mw::rank_t giver = (rank_ + nth) % members_;
    if (!takes_from(kind, rank_, giver)) continue;
    std::byte* const into =
        target + (is_placed ? static_cast<std::size_t>(giver) * part : 0);
    const bool adds = d.adds() && nth > 0;
    const auto use = [&](std::size_t at, const std::byte* bytes, std::size_t size) {
      adds ? add(into + at, bytes, size) : copy_in_pieces(into + at, bytes, size);
    };
    giver == rank_ ? use(0, own.data() + from, count)
                   : read(giver, whole, from, count, use);
  }
}

void raw_pages::ping(std::span<std::byte> bytes) {
  ++calls_;
  show(bytes);
  const auto use = [&](std::size_t at, const std::byte* from, std::size_t size) {
    copy_in_pieces(bytes.data() + at, from, size);
  };
  read(1 - rank_, bytes.size(), 0, bytes.size(), use);
}

void raw_pages::echo(std::span<std::byte> bytes) {
  ++calls_;
  const auto use = [&](std::size_t at, const std::byte* from, std::size_t size) {
    copy_in_pieces(bytes.data() + at, from, size);
  };
  read(1 - rank_, bytes.size(), 0, bytes.size(), use);
  show(bytes);
}

}  // namespace mwbench
