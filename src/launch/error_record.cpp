#include "launch/error_record.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "io/descriptor.hpp"

#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#define MANYWORLDS_HAS_JSON 1
#endif

namespace manyworlds::inline v0::detail {

namespace {

constexpr off_t longest_error_record = 4 << 20;
constexpr int deepest_error_record = 64;

/// Reads a regular file that is not too long. Nothing: `why_not` says it, but for a file
/// that is not there.
std::optional<std::string> short_file(const std::string& path, std::string& why_not) {
  // A worker may have left anything there: a link, a pipe without a writer.
  const unique_descriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!file) {
    if (errno == ENOENT) return std::nullopt;
    why_not = errno == ELOOP ? "is a symbolic link" : "cannot be opened";
    return std::nullopt;
  }
  struct stat what {};
  if (::fstat(file.get(), &what) != 0 || !S_ISREG(what.st_mode)) {
    why_not = "is no regular file";
    return std::nullopt;
  }
  if (what.st_size > longest_error_record) {
    why_not = fmt::format("has {} bytes, at most {} are read", what.st_size,
                          longest_error_record);
    return std::nullopt;
  }
  std::string text(static_cast<std::size_t>(what.st_size), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t some = ::read(file.get(), text.data() + have, text.size() - have);
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) break;
    have += static_cast<std::size_t>(some);
  }
  text.resize(have);
  // torchrun makes the file, and so may a worker that died before it wrote.
  if (text.empty()) return std::nullopt;
  return text;
}

/// Writes a file anew. A pipe that no process reads is refused: the job has ended, and
/// does not wait for one.
bool write_short_file(const std::string& path, std::string_view text) {
  const unique_descriptor file(
      ::open(path.c_str(),
             O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644));
  if (!file) return false;
  while (!text.empty()) {
    const ssize_t some = ::write(file.get(), text.data(), text.size());
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(some));
  }
  return true;
}

#if MANYWORLDS_HAS_JSON

using nlohmann::json;

const json* member_of(const json& in, const char* name) {
  if (!in.is_object()) return nullptr;
  const auto found = in.find(name);
  return found == in.end() ? nullptr : &*found;
}

/// Takes a number, or a text of digits. Returns 0 for what is no time of this era, such
/// as one in nanoseconds.
std::int64_t seconds_of(const json* time) {
  constexpr std::int64_t end_of_year_9999 = 253402300799;
  std::int64_t seconds = 0;
  if (time && time->is_number_integer()) seconds = time->get<std::int64_t>();
  if (time && time->is_string())
    seconds = std::strtoll(time->get_ref<const std::string&>().c_str(), nullptr, 10);
  return seconds > end_of_year_9999 ? 0 : seconds;
}

#endif

}  // namespace

#if MANYWORLDS_HAS_JSON

std::optional<error_record> read_error_record(const std::string& path,
                                              std::string& why_not) {
  std::optional<std::string> text = short_file(path, why_not);
  if (!text) return std::nullopt;
  // To write a value takes stack by its depth.
  bool is_deep = false;
  const auto keep = [&](int depth, json::parse_event_t, json&) {
    is_deep = is_deep || depth > deepest_error_record;
    return !is_deep;
  };
  const json in = json::parse(*text, keep, false);
  if (is_deep) {
    why_not = "has too many levels";
    return std::nullopt;
  }
  const json* const message = member_of(in, "message");
  error_record record;
  if (message && message->is_string()) {
    record.message = record.traceback = message->get<std::string>();
    record.time = seconds_of(member_of(in, "timestamp"));
  } else if (message && message->is_object()) {
    const json* const more = member_of(*message, "extraInfo");
    const json* const brief = member_of(*message, "message");
    if (brief && brief->is_string()) record.message = brief->get<std::string>();
    const json* shown = more ? member_of(*more, "py_callstack") : nullptr;
    if (!shown) shown = brief;
    record.traceback = shown && shown->is_string() ? shown->get<std::string>() : "<N/A>";
    record.time = more ? seconds_of(member_of(*more, "timestamp")) : 0;
  } else {
    why_not = "is no JSON object with a message";
    return std::nullopt;
  }
  record.json = std::move(*text);
  return record;
}

bool pass_on_error(const error_record& record, int code, const std::string& path) {
  json out = json::parse(record.json, nullptr, false);
  const auto message = out.find("message");
  if (message == out.end()) return false;
  if (message->is_object()) (*message)["errorCode"] = code;
  return write_short_file(path, out.dump(-1, ' ', false, json::error_handler_t::replace));
}

#else

std::optional<error_record> read_error_record(const std::string& path,
                                              std::string& why_not) {
  if (short_file(path, why_not))
    why_not = "cannot be read by a build without nlohmann-json";
  return std::nullopt;
}

bool pass_on_error(const error_record& record, int, const std::string& path) {
  return write_short_file(path, record.json);
}

#endif

}  // namespace manyworlds::inline v0::detail
