#include "launch/rendezvous_backends.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "io/resolve.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/serve/hosted_store.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/store/tcp_store.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// A seat that cannot be lost while its process lives, and remembers nothing: the agents
/// know the last round.
class lasting_seat final : public coordinator_seat {
 public:
  explicit lasting_seat(std::unique_ptr<hosted_store> host = nullptr)
      : host_(std::move(host)) {}

  task<std::string> read() override { co_return std::string(); }
  task<bool> publish(std::string) override { co_return true; }
  task<bool> close() override { co_return true; }
  task<void> lost() override { co_await never_; }

 private:
  std::unique_ptr<hosted_store> host_;
  event never_;
};

class standalone_backend final : public rendezvous_backend {
 public:
  store& meeting_place() override { return store_; }
  task<std::unique_ptr<coordinator_seat>> take_seat() override {
    co_return std::make_unique<lasting_seat>();
  }
  task<bool> is_closed() override { co_return false; }
  task<void> coordinator_died(std::string) override { co_return; }
  duration patience() const noexcept override { return duration::zero(); }
  bool has_successors() const noexcept override { return false; }

 private:
  memory_store store_;
};

class tcp_backend final : public rendezvous_backend {
 public:
  tcp_backend(runtime& rt, const rendezvous_options& options)
      : runtime_(rt),
        endpoint_(options.endpoint),
        insecure_(options.insecure),
        store_(rt, options.endpoint) {}

  store& meeting_place() override { return store_; }
  task<std::unique_ptr<coordinator_seat>> take_seat() override;
  task<bool> is_closed() override { co_return false; }
  task<void> coordinator_died(std::string) override {
    died_.set();
    co_return;
  }
  duration patience() const noexcept override { return std::chrono::seconds(2); }
  bool has_successors() const noexcept override { return false; }

 private:
  [[nodiscard]] task<std::unique_ptr<hosted_store>> try_to_host();
  [[nodiscard]] std::unique_ptr<hosted_store> listen_at(const socket_address& address);

  runtime& runtime_;
  const std::string endpoint_;
  const bool insecure_;
  tcp_store store_;
  event died_;
};

/// Listens if the endpoint is ours and free. It tries again each second, and at once when
/// the coordinator has died, so that another agent of its host follows it.
task<std::unique_ptr<coordinator_seat>> tcp_backend::take_seat() {
  constexpr duration between_tries = std::chrono::seconds(1);
  constexpr duration shortest = std::chrono::milliseconds(20);
  duration pause = shortest;
  for (;;) {
    std::unique_ptr<hosted_store> host = co_await try_to_host();
    if (host) co_return std::make_unique<lasting_seat>(std::move(host));
    co_await when_any(died_.wait(), sleep_for(pause));
    pause = died_.is_set() ? shortest : std::min(2 * pause, between_tries);
    died_.reset();
  }
}

task<std::unique_ptr<hosted_store>> tcp_backend::try_to_host() {
  const resolution found = co_await resolve(endpoint_);
  for (const socket_address& address : found.addresses()) {
    std::unique_ptr<hosted_store> host = listen_at(address);
    if (host) co_return host;
  }
  co_return nullptr;
}

std::unique_ptr<hosted_store> tcp_backend::listen_at(const socket_address& address) {
  try {
    return std::make_unique<hosted_store>(runtime_, address.text(), insecure_);
  } catch (const std::system_error& e) {
    const int why = e.code().value();
    if (why == EADDRINUSE || why == EADDRNOTAVAIL) return nullptr;
    throw;
  }
}

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
  if (name == "etcd") return &make_etcd_backend;
  if (name == "file") return &make_file_backend;
  return nullptr;
}

}  // namespace

std::unique_ptr<rendezvous_backend> make_standalone_backend(runtime&,
                                                            const rendezvous_options&) {
  return std::make_unique<standalone_backend>();
}

std::unique_ptr<rendezvous_backend> make_tcp_backend(runtime& rt,
                                                     const rendezvous_options& options) {
  return std::make_unique<tcp_backend>(rt, options);
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
