#include "launch/notice_board.hpp"

#include <algorithm>
#include <vector>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

void notice_board::post(std::uint64_t round, const std::string& node,
                        const std::string& text) {
  MW_ASSERT(text.size() <= longest_notice, "a notice's length was checked");
  if (round < round_) return;
  if (round > round_) {
    round_ = round;
    notices_.clear();
  }
  notice& kept = notices_[node];
  if (kept.version > 0 && kept.text == text) return;
  kept = {++version_, text};
}

std::map<std::string, std::string> notice_board::since(mark& reader,
                                                       std::uint64_t round) const {
  if (reader.round != round) reader = {round, 0};
  std::map<std::string, std::string> given;
  if (round != round_) return given;
  using entry = std::map<std::string, notice>::const_iterator;
  std::vector<entry> unread;
  for (auto each = notices_.begin(); each != notices_.end(); ++each) {
    if (each->second.version > reader.version) unread.push_back(each);
  }
  std::sort(unread.begin(), unread.end(), [](const entry& a, const entry& b) {
    return a->second.version < b->second.version;
  });
  std::size_t bytes = 0;
  for (const entry& each : unread) {
    bytes += each->first.size() + each->second.text.size();
    if (bytes > most_notice_bytes) return given;
    given.emplace(each->first, each->second.text);
    reader.version = each->second.version;
  }
  // Versions of notices that were replaced are given to no reader.
  reader.version = version_;
  return given;
}

}  // namespace manyworlds::inline v0::detail
