// Process watch: the last notice, which no process can hold back or take over.
#include "link/process_watch.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <cstring>

#include "../io/reactor_fixture.hpp"
#include "death_fixture.hpp"
#include "impostor.hpp"

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("process watch");

namespace {

using manyworlds::testing::running;
using shm::boot_time;
using shm::boot_time_now;
using shm::process_watch;

/// Where a child connects to: a connection knows the process that made it.
class unix_listener {
 public:
  unix_listener() : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    REQUIRE(fd_ >= 0);
    // The kernel chooses a name.
    ::sockaddr_un any{};
    any.sun_family = AF_UNIX;
    REQUIRE(::bind(fd_, reinterpret_cast<::sockaddr*>(&any), sizeof any.sun_family) == 0);
    REQUIRE(::listen(fd_, 8) == 0);
    size_ = sizeof name_;
    REQUIRE(::getsockname(fd_, reinterpret_cast<::sockaddr*>(&name_), &size_) == 0);
  }
  ~unix_listener() { ::close(fd_); }
  /// For the child.
  [[nodiscard]] int connect() const {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, reinterpret_cast<const ::sockaddr*>(&name_), size_) != 0)
      ::_exit(2);
    return fd;
  }
  [[nodiscard]] int accept() const {
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    REQUIRE(fd >= 0);
    return fd;
  }

 private:
  int fd_;
  ::sockaddr_un name_{};
  ::socklen_t size_ = 0;
};

using opener = process_watch (*)(int, boot_time);
constexpr opener openers[] = {&process_watch::of_peer, &process_watch::of_peer_by_number};

/// Runs `w.ended` on the watcher's reactor.
struct awaiting {
  static task<void> one(const process_watch& w, reactor& r, bool& over) {
    co_await w.ended(r);
    over = true;
  }
};

}  // namespace

TEST_CASE("a connected peer that lives has not ended, and once killed it has") {
  for (const opener open : openers) {
    unix_listener place;
    child_process child([&](child_process::voice v) {
      (void)!place.connect();
      v.say();
      v.wait_for_ever();
    });
    REQUIRE(child.hear());
    const int connection = place.accept();
    const process_watch peer = open(connection, boot_time_now());
    CHECK(peer.is_watching());
    CHECK(peer.error_message().empty());
    CHECK_FALSE(peer.has_ended());
    child.kill(SIGSTOP);
    CHECK_FALSE(peer.has_ended());
    child.kill();
    child.reap();
    CHECK(peer.has_ended());
    ::close(connection);
  }
}

TEST_CASE("the end of a peer is awaited, and waiting for it can be given up") {
  unix_listener place;
  child_process child([&](child_process::voice v) {
    (void)!place.connect();
    v.say();
    v.wait_for_ever();
  });
  REQUIRE(child.hear());
  const int connection = place.accept();
  const process_watch peer = process_watch::of_peer(connection, boot_time_now());
  watcher w;
  {
    bool over = false;
    running<void> given_up(w.home(), awaiting::one(peer, w.home(), over));
    w.home().turn();
    given_up.cancel();
    CHECK(w.turn_until([&] { return given_up.ended(); }));
    CHECK_FALSE(over);
  }
  bool over = false;
  running<void> waiting(w.home(), awaiting::one(peer, w.home(), over));
  w.home().turn();
  CHECK_FALSE(over);
  child.kill();
  CHECK(w.turn_until([&] { return over; }));
  ::close(connection);
}

TEST_CASE("a peer that has ended is over, though its forked child keeps the connection") {
  for (const opener open : openers) {
    unix_listener place;
    child_process child([&](child_process::voice v) {
      const int connection = place.connect();
      if (::fork() == 0) {
        char c;
        ::_exit(::read(connection, &c, 1) == 0 ? 0 : 1);
      }
      v.say();
    });
    REQUIRE(child.hear());
    const int connection = place.accept();
    const boot_time met = boot_time_now();
    child.reap();
    const process_watch peer = open(connection, met);
    CHECK(peer.is_watching());
    CHECK(peer.has_ended());
    ::close(connection);
  }
}

TEST_CASE("another process with the number of a dead peer is not taken for it") {
  unix_listener place;
  child_process child([&](child_process::voice v) {
    const int connection = place.connect();
    if (::fork() == 0) {
      char c;
      ::_exit(::read(connection, &c, 1) == 0 ? 0 : 1);
    }
    v.say();
    v.wait_for_ever();
  });
  REQUIRE(child.hear());
  const int connection = place.accept();
  const boot_time met = boot_time_now();
  const process_watch early = process_watch::of_peer_by_number(connection, met);
  CHECK_FALSE(early.has_ended());
  const pid_t number = child.pid();
  child.kill();
  child.reap();
  CHECK(early.has_ended());
  // The kernel tells starts by its tick.
  while (boot_time_now() < met + 25ms) {}
  const pid_t impostor = fork_as(number);
  if (impostor < 0) {
    MESSAGE("numbers of processes cannot be chosen here: errno ", errno);
  } else {
    REQUIRE(impostor == number);
    CHECK(early.has_ended());
    for (const opener open : openers) {
      const process_watch late = open(connection, met);
      CHECK(late.is_watching());
      CHECK(late.has_ended());
    }
    REQUIRE(::kill(impostor, SIGKILL) == 0);
    CHECK(::waitpid(impostor, nullptr, 0) == impostor);
  }
  ::close(connection);
}

TEST_CASE(
    "where the kernel gives no handle there is an error message, and nothing has ended") {
  unix_listener place;
  child_process peer_process([&](child_process::voice v) {
    (void)!place.connect();
    v.say();
    v.wait_for_ever();
  });
  REQUIRE(peer_process.hear());
  const int connection = place.accept();
  child_process child([&](child_process::voice) {
    refuse(SYS_pidfd_open, EPERM);
    const process_watch peer =
        process_watch::of_peer_by_number(connection, boot_time_now());
    const bool explains = peer.error_message().find("pidfd_open") != std::string::npos;
    ::_exit(!peer.is_watching() && !peer.has_ended() && explains ? 0 : 2);
  });
  const int status = child.reap();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  ::close(connection);
}

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
