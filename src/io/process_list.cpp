#include "io/process_list.hpp"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/descriptor.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Parents that change while we look cannot lead in a circle without an end.
constexpr int most_generations = 64;

template <class Number>
bool parse(std::string_view text, Number& to) noexcept {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), to);
  return parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
}

/// Cuts the first word off.
std::string_view next_word(std::string_view& rest) noexcept {
  const std::string_view word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  return word;
}

/// Returns "NAME=value"; empty if it is not there, or we may not look.
std::string find_in_environment(pid_t pid, const std::string& name) {
  const std::string path = "/proc/" + std::to_string(pid) + "/environ";
  const unique_descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    require_look(errno);
    return {};
  }
  // Variables end with a zero, also the last one.
  std::string text(1, '\0');
  for (char part[8192];;) {
    const ssize_t got = ::read(file.get(), part, sizeof part);
    if (got <= 0) break;
    text.append(part, static_cast<std::size_t>(got));
  }
  const std::size_t at = text.find('\0' + name + '=');
  if (at == std::string::npos) return {};
  return text.substr(at + 1, text.find('\0', at + 1) - at - 1);
}

}  // namespace

void require_look(int error) {
  if (error == EMFILE || error == ENFILE || error == ENOMEM)
    throw std::system_error(error, std::generic_category(), "looking at processes");
}

std::optional<listed_process> look_at_process(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const unique_descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  errno = 0;  // what fails from here on is no failure to look
  char text[1024];
  const ssize_t size = ::read(file.get(), text, sizeof text);
  if (size <= 0) return {};
  std::string_view rest(text, static_cast<std::size_t>(size));
  // The second field is a name of the process's choice, so fields are counted from its
  // last parenthesis: the state is the third one.
  const std::size_t name_end = rest.rfind(") ");
  if (name_end == std::string_view::npos) return {};
  rest.remove_prefix(name_end + 2);
  std::array<std::string_view, 20> fields;  // from the third to the 22nd
  for (std::string_view& each : fields) each = next_word(rest);
  listed_process found;
  found.pid = pid;
  const bool is_whole = fields[0].size() == 1 && parse(fields[1], found.parent) &&
                        parse(fields[3], found.session) &&
                        parse(fields[19], found.started);
  if (!is_whole) return {};
  found.state = fields[0].front();
  return found;
}

bool descends_from(pid_t pid, pid_t ancestor) {
  for (int i = 0; i < most_generations && pid > 1; ++i) {
    if (pid == ancestor) return true;
    const auto seen = look_at_process(pid);
    if (!seen) return false;
    if (seen->session == ancestor) return true;
    pid = seen->parent;
  }
  return false;
}

std::vector<listed_process> list_processes() {
  std::vector<listed_process> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"),
                                                   [](DIR* d) { return ::closedir(d); });
  if (!folder) {
    require_look(errno);
    return found;
  }
  while (const dirent* entry = ::readdir(folder.get())) {
    pid_t pid = 0;
    if (!parse(std::string_view(entry->d_name), pid)) continue;
    if (const auto one = look_at_process(pid)) {
      found.push_back(*one);
    } else {
      require_look(errno);
    }
  }
  return found;
}

bool signal_process(const listed_process& which, int number) noexcept {
  const auto is_same = [&] {
    const auto now = look_at_process(which.pid);
    return now && now->started == which.started;
  };
  const unique_descriptor held(static_cast<int>(::syscall(SYS_pidfd_open, which.pid, 0)));
  if (!held && errno == ESRCH) return false;
  if (!is_same()) return false;
  if (held) {
    if (::syscall(SYS_pidfd_send_signal, held.get(), number, nullptr, 0) == 0)
      return true;
    if (errno == ESRCH) return false;
  }
  return ::kill(which.pid, number) == 0;
}

process_census::process_census(std::string name) : name_(std::move(name)) {
  if (const auto self = look_at_process(::getpid())) own_start_ = self->started;
}

const std::vector<marked_process>& process_census::answer(std::uint64_t question) {
  if (answered_ < question) {
    // Those that ask from here on may have seen more than this walk.
    const std::uint64_t asked = asked_.load(std::memory_order_acquire);
    seen_ = walk();
    answered_ = asked;
  }
  MW_ASSERT(answered_ >= question, "an answer is younger than its question");
  return seen_;
}

std::vector<marked_process> process_census::walk() const {
  std::vector<marked_process> found;
  for (const listed_process& each : list_processes()) {
    std::string mark;
    if (each.started >= own_start_) mark = find_in_environment(each.pid, name_);
    found.push_back({each, std::move(mark)});
  }
  return found;
}

}  // namespace manyworlds::inline v0::detail
