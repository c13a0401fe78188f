#include "mpmd/job_store.hpp"

#include "manyworlds/store/etcd_store.hpp"

namespace manyworlds::inline v0::detail {

constexpr std::string_view etcd_scheme = "etcd://";

bool is_in_etcd(std::string_view address) noexcept {
  return address.starts_with(etcd_scheme);
}

std::string endpoints_of(std::string_view address) {
  return std::string(is_in_etcd(address) ? address.substr(etcd_scheme.size()) : address);
}

std::string way_to(std::string_view address) {
  const std::string all = endpoints_of(address);
  return all.substr(0, all.find(','));
}

std::unique_ptr<store> open_job_store(runtime& rt, const std::string& address,
                                      const tcp_store_options& client) {
  if (is_in_etcd(address)) return std::make_unique<etcd_store>(endpoints_of(address));
  return std::make_unique<tcp_store>(rt, address, client);
}

}  // namespace manyworlds::inline v0::detail
