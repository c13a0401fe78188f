// The wire protocol of PyTorch's TCPStore: bytes to requests and back. All integers are
// little-endian; a string is a 64-bit length and its bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0::detail {

enum class tcp_store_opcode : std::uint8_t {
  validate = 0x00,     ///< u32 magic; first on each connection; no reply
  set = 0x01,          ///< key, value; no reply
  compare_set = 0x02,  ///< key, expected, desired; reply: string
  get = 0x03,          ///< key; reply: string, empty if it is not set
  add = 0x04,          ///< key, i64; reply: i64
  check = 0x05,        ///< keys; reply: u8, 0 if all are set
  wait = 0x06,         ///< keys; reply: u8 0 when all are set
  num_keys = 0x07,     ///< reply: i64
  delete_key = 0x08,   ///< key; reply: i64 0 or 1
  append = 0x09,       ///< key, value; no reply
  multi_get = 0x0a,    ///< keys; reply: a string for each
  multi_set = 0x0b,    ///< pairs; no reply
  cancel_wait = 0x0c,  ///< reply: u8 1
  ping = 0x0d,         ///< u32; reply: the same
  queue_push = 0x0e,   ///< key, value; no reply
  queue_pop = 0x0f,    ///< key; reply: i64 length before, and a string if that was not 0
  queue_size = 0x10,   ///< key; reply: i64
  list_keys = 0x11,    ///< reply: u64 count, and as many strings
  barrier = 0x12,      ///< key, i64 members; reply: u8 0 when that many have arrived
  watch_key = 0x13,  ///< key; reply: u8 3, then each change; legacy alone, where it is 7
};

/// How a client numbers the operations. The legacy dialect (torch up to 2.0) has no
/// handshake, and set, compare_set, get, add, check, wait, num_keys, watch_key and
/// delete_key as 0 to 8; torch 2.0 added those that both dialects have as 9 to 12. Its
/// fields and replies are the modern ones.
enum class tcp_store_dialect : std::uint8_t { unknown, modern, legacy };

inline constexpr std::uint32_t tcp_store_magic = 0x3C85F7CE;
inline constexpr std::uint8_t tcp_store_ready = 0;
inline constexpr std::uint8_t tcp_store_not_ready = 1;
inline constexpr std::uint8_t tcp_store_wait_cancelled = 1;

/// What a legacy client is told of a key that it watches: this byte, the key, its value
/// before and after.
enum class tcp_store_change : std::uint8_t { updated, created, erased, watching };

/// One request. The opcode decides which fields count.
struct tcp_store_message {
  tcp_store_message() = default;
  explicit tcp_store_message(tcp_store_opcode asked) : opcode(asked) {}
  tcp_store_message(tcp_store_opcode asked, std::vector<std::string> of_keys)
      : opcode(asked), keys(std::move(of_keys)) {}

  tcp_store_opcode opcode = tcp_store_opcode::validate;
  std::vector<std::string> keys;
  /// For compare_set: expected, then desired. For multi_set: one for each key.
  std::vector<std::string> values;
  /// Magic, nonce, delta, or members.
  std::int64_t number = 0;
};

/// Appends a request in its wire form. Precondition: it holds the fields of its opcode.
void encode(const tcp_store_message& message, std::string& out);

/// Append the parts of replies.
void encode_u8(std::uint8_t value, std::string& out);
void encode_u32(std::uint32_t value, std::string& out);
void encode_u64(std::uint64_t value, std::string& out);
void encode_text(std::string_view text, std::string& out);
[[nodiscard]] std::uint64_t decode_integer(std::span<const std::byte> bytes) noexcept;

/// Parses requests from a stream of bytes that may be cut anywhere. It allocates only
/// for bytes that have arrived, and checks each length before use. After an error it
/// stays in error.
///
/// The first bytes tell the dialect: 0 and the magic number begin the modern one. A
/// legacy client that begins by setting a key would need a key of 1 GB to look like it.
class tcp_store_parser {
 public:
  explicit tcp_store_parser(store_limits limits = {}) noexcept : limits_(limits) {}

  /// Takes bytes off the front of `input`, at most to the end of one request. Returns
  /// true if a request is complete; it must be taken before the next call. Returns
  /// false if `input` is used up, or `failed()`.
  [[nodiscard]] bool feed(std::span<const std::byte>& input);
  [[nodiscard]] tcp_store_message take() noexcept {
    held_bytes_ = 0;
    return std::exchange(message_, tcp_store_message());
  }

  [[nodiscard]] bool failed() const noexcept { return !error_.empty(); }
  /// Says for people what was wrong.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  /// Says whether a request has begun and is not complete.
  [[nodiscard]] bool in_request() const noexcept { return shape_ != nullptr; }
  /// Returns roughly what the begun request occupies.
  [[nodiscard]] std::size_t held_bytes() const noexcept {
    return held_bytes_ +
           (message_.keys.capacity() + message_.values.capacity()) * sizeof(std::string);
  }
  /// Returns the dialect; unknown until the first bytes have told it.
  [[nodiscard]] tcp_store_dialect dialect() const noexcept { return dialect_; }

 private:
  enum class part : std::uint8_t { number, length, text };

  bool begin(std::uint8_t opcode);
  bool begin_first(std::uint8_t opcode);
  bool begin_request(tcp_store_opcode opcode);
  bool end_of_first_number();
  bool next_field();
  bool end_of_number();
  bool end_of_request();
  bool begin_list(std::uint64_t count);
  bool begin_text(std::uint64_t length);
  bool fail(std::string reason);

  store_limits limits_;
  tcp_store_message message_;
  std::string error_;
  // The fields still to come; null between requests.
  const char* shape_ = nullptr;
  part part_ = part::number;
  bool in_value_ = false;
  tcp_store_dialect dialect_ = tcp_store_dialect::unknown;
  std::uint64_t list_left_ = 0;
  std::uint64_t text_left_ = 0;
  std::uint64_t request_bytes_ = 0;
  std::size_t held_bytes_ = 0;
  std::size_t integer_size_ = 0;
  std::size_t integer_have_ = 0;
  std::array<std::byte, 8> integer_{};
};

}  // namespace manyworlds::inline v0::detail
