#include "manyworlds/launch/process_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace manyworlds::inline v0 {

namespace {

std::string without_zero(std::string text, std::string_view what) {
  if (text.find('\0') != std::string::npos) {
    throw std::invalid_argument(
        fmt::format("{} has a zero byte, with which no program can be given it: \"{}\"",
                    what, text.substr(0, text.find('\0'))));
  }
  return text;
}

std::string variable_name(std::string name) {
  if (name.empty() || name.find('=') != std::string::npos) {
    throw std::invalid_argument(
        fmt::format("\"{}\" is no name of an environment variable", name));
  }
  return without_zero(std::move(name), "the name of a variable");
}

}  // namespace

process_options::process_options(std::string program,
                                 std::vector<std::string> arguments) {
  what_.program = without_zero(std::move(program), "the program");
  for (std::string& each : arguments) argument(std::move(each));
}

process_options& process_options::argument(std::string value) {
  what_.arguments.push_back(without_zero(std::move(value), "an argument"));
  return *this;
}

process_options& process_options::set(std::string name, std::string value) {
  what_.changes.emplace_back(variable_name(std::move(name)),
                             without_zero(std::move(value), "a variable"));
  return *this;
}

process_options& process_options::unset(std::string name) {
  what_.changes.emplace_back(variable_name(std::move(name)), std::nullopt);
  return *this;
}

process_options& process_options::clear_environment() noexcept {
  what_.inherits_environment = false;
  return *this;
}

process_options& process_options::folder(std::string path) {
  what_.folder = without_zero(std::move(path), "the working folder");
  return *this;
}

process_options& process_options::pass(int descriptor, int as) {
  if (descriptor < 0 || as < 0)
    throw std::invalid_argument("a descriptor that is passed has no negative number");
  if (as <= 2) {
    throw std::invalid_argument(fmt::format(
        "descriptor {} is passed as {}, which is an input or output: use output, errors "
        "or inherit_input",
        descriptor, as));
  }
  for (const auto& each : what_.descriptors) {
    if (each.to == as)
      throw std::invalid_argument(fmt::format("two descriptors are passed as {}", as));
  }
  what_.descriptors.push_back({descriptor, as});
  return *this;
}

process_options& process_options::inherit_input() {
  inherits_input_ = true;
  return *this;
}

process_options& process_options::open_files(std::uint64_t most) {
  return limit(RLIMIT_NOFILE, most);
}
process_options& process_options::core_size(std::uint64_t most) {
  return limit(RLIMIT_CORE, most);
}
process_options& process_options::locked_memory(std::uint64_t most) {
  return limit(RLIMIT_MEMLOCK, most);
}
process_options& process_options::address_space(std::uint64_t most) {
  return limit(RLIMIT_AS, most);
}

process_options& process_options::limit(int resource, std::uint64_t value) {
  if (resource < 0 || resource >= static_cast<int>(RLIMIT_NLIMITS))
    throw std::invalid_argument(fmt::format("{} is no resource with a limit", resource));
  what_.limits.push_back({resource, value});
  return *this;
}

process_options& process_options::cpus(std::vector<unsigned> numbers) {
  constexpr unsigned most = 1u << 16;
  for (const unsigned each : numbers) {
    if (each >= most)
      throw std::invalid_argument(fmt::format("there is no CPU {}", each));
  }
  what_.cpus = std::move(numbers);
  return *this;
}

process_options& process_options::memory_node(unsigned number) {
  constexpr unsigned most = 1u << 16;
  if (number >= most)
    throw std::invalid_argument(fmt::format("there is no NUMA node {}", number));
  what_.memory_node = number;
  return *this;
}

process_options& process_options::output(process_output where) {
  output_ = std::move(where);
  return *this;
}

process_options& process_options::errors(process_output where) {
  errors_ = std::move(where);
  return *this;
}

process_options& process_options::restart(restart_policy policy) {
  policy_ = policy;
  return *this;
}

process_options& process_options::when_ended(
    std::function<void(const process_end&)> told) {
  told_ = std::move(told);
  return *this;
}

process_options& process_options::guarded_by(process_guard& guard) noexcept {
  guard_ = &guard;
  return *this;
}

process_output tee(process_output first, process_output second) {
  first.inherits_ = first.inherits_ || second.inherits_;
  const auto add = [](auto& to, auto& from) {
    for (auto& each : from) to.push_back(std::move(each));
  };
  add(first.files_, second.files_);
  add(first.functions_, second.functions_);
  add(first.tasks_, second.tasks_);
  first.longest_line_ = std::max(first.longest_line_, second.longest_line_);
  return first;
}

}  // namespace manyworlds::inline v0
