#include "manyworlds/launch/worker_failure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "launch/plain_text.hpp"

namespace manyworlds::inline v0 {

namespace {

/// What a shell says of a program that it cannot find, or cannot execute.
constexpr int code_not_started = 127;
constexpr std::size_t widest_frame = 60;

std::string time_of_failure(std::int64_t seconds) {
  const auto when = static_cast<std::time_t>(seconds);
  std::tm parts{};
  ::localtime_r(&when, &parts);
  char text[32] = "";
  std::strftime(text, sizeof text, "%Y-%m-%d_%H:%M:%S", &parts);
  return text;
}

std::string indented(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "  ";
  }
  return out;
}

std::string text_of_failure(std::size_t number, const worker_failure& f) {
  return fmt::format(
      "[{}]:\n"
      "  time      : {}\n"
      "  host      : {}\n"
      "  rank      : {} (local_rank: {})\n"
      "  exitcode  : {} (pid: {})\n"
      "  error_file: {}\n"
      "  traceback : {}",
      number, time_of_failure(f.time), detail::plain_text(f.host), f.rank, f.local_rank,
      f.code(), f.reason.pid,
      f.error_file.empty() ? "<N/A>" : detail::plain_text(f.error_file),
      indented(detail::plain_text(f.traceback)));
}

std::size_t width_of(const std::string& text) {
  std::size_t widest = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    widest = std::max(widest, end - begin);
    begin = end + 1;
  }
  return widest;
}

}  // namespace

int worker_failure::code() const noexcept {
  if (reason.kind == exit_kind::not_started) return code_not_started;
  return reason.signal != 0 ? -reason.signal : reason.code;
}

std::string failure_summary(std::string_view program,
                            std::span<const worker_failure> failures) {
  if (failures.empty()) return {};
  const std::string title = fmt::format("{} FAILED", program);
  std::vector<const worker_failure*> by_rank;
  for (const worker_failure& f : failures) by_rank.push_back(&f);
  std::sort(by_rank.begin(), by_rank.end(),
            [](auto* a, auto* b) { return a->rank < b->rank; });
  std::size_t width = title.size();
  std::string root;
  std::string others;
  for (std::size_t i = 0; i < by_rank.size(); ++i) {
    const std::string text = text_of_failure(i, *by_rank[i]);
    width = std::max(width, width_of(text));
    if (by_rank[i] == &failures.front()) {
      root = text;
    } else {
      others += (others.empty() ? "" : "\n") + text;
    }
  }
  if (others.empty()) others = "  <NO_OTHER_FAILURES>";
  width = std::min(width, widest_frame);
  const std::string frame(width, '=');
  const std::string line(width, '-');
  return fmt::format(
      "\n{0}\n{1}\n{2}\nFailures:\n{3}\n{2}\nRoot Cause (first observed "
      "failure):\n{4}\n{0}",
      frame, title, line, others, root);
}

}  // namespace manyworlds::inline v0
