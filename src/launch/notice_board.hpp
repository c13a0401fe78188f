// Notice board: what the nodes of a round tell each other, through their coordinator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace manyworlds::inline v0::detail {

/// The last notice of each node, by the nodes' ids. Each round begins without any.
/// Without I/O, threads or clocks.
class notice_board {
 public:
  /// Marks the notices that one reader has been given.
  struct mark {
    std::uint64_t round = 0;
    std::uint64_t version = 0;
  };

  /// Keeps the notice of a node of that round. A notice of an older round is dropped.
  void post(std::uint64_t round, const std::string& node, const std::string& text);
  /// Returns notices of that round which the reader was not given, and moves its mark:
  /// the oldest first, and no more than fit into a message.
  [[nodiscard]] std::map<std::string, std::string> since(mark& reader,
                                                         std::uint64_t round) const;
  /// Says whether there are others for that reader.
  [[nodiscard]] bool has_more(const mark& reader) const noexcept {
    return reader.round == round_ && reader.version < version_;
  }

 private:
  struct notice {
    std::uint64_t version = 0;
    std::string text;
  };
  std::uint64_t round_ = 0;
  std::uint64_t version_ = 0;
  std::map<std::string, notice> notices_;
};

/// The longest notice, and the most of them in one message, in bytes.
inline constexpr std::size_t longest_notice = 256 * 1024;
inline constexpr std::size_t most_notice_bytes = 1024 * 1024;

}  // namespace manyworlds::inline v0::detail
