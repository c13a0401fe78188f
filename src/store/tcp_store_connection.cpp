#include "store/tcp_store_connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <system_error>
#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t buffer_bytes = 4096;

connection_lost lost(const char* doing, io_result result) {
  if (result.ok()) return connection_lost("the store closed the connection");
  return connection_lost(
      fmt::format("{}: {}", doing, std::generic_category().message(result.error())));
}

}  // namespace

tcp_store_connection::tcp_store_connection(stream s, const store_limits& limits,
                                           std::size_t& open)
    : open_(open), stream_(std::move(s)), limits_(limits), buffer_(buffer_bytes) {}

task<void> tcp_store_connection::greet(std::uint32_t nonce) {
  tcp_store_message validate(tcp_store_opcode::validate);
  validate.number = tcp_store_magic;
  tcp_store_message ping(tcp_store_opcode::ping);
  ping.number = nonce;
  std::string greeting;
  encode(validate, greeting);
  encode(ping, greeting);
  co_await send(greeting);
  co_await expect_ping(nonce);
  MW_ASSERT(!has_greeted_, "a connection greets once");
  has_greeted_ = true;
  ++open_;
}

task<void> tcp_store_connection::send(const std::string& requests) {
  const io_result sent = co_await stream_.send_all(std::as_bytes(std::span(requests)));
  if (!sent.ok()) throw lost("sending", sent);
}

task<void> tcp_store_connection::expect_ping(std::uint32_t nonce) {
  const std::uint64_t echo = co_await read_integer(4);
  if (echo != nonce) {
    throw protocol_broken(
        fmt::format("a ping of {:#010x} was answered by {:#010x}", nonce, echo));
  }
}

task<std::uint8_t> tcp_store_connection::read_u8() {
  co_return static_cast<std::uint8_t>(co_await read_integer(1));
}

task<std::int64_t> tcp_store_connection::read_i64() {
  co_return static_cast<std::int64_t>(co_await read_integer(8));
}

task<std::string> tcp_store_connection::read_text() {
  const std::uint64_t size = co_await read_integer(8);
  if (size > limits_.value_bytes) {
    throw protocol_broken(fmt::format("a value of {} bytes, at most {} are taken", size,
                                      limits_.value_bytes));
  }
  const std::size_t buffered = std::min<std::size_t>(size, end_ - begin_);
  const auto* first = reinterpret_cast<const char*>(buffer_.data()) + begin_;
  std::string text(first, buffered);
  begin_ += buffered;
  text.resize(size);
  const auto rest = std::as_writable_bytes(std::span(text)).subspan(buffered);
  const io_result received = co_await stream_.receive_exactly(rest);
  if (!received.ok() || received.count() < rest.size()) throw lost("receiving", received);
  co_return text;
}

task<std::uint64_t> tcp_store_connection::read_integer(std::size_t size) {
  MW_ASSERT(begin_ <= end_ && size <= sizeof(std::uint64_t),
            "an integer is within its piece");
  if (end_ - begin_ < size) co_await fill(size);
  const auto bytes = std::span(buffer_).subspan(begin_, size);
  begin_ += size;
  co_return decode_integer(bytes);
}

task<void> tcp_store_connection::fill(std::size_t at_least) {
  MW_ASSERT(begin_ <= end_ && end_ <= buffer_.size(),
            "the cursors are within the buffer");
  MW_ASSERT(at_least <= buffer_.size(), "the buffer can hold what is awaited");
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
            buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
  end_ -= begin_;
  begin_ = 0;
  while (end_ < at_least) {
    const io_result received =
        co_await stream_.receive_some(std::span(buffer_).subspan(end_));
    if (!received.ok() || received.count() == 0) throw lost("receiving", received);
    end_ += received.count();
  }
}

}  // namespace manyworlds::inline v0::detail
