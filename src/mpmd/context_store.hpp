// Context store: keeps what a job should be, so that any master can take it over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// One change of the context: a value, or nothing for a key that is erased.
struct context_write {
  std::string key;
  std::optional<std::string> value;

  friend bool operator==(const context_write&, const context_write&) = default;
};

using context_values = std::map<std::string, std::string, std::less<>>;

inline constexpr std::size_t context_longest_key = 512;
inline constexpr std::size_t context_longest_value = std::size_t{128} << 10;
// etcd takes 128 operations and 1.5 MiB in a transaction by default, and one that is
// split is none. Every store has its limits, so that a simulation finds what exceeds
// them.
inline constexpr std::size_t context_most_changes = 100;
inline constexpr std::size_t context_most_bytes = std::size_t{1} << 20;

/// Names why a context store did not do what it was asked.
enum class context_trouble : std::uint8_t {
  deposed,      ///< another master has a higher term: nothing was written
  damaged,      ///< what was kept is not what was written; the text says which part
  full,         ///< there is no room: nothing was written
  too_large,    ///< one write exceeds its limits: nothing was written
  unreachable,  ///< the store does not answer; a write may have been done or not
  unsupported,  ///< what it needs is not there: a library, a folder, a permission
};

class MANYWORLDS_EXPORT context_error : public std::exception {
 public:
  context_error(context_trouble kind, std::string text)
      : kind_(kind), text_(std::move(text)) {}

  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }
  [[nodiscard]] context_trouble kind() const noexcept { return kind_; }

 private:
  context_trouble kind_;
  std::string text_;
};

/// Keeps keys and values of one job. Every write is one transaction that compares the
/// term, so that a master that was deposed writes nothing (law G-b: what was not recorded
/// is not done). A write that has ended is on disk, or agreed.
///
/// After `unreachable` a write may be repeated: what the first attempt did arrives before
/// the second, or never. Of two changes of one key in a write the last holds.
///
/// Thread: the runtime's reactor; one operation at a time, and beside it `term`.
/// Lifetime: it outlives its operations. Errors: context_error.
class context_store {
 public:
  context_store() = default;
  context_store(const context_store&) = delete;
  context_store& operator=(const context_store&) = delete;
  virtual ~context_store() = default;

  /// Returns the highest term that was taken; 0 if none ever was.
  virtual task<std::uint64_t> term() = 0;
  /// Takes the term `seen` + 1, unless another master has taken it: `deposed`. From then
  /// on writes of lower terms are refused. After `unreachable` it may have been taken:
  /// ask for the term again, and take the next.
  virtual task<std::uint64_t> take_term(std::uint64_t seen) = 0;
  /// Returns all keys and values. What was torn by a crash while it was written is not
  /// there; anything else that differs from what was written is `damaged`.
  virtual task<context_values> load() = 0;
  /// Writes all of it or nothing.
  virtual task<void> write(std::uint64_t term, std::vector<context_write> changes) = 0;
  /// Says for people where it is.
  [[nodiscard]] virtual std::string where() const = 0;
};

/// Errors: context_error (`too_large`) if the changes exceed the limits of one write.
void check_context_write(const std::vector<context_write>& changes);

}  // namespace manyworlds::inline v0::detail
