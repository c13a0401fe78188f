#include "launch/health_endpoint.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string_view>

// The build says 0 where it found no header; elsewhere the include path decides.
#if !defined(MANYWORLDS_HAS_MICROHTTPD)
#if __has_include(<microhttpd.h>)
#define MANYWORLDS_HAS_MICROHTTPD 1
#else
#define MANYWORLDS_HAS_MICROHTTPD 0
#endif
#endif

#if MANYWORLDS_HAS_MICROHTTPD
#include <dlfcn.h>
#include <microhttpd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "io/stream.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#endif

namespace manyworlds::inline v0::detail {

namespace {

/// An IPv4 or IPv6 address with a port.
struct probe_address {
  sockaddr_storage bytes{};

  explicit probe_address(const std::string& text) {
    const std::size_t colon = text.rfind(':');
    const bool has_host = colon != std::string::npos;
    std::string host = has_host ? text.substr(0, colon) : "127.0.0.1";
    const std::string_view number =
        std::string_view(text).substr(has_host ? colon + 1 : 0);
    std::uint16_t port = 0;
    const char* const end = number.data() + number.size();
    const auto parsed = std::from_chars(number.data(), end, port);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
      host = host.substr(1, host.size() - 2);
    auto& v4 = reinterpret_cast<sockaddr_in&>(bytes);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(bytes);
    const bool is_number = parsed.ec == std::errc() && parsed.ptr == end && port > 0;
    if (is_number && ::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
      v4.sin_family = AF_INET;
      v4.sin_port = htons(port);
    } else if (is_number && ::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
      v6.sin6_family = AF_INET6;
      v6.sin6_port = htons(port);
    } else {
      throw std::runtime_error(fmt::format(
          "health endpoint: \"{}\" was given: expected PORT or ADDRESS:PORT", text));
    }
  }
  [[nodiscard]] bool is_v6() const noexcept { return bytes.ss_family == AF_INET6; }
};

}  // namespace

bool is_probe_address(const std::string& text) {
  try {
    const probe_address read(text);
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

#if MANYWORLDS_HAS_MICROHTTPD

namespace {

constexpr unsigned most_probes = 64;
/// With more than these, the oldest connection is ended. The library would accept no more
/// at its limit, until clients that ask nothing have lost its patience.
constexpr std::size_t most_kept_probes = 48;
constexpr unsigned probe_patience_s = 10;
constexpr std::size_t memory_of_probe = 16 * 1024;

}  // namespace

/// The library, opened, and its server.
class health_endpoint::server {
 public:
  server(const std::string& address, source ask) : ask_(std::move(ask)) {
    const probe_address at(address);
    load();
    open_.reserve(most_probes + 1);
    unsigned flags = MHD_USE_EPOLL;
    if (at.is_v6()) flags |= MHD_USE_IPv6;
    daemon_ =
        start_(flags, 0, nullptr, nullptr, &server::answer, this, MHD_OPTION_SOCK_ADDR,
               &at.bytes, MHD_OPTION_CONNECTION_LIMIT, most_probes,
               MHD_OPTION_CONNECTION_TIMEOUT, probe_patience_s,
               MHD_OPTION_CONNECTION_MEMORY_LIMIT, memory_of_probe,
               MHD_OPTION_NOTIFY_CONNECTION, &server::note_probe, this, MHD_OPTION_END);
    if (!daemon_) {
      throw std::runtime_error(
          fmt::format("health endpoint {}: {}", address, std::strerror(errno)));
    }
  }
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server() { stop_(daemon_); }

  [[nodiscard]] int descriptor() const {
    return info_(daemon_, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
  }
  /// Returns when it is to be run again, also if nothing comes.
  [[nodiscard]] duration run() {
    run_(daemon_);
    // At its limit of connections the library does not listen, and begins again only with
    // the run after the one that has closed some: nothing else would wake it.
    run_(daemon_);
    MHD_UNSIGNED_LONG_LONG milliseconds = 0;
    const duration longest = std::chrono::hours(1);
    if (timeout_(daemon_, &milliseconds) != MHD_YES) return longest;
    const auto given = static_cast<std::int64_t>(std::min(milliseconds, 3'600'000ull));
    return std::chrono::milliseconds(given);
  }

 private:
  template <class Function>
  void find(const char* name, Function& into) {
    into = reinterpret_cast<Function>(::dlsym(library_, name));
    if (!into) throw std::runtime_error(fmt::format("libmicrohttpd has no {}", name));
  }
  /// The library stays loaded.
  void load() {
    library_ = ::dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
    if (!library_) {
      throw std::runtime_error(fmt::format(
          "health endpoint: libmicrohttpd cannot be opened: {}", ::dlerror()));
    }
    find("MHD_start_daemon", start_);
    find("MHD_stop_daemon", stop_);
    find("MHD_get_daemon_info", info_);
    find("MHD_get_connection_info", about_);
    find("MHD_run", run_);
    find("MHD_get_timeout", timeout_);
    find("MHD_create_response_from_buffer", make_);
    find("MHD_add_response_header", add_header_);
    find("MHD_queue_response", queue_);
    find("MHD_destroy_response", forget_);
  }

  static MHD_Result answer(void* self, MHD_Connection* to, const char*,
                           const char* method, const char*, const char*, size_t*,
                           void**) noexcept {
    try {
      return static_cast<server*>(self)->answer(to, method);
    } catch (...) {
      // Without memory: the connection is closed.
      return MHD_NO;
    }
  }
  MHD_Result answer(MHD_Connection* to, const char* method) {
    const bool is_question =
        std::strcmp(method, "GET") == 0 || std::strcmp(method, "HEAD") == 0;
    const health now = is_question ? ask_() : health{false, "only GET and HEAD"};
    unsigned code = now.is_well ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
    if (!is_question) code = MHD_HTTP_METHOD_NOT_ALLOWED;
    std::string text = now.reason + "\n";
    MHD_Response* const made = make_(text.size(), text.data(), MHD_RESPMEM_MUST_COPY);
    if (!made) return MHD_NO;
    add_header_(made, "Content-Type", "text/plain; charset=utf-8");
    add_header_(made, "Cache-Control", "no-store");
    const MHD_Result queued = queue_(to, code, made);
    forget_(made);
    return queued;
  }

  struct open_probe {
    MHD_Connection* connection;
    int fd;
  };

  /// Is told of each connection that begins or ends.
  static void note_probe(void* self, MHD_Connection* of, void**,
                         MHD_ConnectionNotificationCode what) noexcept {
    static_cast<server*>(self)->note(of, what);
  }
  void note(MHD_Connection* of, MHD_ConnectionNotificationCode what) noexcept {
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
      std::erase_if(open_, [&](const open_probe& each) { return each.connection == of; });
      return;
    }
    const auto* const info = about_(of, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!info || open_.size() == open_.capacity()) return;
    open_.push_back({of, info->connect_fd});
    if (open_.size() <= most_kept_probes) return;
    // The library sees its end, and closes it.
    ::shutdown(open_.front().fd, SHUT_RDWR);
    open_.erase(open_.begin());
  }

  source ask_;
  std::vector<open_probe> open_;  ///< the oldest first
  void* library_ = nullptr;
  MHD_Daemon* daemon_ = nullptr;
  decltype(&MHD_start_daemon) start_ = nullptr;
  decltype(&MHD_stop_daemon) stop_ = nullptr;
  decltype(&MHD_get_daemon_info) info_ = nullptr;
  decltype(&MHD_get_connection_info) about_ = nullptr;
  decltype(&MHD_run) run_ = nullptr;
  decltype(&MHD_get_timeout) timeout_ = nullptr;
  decltype(&MHD_create_response_from_buffer) make_ = nullptr;
  decltype(&MHD_add_response_header) add_header_ = nullptr;
  decltype(&MHD_queue_response) queue_ = nullptr;
  decltype(&MHD_destroy_response) forget_ = nullptr;
};

task<void> health_endpoint::serve() {
  const auto on = static_cast<socket_handle>(server_->descriptor());
  for (;;) {
    const duration longest = server_->run();
    auto come = [&]() -> task<void> {
      co_await io_awaiter(home_, io_kind::readable, on);
    };
    co_await when_any(come(), sleep_for(longest));
  }
}

#else

class health_endpoint::server {
 public:
  server(const std::string&, const source&) {
    throw std::runtime_error(
        "health endpoint: this build has no libmicrohttpd (Debian: libmicrohttpd-dev)");
  }
};

task<void> health_endpoint::serve() { co_return; }

#endif

health_endpoint::health_endpoint(reactor& home, const std::string& address, source ask)
    : home_(home), server_(std::make_unique<server>(address, std::move(ask))) {}

health_endpoint::~health_endpoint() = default;

}  // namespace manyworlds::inline v0::detail
