// Job store: the meeting store of a job, by the text that names it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "manyworlds/store/store.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "manyworlds/world/runtime.hpp"

namespace manyworlds::inline v0::detail {

/// The variable by which an agent tells a workload of a store in etcd.
inline constexpr const char* job_store_variable = "MANYWORLDS_GRAPH_STORE";

/// Returns whether a store's text names endpoints of etcd, as "etcd://10.0.0.1:2379".
[[nodiscard]] bool is_in_etcd(std::string_view address) noexcept;
/// Returns what stands behind the scheme: endpoints, with commas between them.
[[nodiscard]] std::string endpoints_of(std::string_view address);
/// Returns the host and port by which a node finds its own address: the first endpoint.
[[nodiscard]] std::string way_to(std::string_view address);

/// Opens it. `client` is for a store of ours; etcd has its own ways to know its clients.
/// Lifetime: the runtime outlives it. Errors: std::invalid_argument for what is no
/// address.
[[nodiscard]] std::unique_ptr<store> open_job_store(runtime& rt,
                                                    const std::string& address,
                                                    const tcp_store_options& client);

}  // namespace manyworlds::inline v0::detail
