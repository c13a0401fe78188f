// How an example leaves loopback: the address it listens on, and the proof that its
// peers must give.
#pragma once

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <fstream>
#include <iterator>
#include <manyworlds/mw.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// The common options of all examples that can run on several machines.
struct network_arguments {
  explicit network_arguments(CLI::App& app) {
    app.add_option("--secret-file", secret_file,
                   "a file with the secret of the job, the same for all processes: peers "
                   "prove that they have it, which lets them leave loopback")
        ->check(CLI::ExistingFile);
    app.add_flag("--insecure", insecure,
                 "leave loopback without a secret, on a network where all are trusted");
    app.add_option("--listen", listen,
                   "the address where peers reach this process; without: the one of the "
                   "route to the store");
  }

  /// Returns whether a store may be hosted beyond loopback. The store itself asks for
  /// no secret: a program that reaches it can disturb the forming of worlds, not take
  /// part in them.
  [[nodiscard]] bool may_leave_loopback() const {
    return insecure || !secret_file.empty();
  }

  /// Returns the options of a runtime with the store at `store`, "HOST:PORT" or only
  /// "HOST".
  [[nodiscard]] mw::runtime_options apply(mw::runtime_options options,
                                          std::string_view store) const {
    options.insecure = insecure;
    if (!secret_file.empty()) options.secret = secret();
    const std::string own = listen.empty() ? towards(store) : listen;
    if (!own.empty() && !own.starts_with("127.") && !may_leave_loopback()) {
      throw std::invalid_argument(
          own +
          " is beyond loopback: say --secret-file FILE, or --insecure on a network "
          "where all are trusted");
    }
    if (!own.empty()) options.listen = own + ":0";
    return options;
  }
  /// Adds the arguments for a process that this one starts.
  void hand_on(std::vector<std::string>& words) const {
    if (!secret_file.empty()) words.insert(words.end(), {"--secret-file", secret_file});
    if (insecure) words.push_back("--insecure");
    if (!listen.empty()) words.insert(words.end(), {"--listen", listen});
  }

  std::string secret_file, listen;
  bool insecure = false;

 private:
  [[nodiscard]] std::string secret() const {
    std::ifstream file(secret_file);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    if (text.empty()) throw std::runtime_error("no secret in " + secret_file);
    return text;
  }
  /// Returns our address on the way there, where that leaves loopback. A connected
  /// datagram socket knows it, and sends nothing.
  static std::string towards(std::string_view store) {
    const std::string host(store.substr(0, store.rfind(':')));
    addrinfo wanted{};
    wanted.ai_family = AF_INET;
    wanted.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), "1", &wanted, &found) != 0) return {};
    sockaddr_in there{};
    std::memcpy(&there, found->ai_addr, sizeof there);
    ::freeaddrinfo(found);
    if (ntohl(there.sin_addr.s_addr) >> 24 == 127) return {};
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in here{};
    socklen_t length = sizeof here;
    char text[INET_ADDRSTRLEN]{};
    const bool is_known =
        ::connect(fd, reinterpret_cast<sockaddr*>(&there), sizeof there) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &length) == 0;
    ::close(fd);
    if (is_known) ::inet_ntop(AF_INET, &here.sin_addr, text, sizeof text);
    return text;
  }
};
