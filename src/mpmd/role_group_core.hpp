// Role group core: calls of one instance to those of a role.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/mpmd/role_group.hpp"
#include "manyworlds/serve/dispatcher.hpp"

namespace manyworlds::inline v0::detail {

/// The dispatcher cannot tell a call that may be repeated from others: it tries once, and
/// what may be repeated is given to it again, under its own id. Thread: the reactor.
class role_group_core {
 public:
  explicit role_group_core(role_group::options options);

  void begin(std::string edge, instance_id self, std::size_t least);
  [[nodiscard]] task<void> reach(world& w, instance_id peer);
  [[nodiscard]] std::vector<instance_id> members() const;

  /// Asks that instance, or any. Errors: those of a role group.
  [[nodiscard]] task<std::string> call(std::optional<std::uint32_t> index,
                                       std::string method, std::string argument,
                                       role_call_options how);
  /// One of several calls that are made together.
  struct part {
    std::optional<std::uint32_t> index;
    std::string argument;
  };
  /// Returns the results in the order of the parts.
  [[nodiscard]] task<std::vector<std::string>> call_all(std::string method,
                                                        std::vector<part> parts,
                                                        role_call_options how);
  /// Asks an instance, and returns how that has ended. Errors: none of the call.
  [[nodiscard]] task<role_group::outcome> outcome_of(instance_id member,
                                                     std::string method,
                                                     std::string argument,
                                                     role_call_options how);
  /// Waits for as many members as `all` needs.
  [[nodiscard]] task<std::vector<instance_id>> enough_members(duration limit);

 private:
  [[nodiscard]] task<std::string> attempt(std::optional<std::uint32_t> index,
                                          const std::string& head,
                                          const std::string& argument, duration limit);
  /// Returns which of the workers is that instance.
  [[nodiscard]] std::optional<std::size_t> choose(
      std::optional<std::uint32_t> index, std::span<const worker_status> workers) const;
  /// Completes an error with what was asked of which instance.
  [[nodiscard]] failure described(failure f, std::optional<std::uint32_t> index,
                                  const std::string& method) const;

  const role_group::options options_;
  dispatcher dispatcher_;
  std::string edge_;
  instance_id self_;
  std::size_t least_ = 1;
  std::uint64_t next_id_ = 0;
  std::map<std::string, instance_id, std::less<>> peers_;  // by the names of their worlds
};

}  // namespace manyworlds::inline v0::detail
