#include "mwgraph/command.hpp"

#include <errno.h>
#include <fmt/format.h>

#include <cstdio>
#include <system_error>

namespace mwgraph {

void add_file(CLI::App& sub, std::string& file) {
  sub.add_option("FILE", file, "the job's description: TOML, or JSON in \"*.json\"")
      ->required();
}

manyworlds::job_graph read_graph(const std::string& file) {
  try {
    return manyworlds::job_graph::from_file(file);
  } catch (const std::system_error& e) {
    throw usage_error(e.what());
  }
}

std::string counted(std::uint64_t number, std::string_view thing) {
  return fmt::format("{} {}{}", number, thing, number == 1 ? "" : "s");
}

void print(const std::string& text) {
  const bool is_written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!is_written || std::fflush(stdout) != 0)
    throw std::system_error(errno, std::generic_category(), "standard output");
}

void complain(std::string_view what) noexcept {
  std::fprintf(stderr, "mwgraph: %.*s\n", static_cast<int>(what.size()), what.data());
}

}  // namespace mwgraph
