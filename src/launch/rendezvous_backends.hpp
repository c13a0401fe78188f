// Rendezvous backends: which agent coordinates.
#pragma once

#include <memory>

#include "manyworlds/launch/rendezvous.hpp"

namespace manyworlds::inline v0::detail {

/// Makes the backend that the options name. Errors: rendezvous_error (`bad_options`);
/// what its maker throws.
[[nodiscard]] std::unique_ptr<rendezvous_backend> make_backend(
    runtime& rt, const rendezvous_options& options);

/// The agent that can listen at the endpoint coordinates, and hosts the store there.
[[nodiscard]] std::unique_ptr<rendezvous_backend> make_tcp_backend(
    runtime& rt, const rendezvous_options& options);

/// The agent that holds the lease of a key in etcd coordinates. The endpoint is that of
/// an `etcd_store`.
[[nodiscard]] std::unique_ptr<rendezvous_backend> make_etcd_backend(
    runtime& rt, const rendezvous_options& options);

/// The agent that holds a lock in a folder, which is the endpoint, coordinates.
[[nodiscard]] std::unique_ptr<rendezvous_backend> make_file_backend(
    runtime& rt, const rendezvous_options& options);

/// This agent coordinates; the run has no other.
[[nodiscard]] std::unique_ptr<rendezvous_backend> make_standalone_backend(
    runtime& rt, const rendezvous_options& options);

}  // namespace manyworlds::inline v0::detail
