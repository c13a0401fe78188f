#include "link/member_page.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "memory/sealable_memory.hpp"

namespace manyworlds::inline v0::detail::shm {

page_mapping::~page_mapping() {
  if (base_) ::munmap(base_, page_layout::bytes);
}

int page_mapping::map(int file, bool writes) noexcept {
  MW_ASSERT(!base_, "a page is mapped once");
  const int rights = writes ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const at = ::mmap(nullptr, page_layout::bytes, rights, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return errno;
  base_ = static_cast<std::byte*>(at);
  ::madvise(base_, page_layout::bytes, MADV_DONTFORK);
  // A hole that cannot be filled gives an errno here instead of a signal later.
  return populate(base_, page_layout::bytes,
                  writes ? pages_for::writing : pages_for::reading);
}

std::unique_ptr<own_page> own_page::make(const page_header& header,
                                         std::string& why_not) {
  const auto refused = [&why_not](const char* what, int error) {
    why_not = std::string(what) + ": " + std::strerror(error);
    return nullptr;
  };
  std::unique_ptr<own_page> page(new own_page);
  page->file_ = unique_descriptor(make_sealable_memory("manyworlds-page"));
  if (!page->file_) return refused("memfd_create", errno);
  if (!is_within_file_limit(page_layout::bytes)) {
    return refused("the limit of file sizes (ulimit -f)", EFBIG);
  }
  const int file = page->file_.get();
  if (::ftruncate(file, static_cast<off_t>(page_layout::bytes)) != 0) {
    return refused("ftruncate of a page", errno);
  }
  if (const int error = reserve_file(file, 0, page_layout::bytes)) {
    return refused("memory for a page", error);
  }
  // It is mapped before it is sealed: afterwards no process, not even this one, can map
  // it to write.
  if (const int error = page->memory_.map(file, true)) {
    return refused("mapping a page", error);
  }
  if (::fcntl(file, F_ADD_SEALS, pool_seals) != 0) {
    return refused("sealing a page", errno);
  }
  std::memcpy(page->memory_.base(), &header, sizeof header);
  return page;
}

std::unique_ptr<peer_page> peer_page::map(const unique_descriptor& file,
                                          const page_header& expected, const char*& wrong,
                                          std::string& why_not) {
  wrong = nullptr;
  switch (examine_sealed(file.get(), pool_seals, page_layout::bytes)) {
    case sealed_file::as_it_should_be:
      break;
    case sealed_file::not_sealed:
      wrong = "a page that is not sealed";
      return nullptr;
    case sealed_file::unknown:
    case sealed_file::of_another_kind:
      wrong = "a page that is no memory of a known kind";
      return nullptr;
    case sealed_file::of_another_size:
      wrong = "a page of another size";
      return nullptr;
  }
  std::unique_ptr<peer_page> page(new peer_page);
  if (const int error = page->memory_.map(file.get(), false)) {
    why_not = std::string("mapping another member's page: ") + std::strerror(error);
    return nullptr;
  }
  page_header header;
  std::memcpy(&header, page->memory_.base(), sizeof header);
  if (header != expected) {
    wrong = "a page of another world or member";
    return nullptr;
  }
  return page;
}

}  // namespace manyworlds::inline v0::detail::shm
