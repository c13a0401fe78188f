// PMIx session: the connection to the server of Open MPI, Slurm or prterun, by a library
// that is looked for at run time.
#pragma once

#include <memory>
#include <string>

#include "manyworlds/launch/launch_context.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// Is a client of PMIx from `open` to the end of the last context that holds it. A
/// launcher takes a process that ends without that for one that failed.
class pmix_session {
 public:
  /// Returns null, and sets `why`, if libpmix cannot be opened or knows of no server.
  [[nodiscard]] static std::shared_ptr<pmix_session> open(std::string& why);
  pmix_session(const pmix_session&) = delete;
  pmix_session& operator=(const pmix_session&) = delete;
  ~pmix_session();

  /// Adds what the launcher knows of this process and its job, under PMIx's own keys; as
  /// "pmix.hname" the name of rank 0's host.
  void add_facts(launch_variables& to) const;
  /// Gives all members of the job the text of rank 0, which alone has one. Every member
  /// calls it once. Errors: std::runtime_error with PMIx's word for what went wrong, also
  /// when not all have come within the limit.
  [[nodiscard]] std::string share(const std::string& of_rank_zero, duration limit) const;

 private:
  struct library;
  pmix_session() = default;

  std::unique_ptr<const library> library_;
};

}  // namespace manyworlds::inline v0::detail
