// Page agreement: whether the members of a world have one another's pages, and from which
// collective on they use them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/collective_tracker.hpp"
#include "host/core.hpp"
#include "host/frame.hpp"
#include "link/member_page.hpp"
#include "link/shared_link.hpp"

namespace manyworlds::inline v0::detail::host {

/// The pages of a world, by rank.
struct page_set {
  std::unique_ptr<shm::own_page> own;
  std::vector<std::unique_ptr<shm::peer_page>> others;
};

/// Each member passes its page to all others, and tells them once whether it has mapped
/// theirs: with READY, from which number on it can use them; or that it never will. All
/// hear the same answers, and so all draw the same line: the largest of the numbers. No
/// member begins a collective of its own number or a later one before it has all answers.
class page_agreement {
 public:
  enum class way : std::uint8_t { messages, undecided, pages };

  page_agreement(core& shared, const collective_tracker& numbers);
  page_agreement(const page_agreement&) = delete;
  page_agreement& operator=(const page_agreement&) = delete;

  /// Notes the link to a member of this host. Called before anything else.
  void add_link(rank_t peer, std::shared_ptr<shm::shared_link> link, unsigned slot);
  /// Says whether `begin` would do something.
  [[nodiscard]] bool may_begin() const noexcept { return stage_ == stage::unused; }
  /// Makes this member's page and passes it to all others.
  void begin();
  /// Handles a member's PAGE frame. Returns null, or what is wrong with it.
  const char* handle(rank_t peer, const frame& f);
  /// A member that has left without an answer gives none.
  void peer_left(rank_t peer);

  [[nodiscard]] way way_of(std::uint64_t number) const noexcept {
    if (stage_ == stage::agreed) return number >= from_ ? way::pages : way::messages;
    return own_from_ != 0 && number >= own_from_ ? way::undecided : way::messages;
  }
  [[nodiscard]] bool is_decided() const noexcept {
    return stage_ == stage::agreed || stage_ == stage::refused;
  }
  /// Says whether there is a CPU for each member, as all of them have told.
  [[nodiscard]] bool has_cpus() const noexcept { return has_cpus_; }
  /// Returns the pages. Precondition: all have agreed to use them. Called once.
  [[nodiscard]] page_set take_pages() noexcept { return std::move(pages_); }
  [[nodiscard]] shm::shared_link* link_to(rank_t peer) const noexcept {
    return members_[static_cast<std::size_t>(peer)].link.get();
  }

 private:
  enum class stage : std::uint8_t { unused, offered, agreed, refused };
  struct member {
    std::shared_ptr<shm::shared_link> link;
    unsigned slot = 0;
    bool was_mapped = false;
    /// The number that it has told; 0 before.
    std::uint64_t from = 0;
  };

  [[nodiscard]] bool is_possible() const noexcept;
  [[nodiscard]] shm::page_header header_of(rank_t rank) const noexcept;
  void tell(rank_t peer, std::uint32_t what, std::uint64_t id);
  const char* map(rank_t peer, std::uint64_t token);
  /// Tells all that this member never uses pages. `why_not` is logged, unless it is
  /// empty: as a warning for the first world of a link, for debugging else.
  void refuse(const std::string& why_not);
  void give_up() noexcept;
  void look_at_answers();

  core& core_;
  const collective_tracker& numbers_;
  std::vector<member> members_;
  page_set pages_;
  stage stage_ = stage::unused;
  std::uint64_t own_from_ = 0;
  std::uint64_t from_ = 0;
  bool has_cpus_ = true;
};

}  // namespace manyworlds::inline v0::detail::host
