#include "mwgraph/job_folder.hpp"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "link/secret_file.hpp"
#include "mpmd/job_address.hpp"
#include "mwgraph/command.hpp"

namespace mwgraph {

namespace files = std::filesystem;

constexpr std::chrono::milliseconds patience_with_last_job{5000};
constexpr std::chrono::milliseconds patience_with_asking{200};

static void make_private_folder(const std::string& path) {
  files::create_directories(files::absolute(path).parent_path());
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw std::system_error(errno, std::generic_category(), path);
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
      found.st_uid != ::getuid() || (found.st_mode & 077) != 0)
    throw std::runtime_error(
        fmt::format("{} is not a folder of this user's alone (--folder)", path));
}

job_folder::job_folder(const std::string& base, const std::string& job) {
  const std::string all = manyworlds::detail::folder_of_jobs(base);
  make_private_folder(all);
  path_ = fmt::format("{}/{}", all, job);
  make_private_folder(path_);
  const std::string lock = path_ + "/lock";
  // The folder itself: what cleans temporary files leaves one alone that is locked. And a
  // file: a file system of several machines has no locks on folders.
  folder_lock_ = manyworlds::detail::unique_descriptor(
      ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_lock_) throw std::system_error(errno, std::generic_category(), path_);
  lock_ = manyworlds::detail::unique_descriptor(
      ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_) throw std::system_error(errno, std::generic_category(), lock);
  const auto begun = std::chrono::steady_clock::now();
  while (::flock(folder_lock_.get(), LOCK_EX | LOCK_NB) != 0 ||
         ::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    // One that has told its end still answers those who wait for it. Those who ask lock
    // it for a moment, to see whether it lives.
    const bool is_over = files::exists(path_ + "/ended.json");
    const auto patience = is_over ? patience_with_last_job : patience_with_asking;
    if (std::chrono::steady_clock::now() - begun > patience)
      throw std::runtime_error(
          fmt::format("a job \"{}\" runs here already (mwgraph status {})", job, job));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (const files::directory_entry& each : files::directory_iterator(path_))
    if (each.path().filename() != "lock") files::remove_all(each.path());
  manyworlds::detail::make_secret_file(secret_file());
}

/// Others read it whole, or not at all: also where the disk is full.
static void write_whole(const std::string& path, const std::string& text) {
  const std::string made = path + ".new";
  std::ofstream file(made);
  file << text;
  file.close();
  if (!file) throw std::system_error(errno, std::generic_category(), made);
  files::rename(made, path);
}

void job_folder::keep_graph(const std::string& json) const {
  write_whole(graph_file(), json);
}

void job_folder::tell(const std::string& job, const std::string& store) const {
  const nlohmann::json told{
      {"job", job}, {"store", store}, {"secret_file", secret_file()}};
  try {
    write_whole(path_ + "/job.json", told.dump());
  } catch (const nlohmann::json::exception&) {
    throw usage_error("--folder: its path, from the root, has bytes that are no UTF-8");
  }
}

void job_folder::tell_end(const std::string& status) const {
  // Those who would ask the job's store wait for an end that it does not tell any longer.
  const struct untold {
    const std::string path;
    ~untold() {
      std::error_code ignored;
      files::remove(path, ignored);
    }
  } at_last{path_ + "/job.json"};
  write_whole(path_ + "/ended.json", status);
}

}  // namespace mwgraph
