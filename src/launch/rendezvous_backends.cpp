#include "launch/rendezvous_backends.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "io/resolve.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "store/tcp_store_server.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// A seat that cannot be lost while its process lives, and remembers nothing: the agents
/// know the last round.
class lasting_seat : public coordinator_seat {
 public:
  task<std::string> read() override { co_return std::string(); }
  task<bool> publish(std::string) override { co_return true; }
  task<bool> close() override { co_return true; }
  task<void> lost() override { co_await never_; }

 private:
  event never_;
};

task<void> serve_store(std::shared_ptr<tcp_store_server> server) {
  co_await server->serve();
}

task<void> stop_store(std::shared_ptr<tcp_store_server> server) {
  server->stop();
  co_return;
}

/// The seat of the agent that serves the store. Giving it up blocks no reactor: the
/// service thread ends the server in its own time.
class serving_seat final : public lasting_seat {
 public:
  serving_seat(runtime& rt, std::shared_ptr<tcp_store_server> server)
      : runtime_(rt), server_(std::move(server)) {
    (void)runtime_.start_service(serve_store(server_));
  }
  ~serving_seat() override {
    try {
      (void)runtime_.start_service(stop_store(server_));
    } catch (const std::exception& e) {
      access::core(runtime_).log(log_level::warning, e.what());
    }
  }

 private:
  runtime& runtime_;
  const std::shared_ptr<tcp_store_server> server_;
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

tcp_store_options knowing(const secret_text& secret) {
  tcp_store_options how;
  how.secret = secret;
  return how;
}

class tcp_backend final : public rendezvous_backend {
 public:
  tcp_backend(runtime& rt, const rendezvous_options& options)
      : runtime_(rt),
        endpoint_(options.endpoint),
        how_(serving_as(rt, options)),
        store_(rt, options.endpoint, knowing(options.secret)) {}

  store& meeting_place() override { return store_; }
  task<std::unique_ptr<coordinator_seat>> take_seat() override;
  task<bool> is_closed() override { co_return false; }
  task<void> coordinator_died(std::string) override {
    tries_.note_death();
    co_return;
  }
  duration patience() const noexcept override { return std::chrono::seconds(2); }
  bool has_successors() const noexcept override { return false; }

 private:
  [[nodiscard]] static tcp_store_server_options serving_as(
      runtime& rt, const rendezvous_options& options) {
    tcp_store_server_options how;
    how.secret = options.secret;
    how.insecure = options.insecure;
    runtime_core& core = access::core(rt);
    how.report = [&core](std::string_view line) { core.log(log_level::warning, line); };
    return how;
  }
  [[nodiscard]] task<std::unique_ptr<coordinator_seat>> try_to_serve();
  [[nodiscard]] std::unique_ptr<coordinator_seat> serve_at(const socket_address& address,
                                                           bool& is_taken);
  [[nodiscard]] socket_address reachable(const socket_address& address) const;

  runtime& runtime_;
  const std::string endpoint_;
  const tcp_store_server_options how_;
  tcp_store store_;
  seat_tries tries_;
};

task<std::unique_ptr<coordinator_seat>> tcp_backend::take_seat() {
  for (;;) {
    std::unique_ptr<coordinator_seat> seat = co_await try_to_serve();
    if (seat) co_return seat;
    co_await tries_.until_next();
  }
}

task<std::unique_ptr<coordinator_seat>> tcp_backend::try_to_serve() {
  const resolution found = co_await resolve(endpoint_);
  for (const socket_address& address : found.addresses()) {
    bool is_taken = false;
    std::unique_ptr<coordinator_seat> seat = serve_at(reachable(address), is_taken);
    if (seat) co_return seat;
    // Another agent of this host serves at a name's first address of ours. At the second
    // one we would be a coordinator beside it.
    if (is_taken) break;
  }
  co_return nullptr;
}

/// Returns the address itself, but for a host's name that its own host takes for
/// loopback, as Debian's /etc/hosts does: others would not reach it there.
socket_address tcp_backend::reachable(const socket_address& address) const {
  const bool is_meant =
      endpoint_.starts_with("localhost:") || socket_address::parse(endpoint_).has_value();
  if (is_meant || !address.is_loopback()) return address;
  return socket_address::parse(address.is_ipv6() ? "[::]:0" : "0.0.0.0:0")
      ->with_port(address.port());
}

std::unique_ptr<coordinator_seat> tcp_backend::serve_at(const socket_address& address,
                                                        bool& is_taken) {
  try {
    auto server = std::make_shared<tcp_store_server>(access::core(runtime_).service(),
                                                     address, how_);
    return std::make_unique<serving_seat>(runtime_, std::move(server));
  } catch (const std::system_error& e) {
    const int why = e.code().value();
    is_taken = why == EADDRINUSE;
    if (is_taken || why == EADDRNOTAVAIL) return nullptr;
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
