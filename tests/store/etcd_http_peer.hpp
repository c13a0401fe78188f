// Peers of an etcd store that are none, and small errands by hand: requests of an
// administrator, certificates, a cluster of three.
#pragma once

#include "store/etcd_server.hpp"

#include <poll.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"

namespace manyworlds_tests {

/// Listens on loopback and answers each connection with the same bytes; with none it
/// stays silent.
class http_peer {
 public:
  explicit http_peer(std::string answer) : answer_(std::move(answer)) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(fd_, reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(::listen(fd_, 16) == 0);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size);
    endpoint_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    if (!answer_.empty()) thread_ = std::thread([this] { serve(); });
  }
  http_peer(const http_peer&) = delete;
  http_peer& operator=(const http_peer&) = delete;
  ~http_peer() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
    ::close(fd_);
  }
  [[nodiscard]] const std::string& endpoint() const { return endpoint_; }

 private:
  void serve() {
    while (!is_over_) {
      pollfd waited{fd_, POLLIN, 0};
      if (::poll(&waited, 1, 20) <= 0) continue;
      const int peer = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      std::array<char, 4096> request;
      if (::recv(peer, request.data(), request.size(), 0) > 0)
        ::send(peer, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      ::close(peer);
    }
  }

  const std::string answer_;
  std::string endpoint_;
  int fd_ = -1;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

/// Posts one request by hand, and returns what comes until the end of the connection.
inline std::string http_post(const std::string& url, const std::string& path,
                             const std::string& body) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port =
      htons(static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
  const timeval limit{10, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  const std::string request =
      "POST " + path + " HTTP/1.1\r\nHost: here\r\n" +
      "Connection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
      body;
  ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
  std::string answer;
  std::array<char, 4096> part;
  for (ssize_t n = 0; (n = ::recv(fd, part.data(), part.size(), 0)) > 0;)
    answer.append(part.data(), static_cast<std::size_t>(n));
  ::close(fd);
  return answer;
}

/// An authority, a server's and a client's certificate signed by it, and another
/// authority.
class certificates {
 public:
  explicit certificates(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::ofstream(file("names")) << "subjectAltName=IP:127.0.0.1,DNS:localhost\n"
                                    "extendedKeyUsage=serverAuth,clientAuth\n";
    for (const std::string name : {"ca", "other"})
      openssl(
          "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
          "-subj /CN=" +
          name + " -keyout " + file(name + ".key") + " -out " + file(name + ".pem"));
    for (const std::string name : {"server", "client"}) {
      openssl("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=" +
              name + " -keyout " + file(name + ".key") + " -out " + file(name + ".csr"));
      openssl("x509 -req -days 2 -in " + file(name + ".csr") + " -CA " + file("ca.pem") +
              " -CAkey " + file("ca.key") + " -CAcreateserial -extfile " + file("names") +
              " -out " + file(name + ".pem"));
    }
  }
  [[nodiscard]] std::string file(const std::string& name) const {
    return (folder_ / name).string();
  }

 private:
  void openssl(const std::string& arguments) const {
    const std::string command = "timeout 20 openssl " + arguments + " 2>&1 >/dev/null";
    REQUIRE(std::system((command + " | cat >/dev/null").c_str()) == 0);
  }

  std::filesystem::path folder_;
};

/// Three members on loopback.
class etcd_cluster {
 public:
  etcd_cluster() {
    for (std::size_t i = 0; i < 3; ++i) {
      clients_[i] = "http://127.0.0.1:" + std::to_string(free_port());
      peers_[i] = "http://127.0.0.1:" + std::to_string(free_port());
    }
    std::filesystem::create_directories(folder_);
    for (std::size_t i = 0; i < 3; ++i) start(i);
  }
  etcd_cluster(const etcd_cluster&) = delete;
  etcd_cluster& operator=(const etcd_cluster&) = delete;
  ~etcd_cluster() {
    for (std::size_t i = 0; i < 3; ++i) kill(i);
    std::filesystem::remove_all(folder_);
  }

  [[nodiscard]] std::string endpoints() const {
    return clients_[0] + "," + clients_[1] + "," + clients_[2];
  }
  void start(std::size_t i) {
    const std::string name = "m" + std::to_string(i);
    pids_[i] = start_program(
        {"etcd", "--name=" + name, "--data-dir=" + (folder_ / name).string(),
         "--listen-client-urls=" + clients_[i], "--advertise-client-urls=" + clients_[i],
         "--listen-peer-urls=" + peers_[i], "--initial-advertise-peer-urls=" + peers_[i],
         "--initial-cluster=m0=" + peers_[0] + ",m1=" + peers_[1] + ",m2=" + peers_[2],
         "--logger=zap", "--log-level=error"},
        folder_ / ("log-" + name));
  }
  void kill(std::size_t i) {
    if (pids_[i] <= 0) return;
    ::kill(pids_[i], SIGKILL);
    ::waitpid(std::exchange(pids_[i], 0), nullptr, 0);
  }

 private:
  const std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                        ("mw-etcd-cluster-" + std::to_string(::getpid()));
  std::array<std::string, 3> clients_;
  std::array<std::string, 3> peers_;
  std::array<pid_t, 3> pids_{};
};

/// Runs `child(i)` for each number side by side.
template <class Child>
manyworlds::task<void> scope_of(int children, Child& child) {
  co_await manyworlds::scope::run([&](manyworlds::scope& s) -> manyworlds::task<void> {
    for (int i = 0; i < children; ++i) s.spawn(child, i);
    co_return;
  });
}

}  // namespace manyworlds_tests
