#include "io/dns_query.hpp"

namespace manyworlds::inline v0::detail {

std::string text_of(const std::vector<socket_address>& servers) {
  std::string text;
  for (const socket_address& s : servers) text += (text.empty() ? "" : ", ") + s.text();
  return text;
}

}  // namespace manyworlds::inline v0::detail

#if MANYWORLDS_HAS_C_ARES

#include <ares.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "io/descriptor.hpp"
#include "io/stream.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

// c-ares' own calls leave a moment in which a forked child inherits a socket, and write
// to a name server's closed connection without MSG_NOSIGNAL (law 12).
ares_socket_t open_dns_socket(int family, int type, int protocol, void*) noexcept {
  return ::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
}
int close_dns_socket(ares_socket_t s, void*) noexcept { return ::close(s); }
int connect_dns_socket(ares_socket_t s, const sockaddr* to, ares_socklen_t length,
                       void*) noexcept {
  return ::connect(s, to, length);
}
ares_ssize_t receive_from_dns(ares_socket_t s, void* into, std::size_t size, int flags,
                              sockaddr* from, ares_socklen_t* length, void*) noexcept {
  return ::recvfrom(s, into, size, flags, from, length);
}
ares_ssize_t send_to_dns(ares_socket_t s, const iovec* parts, int count, void*) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = static_cast<std::size_t>(count);
  return ::sendmsg(s, &message, MSG_NOSIGNAL);
}

constexpr ares_socket_functions dns_socket_functions{
    open_dns_socket, close_dns_socket, connect_dns_socket, receive_from_dns, send_to_dns};

}  // namespace

// This is not in an unnamed namespace: a coroutine's frame holds it, and has linkage.

/// One channel of c-ares with one question. It never moves: c-ares holds pointers to it.
class dns_query {
 public:
  /// Errors: std::bad_alloc; std::system_error out of descriptors; std::runtime_error
  /// with c-ares' own reason.
  dns_query(const host_and_port_number& name, const dns_settings& settings)
      : name_(name), servers_(text_of(settings.servers)) {
    open(settings);
    ares_addrinfo_hints hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    ares_getaddrinfo(channel_.get(), name_.host.c_str(), nullptr, &hints, answered, this);
  }
  dns_query(const dns_query&) = delete;
  dns_query& operator=(const dns_query&) = delete;
  ~dns_query() = default;

  [[nodiscard]] bool is_over() const noexcept { return result_.has_value(); }
  [[nodiscard]] resolution take_result() {
    MW_ASSERT(is_over(), "a query is over before its result is taken");
    return std::move(*result_);
  }
  /// Polls readable when `go_on` has something to do.
  [[nodiscard]] socket_handle descriptor() const noexcept {
    return static_cast<socket_handle>(ready_.get());
  }
  /// Returns the time until a server is asked again, or given up.
  [[nodiscard]] duration pause() noexcept {
    timeval left{};
    timeval most{1, 0};
    const timeval* next = ares_timeout(channel_.get(), &most, &left);
    return std::chrono::seconds(next->tv_sec) + std::chrono::microseconds(next->tv_usec);
  }

  void go_on() noexcept {
    std::array<epoll_event, 8> events{};
    const int count =
        ::epoll_wait(ready_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& e = events[static_cast<std::size_t>(i)];
      const bool writes = (e.events & EPOLLOUT) != 0;
      const bool reads = (e.events & ~static_cast<unsigned>(EPOLLOUT)) != 0;
      ares_process_fd(channel_.get(), reads ? e.data.fd : ARES_SOCKET_BAD,
                      writes ? e.data.fd : ARES_SOCKET_BAD);
    }
    ares_process_fd(channel_.get(), ARES_SOCKET_BAD, ARES_SOCKET_BAD);
  }

  void fail(const std::string& why) {
    if (is_over()) return;
    result_ = resolution::failed("cannot resolve host '" + name_.host + "': " + why);
  }

 private:
  struct destroy {
    void operator()(ares_channeldata* c) const noexcept { ares_destroy(c); }
  };

  // This sets each option that c-ares would otherwise take from the environment
  // (RES_OPTIONS, LOCALDOMAIN, HOSTALIASES) or from files that were read already.
  void open(const dns_settings& settings) {
    std::vector<std::string> search = settings.search;
    std::vector<char*> domains;
    for (std::string& domain : search) domains.push_back(domain.data());
    std::string lookups = "b";
    std::string no_file = "/dev/null";
    ares_options options{};
    options.flags = ARES_FLAG_NOALIASES;
    options.timeout = static_cast<int>(settings.first_try / std::chrono::milliseconds(1));
    options.tries = settings.tries;
    options.ndots = settings.dots;
    options.domains = domains.data();
    options.ndomains = static_cast<int>(domains.size());
    options.lookups = lookups.data();
    options.sock_state_cb = state_changed;
    options.sock_state_cb_data = this;
    options.resolvconf_path = no_file.data();
    const int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
                     ARES_OPT_NDOTS | ARES_OPT_DOMAINS | ARES_OPT_LOOKUPS |
                     ARES_OPT_SOCK_STATE_CB | ARES_OPT_RESOLVCONF |
                     (settings.takes_turns ? ARES_OPT_ROTATE : ARES_OPT_NOROTATE);
    ares_channeldata* opened = nullptr;
    require(ares_init_options(&opened, &options, mask));
    channel_.reset(opened);
    ares_set_socket_functions(opened, &dns_socket_functions, nullptr);
    std::string servers;
    for (const socket_address& s : settings.servers) servers += s.text() + ",";
    require(ares_set_servers_ports_csv(opened, servers.c_str()));
  }

  static void require(int status) {
    if (status == ARES_ENOMEM) throw std::bad_alloc();
    if (status != ARES_SUCCESS)
      throw std::runtime_error(std::string("c-ares: ") + ares_strerror(status));
  }

  /// Called when c-ares waits for something else on one of its sockets. If it waits for
  /// nothing, it closes the socket next.
  static void state_changed(void* query, ares_socket_t s, int reads,
                            int writes) noexcept {
    auto& self = *static_cast<dns_query*>(query);
    epoll_event interest{};
    interest.events = (reads ? EPOLLIN : 0u) | (writes ? EPOLLOUT : 0u);
    interest.data.fd = s;
    const int set = self.ready_.get();
    if (interest.events == 0) {
      ::epoll_ctl(set, EPOLL_CTL_DEL, s, &interest);
    } else if (::epoll_ctl(set, EPOLL_CTL_MOD, s, &interest) != 0 && errno == ENOENT) {
      // If there is no memory for it, the pauses end the query.
      ::epoll_ctl(set, EPOLL_CTL_ADD, s, &interest);
    }
  }

  static void answered(void* query, int status, int, ares_addrinfo* answer) noexcept {
    const std::unique_ptr<ares_addrinfo, decltype(&ares_freeaddrinfo)> owner(
        answer, &ares_freeaddrinfo);
    // The channel is being destroyed: the result is no longer asked for.
    if (status == ARES_EDESTRUCTION || status == ARES_ECANCELLED) return;
    auto& self = *static_cast<dns_query*>(query);
    if (status != ARES_SUCCESS) return self.fail(self.reason_of(status));
    std::vector<socket_address> addresses;
    for (const ares_addrinfo_node* n = answer->nodes; n; n = n->ai_next) {
      const auto numeric = socket_address::from_native(n->ai_addr, n->ai_addrlen);
      if (!numeric) continue;
      const socket_address a = numeric->with_port(self.name_.port);
      if (std::find(addresses.begin(), addresses.end(), a) == addresses.end())
        addresses.push_back(a);
    }
    if (addresses.empty()) return self.fail("it has neither an IPv4 nor an IPv6 address");
    self.result_ = resolution::success(std::move(addresses));
  }

  [[nodiscard]] std::string reason_of(int status) const {
    switch (status) {
      case ARES_ENOTFOUND:
        return "no such name, said " + servers_;
      case ARES_ENODATA:
        return "it has neither an IPv4 nor an IPv6 address, said " + servers_;
      case ARES_ETIMEOUT:
        return "no answer from the name server " + servers_;
      case ARES_ECONNREFUSED:
        return "no name server could be reached: " + servers_;
      default:
        return std::string(ares_strerror(status)) + " (the name server: " + servers_ +
               ")";
    }
  }

  const host_and_port_number name_;
  const std::string servers_;
  const unique_descriptor ready_{::epoll_create1(EPOLL_CLOEXEC), "epoll_create1"};
  std::optional<resolution> result_;
  // The channel comes last, so that the sockets it closes are taken out of the set.
  std::unique_ptr<ares_channeldata, destroy> channel_;
};

task<resolution> ask_name_servers(reactor& home, host_and_port_number name,
                                  dns_settings settings) {
  dns_query query(name, settings);
  while (!query.is_over()) {
    const auto [ready, paused] =
        co_await when_any(io_awaiter(home, io_kind::readable, query.descriptor()),
                          sleep_for(query.pause()));
    if (ready && !ready->ok())
      query.fail("awaiting c-ares: " + std::generic_category().message(ready->error()));
    else
      query.go_on();
  }
  co_return query.take_result();
}

}  // namespace manyworlds::inline v0::detail

#else

namespace manyworlds::inline v0::detail {

task<resolution> ask_name_servers(reactor&, host_and_port_number name, dns_settings) {
  co_return resolution::failed(
      "cannot resolve host '" + name.host +
      "': the hosts file does not have it, and this build asks no name server, since it "
      "has no c-ares. Give an address, add the name to the hosts file, or install "
      "libc-ares-dev and build with -Dresolver=enabled (vendored: with <ares.h> on the "
      "include path, and -lcares)");
}

}  // namespace manyworlds::inline v0::detail

#endif
