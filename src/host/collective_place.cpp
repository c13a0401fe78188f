#include "host/collective_place.hpp"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

namespace manyworlds::inline v0::detail::host {

namespace {

/// Returns the end of a path, with whole names if the last one fits.
std::string_view end_of_path(std::string_view path, std::size_t most) noexcept {
  if (path.size() <= most) return path;
  const std::string_view end = path.substr(path.size() - most);
  const bool is_whole = path[path.size() - most - 1] == '/';
  const std::size_t name = end.find('/');
  if (is_whole || name == end.npos) return end;
  return end.substr(name + 1);
}

// Characters travel in words, the first in the lowest bits, whatever this machine's
// byte order.
std::uint64_t word_of(const char* characters) noexcept {
  std::uint64_t word = 0;
  for (unsigned i = 0; i < 8; ++i) {
    word |= std::uint64_t{static_cast<unsigned char>(characters[i])} << 8 * i;
  }
  return word;
}

void read_word(std::uint64_t word, char* characters) noexcept {
  for (unsigned i = 0; i < 8; ++i) characters[i] = static_cast<char>(word >> 8 * i);
}

}  // namespace

collective_place::collective_place(source_position where) noexcept : line_(where.line()) {
  const std::string_view end = end_of_path(where.file_name(), longest_file);
  std::memcpy(file_.data(), end.data(), end.size());
}

collective_place::collective_place(const frame& f) noexcept : line_(f.generation) {
  read_word(f.on, file_.data());
  read_word(f.word, file_.data() + 8);
  read_word(f.bytes, file_.data() + 16);
}

frame collective_place::to_frame(std::uint64_t number) const noexcept {
  frame f;
  f.kind = frame_kind::place;
  f.id = number;
  f.generation = line_;
  f.on = word_of(file_.data());
  f.word = word_of(file_.data() + 8);
  f.bytes = word_of(file_.data() + 16);
  return f;
}

std::string collective_place::text() const {
  if (!is_known()) return {};
  std::string file;
  for (const char c : file_) {
    if (c == '\0') break;
    // It is written to a log: a stranger's control characters are replaced.
    file += c > ' ' && c <= '~' ? c : '?';
  }
  return fmt::format(" at {}:{}", file, line_);
}

}  // namespace manyworlds::inline v0::detail::host
