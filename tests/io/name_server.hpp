// A name server of our own on loopback, for what a real one would have to do at the right
// moment: answer, say nothing, lie. It runs on a thread, so that it answers a reactor
// that sleeps.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "manyworlds/io/socket_address.hpp"

namespace manyworlds::testing {

/// One question as it came, with what answers are made of.
struct dns_question {
  std::string message;
  std::string name;  ///< "node7.test", in lower case
  bool wants_ipv6 = false;
  int number = 0;  ///< how many came before it
  bool by_tcp = false;

  static std::optional<dns_question> parse(std::string message, int number, bool by_tcp) {
    dns_question q{std::move(message), {}, false, number, by_tcp};
    std::size_t at = 12;
    while (at < q.message.size() && q.message[at] != 0) {
      const auto length = static_cast<std::size_t>(q.message[at]);
      if (!q.name.empty()) q.name += '.';
      q.name += q.message.substr(at + 1, length);
      at += 1 + length;
    }
    if (at + 5 > q.message.size()) return std::nullopt;
    for (char& c : q.name) c = static_cast<char>(std::tolower(c));
    q.wants_ipv6 = q.message[at + 2] == 28;
    q.message.resize(at + 5);
    return q;
  }

  /// Header and question again, with this code and this number of answers to follow.
  [[nodiscard]] std::string reply(char code, char answers, char more_flags = 0) const {
    std::string r = message;
    r[2] = static_cast<char>(0x81 | more_flags);
    r[3] = static_cast<char>(0x80 | code);
    r[6] = 0, r[7] = answers;
    for (std::size_t i = 8; i < 12; ++i) r[i] = 0;
    return r;
  }
  [[nodiscard]] std::string address(const char* text) const {
    std::array<char, 16> bytes{};
    const bool v6 = std::string_view(text).find(':') != std::string_view::npos;
    ::inet_pton(v6 ? AF_INET6 : AF_INET, text, bytes.data());
    std::string r = reply(0, 1);
    r += std::string("\xc0\x0c\0", 3) + (v6 ? '\x1c' : '\x01');
    r += std::string("\0\1\0\0\0\x3c\0", 7) + (v6 ? '\x10' : '\x04');
    return r + std::string(bytes.data(), v6 ? 16 : 4);
  }
  [[nodiscard]] std::string no_such_name() const { return reply(3, 0); }
  [[nodiscard]] std::string no_address() const { return reply(0, 0); }
  [[nodiscard]] std::string come_by_tcp() const { return reply(0, 0, 0x02); }
};

class name_server {
 public:
  /// Gives the bytes to answer with, or nothing. Runs on the server's thread.
  using manner = std::function<std::optional<std::string>(const dns_question&)>;

  explicit name_server(manner m) : manner_(std::move(m)) {
    open();
    thread_ = std::thread([this] { serve(); });
  }
  ~name_server() {
    const std::uint64_t one = 1;
    CHECK(::write(stop_, &one, sizeof one) == sizeof one);
    thread_.join();
    for (const int fd : {stop_, udp_, tcp_}) ::close(fd);
  }

  [[nodiscard]] const socket_address& address() const noexcept { return address_; }
  [[nodiscard]] int questions() const noexcept { return count_; }
  [[nodiscard]] std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }

 private:
  static int bound(int type, socket_address& at) {
    const int fd = ::socket(AF_INET, type | SOCK_CLOEXEC, 0);
    sockaddr_storage native{};
    const socklen_t length = at.to_native(&native);
    if (::bind(fd, reinterpret_cast<sockaddr*>(&native), length) != 0) {
      ::close(fd);
      return -1;
    }
    socklen_t full = sizeof native;
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&native), &full);
    at = *socket_address::from_native(reinterpret_cast<sockaddr*>(&native), full);
    return fd;
  }

  // The same port for both, which the first is given and another may have of the second.
  void open() {
    for (int tries = 0; tries < 100 && tcp_ < 0; ++tries) {
      if (udp_ >= 0) ::close(udp_);
      address_ = socket_address::loopback(0);
      udp_ = bound(SOCK_DGRAM, address_);
      tcp_ = bound(SOCK_STREAM, address_);
    }
    REQUIRE(tcp_ >= 0);
    REQUIRE(::listen(tcp_, 8) == 0);
  }

  void serve() {
    std::array<pollfd, 3> ready{
        {{stop_, POLLIN, 0}, {udp_, POLLIN, 0}, {tcp_, POLLIN, 0}}};
    while (::poll(ready.data(), ready.size(), -1) >= 0 && ready[0].revents == 0) {
      if (ready[1].revents != 0) answer_udp();
      if (ready[2].revents != 0) answer_tcp();
    }
  }

  std::optional<std::string> ask(std::string message, bool by_tcp) {
    const auto q = dns_question::parse(std::move(message), count_, by_tcp);
    if (!q) return std::nullopt;
    {
      const std::lock_guard lock(mutex_);
      names_.push_back(q->name);
    }
    auto answer = manner_(*q);
    ++count_;
    return answer;
  }

  void answer_udp() {
    std::string message(512, '\0');
    sockaddr_in from{};
    socklen_t length = sizeof from;
    const ssize_t size = ::recvfrom(udp_, message.data(), message.size(), 0,
                                    reinterpret_cast<sockaddr*>(&from), &length);
    if (size <= 0) return;
    message.resize(static_cast<std::size_t>(size));
    if (const auto answer = ask(std::move(message), false))
      ::sendto(udp_, answer->data(), answer->size(), 0,
               reinterpret_cast<sockaddr*>(&from), length);
  }

  // One question a connection; bounded, should its client say nothing.
  void answer_tcp() {
    const int fd = ::accept4(tcp_, nullptr, nullptr, SOCK_CLOEXEC);
    const timeval limit{5, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    std::array<unsigned char, 2> size{};
    if (::recv(fd, size.data(), 2, MSG_WAITALL) == 2) {
      std::string message(static_cast<std::size_t>(size[0]) * 256 + size[1], '\0');
      if (::recv(fd, message.data(), message.size(), MSG_WAITALL) > 0)
        if (const auto answer = ask(std::move(message), true)) {
          const std::string whole =
              std::string(1, static_cast<char>(answer->size() >> 8)) +
              static_cast<char>(answer->size() & 255) + *answer;
          CHECK(::send(fd, whole.data(), whole.size(), MSG_NOSIGNAL) > 0);
        }
    }
    ::close(fd);
  }

  const manner manner_;
  socket_address address_;
  const int stop_ = ::eventfd(0, EFD_CLOEXEC);
  int udp_ = -1;
  int tcp_ = -1;
  std::atomic<int> count_{0};
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
  std::thread thread_;
};

/// A file with this text while it lives.
class text_file {
 public:
  explicit text_file(const std::string& text) : path_("/tmp/manyworlds-text-XXXXXX") {
    const int fd = ::mkstemp(path_.data());
    REQUIRE(fd >= 0);
    ::close(fd);
    std::ofstream(path_) << text;
  }
  text_file(const text_file&) = delete;
  text_file& operator=(const text_file&) = delete;
  ~text_file() { ::unlink(path_.c_str()); }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace manyworlds::testing
