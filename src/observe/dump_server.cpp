#include "observe/dump_server.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/descriptor.hpp"
#include "io/forked_thread.hpp"
#include "io/signals_blocked.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Limit for a client to send its request.
constexpr dump_server::clock::duration request_patience = std::chrono::seconds(1);
/// Pause while descriptors or memory are short.
constexpr dump_server::clock::duration exhausted_pause = std::chrono::seconds(1);
constexpr int most_servers = 1024;
constexpr std::size_t longest_request = 16;
static_assert(longest_request >= sizeof "json\n" && longest_request >= sizeof "text\n");

[[noreturn]] void throw_dump_error(const char* what) {
  throw std::system_error(errno, std::generic_category(),
                          std::string("dump server: ") + what);
}

/// Binds the first name that is free. Abstract names end with their socket, so no name
/// is ever stale.
std::string bind_free_name(int listening) {
  for (int n = 0; n < most_servers; ++n) {
    std::string name = fmt::format("manyworlds-{}-{}", ::getpid(), n);
    sockaddr_un address{};
    MW_ASSERT(name.size() < sizeof address.sun_path, "a dump server's name fits");
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::bind(listening, reinterpret_cast<const sockaddr*>(&address), length) == 0) {
      return name;
    }
    if (errno != EADDRINUSE) throw_dump_error("bind");
  }
  errno = EADDRINUSE;
  throw_dump_error("bind");
}

bool may_ask(int client) noexcept {
  ucred who{};
  socklen_t length = sizeof who;
  if (::getsockopt(client, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) return false;
  return who.uid == 0 || who.uid == ::geteuid();
}

}  // namespace

dump_server::dump_server(source dump, clock::duration answer_patience)
    : dump_(std::move(dump)),
      answer_patience_(answer_patience),
      owner_(::getpid()),
      listening_(std::make_unique<unique_descriptor>(
          ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket")),
      ending_(std::make_unique<event_counter>()) {
  name_ = bind_free_name(listening_->get());
  if (::listen(listening_->get(), 8) != 0) throw_dump_error("listen");

  const signals_blocked while_starting;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "manyworlds-dump");
    serve();
  });
}

dump_server::~dump_server() {
  if (owner_ == ::getpid()) {
    // A forked child does not give: the eventfd is the parent's too.
    ending_->give();
    thread_.join();
  } else {
    forget_forked_thread(thread_);
  }
}

/// Returns false when the time is up or the server ends.
bool dump_server::await(int descriptor, short events, clock::time_point until) const {
  pollfd waited[2] = {{descriptor, events, 0}, {ending_->fd(), POLLIN, 0}};
  int ready = 0;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now());
    const bool for_ever = until == clock::time_point::max();
    if (!for_ever && left.count() < 0) return false;
    ready = ::poll(waited, 2, for_ever ? -1 : static_cast<int>(left.count()));
  } while (ready < 0 && errno == EINTR);
  return ready > 0 && waited[1].revents == 0;
}

void dump_server::serve() noexcept {
  while (await(listening_->get(), POLLIN, clock::time_point::max())) {
    const int accepted =
        ::accept4(listening_->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (accepted < 0) {
      // Without descriptors the client stays in the queue, and poll would return at
      // once each time.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
        (void)await(-1, 0, clock::now() + exhausted_pause);
      }
      continue;
    }
    const unique_descriptor client(accepted, "accept4");
    if (!may_ask(client.get())) continue;
    try {
      answer(client.get());
    } catch (...) {
      // Without memory for an answer there is none: the client sees an empty one.
    }
  }
}

void dump_server::answer(int client) {
  std::string request;
  const clock::time_point asked_by = clock::now() + request_patience;
  while (request.find('\n') == std::string::npos) {
    if (request.size() >= longest_request) return;
    if (!await(client, POLLIN, asked_by)) return;
    char part[longest_request];
    const ssize_t got = ::recv(client, part, sizeof part, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return;
    request.append(part, static_cast<std::size_t>(got));
  }
  const bool as_json = request == "json\n";
  if (!as_json && request != "text\n") return;

  const std::string text = dump_(as_json);
  std::string_view rest = text;
  // The limit is for the whole answer: a client that takes a little now and then would
  // hold up the others.
  const clock::time_point taken_by = clock::now() + answer_patience_;
  while (!rest.empty()) {
    const ssize_t sent = ::send(client, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      rest.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!await(client, POLLOUT, taken_by)) return;
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace manyworlds::inline v0::detail
