// Worker invitation: what a controller tells the process of a worker, by its environment.
#pragma once

#include <optional>
#include <string>

#include "manyworlds/inline_text.hpp"
#include "spmd/worker_loop.hpp"

namespace manyworlds::inline v0::detail {

/// Which worker the process is, and where it meets its controller.
struct worker_invitation {
  static constexpr const char* variable = "MANYWORLDS_SESSION";
  static constexpr const char* store_secret_variable = "MANYWORLDS_SESSION_STORE_SECRET";
  static constexpr const char* link_secret_variable = "MANYWORLDS_SESSION_SECRET";

  worker_seat seat;
  std::string store;
  /// Where its runtime listens for other members, and whether their network is trusted.
  std::string listen = "127.0.0.1:0";
  bool insecure = false;

  [[nodiscard]] std::string text() const;
  /// Errors: std::invalid_argument for what is no invitation.
  [[nodiscard]] static worker_invitation of(const std::string& text);
};

}  // namespace manyworlds::inline v0::detail
