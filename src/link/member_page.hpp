// Member page: the sealed memory that one member of a world writes and all others read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "io/descriptor.hpp"
#include "link/page_words.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Names the owner of a page. Stands at the page's start, written before it is passed.
struct page_header {
  static constexpr std::uint64_t right_magic = 0x32'45'67'61'50'57'4dULL;  // "MWPagE2"

  std::uint64_t magic = right_magic;
  /// That of the world's epoch, which is random.
  std::uint64_t world_id = 0;
  std::uint32_t rank = 0;
  std::uint32_t members = 0;

  friend bool operator==(const page_header&, const page_header&) noexcept = default;
};

/// Where everything stands in a page.
namespace page_layout {
inline constexpr std::size_t words_begin = page_entry_bytes;
inline constexpr std::size_t places_begin = 4096;
/// A payload that does not fit into its entry stands in the place of its number. It is
/// free when the entry is.
inline constexpr unsigned places = page_entries;
inline constexpr std::size_t place_bytes = std::size_t{2} * 4096;
inline constexpr std::size_t bytes = places_begin + places * place_bytes;
[[nodiscard]] constexpr std::size_t place(std::uint64_t number) noexcept {
  return places_begin + static_cast<std::size_t>(number % places) * place_bytes;
}

static_assert(sizeof(page_header) <= words_begin);
static_assert(words_begin + sizeof(page_words) <= places_begin);
static_assert(place_bytes % line_size == 0);
}  // namespace page_layout

/// A mapping of a page. It is not for a forked child, which is not this member.
class page_mapping {
 public:
  page_mapping() noexcept = default;
  page_mapping(page_mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)) {}
  page_mapping& operator=(page_mapping&& other) noexcept {
    std::swap(base_, other.base_);
    return *this;
  }
  ~page_mapping();

  /// Maps the file to read, or also to write. Returns 0 or the errno.
  [[nodiscard]] int map(int file, bool writes) noexcept;
  [[nodiscard]] std::byte* base() const noexcept { return base_; }

 private:
  std::byte* base_ = nullptr;
};

/// The page of this member. No process but this one can write to it.
class own_page {
 public:
  /// Returns null, and why, if the machine refuses memory or sealing.
  [[nodiscard]] static std::unique_ptr<own_page> make(const page_header& header,
                                                      std::string& why_not);

  [[nodiscard]] page_words& words() const noexcept {
    return *reinterpret_cast<page_words*>(memory_.base() + page_layout::words_begin);
  }
  [[nodiscard]] std::byte* place_of(std::uint64_t number) const noexcept {
    return memory_.base() + page_layout::place(number);
  }
  /// Returns the descriptor that is passed to the others; -1 after `forget_file`.
  [[nodiscard]] int descriptor() const noexcept { return file_.get(); }
  /// Closes the file, which all others have been passed.
  void forget_file() noexcept { file_ = unique_descriptor(); }

 private:
  own_page() noexcept = default;

  unique_descriptor file_;
  page_mapping memory_;
};

/// Another member's page, which may change at any time: each word is read once, then
/// checked.
class peer_page {
 public:
  /// Returns null if it cannot be mapped here, as `why_not` says, or if something is
  /// wrong with it, as `wrong` says.
  [[nodiscard]] static std::unique_ptr<peer_page> map(const unique_descriptor& file,
                                                      const page_header& expected,
                                                      const char*& wrong,
                                                      std::string& why_not);

  [[nodiscard]] const page_words& words() const noexcept {
    return *reinterpret_cast<const page_words*>(memory_.base() +
                                                page_layout::words_begin);
  }
  [[nodiscard]] const std::byte* place_of(std::uint64_t number) const noexcept {
    return memory_.base() + page_layout::place(number);
  }

 private:
  peer_page() noexcept = default;

  page_mapping memory_;
};

}  // namespace manyworlds::inline v0::detail::shm
