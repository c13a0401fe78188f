#include "io/name_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include "io/descriptor.hpp"
#include "io/system_environment.hpp"
#include "manyworlds/coro/sleep.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t longest_hosts_line = 4096;
constexpr std::size_t hosts_slice = std::size_t{64} * 1024;
constexpr std::size_t longest_settings = std::size_t{64} * 1024;
// resolv.conf(5) sets these limits.
constexpr std::size_t most_name_servers = 3;
constexpr std::size_t most_domains = 16;
constexpr int most_dots = 15;
constexpr int most_dns_tries = 5;
constexpr int longest_try_seconds = 30;
constexpr std::uint16_t dns_port = 53;

/// A regular file that is read from its start. A file that cannot be opened reads as
/// empty.
class plain_file {
 public:
  // O_NONBLOCK: if it is a pipe, the open does not wait for a writer.
  explicit plain_file(const std::string& path) noexcept
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}

  /// Replaces `into` by the next bytes, at most `most`. Returns false at the end and on
  /// errors.
  bool read(std::string& into, std::size_t most) {
    into.resize(most);
    ssize_t count = -1;
    do {
      if (fd_) count = ::read(fd_.get(), into.data(), most);
    } while (fd_ && count < 0 && errno == EINTR);
    into.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return count > 0;
  }

 private:
  unique_descriptor fd_;
};

char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_same_name(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

/// Takes the next word off the front of a line. Returns an empty one at its end.
std::string_view take_word(std::string_view& line) noexcept {
  constexpr std::string_view blanks = " \t\r\v\f";
  const std::size_t begin = std::min(line.find_first_not_of(blanks), line.size());
  const std::size_t end = std::min(line.find_first_of(blanks, begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

/// Parses "10.0.0.2", "::1", and with a port "10.0.0.2:5353", "[::1]:5353".
std::optional<socket_address> parse_address(std::string_view text, std::uint16_t port) {
  if (const auto with_port = socket_address::parse(text)) return with_port;
  const std::string end = ":" + std::to_string(port);
  if (const auto v4 = socket_address::parse(std::string(text) + end)) return v4;
  return socket_address::parse("[" + std::string(text) + "]" + end);
}

/// Returns the number of "name:number", at most `most`.
std::optional<int> option_value(std::string_view word, std::string_view name, int most) {
  if (!word.starts_with(name) || word.size() == name.size()) return std::nullopt;
  word.remove_prefix(name.size());
  if (!word.starts_with(':')) return std::nullopt;
  int value = 0;
  const auto [stop, error] =
      std::from_chars(word.data() + 1, word.data() + word.size(), value);
  if (error != std::errc{} || stop != word.data() + word.size()) return std::nullopt;
  return std::clamp(value, 0, most);
}

void take_option(dns_settings& into, std::string_view word) {
  if (const auto dots = option_value(word, "ndots", most_dots)) into.dots = *dots;
  if (const auto seconds = option_value(word, "timeout", longest_try_seconds))
    into.first_try = std::chrono::seconds(std::max(*seconds, 1));
  if (const auto tries = option_value(word, "attempts", most_dns_tries))
    into.tries = std::max(*tries, 1);
  if (word == "rotate") into.takes_turns = true;
}

void take_settings_line(dns_settings& into, std::string_view line) {
  const std::string_view what = take_word(line);
  if (what == "nameserver") {
    const auto server = parse_address(take_word(line), dns_port);
    if (server && into.servers.size() < most_name_servers)
      into.servers.push_back(*server);
  } else if (what == "search" || what == "domain") {
    // The last such line counts.
    into.search.clear();
    const std::size_t most = what == "domain" ? 1 : most_domains;
    for (auto word = take_word(line); !word.empty() && into.search.size() < most;
         word = take_word(line)) {
      // The root has nothing to append.
      if (word != ".") into.search.emplace_back(word);
    }
  } else if (what == "options") {
    for (auto word = take_word(line); !word.empty(); word = take_word(line))
      take_option(into, word);
  }
}

}  // namespace

void hosts_scan::take(std::string_view piece) {
  while (!piece.empty()) {
    const std::size_t end = piece.find('\n');
    const std::string_view part = piece.substr(0, end);
    piece.remove_prefix(end == std::string_view::npos ? piece.size() : end + 1);
    // A line that is too long for such a file is not read beyond the limit.
    begun_.append(
        part.substr(0, longest_hosts_line - std::min(longest_hosts_line, begun_.size())));
    if (end == std::string_view::npos) return;
    take_line(begun_);
    begun_.clear();
  }
}

std::vector<socket_address> hosts_scan::finish() {
  take_line(begun_);
  begun_.clear();
  return std::move(found_);
}

void hosts_scan::take_line(std::string_view line) {
  line = line.substr(0, line.find('#'));
  const std::string_view numeric = take_word(line);
  for (auto word = take_word(line); !word.empty(); word = take_word(line)) {
    if (!is_same_name(word, name_)) continue;
    const auto address = parse_address(numeric, 0);
    if (!address) return;
    const socket_address a = address->with_port(port_);
    if (std::find(found_.begin(), found_.end(), a) == found_.end()) found_.push_back(a);
    return;
  }
}

task<std::vector<socket_address>> look_in_hosts(std::string path, std::string_view name,
                                                std::uint16_t port) {
  hosts_scan scan(name, port);
  plain_file file(path);
  std::string piece;
  while (file.read(piece, hosts_slice)) {
    scan.take(piece);
    // The next slice is never read in the same turn.
    if (piece.size() == hosts_slice) co_await sleep_for(duration::zero());
  }
  co_return scan.finish();
}

dns_settings read_dns_settings(std::string_view text) {
  dns_settings settings;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find_first_of("#;"));
    take_settings_line(settings, line);
  }
  return settings;
}

dns_settings load_dns_settings(const std::string& path) {
  plain_file file(path);
  std::string text;
  file.read(text, longest_settings);
  dns_settings settings = read_dns_settings(text);
  if (settings.servers.empty())
    settings.servers.push_back(socket_address::loopback(dns_port));
  if (settings.search.empty()) {
    const std::string name = own_host_name();
    const std::size_t dot = name.find('.');
    if (dot != std::string::npos && dot + 1 < name.size())
      settings.search.emplace_back(name.substr(dot + 1));
  }
  return settings;
}

}  // namespace manyworlds::inline v0::detail
