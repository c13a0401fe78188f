#include "launch/hang_verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "duration_text.hpp"

namespace manyworlds::inline v0::detail {

namespace {

using witnesses = std::vector<hang_witness>;

/// A worker that hears none of its peers is cut off itself. One peer alone proves nothing
/// of that kind.
bool hears_none(const hang_witness& w) {
  std::set<int> lost;
  std::map<std::string_view, int> heard;
  for (const auto& in : w.worlds) heard[in.world] = in.size - 1;
  for (const hang_suspicion& s : w.suspects) heard[s.world] = s.size - 1;
  for (const hang_suspicion& s : w.suspects) {
    lost.insert(s.rank);
    --heard[s.world];
  }
  return lost.size() >= 2 &&
         std::all_of(heard.begin(), heard.end(),
                     [](const auto& each) { return each.second <= 0; });
}

bool is_member(const hang_witness& w, const std::string& world) {
  return std::any_of(w.worlds.begin(), w.worlds.end(),
                     [&](const auto& in) { return in.world == world; });
}

bool suspects(const hang_witness& by, int rank, const std::string* world = nullptr) {
  return std::any_of(by.suspects.begin(), by.suspects.end(),
                     [&](const hang_suspicion& s) {
                       return s.rank == rank && (world == nullptr || s.world == *world);
                     });
}

bool waits_for(const hang_witness& by, const hang_witness& w) {
  if (!by.waits || by.rank == w.rank) return false;
  return by.waits->rank ? *by.waits->rank == w.rank : is_member(w, by.waits->world);
}

/// Returns whether peers suspect it in most of its worlds.
bool is_accused(const witnesses& all, const hang_witness& w, duration limit) {
  const auto is_accused_in = [&](const hang_witness::membership& in) {
    return std::any_of(all.begin(), all.end(), [&](const hang_witness& by) {
      return by.rank != w.rank && is_believed(by, limit) &&
             suspects(by, w.rank, &in.world);
    });
  };
  const auto count = std::count_if(w.worlds.begin(), w.worlds.end(), is_accused_in);
  return static_cast<std::size_t>(2 * count) > w.worlds.size();
}

struct finding {
  hang_reason reason;
  duration since;
};

std::optional<finding> finding_of(const hang_question& asked, const hang_witness& w) {
  const witnesses& all = asked.workers;
  const duration limit = asked.limit;
  if (w.in_state >= limit && w.state == 'T')
    return finding{hang_reason::stopped, w.in_state};
  if (w.in_state >= asked.kernel_limit && w.state == 'D')
    return finding{hang_reason::in_kernel, w.in_state};
  if (!w.beats || w.state == 't') return std::nullopt;
  if (w.silent >= limit) {
    if (is_accused(all, w, limit)) {
      // It was silent before it was seen to be stopped, but that is why it still is.
      return finding{
          w.state == 'T' ? hang_reason::stopped_and_suspected : hang_reason::suspected,
          w.silent};
    }
    // Peers that hear it know better.
    if (w.worlds.empty() && !w.was_at_disk)
      return finding{hang_reason::no_beats, w.silent};
    return std::nullopt;
  }
  if (w.was_at_disk) return std::nullopt;
  if (w.without_turn >= limit) return finding{hang_reason::no_turns, w.without_turn};
  if (!w.waits && w.without_progress && *w.without_progress >= limit)
    return finding{hang_reason::no_progress, *w.without_progress};
  return std::nullopt;
}

std::string waits_on(const witnesses& all, const hang_witness& w,
                     std::vector<int>& accusers, duration limit) {
  std::string text;
  for (const hang_witness& by : all) {
    if (by.rank == w.rank) continue;
    const bool is_waiting = waits_for(by, w);
    if (is_waiting || (is_believed(by, limit) && suspects(by, w.rank)))
      accusers.push_back(by.rank);
    if (!is_waiting) continue;
    const std::string whom =
        by.waits->rank ? fmt::format(" for rank {}", *by.waits->rank) : "";
    text += fmt::format("{}rank {} waits{} in {} of {}", text.empty() ? "" : ", ",
                        by.rank, whom, by.waits->operation, by.waits->world);
  }
  return text;
}

hang_verdict verdict_on(const witnesses& all, const hang_witness& w, const finding& found,
                        duration limit) {
  hang_verdict v;
  v.rank = w.rank;
  v.pid = w.pid;
  v.reason = found.reason;
  v.since = found.since;
  v.waits = waits_on(all, w, v.accusers, limit);
  return v;
}

/// Of workers that all write no longer, returns the one that fell silent first.
const hang_witness* silent_by_output(const witnesses& all, duration limit) {
  const hang_witness* first = nullptr;
  for (const hang_witness& w : all) {
    if (w.beats || w.is_elsewhere) continue;
    if (!w.without_output || *w.without_output < limit || w.was_at_disk) return nullptr;
    const bool is_earlier = !first || (w.has_written && !first->has_written) ||
                            (w.has_written == first->has_written &&
                             *w.without_output > *first->without_output);
    if (is_earlier) first = &w;
  }
  return first;
}

std::string_view text_of(hang_reason r) {
  switch (r) {
    case hang_reason::stopped:
      return "it is stopped";
    case hang_reason::in_kernel:
      return "it is in uninterruptible sleep";
    case hang_reason::suspected:
      return "it is silent, also to its peers,";
    case hang_reason::stopped_and_suspected:
      return "it is stopped, and silent";
    case hang_reason::no_beats:
      return "it is silent";
    case hang_reason::no_turns:
      return "a task holds its reactor";
    case hang_reason::no_progress:
      return "it tells no progress, and waits for no member,";
    case hang_reason::no_output:
      break;
  }
  return "it writes nothing";
}

}  // namespace

bool is_believed(const hang_witness& w, duration limit) {
  return w.is_elsewhere || (w.beats && !w.was_late && w.silent < limit && !hears_none(w));
}

std::vector<hang_verdict> hang_verdicts(const hang_question& asked) {
  std::vector<hang_verdict> verdicts;
  if (asked.was_late) return verdicts;
  for (const hang_witness& w : asked.workers) {
    if (w.is_elsewhere) continue;
    if (const auto found = finding_of(asked, w))
      verdicts.push_back(verdict_on(asked.workers, w, *found, asked.limit));
  }
  if (!verdicts.empty()) return verdicts;
  if (const hang_witness* const w = silent_by_output(asked.workers, asked.limit)) {
    const finding found{hang_reason::no_output, *w->without_output};
    verdicts.push_back(verdict_on(asked.workers, *w, found, asked.limit));
  }
  return verdicts;
}

std::string hang_verdict::text() const {
  std::string line = fmt::format("rank {} (pid {}) is stuck: {} for {}", rank, pid,
                                 text_of(reason), duration_text(since));
  if (!waits.empty()) line += "; " + waits;
  return line;
}

}  // namespace manyworlds::inline v0::detail
