#include "mpmd/graph_units.hpp"

#include <fmt/format.h>

#include <charconv>
#include <span>

namespace manyworlds::inline v0::detail {

namespace {

struct unit {
  std::string_view name;
  std::uint64_t of;
};

// The larger ones first.
constexpr unit times[] = {
    {"d", 86'400'000'000'000},
    {"h", 3'600'000'000'000},
    {"m", 60'000'000'000},
    {"s", 1'000'000'000},
    {"ms", 1'000'000},
    {"us", 1'000},
    {"ns", 1},
};
constexpr unit sizes[] = {
    {"TiB", std::uint64_t{1} << 40},
    {"GiB", std::uint64_t{1} << 30},
    {"MiB", std::uint64_t{1} << 20},
    {"KiB", std::uint64_t{1} << 10},
    {"B", 1},
};
constexpr unit decimal_sizes[] = {
    {"TB", 1'000'000'000'000},
    {"GB", 1'000'000'000},
    {"MB", 1'000'000},
    {"KB", 1'000},
    {"kB", 1'000},
};

/// Takes a number off the front of a text.
std::optional<std::uint64_t> take_number(std::string_view& text) noexcept {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return number;
}

/// Takes the letters off the front of a text.
std::string_view take_letters(std::string_view& text) noexcept {
  std::size_t n = 0;
  while (n < text.size() && (text[n] < '0' || text[n] > '9')) ++n;
  const std::string_view letters = text.substr(0, n);
  text.remove_prefix(n);
  return letters;
}

const unit* find_unit(std::span<const unit> among, std::string_view name) noexcept {
  for (const unit& each : among)
    if (each.name == name) return &each;
  return nullptr;
}

}  // namespace

std::optional<duration> parse_duration(std::string_view text) noexcept {
  constexpr auto most = static_cast<std::uint64_t>(duration::max().count());
  const unit* last = nullptr;
  std::uint64_t sum = 0;
  do {
    const auto number = take_number(text);
    const unit* const in = find_unit(times, take_letters(text));
    if (!number || in == nullptr) return std::nullopt;
    if (last != nullptr && in->of >= last->of) return std::nullopt;
    if (*number > most / in->of || *number * in->of > most - sum) return std::nullopt;
    sum += *number * in->of;
    last = in;
  } while (!text.empty());
  return duration(static_cast<std::int64_t>(sum));
}

std::string exact_duration_text(duration span) {
  const auto whole = static_cast<std::uint64_t>(span.count());
  if (whole == 0) return "0s";
  const unit* in = times;
  while (whole % in->of != 0) ++in;
  return fmt::format("{}{}", whole / in->of, in->name);
}

std::optional<std::uint64_t> parse_size(std::string_view text) noexcept {
  const auto number = take_number(text);
  if (!number) return std::nullopt;
  if (text.empty()) return number;
  const unit* in = find_unit(sizes, text);
  if (in == nullptr) in = find_unit(decimal_sizes, text);
  if (in == nullptr || *number > UINT64_MAX / in->of) return std::nullopt;
  return *number * in->of;
}

std::string exact_size_text(std::uint64_t bytes) {
  if (bytes == 0) return "0B";
  const unit* in = sizes;
  while (bytes % in->of != 0) ++in;
  return fmt::format("{}{}", bytes / in->of, in->name);
}

std::string byte_size_text(std::uint64_t bytes) {
  const unit* in = sizes;
  while (in->of > bytes && in->of != 1) ++in;
  if (bytes % in->of == 0) return fmt::format("{} {}", bytes / in->of, in->name);
  const double parts = static_cast<double>(bytes) / static_cast<double>(in->of);
  return fmt::format("{:.1f} {}", parts, in->name);
}

}  // namespace manyworlds::inline v0::detail
