#include "store/tcp_store_protocol.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

// The fields of a request, in order: k a key, v a value, n a 64-bit number, u a 32-bit
// number, K a list of keys, P a list of key and value. One table for both directions.
constexpr std::array<const char*, 20> shapes{
    "u",    // validate
    "kv",   // set
    "kvv",  // compare_set
    "k",    // get
    "kn",   // add
    "K",    // check
    "K",    // wait
    "",     // num_keys
    "k",    // delete_key
    "kv",   // append
    "K",    // multi_get
    "P",    // multi_set
    "",     // cancel_wait
    "u",    // ping
    "kv",   // queue_push
    "k",    // queue_pop
    "k",    // queue_size
    "",     // list_keys
    "kn",   // barrier
    "k",    // watch_key
};

static_assert(shapes.size() == static_cast<std::size_t>(tcp_store_opcode::watch_key) + 1);

// By the legacy dialect's number.
constexpr std::array<tcp_store_opcode, 13> legacy_opcodes{
    tcp_store_opcode::set,         tcp_store_opcode::compare_set,
    tcp_store_opcode::get,         tcp_store_opcode::add,
    tcp_store_opcode::check,       tcp_store_opcode::wait,
    tcp_store_opcode::num_keys,    tcp_store_opcode::watch_key,
    tcp_store_opcode::delete_key,  tcp_store_opcode::append,
    tcp_store_opcode::multi_get,   tcp_store_opcode::multi_set,
    tcp_store_opcode::cancel_wait,
};

// The magic number's first byte stands before each request in a dialect that PyTorch had
// for a while between 2.0 and 2.2.
constexpr std::uint8_t magic_begin = tcp_store_magic & 0xff;

void encode_integer(std::uint64_t value, std::size_t size, std::string& out) {
  for (std::size_t i = 0; i < size; ++i)
    out += static_cast<char>((value >> (8 * i)) & 0xff);
}

}  // namespace

void encode_u8(std::uint8_t value, std::string& out) { encode_integer(value, 1, out); }
void encode_u32(std::uint32_t value, std::string& out) { encode_integer(value, 4, out); }
void encode_u64(std::uint64_t value, std::string& out) { encode_integer(value, 8, out); }

void encode_text(std::string_view text, std::string& out) {
  encode_u64(text.size(), out);
  out += text;
}

std::uint64_t decode_integer(std::span<const std::byte> bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return value;
}

void encode(const tcp_store_message& message, std::string& out) {
  const auto opcode = static_cast<std::uint8_t>(message.opcode);
  encode_u8(opcode, out);
  MW_ASSERT(opcode < shapes.size(), "an operation has a shape");
  std::size_t key = 0;
  std::size_t value = 0;
  for (const char* field = shapes[opcode]; *field != '\0'; ++field) {
    switch (*field) {
      case 'k':
        MW_ASSERT(key < message.keys.size(), "a request holds its keys");
        encode_text(message.keys[key++], out);
        break;
      case 'v':
        MW_ASSERT(value < message.values.size(), "a request holds its values");
        encode_text(message.values[value++], out);
        break;
      case 'n':
        encode_u64(static_cast<std::uint64_t>(message.number), out);
        break;
      case 'u':
        encode_u32(static_cast<std::uint32_t>(message.number), out);
        break;
      default:
        encode_u64(message.keys.size(), out);
        for (std::size_t i = 0; i < message.keys.size(); ++i) {
          encode_text(message.keys[i], out);
          MW_ASSERT(*field != 'P' || i < message.values.size(), "a key has a value");
          if (*field == 'P') encode_text(message.values[i], out);
        }
    }
  }
}

bool tcp_store_parser::feed(std::span<const std::byte>& input) {
  while (!failed()) {
    if (!shape_) {
      if (input.empty()) return false;
      const auto opcode = std::to_integer<std::uint8_t>(input.front());
      input = input.subspan(1);
      if (begin(opcode)) return true;
    } else if (part_ == part::text) {
      if (input.empty()) return false;
      MW_ASSERT(text_left_ > 0, "a text without bytes is ended at once");
      const std::size_t taken = std::min<std::uint64_t>(text_left_, input.size());
      std::string& text = in_value_ ? message_.values.back() : message_.keys.back();
      text.append(reinterpret_cast<const char*>(input.data()), taken);
      input = input.subspan(taken);
      text_left_ -= taken;
      held_bytes_ += taken;
      if (text_left_ == 0 && next_field()) return true;
    } else {
      if (input.empty()) return false;
      MW_ASSERT(integer_have_ < integer_size_ && integer_size_ <= integer_.size(),
                "a number that is read has bytes to come");
      const std::size_t taken = std::min(integer_size_ - integer_have_, input.size());
      std::copy_n(input.begin(), taken,
                  integer_.begin() + static_cast<std::ptrdiff_t>(integer_have_));
      input = input.subspan(taken);
      integer_have_ += taken;
      if (integer_have_ == integer_size_ && end_of_number()) return true;
    }
  }
  return false;
}

/// This and the next functions return true when the request is complete.
bool tcp_store_parser::begin(std::uint8_t opcode) {
  switch (dialect_) {
    case tcp_store_dialect::unknown:
      return begin_first(opcode);
    case tcp_store_dialect::legacy:
      if (opcode < legacy_opcodes.size()) return begin_request(legacy_opcodes[opcode]);
      return fail(fmt::format("unknown operation {:#04x} of the legacy dialect", opcode));
    case tcp_store_dialect::modern:
      break;
  }
  if (opcode == 0) return fail("a second magic number");
  if (opcode <= static_cast<std::uint8_t>(tcp_store_opcode::barrier))
    return begin_request(static_cast<tcp_store_opcode>(opcode));
  return fail(fmt::format("unknown operation {:#04x}", opcode));
}

bool tcp_store_parser::begin_first(std::uint8_t opcode) {
  // Either the magic number follows, or the length of a legacy client's key.
  if (opcode == 0) return begin_request(tcp_store_opcode::validate);
  if (opcode < legacy_opcodes.size()) {
    dialect_ = tcp_store_dialect::legacy;
    return begin_request(legacy_opcodes[opcode]);
  }
  if (opcode == magic_begin) {
    return fail(
        "the magic number stands before the request: a TCPStore client of PyTorch "
        "between 2.0 and 2.2, in a dialect that is not served");
  }
  return fail(fmt::format("the first byte is {:#04x}: not a TCPStore client", opcode));
}

bool tcp_store_parser::begin_request(tcp_store_opcode opcode) {
  message_ = tcp_store_message(opcode);
  shape_ = shapes[static_cast<std::size_t>(opcode)];
  list_left_ = 0;
  request_bytes_ = 0;
  if (*shape_ == '\0') return end_of_request();
  part_ = *shape_ == 'n' || *shape_ == 'u' ? part::number : part::length;
  integer_size_ = *shape_ == 'u' ? 4 : 8;
  integer_have_ = 0;
  return false;
}

/// The four bytes after a first byte of 0.
bool tcp_store_parser::end_of_first_number() {
  MW_ASSERT(dialect_ == tcp_store_dialect::unknown && integer_have_ == 4,
            "the dialect is told once");
  const std::uint64_t number = decode_integer(std::span(integer_).first(4));
  if (number == tcp_store_magic) {
    dialect_ = tcp_store_dialect::modern;
    message_.number = static_cast<std::int64_t>(number);
    return next_field();
  }
  if (number > limits_.key_bytes) {
    return fail(fmt::format("magic number {:#010x}: not a TCPStore client", number));
  }
  // Half of the length of a key to set.
  dialect_ = tcp_store_dialect::legacy;
  begin_request(tcp_store_opcode::set);
  integer_have_ = 4;
  return false;
}

bool tcp_store_parser::end_of_number() {
  MW_ASSERT(shape_ && part_ != part::text, "a number ends within a request");
  if (message_.opcode == tcp_store_opcode::validate) return end_of_first_number();
  const std::uint64_t number = decode_integer(std::span(integer_).first(integer_size_));
  if (part_ == part::length) {
    const bool is_list = *shape_ == 'K' || *shape_ == 'P';
    return is_list && list_left_ == 0 ? begin_list(number) : begin_text(number);
  }
  message_.number = static_cast<std::int64_t>(number);
  return next_field();
}

bool tcp_store_parser::begin_list(std::uint64_t count) {
  if (count > limits_.keys_per_request) {
    return fail(fmt::format("a list of {} keys, at most {} are taken", count,
                            limits_.keys_per_request));
  }
  if (count == 0) return end_of_request();
  list_left_ = count;
  in_value_ = false;
  integer_have_ = 0;
  return false;
}

bool tcp_store_parser::begin_text(std::uint64_t length) {
  // In a list of pairs there are as many values as keys before each key.
  in_value_ =
      *shape_ == 'v' || (*shape_ == 'P' && message_.values.size() < message_.keys.size());
  const std::size_t limit = in_value_ ? limits_.value_bytes : limits_.key_bytes;
  if (length > limit) {
    return fail(fmt::format("a {} of {} bytes, at most {} are taken",
                            in_value_ ? "value" : "key", length, limit));
  }
  request_bytes_ += length;
  if (request_bytes_ > limits_.request_bytes) {
    return fail(fmt::format("a request of more than {} bytes", limits_.request_bytes));
  }
  (in_value_ ? message_.values : message_.keys).emplace_back();
  text_left_ = length;
  part_ = part::text;
  return length == 0 && next_field();
}

bool tcp_store_parser::next_field() {
  if (list_left_ > 0) {
    const bool pair_is_open =
        *shape_ == 'P' && message_.values.size() < message_.keys.size();
    if (!pair_is_open) --list_left_;
    if (list_left_ == 0) return end_of_request();
  } else {
    ++shape_;
    if (*shape_ == '\0') return end_of_request();
  }
  part_ = *shape_ == 'n' || *shape_ == 'u' ? part::number : part::length;
  integer_size_ = *shape_ == 'u' ? 4 : 8;
  integer_have_ = 0;
  return false;
}

bool tcp_store_parser::end_of_request() {
  shape_ = nullptr;
  list_left_ = 0;
  return true;
}

bool tcp_store_parser::fail(std::string reason) {
  error_ = std::move(reason);
  return false;
}

}  // namespace manyworlds::inline v0::detail
