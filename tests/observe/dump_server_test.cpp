#include "observe/dump_server.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

using namespace manyworlds;

namespace {

class client {
 public:
  explicit client(const std::string& name)
      : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address),
                           static_cast<socklen_t>(length)) == 0;
  }
  client(const client&) = delete;
  client& operator=(const client&) = delete;
  ~client() { ::close(fd_); }

  [[nodiscard]] bool is_connected() const { return connected_; }
  void say(std::string_view words) const {
    [[maybe_unused]] const auto sent =
        ::send(fd_, words.data(), words.size(), MSG_NOSIGNAL);
  }
  /// What comes while at most 64 KiB are read every 20 ms.
  [[nodiscard]] std::size_t hear_slowly() const {
    std::size_t all = 0;
    std::string part(64 * 1024, '\0');
    for (;;) {
      ::poll(nullptr, 0, 20);
      const ssize_t got = ::recv(fd_, part.data(), part.size(), 0);
      if (got <= 0) return all;
      all += static_cast<std::size_t>(got);
    }
  }
  /// All there is to read; a server that keeps silent for long ends it.
  [[nodiscard]] std::string hear() const {
    std::string all;
    char part[4096];
    for (;;) {
      pollfd waited{fd_, POLLIN, 0};
      if (::poll(&waited, 1, 20'000) != 1) return "<hang>";
      const ssize_t got = ::recv(fd_, part, sizeof part, 0);
      if (got <= 0) return all;
      all.append(part, static_cast<std::size_t>(got));
    }
  }

 private:
  int fd_;
  bool connected_ = false;
};

std::string ask(const dump_server& server, std::string_view words) {
  const client c(server.name());
  REQUIRE(c.is_connected());
  c.say(words);
  return c.hear();
}

std::string kind(bool as_json) { return as_json ? "{}" : "words"; }

}  // namespace

TEST_SUITE_BEGIN("dump_server");

TEST_CASE("a client gets text or JSON as it asks, whole") {
  const dump_server server(kind);
  CHECK(ask(server, "text\n") == "words");
  CHECK(ask(server, "json\n") == "{}");
  const dump_server large([](bool) { return std::string(8 << 20, 'x'); });
  CHECK(ask(large, "text\n").size() == 8 << 20);
}

TEST_CASE(
    "a client that asks for something else gets nothing, and the next one is served") {
  const dump_server server(kind);
  CHECK(ask(server, "please\n").empty());
  CHECK(ask(server, std::string(1000, 'x')).empty());
  CHECK(ask(server, "text\n") == "words");
}

TEST_CASE("a silent client is sent away and cannot hold up the server's end") {
  auto server = std::make_unique<dump_server>(kind);
  const client silent(server->name());
  REQUIRE(silent.is_connected());
  CHECK(ask(*server, "text\n") == "words");
  CHECK(silent.hear().empty());
  const client another(server->name());
  server.reset();
  CHECK(another.hear().empty());
}

TEST_CASE("a client that takes its answer little by little is cut off at the limit") {
  const auto large = [](bool) { return std::string(32 << 20, 'x'); };
  const dump_server server(large, std::chrono::milliseconds(200));
  const client slow(server.name());
  slow.say("text\n");
  CHECK(slow.hear_slowly() < 32 << 20);
  CHECK_FALSE(ask(server, "text\n").empty());
}

TEST_CASE("a dump that throws ends that answer only") {
  int asked = 0;
  const dump_server server([&](bool) -> std::string {
    if (++asked == 1) throw std::bad_alloc();
    return "better";
  });
  CHECK(ask(server, "text\n").empty());
  CHECK(ask(server, "text\n") == "better");
}

TEST_CASE("servers of one process have names of their own, free again when they end") {
  std::string first;
  {
    const dump_server a(kind);
    const dump_server b(kind);
    CHECK(a.name() != b.name());
    CHECK(a.name().starts_with("manyworlds-" + std::to_string(::getpid()) + "-"));
    first = a.name();
  }
  CHECK_FALSE(client(first).is_connected());
  const dump_server again(kind);
  CHECK(again.name() == first);
}

TEST_CASE("another user is refused") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root can become another user to try");
    return;
  }
  const dump_server server(kind);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(20);
    if (::setuid(65534) != 0) ::_exit(2);
    const client c(server.name());
    c.say("text\n");
    ::_exit(c.is_connected() && c.hear().empty() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_SUITE_END();
