#include "report.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "manyworlds/version.hpp"
#include "plot.hpp"

namespace mwbench {

namespace {

#if defined(__clang__)
constexpr std::string_view compiler = "clang " __clang_version__;
#else
constexpr std::string_view compiler = "g++ " __VERSION__;
#endif
#if defined(__OPTIMIZE__)
constexpr bool is_optimized = true;
#else
constexpr bool is_optimized = false;
#endif

constexpr int column_width = 13;

std::string processor() {
  std::ifstream table("/proc/cpuinfo");
  for (std::string line; std::getline(table, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

/// Load of the machine by other programs: without it the figures here mean little.
double load() {
  double value = 0;
  std::ifstream("/proc/loadavg") >> value;
  return value;
}

std::string printed(const fields& value) {
  return value.is_string() ? value.get<std::string>()
         : value.is_null() ? "N/A"
                           : value.dump();
}

void print_aligned(const std::vector<std::string>& cells) {
  for (const std::string& cell : cells) {
    const int width = std::max(column_width, static_cast<int>(cell.size()) + 1);
    fmt::print("{:>{}}", cell, width);
  }
  fmt::print("\n");
}

}  // namespace

report::report(bool as_json, std::string_view transport, std::string plot) noexcept
    : as_json_(as_json),
      transport_(transport),
      plot_(std::move(plot)),
      // A reader of JSON through a pipe may show both streams.
      shows_progress_(::isatty(STDERR_FILENO) == 1 &&
                      (!as_json || ::isatty(STDOUT_FILENO) == 1)) {}

void report::progress(std::string_view text) {
  if (!shows_progress_) return;
  fmt::print(stderr, "\r\033[K{} ...", text);
  std::fflush(stderr);
  has_progress_ = true;
}

void report::erase_progress() {
  if (!std::exchange(has_progress_, false)) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

void report::machine(std::string_view engine, const fields& more) {
  utsname system{};
  ::uname(&system);
  const std::time_t now = std::time(nullptr);
  const auto version = manyworlds::linked_version();
  fields values{
      {"bench", "machine"},
      {"processor", processor()},
      {"cpus", std::thread::hardware_concurrency()},
      {"load", load()},
      {"kernel", system.release},
      {"compiler", compiler},
      {"optimized", is_optimized},
      {"engine", engine},
      {"version", fmt::format("{}.{}.{}", version.major_part, version.minor_part,
                              version.patch_part)},
      {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
  };
  values.update(more);
  if (as_json_) {
    row(values);
    return;
  }
  for (const auto& [name, value] : values.items()) {
    if (name != "bench") fmt::print("{:>12}  {}\n", name, printed(value));
  }
}

void report::row(const fields& values) {
  erase_progress();
  rows_.push_back(values);
  if (as_json_) {
    fmt::print("{}\n", values.dump());
  } else {
    std::vector<std::string> names;
    std::vector<std::string> cells;
    for (const auto& [name, value] : values.items()) {
      names.push_back(name);
      cells.push_back(printed(value));
    }
    if (names != columns_) {
      fmt::print("\n");
      print_aligned(names);
      columns_ = std::move(names);
    }
    print_aligned(cells);
  }
  std::fflush(stdout);
}

void report::end() {
  if (rows_.empty()) return;
  if (!plot_.empty()) plot(rows_, plot_);
  std::uint64_t sum = 0;
  for (const fields& row : rows_) {
    const auto found = row.find("wrong");
    if (found != row.end() && found->is_number()) sum += found->get<std::uint64_t>();
  }
  if (sum > 0) throw std::runtime_error(fmt::format("{} elements came wrong", sum));
}

}  // namespace mwbench
