// TCPStore connection: a client's connection to a server, in the protocol's terms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "io/stream.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/time.hpp"
#include "store/tcp_store_protocol.hpp"

namespace manyworlds::inline v0::detail {

/// The connection ended or could not be made; another attempt may succeed.
class connection_lost : public std::exception {
 public:
  explicit connection_lost(std::string reason) : reason_(std::move(reason)) {}
  const char* what() const noexcept override { return reason_.c_str(); }

 private:
  std::string reason_;
};

/// The other end is no TCPStore; no further attempt will succeed.
class protocol_broken : public std::exception {
 public:
  explicit protocol_broken(std::string reason) : reason_(std::move(reason)) {}
  const char* what() const noexcept override { return reason_.c_str(); }

 private:
  std::string reason_;
};

/// The other end is a store with another secret, or none; no further attempt will
/// succeed.
class secret_refused : public std::exception {
 public:
  explicit secret_refused(std::string reason) : reason_(std::move(reason)) {}
  const char* what() const noexcept override { return reason_.c_str(); }

 private:
  std::string reason_;
};

/// A client's connection. Thread: one. Errors: its tasks throw the first two above. After
/// a task was cancelled or has thrown, the connection may only be destroyed, except after
/// `read_u8`, which takes a byte or none.
class tcp_store_connection {
 public:
  /// Counts itself in `open` from the end of its greeting. Lifetime: `open` outlives
  /// it.
  tcp_store_connection(stream s, const store_limits& limits, std::size_t& open);
  tcp_store_connection(const tcp_store_connection&) = delete;
  tcp_store_connection& operator=(const tcp_store_connection&) = delete;
  ~tcp_store_connection() {
    MW_ASSERT(!has_greeted_ || open_ > 0, "a greeted connection is counted");
    if (has_greeted_) --open_;
  }

  /// Sends the magic number and a first ping, and awaits its reply.
  task<void> greet(std::uint32_t nonce);
  task<void> send(const std::string& requests);
  /// Awaits the reply to a ping: all that was sent before it has been carried out.
  task<void> expect_ping(std::uint32_t nonce);

  task<std::uint8_t> read_u8();
  task<std::int64_t> read_i64();
  task<std::string> read_text();

  [[nodiscard]] bool is_open() const noexcept { return stream_.is_open(); }
  [[nodiscard]] bool has_ended() const noexcept { return stream_.has_ended(); }
  void close() noexcept { stream_.close(); }
  /// Says when it was given back last, by its pool's clock.
  [[nodiscard]] time_point last_used() const noexcept { return last_used_; }
  void note_use(time_point now) noexcept { last_used_ = now; }

 private:
  task<std::uint64_t> read_integer(std::size_t size);
  task<void> fill(std::size_t at_least);

  std::size_t& open_;
  bool has_greeted_ = false;
  stream stream_;
  store_limits limits_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  time_point last_used_{};
};

}  // namespace manyworlds::inline v0::detail
