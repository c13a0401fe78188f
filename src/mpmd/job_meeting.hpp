// Job meeting: the keys by which agents and clients of a job find its master.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/store/prefix_store.hpp"
#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0::detail {

/// The keys of one job in a meeting store. They are hints: what is decided stands in the
/// context, and terms fence. Lifetime: the store outlives it. Errors: store_error.
class job_meeting {
 public:
  job_meeting(store& all, const std::string& job);

  /// The store under the job's prefix, in which its worlds form.
  [[nodiscard]] store& keys() noexcept { return keys_; }

  /// Says which term is the present one, unless a higher one is there.
  [[nodiscard]] task<void> announce(std::uint64_t term);
  /// Returns the highest term that was announced; 0 if none was.
  [[nodiscard]] task<std::uint64_t> announced();
  /// Waits until a term above that one is announced.
  [[nodiscard]] task<std::uint64_t> announced_above(std::uint64_t term);

  /// Says how the job stands, for those who ask.
  [[nodiscard]] task<void> publish(std::string status);
  [[nodiscard]] task<std::optional<std::string>> published();

  /// Asks the job to end. The master of any term hears it.
  [[nodiscard]] task<void> ask_to_stop(std::string why);
  [[nodiscard]] task<std::string> asked_to_stop();

  /// Where agents of that term's master connect.
  [[nodiscard]] static service_name agents_of(std::uint64_t term);
  /// Where masters that stand by find the one that leads, by its name.
  [[nodiscard]] static service_name standbys_of(const std::string& master);
  /// Where the workloads of a node find its agent.
  [[nodiscard]] static service_name workloads_of(const std::string& node);

 private:
  prefix_store keys_;
};

}  // namespace manyworlds::inline v0::detail
