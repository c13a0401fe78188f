// Raw pages: collectives of members that write into pages of their own, read each
// other's, and do nothing else: no peer is watched, nothing is noted, no call is checked.
// The limit for small collectives and pairs, in the same run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collective_data.hpp"

namespace mwbench {

/// A page for each member of a world, in memory that all of them map.
class raw_pages {
 public:
  /// What one member may show at a time.
  static constexpr std::size_t largest = std::size_t{64} << 10;

  /// All members await it. Null where they do not share memory. Who `takes_turns` gives
  /// up its CPU whenever it has to wait, as members do that are more than the CPUs.
  [[nodiscard]] static mw::task<std::unique_ptr<raw_pages>> of(mw::world& w,
                                                               bool takes_turns);
  ~raw_pages();
  raw_pages(const raw_pages&) = delete;
  raw_pages& operator=(const raw_pages&) = delete;

  /// Waits until all members are here.
  void barrier();
  /// One call, of at most `largest` bytes: all members make it, after a barrier, since a
  /// page is written again only when all have read it.
  void call(collective_data& d);

  /// Half round trips of `bytes` with the other of two members, which echoes.
  void ping(std::span<std::byte> bytes);
  void echo(std::span<std::byte> bytes);

 private:
  /// Slices are read while the next ones are written.
  static constexpr std::size_t slice = std::size_t{8} << 10;
  struct alignas(128) page {
    /// Calls times `step`, and how much of this one's bytes stands here.
    std::atomic<std::uint64_t> shown;
    /// What fits is in the line that is waited for.
    std::byte line[48];
    alignas(4096) std::byte bytes[largest];
  };
  static constexpr std::uint64_t step = 2 * largest;

  raw_pages(page* pages, mw::rank_t rank, mw::rank_t members, bool takes_turns) noexcept
      : pages_(pages), rank_(rank), members_(members), takes_turns_(takes_turns) {}

  void show(std::span<const std::byte> bytes);
  /// Without a deadline: a member that is gone ends them all (`bound_this_process`).
  void await(mw::rank_t member, std::size_t bytes) const;
  /// `whole` is how much that member shows in this call: it says where it stands.
  template <class Use>
  void read(mw::rank_t member, std::size_t whole, std::size_t from, std::size_t count,
            Use use) const;

  page* pages_;
  mw::rank_t rank_;
  mw::rank_t members_;
  bool takes_turns_;
  std::uint64_t calls_ = 0;
};

}  // namespace mwbench
