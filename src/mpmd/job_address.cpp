#include "mpmd/job_address.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "io/descriptor.hpp"

namespace manyworlds::inline v0::detail {

std::string folder_of_jobs(const std::string& base) {
  if (!base.empty()) return base;
  const char* const run = std::getenv("XDG_RUNTIME_DIR");
  if (run != nullptr && *run != '\0') return fmt::format("{}/manyworlds", run);
  return fmt::format("/tmp/manyworlds-{}", ::getuid());
}

std::optional<std::string> end_of_job(const std::string& base, const std::string& job) {
  std::ifstream file(fmt::format("{}/{}/ended.json", folder_of_jobs(base), job));
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), {}};
  // Another text tells no end, for which a caller would wait.
  if (!nlohmann::json::parse(text, nullptr, false).is_object()) return std::nullopt;
  return text;
}

/// A job holds a lock in its folder for as long as it lives.
static bool has_been_killed(const std::string& folder) {
  const unique_descriptor opened(
      ::open((folder + "/lock").c_str(), O_RDONLY | O_CLOEXEC));
  return opened && ::flock(opened.get(), LOCK_SH | LOCK_NB) == 0;
}

job_address address_of_job(const std::string& base, const std::string& job) {
  const std::string folder = fmt::format("{}/{}", folder_of_jobs(base), job);
  const std::string path = folder + "/job.json";
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto told = nlohmann::json::parse(text, nullptr, false);
  const bool is_told = told.is_object() && told.contains("store") &&
                       told["store"].is_string() && told.contains("secret_file") &&
                       told["secret_file"].is_string();
  if (!is_told)
    throw std::runtime_error(fmt::format(
        "no job \"{}\" was started on this machine (no {}); --store names its store", job,
        path));
  if (has_been_killed(folder))
    throw std::runtime_error(
        fmt::format("the job \"{}\" was killed, and has left nothing that runs", job));
  return {job, told["store"], told["secret_file"]};
}

}  // namespace manyworlds::inline v0::detail
