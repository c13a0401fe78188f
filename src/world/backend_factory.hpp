// Backend factory: makes the backend of a world that was formed.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "host/host_backend.hpp"
#include "io/reactor.hpp"
#include "link/data_channel.hpp"
#include "manyworlds/world/options.hpp"

namespace manyworlds::inline v0::detail {

/// What a formed world gives to its backend. Lifetime: the references outlive the
/// backend.
class backend_parts {
 public:
  backend_parts(reactor& home, backend_listener& listener, const world_options& options,
                const host_backend_options& host,
                std::vector<data_channel> connections) noexcept
      : home_(home),
        listener_(listener),
        options_(options),
        host_(host),
        connections_(std::move(connections)) {}

  /// Returns the reactor that the backend lives on.
  [[nodiscard]] reactor& home() const noexcept { return home_; }
  [[nodiscard]] backend_listener& listener() const noexcept { return listener_; }
  [[nodiscard]] const world_options& options() const noexcept { return options_; }
  /// Returns what the world and its runtime ask of the host backend.
  [[nodiscard]] const host_backend_options& host_options() const noexcept {
    return host_;
  }
  /// Returns the way to each member by rank, closed for this one. Called once.
  [[nodiscard]] std::vector<data_channel> take_connections() noexcept {
    return std::move(connections_);
  }

 private:
  reactor& home_;
  backend_listener& listener_;
  const world_options& options_;
  host_backend_options host_;
  std::vector<data_channel> connections_;
};

/// Makes backends for the worlds of a runtime, on its reactor. Lifetime: it must
/// outlive the runtime.
class backend_factory {
 public:
  virtual ~backend_factory() = default;
  [[nodiscard]] virtual std::unique_ptr<backend> make_backend(backend_parts parts) = 0;
};

/// Makes the default backend, which a factory may wrap.
[[nodiscard]] std::unique_ptr<backend> make_host_backend(backend_parts parts);

}  // namespace manyworlds::inline v0::detail
