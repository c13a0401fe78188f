#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "io/abandoned_groups.hpp"
#include "io/process_tree.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Writes a whole value. Returns an errno.
int write_to(const std::string& path, std::string_view value) {
  const unique_descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return errno;
  return ::write(file.get(), value.data(), value.size()) ==
                 static_cast<ssize_t>(value.size())
             ? 0
             : errno;
}

/// Calls `visit` for the folder's groups, the innermost first, and then for itself.
template <class Visit>
void visit_groups(const std::string& folder, const Visit& visit) {
  if (DIR* const entries = ::opendir(folder.c_str())) {
    std::vector<std::string> inner;
    while (const dirent* entry = ::readdir(entries)) {
      if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
        inner.push_back(folder + '/' + entry->d_name);
    }
    ::closedir(entries);
    for (const std::string& each : inner) visit_groups(each, visit);
  } else {
    require_look(errno);
  }
  visit(folder);
}

std::vector<pid_t> processes_in(const std::string& folder) {
  std::vector<pid_t> found;
  std::ifstream list(folder + "/cgroup.procs");
  if (!list) require_look(errno);
  // 0 stands for one of a pid namespace that we cannot see.
  for (pid_t pid = 0; list >> pid;) {
    if (pid > 0) found.push_back(pid);
  }
  return found;
}

/// Returns where the hierarchy of version 2 is mounted, and which of its groups that
/// shows. A line of mountinfo: ID PARENT MAJOR:MINOR ROOT WHERE OPTIONS ... - TYPE ...
bool find_mount(std::string& where, std::string& root) {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos || line.compare(dash + 3, 8, "cgroup2 ") != 0) continue;
    std::istringstream fields(line);
    std::string number, parent, device;
    if (fields >> number >> parent >> device >> root >> where) return true;
  }
  return false;
}

/// Returns our own group; empty if there is none.
std::string group_of_this_process() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return {};
}

}  // namespace

void remove_group(const std::string& folder) {
  try {
    visit_groups(folder, [](const std::string& each) { ::rmdir(each.c_str()); });
  } catch (const std::system_error&) {
    // The next starter removes what is left.
  }
}

group_tree::group_tree(std::string folder) : folder_(std::move(folder)) {
  if (::mkdir(folder_.c_str(), 0755) != 0)
    throw std::system_error(errno, std::generic_category(), "mkdir " + folder_);
  entry_ = unique_descriptor(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (entry_) return;
  const int error = errno;
  ::rmdir(folder_.c_str());
  throw std::system_error(error, std::generic_category(), "open " + folder_);
}

group_tree::~group_tree() {
  if (!entry_) return;
  remove_group(folder_);
  // What is left in it may live on, also when this process has ended.
  if (::access(folder_.c_str(), F_OK) == 0) mark_as_left(folder_);
}

std::vector<listed_process> group_tree::members() const {
  std::vector<listed_process> found;
  visit_groups(folder_, [&](const std::string& each) {
    for (const pid_t pid : processes_in(each)) {
      const auto seen = look_at_process(pid);
      if (seen) found.push_back(*seen);
    }
  });
  return found;
}

std::size_t group_tree::signal(int number) { return signal_each(members(), number); }

std::size_t group_tree::signal_missed(int number) {
  return signal_orphans(members(), number);
}

std::size_t group_tree::kill() {
  std::size_t count = 0;
  visit_groups(folder_,
               [&](const std::string& each) { count += processes_in(each).size(); });
  require_look(write_to(folder_ + "/cgroup.kill", "1"));
  return count;
}

bool group_tree::is_empty() {
  std::ifstream events(folder_ + "/cgroup.events");
  if (!events) require_look(errno);
  std::string name;
  for (int value = 0; events >> name >> value;) {
    if (name == "populated") return value == 0;
  }
  // The folder is gone.
  return true;
}

std::string own_group_folder(std::string& why_not) {
  std::string where;
  std::string root;
  if (!find_mount(where, root)) {
    why_not = "control groups of version 2 are not mounted";
    return {};
  }
  std::string own = group_of_this_process();
  if (own.empty() || own.find("/..") != std::string::npos) {
    why_not = "this process's control group lies outside of what is mounted here";
    return {};
  }
  if (root != "/" && own.starts_with(root)) own.erase(0, root.size());
  return where + (own == "/" ? "" : own);
}

std::string find_group_folder(std::string& why_not) {
  std::string folder = own_group_folder(why_not);
  if (folder.empty()) return folder;
  const std::string tried = folder + '/' + name_of_group("probe");
  ::rmdir(tried.c_str());
  if (::mkdir(tried.c_str(), 0755) != 0) {
    why_not = "a folder cannot be made in " + folder + ": " + std::strerror(errno);
    return {};
  }
  int error = ::access((tried + "/cgroup.kill").c_str(), W_OK) == 0 ? 0 : errno;
  if (error == 0) {
    // A process enters only if we may write here, too.
    const std::string ours = folder + "/cgroup.procs";
    error = ::access(ours.c_str(), W_OK) == 0 ? 0 : errno;
  }
  ::rmdir(tried.c_str());
  if (error == 0) return folder;
  why_not = error == ENOENT ? "this kernel has no cgroup.kill (Linux 5.14)"
                            : "processes cannot enter a group below " + folder + ": " +
                                  std::strerror(error);
  return {};
}

}  // namespace manyworlds::inline v0::detail
