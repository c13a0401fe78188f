#include "launch/rendezvous_backends.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

#include "manyworlds/store/memory_store.hpp"

namespace manyworlds::inline v0::detail {

namespace {

class standalone_backend final : public rendezvous_backend {
 public:
  store& meeting_place() override { return store_; }
  task<std::unique_ptr<coordinator_seat>> take_seat(const node_description&) override {
    co_return std::make_unique<lasting_seat>();
  }
  task<bool> is_closed() override { co_return false; }
  task<void> coordinator_died(std::string) override { co_return; }
  duration patience() const noexcept override { return duration::zero(); }
  bool has_successors() const noexcept override { return false; }

 private:
  memory_store store_;
};

struct backend_registry {
  std::mutex mutex;
  std::map<std::string, make_rendezvous_backend, std::less<>> makers;
};

backend_registry& registered_backends() {
  static backend_registry all;
  return all;
}

make_rendezvous_backend maker_of(const std::string& name) {
  backend_registry& all = registered_backends();
  const std::lock_guard lock(all.mutex);
  const auto found = all.makers.find(name);
  if (found != all.makers.end()) return found->second;
  if (name == "standalone") return &make_standalone_backend;
  if (name == "tcp") return &make_tcp_backend;
  if (name == "manual") return &make_manual_backend;
  if (name == "etcd") return &make_etcd_backend;
  if (name == "file") return &make_file_backend;
  return nullptr;
}

}  // namespace

/// Of several nodes the first that can listen at the user's endpoint coordinates.
std::unique_ptr<rendezvous_backend> make_standalone_backend(
    runtime& rt, const rendezvous_options& options) {
  if (options.limits.max_nodes > 1) return make_tcp_backend(rt, options);
  return std::make_unique<standalone_backend>();
}

std::unique_ptr<rendezvous_backend> make_backend(runtime& rt,
                                                 const rendezvous_options& options) {
  const make_rendezvous_backend make = maker_of(options.backend);
  if (make) return make(rt, options);
  throw rendezvous_error(
      rendezvous_error_kind::bad_options,
      fmt::format("rendezvous: no backend is called \"{}\"", options.backend));
}

}  // namespace manyworlds::inline v0::detail

namespace manyworlds::inline v0 {

void register_rendezvous_backend(std::string name, make_rendezvous_backend make) {
  detail::backend_registry& all = detail::registered_backends();
  const std::lock_guard lock(all.mutex);
  all.makers.insert_or_assign(std::move(name), std::move(make));
}

}  // namespace manyworlds::inline v0
