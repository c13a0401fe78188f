// Page collective: carries out one collective at a time by stores in this member's
// page and looks at the others'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/page_agreement.hpp"
#include "host/schedule.hpp"
#include "io/reactor.hpp"
#include "memory/payload_copy.hpp"

namespace manyworlds::inline v0::detail::host {

class collectives;

/// Returns whether a collective may go through pages. All members come to the same
/// result: it depends on what the signature says, and on whether all have said that there
/// is a CPU for each.
[[nodiscard]] bool fits_pages(const collective_shape& shape, rank_t members,
                              bool has_cpus);

/// Carries out what a schedule was opened with. A user's buffers are touched in this
/// member's own steps alone, so that they are untouched once it has stopped (law 4).
///
/// What is larger than a place goes in rounds, each with a number of its own: while the
/// others read one round, the next ones are written. Where a payload holds the parts of
/// all, a round has a slice of each.
class page_collective final : private poller {
 public:
  page_collective(core& shared, schedule& shape, const page_agreement& links,
                  collectives& owner) noexcept;
  page_collective(const page_collective&) = delete;
  page_collective& operator=(const page_collective&) = delete;
  ~page_collective() { stop(); }

  /// Takes the pages that all members have agreed to use.
  void use(page_set pages);
  [[nodiscard]] bool has_pages() const noexcept { return pages_.own != nullptr; }
  [[nodiscard]] bool is_active() const noexcept { return active_; }
  /// Begins. Calls `collectives::page_ended` when it is done, perhaps at once; a failure
  /// is the schedule's.
  void begin();
  /// Looks again: a member has left.
  void peer_left();
  /// Ends at once: no page and no buffer is touched afterwards.
  void stop() noexcept;

 private:
  enum class reads : std::uint8_t { none, root, all };
  enum class looked : std::uint8_t { absent, entered, failed };

  bool poll() noexcept override;
  bool prepare_sleep(std::optional<duration>& limit) noexcept override;
  void cancel_sleep() noexcept override;

  bool go_on();
  /// Begins the next round, or ends. Returns whether another one follows at once.
  bool next_round();
  /// Returns this round's slice of a payload.
  template <class Byte>
  [[nodiscard]] std::span<Byte> slice_of(std::span<Byte> whole) const noexcept {
    const std::size_t at = std::min(round_at_, whole.size());
    return whole.subspan(at, std::min(slice_, whole.size() - at));
  }
  [[nodiscard]] bool has_room();
  void publish();
  [[nodiscard]] bool is_contradicted();
  bool take(bool& did);
  bool take_from(rank_t rank);
  [[nodiscard]] looked look_at(rank_t rank, std::span<const std::byte>& payload);
  void copy_own();
  [[nodiscard]] std::span<const std::byte> part_in(
      std::span<const std::byte> payload, std::span<std::byte> out) const noexcept;
  void take_payload(rank_t rank, std::span<const std::byte> payload);
  void combine(rank_t rank, std::span<const std::byte> payload);
  [[nodiscard]] std::size_t payload_given() const noexcept;
  void put_given(std::byte* at) noexcept;
  [[nodiscard]] std::size_t in_this_round(std::size_t payload) const noexcept;
  [[nodiscard]] std::size_t payload_from(rank_t rank) const noexcept;
  [[nodiscard]] bool has_come();
  [[nodiscard]] bool has_left(rank_t rank) const;
  [[nodiscard]] bool lost_a_reader();
  void fail(rank_t rank, enum cause why, std::string detail,
            collective_signature theirs = {});
  void watch();

  core& core_;
  schedule& schedule_;
  const page_agreement& links_;
  collectives& owner_;
  page_set pages_;
  std::vector<const shm::page_words*> words_;
  std::vector<std::uint64_t> known_;
  /// The last barrier of each member that needs no second look.
  std::vector<std::uint64_t> taken_;
  shm::page_group group_;
  /// The number of the page collective under way, or of the last one: pages count their
  /// own.
  std::uint64_t number_ = 0;
  reads reads_ = reads::none;
  bool active_ = false;
  bool is_polled_ = false;
  bool is_published_ = false;
  bool any_left_ = false;
  /// Brings what this member gives into its page, and where that stands in this round.
  copy_to_reader to_others_;
  std::span<const std::byte> given_;
  /// A round has a slice of each part, and not of the payload.
  bool is_by_parts_ = false;
  /// Where this round's slice begins, the most bytes of one, and what the largest
  /// payload of all members, or part, has to be divided.
  std::size_t round_at_ = 0;
  std::size_t slice_ = 0;
  std::size_t longest_ = 0;
  /// The rank of the entry that is taken next.
  rank_t next_ = 0;
  /// What the first member gave to a reduction.
  std::span<const std::byte> first_;
};

}  // namespace manyworlds::inline v0::detail::host
