#include "manyworlds/launch/exit_reason.hpp"

#include <fmt/format.h>
#include <string.h>

#include <cctype>

#include "duration_text.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

/// Returns the kernel's words as the rest of a sentence: "permission denied".
std::string words_of_error(int error) {
  const char* const known = strerrordesc_np(error);
  std::string words = known ? known : fmt::format("error {}", error);
  if (words.size() > 1 && std::islower(static_cast<unsigned char>(words[1])))
    words[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(words[0])));
  return words;
}

std::string words_of_signal(int number) {
  const char* const abbreviation = sigabbrev_np(number);
  return abbreviation ? fmt::format("SIG{}", abbreviation)
                      : fmt::format("signal {}", number);
}

std::string words_of_start(const exit_reason& r) {
  if (r.step == start_step::execute) {
    const std::string cause = r.object.empty()
                                  ? std::string()
                                  : fmt::format(", since its {} is not there", r.object);
    return fmt::format("cannot execute \"{}\"{}: {}", r.program, cause,
                       words_of_error(r.error));
  }
  const std::string object =
      r.object.empty() ? std::string() : fmt::format(" ({})", r.object);
  return fmt::format("cannot start \"{}\", since it cannot {}{}: {}", r.program,
                     describe(r.step), object, words_of_error(r.error));
}

/// Returns what follows the name: "exited with code 3".
std::string words_of_status(const exit_reason& r) {
  if (r.signal == 0) return fmt::format("exited with code {}", r.code);
  return fmt::format("was ended by {}{}", words_of_signal(r.signal),
                     r.core_dumped ? " and left a core dump" : "");
}

}  // namespace

std::string_view name_of(exit_kind kind) noexcept {
  switch (kind) {
    case exit_kind::exited:
      return "exited";
    case exit_kind::signaled:
      return "signaled";
    case exit_kind::out_of_memory:
      return "out_of_memory";
    case exit_kind::stopped:
      return "stopped";
    case exit_kind::not_started:
      return "not_started";
    case exit_kind::reaped_elsewhere:
      return "reaped_elsewhere";
  }
  return "?";
}

std::string_view name_of(stop_step step) noexcept {
  switch (step) {
    case stop_step::none:
      return "none";
    case stop_step::asked:
      return "asked";
    case stop_step::killed:
      return "killed";
  }
  return "?";
}

std::string exit_reason::text() const {
  if (kind == exit_kind::not_started) return words_of_start(*this);
  const std::string who = fmt::format("\"{}\" (pid {})", program, pid);
  const std::string when = fmt::format("after {}", duration_text(ran_for));
  switch (kind) {
    case exit_kind::exited:
      return fmt::format("{} {} {}", who, words_of_status(*this), when);
    case exit_kind::signaled:
      return fmt::format("{} {} {}, which was not sent from here", who,
                         words_of_status(*this), when);
    case exit_kind::out_of_memory:
      return fmt::format("{} was killed by the kernel for want of memory {}", who, when);
    case exit_kind::stopped:
      if (pid == 0)
        return fmt::format("\"{}\" was stopped before it was started", program);
      if (stop == stop_step::killed)
        return fmt::format("{} was stopped by SIGKILL {}", who, when);
      return fmt::format("{} was stopped by SIGTERM {} and {}", who, when,
                         words_of_status(*this));
    case exit_kind::reaped_elsewhere:
      return fmt::format(
          "{} has ended {}, and its exit code is lost: other code of this program waited "
          "for it (wait, waitpid(-1)), this program ignores SIGCHLD, or a debugger has "
          "not let go of it",
          who, when);
    case exit_kind::not_started:
      break;
  }
  MW_ASSERT(false, "an exit reason has a kind");
  return who;
}

}  // namespace manyworlds::inline v0
