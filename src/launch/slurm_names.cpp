#include "launch/slurm_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Numbers of nodes have fewer digits than this, so that they fit and can be counted.
constexpr std::size_t most_digits = 9;

/// Takes a text apart from its front.
class slurm_reader {
 public:
  explicit slurm_reader(std::string_view text) noexcept : rest_(text) {}

  [[nodiscard]] bool ended() const noexcept { return rest_.empty(); }
  [[nodiscard]] char next() const noexcept { return rest_.empty() ? '\0' : rest_[0]; }
  bool take(char c) noexcept {
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take(std::string_view word) noexcept {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  /// Takes the digits at the front: none, or more than fit, gives an empty text.
  std::string_view digits() noexcept {
    std::size_t count = 0;
    while (count < rest_.size() && rest_[count] >= '0' && rest_[count] <= '9') ++count;
    if (count > most_digits) return {};
    const std::string_view found = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return found;
  }
  /// Takes what may stand in a name outside of brackets.
  std::string_view literal() noexcept {
    std::size_t count = 0;
    while (count < rest_.size() && is_of_a_name(rest_[count])) ++count;
    const std::string_view found = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return found;
  }

 private:
  [[nodiscard]] static bool is_of_a_name(char c) noexcept {
    const auto byte = static_cast<unsigned char>(c);
    return byte > 0x20 && byte < 0x7f && c != '[' && c != ']' && c != ',';
  }
  std::string_view rest_;
};

std::uint32_t number_of(std::string_view digits) noexcept {
  MW_ASSERT(!digits.empty() && digits.size() <= most_digits, "these digits fit");
  std::uint32_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

/// Makes the names of one item of the list: of the front that was read, every way on.
class name_maker {
 public:
  explicit name_maker(std::size_t room) : room_(room), fronts_{std::string()} {}

  [[nodiscard]] bool add(std::string_view literal) {
    for (std::string& each : fronts_) each += literal;
    longest_ += literal.size();
    return longest_ <= slurm_nodes::longest_name;
  }
  /// Takes the numbers of a bracket. Returns what is wrong; empty if nothing is.
  [[nodiscard]] std::string add_bracket(slurm_reader& from) {
    std::vector<std::string> numbers;
    std::size_t digits = 0;
    do {
      const std::string_view first = from.digits();
      const std::string_view last = from.take('-') ? from.digits() : first;
      if (first.empty() || last.empty() || number_of(first) > number_of(last))
        return "a list of numbers and growing ranges between \"[\" and \"]\"";
      const std::size_t count = number_of(last) - number_of(first) + 1;
      if (count > room_ - numbers.size()) return too_many();
      for (std::uint32_t n = number_of(first); n <= number_of(last); ++n)
        numbers.push_back(fmt::format("{:0{}}", n, first.size()));
      digits = std::max(digits, numbers.back().size());
    } while (from.take(','));
    if (!from.take(']')) return "\"]\" after the numbers of \"[\"";
    if (fronts_.size() * numbers.size() > room_) return too_many();
    std::vector<std::string> longer;
    longer.reserve(fronts_.size() * numbers.size());
    for (const std::string& front : fronts_) {
      for (const std::string& number : numbers) longer.push_back(front + number);
    }
    fronts_ = std::move(longer);
    longest_ += digits;
    return longest_ <= slurm_nodes::longest_name ? std::string() : too_long();
  }
  [[nodiscard]] std::vector<std::string> take() noexcept { return std::move(fronts_); }

  [[nodiscard]] static std::string too_many() {
    return fmt::format("a list of at most {} nodes", slurm_nodes::most_nodes);
  }
  [[nodiscard]] static std::string too_long() {
    return fmt::format("names of at most {} bytes", slurm_nodes::longest_name);
  }

 private:
  std::size_t room_;
  std::vector<std::string> fronts_;
  /// The length of the longest of them.
  std::size_t longest_ = 0;
};

/// Reads one item, such as "node[01-03]". Returns what is wrong; empty if nothing is.
std::string read_item(slurm_reader& from, std::vector<std::string>& names) {
  name_maker item(slurm_nodes::most_nodes - names.size());
  bool is_empty = true;
  for (;;) {
    const std::string_view literal = from.literal();
    if (!literal.empty()) {
      is_empty = false;
      if (!item.add(literal)) return name_maker::too_long();
    } else if (from.take('[')) {
      // Slurm has no name without a letter in front.
      if (is_empty) return "a name in front of \"[\"";
      std::string wrong = item.add_bracket(from);
      if (!wrong.empty()) return wrong;
    } else {
      break;
    }
  }
  if (is_empty) return "a list of names without gaps, such as \"node[01-03],b2\"";
  for (std::string& name : item.take()) names.push_back(std::move(name));
  return {};
}

}  // namespace

slurm_nodes expand_slurm_nodes(std::string_view list) {
  slurm_nodes found;
  slurm_reader from(list);
  do {
    if (found.names.size() == slurm_nodes::most_nodes)
      found.error = name_maker::too_many();
    else
      found.error = read_item(from, found.names);
  } while (found.error.empty() && from.take(','));
  if (found.error.empty() && !from.ended())
    found.error = "a list of names, such as \"node[01-03],b2\"";
  if (!found.error.empty()) found.names.clear();
  MW_ASSERT(found.names.empty() != found.error.empty(),
            "a list names nodes, or is wrong");
  return found;
}

std::optional<std::uint32_t> slurm_tasks_on(std::string_view counts,
                                            std::uint32_t node) noexcept {
  slurm_reader from(counts);
  do {
    const std::string_view tasks = from.digits();
    if (tasks.empty()) return std::nullopt;
    std::uint32_t nodes = 1;
    if (from.take("(x")) {
      const std::string_view times = from.digits();
      if (times.empty() || !from.take(')')) return std::nullopt;
      nodes = number_of(times);
    }
    if (node < nodes) return number_of(tasks);
    node -= nodes;
  } while (from.take(','));
  return std::nullopt;
}

std::optional<std::uint16_t> first_slurm_port(std::string_view ports) noexcept {
  slurm_reader from(ports);
  const std::string_view first = from.digits();
  if (first.empty() || number_of(first) == 0 || number_of(first) > 65535)
    return std::nullopt;
  if (!from.ended() && from.next() != '-' && from.next() != ',') return std::nullopt;
  return static_cast<std::uint16_t>(number_of(first));
}

}  // namespace manyworlds::inline v0::detail
