// Link error: why a peer could not be reached, or is refused.
#pragma once

#include <stdexcept>
#include <string>

#include "manyworlds/failure.hpp"

namespace manyworlds::inline v0::detail {

/// Thrown by dialling and by hellos. `cause` is peer_died when no process or another
/// incarnation listens at the address, and silent_peer when there is no answer in time.
/// Else it is wrong_secret, wrong_version, protocol_error, connection_lost or
/// out_of_resources.
class link_error : public std::runtime_error {
 public:
  link_error(enum cause why, const std::string& text)
      : std::runtime_error(text), cause_(why) {}
  [[nodiscard]] manyworlds::cause cause() const noexcept { return cause_; }

 private:
  manyworlds::cause cause_;
};

}  // namespace manyworlds::inline v0::detail
