#include "manyworlds/io/resolve.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include "signals_blocked.hpp"

namespace manyworlds::inline v0 {

// Not in an unnamed namespace: a coroutine's frame holds some of these, and has linkage.

struct host_and_port_number {
  std::string host;
  std::uint16_t port = 0;
};

namespace {

std::optional<host_and_port_number> split_name(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == 0 || colon == std::string_view::npos) return std::nullopt;
  host_and_port_number name{std::string(text.substr(0, colon))};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, name.port);
  // A colon in the host: an IPv6 address without its brackets, whose last group is no
  // port.
  const bool is_name = name.host.find_first_of(":[]") == std::string::npos;
  if (error != std::errc{} || stop != end || !is_name) return std::nullopt;
  return name;
}

resolution look_up(const host_and_port_number& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(name.host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    const std::string why = error == EAI_SYSTEM ? std::generic_category().message(errno)
                                                : std::string(::gai_strerror(error));
    return resolution::failed("cannot resolve host '" + name.host + "': " + why);
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found,
                                                                   &::freeaddrinfo);
  std::vector<socket_address> addresses;
  for (const addrinfo* entry = found; entry; entry = entry->ai_next) {
    const auto numeric = socket_address::from_native(entry->ai_addr, entry->ai_addrlen);
    if (!numeric) continue;
    const socket_address a = numeric->with_port(name.port);
    if (std::find(addresses.begin(), addresses.end(), a) == addresses.end()) {
      addresses.push_back(a);
    }
  }
  if (addresses.empty()) {
    return resolution::failed("host '" + name.host +
                              "' has neither an IPv4 nor an IPv6 address");
  }
  return resolution::success(std::move(addresses));
}

}  // namespace

/// Shared by the waiting task and the thread, because either may end first.
struct host_lookup {
  explicit host_lookup(host_and_port_number n) : name(std::move(n)) {}

  const host_and_port_number name;
  continuation* waiter = nullptr;
  std::optional<resolution> result;
  enum class state { running, done, abandoned };
  std::atomic<state> now{state::running};

  /// The thread's or the task's claim to end it; one of them gets it.
  bool claim(state as) noexcept {
    state expected = state::running;
    // Acquire and release: the task sees the result the thread wrote before claiming.
    return now.compare_exchange_strong(expected, as, std::memory_order_acq_rel);
  }

  void run() noexcept {
    try {
      result = look_up(name);
    } catch (const std::bad_alloc&) {
      // Left without a result, which the waiter reads as out of memory.
    }
    if (claim(state::done)) waiter->resume();
  }
};

namespace {}  // namespace

class host_lookup_awaiter {
 public:
  explicit host_lookup_awaiter(host_and_port_number name)
      : shared_(std::make_shared<host_lookup>(std::move(name))) {}

  bool await_ready() const noexcept { return false; }
  void await_start(continuation& k) {
    shared_->waiter = &k;
    const signals_blocked blocked;
    std::thread([shared = shared_] { shared->run(); }).detach();
  }
  bool await_cancel() noexcept { return shared_->claim(host_lookup::state::abandoned); }
  bool await_must_resume() const noexcept { return true; }
  resolution await_resume() {
    if (!shared_->result) throw std::bad_alloc();
    return std::move(*shared_->result);
  }

 private:
  std::shared_ptr<host_lookup> shared_;
};

task<resolution> resolve(std::string host_and_port) {
  if (const auto numeric = socket_address::parse(host_and_port)) {
    co_return resolution::success({*numeric});
  }
  const auto name = split_name(host_and_port);
  if (!name) {
    co_return resolution::failed(
        "'" + host_and_port + "' is not an address: expected host:port or [IPv6]:port");
  }
  host_lookup_awaiter looking_up(*name);
  resolution result = co_await looking_up;
  co_return result;
}

}  // namespace manyworlds::inline v0
