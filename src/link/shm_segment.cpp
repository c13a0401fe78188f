#include "link/shm_segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "manyworlds/detail/assertion.hpp"
#include "memory/sealable_memory.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {

const char* usual_cause_of(int error) noexcept {
  switch (error) {
    case EPERM:
    case ENOSYS:
      return "; usual causes: a seccomp filter, a sandbox such as gVisor";
    case EACCES:
      return "; usual causes: a security module, sysctl vm.memfd_noexec";
    case ENOMEM:
    case ENOSPC:
      return "; usual cause: a memory limit";
    case EFBIG:
      return "; usual cause: the limit of file sizes (ulimit -f)";
    case EMFILE:
    case ENFILE:
      return "; usual cause: the limit of open descriptors (ulimit -n)";
    default:
      return "";
  }
}

std::string because(const char* what, int error = errno) {
  return std::string(what) + ": " + std::strerror(error) + usual_cause_of(error);
}

/// Returns why a peer's memory must not be mapped, or an empty text.
std::string why_not_mapped(int descriptor) {
  switch (examine_sealed(descriptor, size_seals, segment_bytes)) {
    case sealed_file::as_it_should_be:
      break;
    case sealed_file::not_sealed:
      return "the peer's shared memory is not sealed";
    case sealed_file::unknown:
      return because("looking at the peer's shared memory");
    case sealed_file::of_another_kind:
      return "the peer's shared memory is of an unknown kind";
    case sealed_file::of_another_size:
      return "the peer's shared memory has another size: another version?";
  }
  return {};
}

}  // namespace

std::unique_ptr<shm_segment> shm_segment::make(std::string& why_not) {
  const int fd = make_sealable_memory("manyworlds-link");
  if (fd < 0) {
    why_not = because("memfd_create");
    return nullptr;
  }
  std::unique_ptr<shm_segment> segment(new shm_segment(fd, 0));
  if (!is_within_file_limit(segment_bytes)) {
    why_not = because("ftruncate of shared memory", EFBIG);
    return nullptr;
  }
  if (::ftruncate(fd, static_cast<off_t>(segment_bytes)) != 0) {
    why_not = because("ftruncate of shared memory");
    return nullptr;
  }
  if (::fcntl(fd, F_ADD_SEALS, size_seals) != 0) {
    why_not = because("sealing shared memory");
    return nullptr;
  }
  if (const int error = segment->reserve_what_always_is()) {
    why_not = because("reserving shared memory", error);
    return nullptr;
  }
  if (!segment->map(why_not)) return nullptr;
  segment_header header;
  header.bytes = segment_bytes;
  std::memcpy(segment->at(0), &header, sizeof header);
  return segment;
}

std::unique_ptr<shm_segment> shm_segment::attach(int descriptor, std::string& why_not) {
  std::unique_ptr<shm_segment> segment(new shm_segment(descriptor, 1));
  why_not = why_not_mapped(descriptor);
  if (!why_not.empty()) return nullptr;
  if (const int error = segment->reserve_what_always_is()) {
    why_not = because("reserving shared memory", error);
    return nullptr;
  }
  if (!segment->map(why_not)) return nullptr;
  segment_header header;
  std::memcpy(&header, segment->at(0), sizeof header);
  if (header.magic != segment_magic || header.version != segment_version ||
      header.cells != cell_ring::capacity || header.bytes != segment_bytes) {
    why_not = "the peer's shared memory has another layout: another version?";
    return nullptr;
  }
  return segment;
}

bool shm_segment::map(std::string& why_not) {
  // One reservation keeps the private page and the segment at a fixed distance.
  MW_ASSERT(!base_, "a segment is mapped once");
  void* room = ::mmap(nullptr, page_bytes + segment_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    why_not = because("mapping shared memory");
    return false;
  }
  std::byte* base = static_cast<std::byte*>(room) + page_bytes;
  if (::mmap(base, segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             descriptor_.get(), 0) == MAP_FAILED) {
    why_not = because("mapping shared memory");
    ::munmap(room, page_bytes + segment_bytes);
    return false;
  }
  // A forked child is not this member and must neither hold the memory nor write to it.
  ::madvise(base, segment_bytes, MADV_DONTFORK);
  base_ = base;
  return true;
}

shm_segment::~shm_segment() {
  if (base_) ::munmap(private_page(), page_bytes + segment_bytes);
}

int shm_segment::reserve_what_always_is() const noexcept {
  int error = reserve(0, offset::rings_begin);
  for (int direction = 0; direction < sides && error == 0; ++direction) {
    error = reserve(offset::chunk(direction, 0), first_chunks * chunk_size);
  }
  return error;
}

int shm_segment::reserve(std::size_t offset, std::size_t bytes) const noexcept {
  return reserve_file(descriptor_.get(), offset, bytes);
}

void shm_segment::give_back(std::size_t offset, std::size_t bytes) const noexcept {
  MW_ASSERT(offset % page_bytes == 0 && bytes % page_bytes == 0, "whole pages go back");
  static_cast<void>(::fallocate(descriptor_.get(),
                                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                static_cast<off_t>(offset), static_cast<off_t>(bytes)));
}

}  // namespace manyworlds::inline v0::detail::shm
