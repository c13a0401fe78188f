#include "launch/run_folder.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

namespace manyworlds::inline v0::detail {

namespace {

void make_folders(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0755) != 0 && errno != EEXIST)
      throw std::system_error(errno, std::generic_category(), "the folder " + part);
    if (end == std::string::npos) return;
  }
}

}  // namespace

run_folder::run_folder(const std::string& base, const std::string& run_id) {
  if (base.empty()) return;
  make_folders(base);
  path_ = fmt::format("{}/{}_XXXXXX", base, run_id);
  if (!::mkdtemp(path_.data()))
    throw std::system_error(errno, std::generic_category(), "the log folder " + base);
}

worker_files run_folder::files_of(std::uint64_t attempt, int local_rank,
                                  std::uint64_t incarnation) const {
  if (path_.empty()) return {};
  const std::string place = file_of(attempt, std::to_string(local_rank));
  make_folders(place);
  const std::string record =
      incarnation == 1 ? "error.json" : fmt::format("error.{}.json", incarnation);
  return {place + "/stdout.log", place + "/stderr.log", place + "/" + record};
}

std::string run_folder::file_of(std::uint64_t attempt, const std::string& name) const {
  return fmt::format("{}/attempt_{}/{}", path_, attempt, name);
}

}  // namespace manyworlds::inline v0::detail
