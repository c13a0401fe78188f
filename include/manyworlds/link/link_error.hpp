// Link error: why a peer could not be reached, or is refused.
#pragma once

#include <stdexcept>
#include <string>

#include "manyworlds/failure.hpp"

namespace manyworlds::inline v0 {

/// Thrown by dialling and by hellos. `cause` is peer_died when nobody listens at the
/// address or another incarnation does, silent_peer when nobody answers in time,
/// wrong_secret, wrong_version, protocol_error, or out_of_resources.
class link_error : public std::runtime_error {
 public:
  link_error(enum cause why, const std::string& text)
      : std::runtime_error(text), cause_(why) {}
  [[nodiscard]] manyworlds::cause cause() const noexcept { return cause_; }

 private:
  manyworlds::cause cause_;
};

}  // namespace manyworlds::inline v0
