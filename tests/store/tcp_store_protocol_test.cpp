#include "store/tcp_store_protocol.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

using namespace manyworlds;
using namespace std::string_literals;

TEST_SUITE_BEGIN("tcp_store_protocol");

namespace {

using op = tcp_store_opcode;

// As PyTorch 2.6 sends it, byte for byte (recorded; see research on torchelastic,
// section 2.2).
const std::string validated = "\x00\xce\xf7\x85\x3c"s;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_field(const std::string& text) {
  std::string out;
  encode_text(text, out);
  return out;
}

/// All requests in the bytes, given to the parser in pieces of that size.
std::vector<tcp_store_message> parse(const std::string& bytes, std::size_t piece,
                                     tcp_store_parser& parser) {
  std::vector<tcp_store_message> requests;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    auto input = bytes_of(bytes).subspan(at, std::min(piece, bytes.size() - at));
    while (parser.feed(input)) requests.push_back(parser.take());
    if (parser.failed()) break;
  }
  return requests;
}

std::string error_of(const std::string& bytes, store_limits limits = {}) {
  tcp_store_parser parser(limits);
  parse(bytes, 1, parser);
  return parser.error();
}

tcp_store_message message(op opcode, std::vector<std::string> keys,
                          std::vector<std::string> values = {}, std::int64_t number = 0) {
  tcp_store_message m(opcode, std::move(keys));
  m.values = std::move(values);
  m.number = number;
  return m;
}

std::string encoded(const tcp_store_message& m) {
  std::string bytes;
  encode(m, bytes);
  return bytes;
}

std::vector<tcp_store_message> one_of_each() {
  return {
      message(op::set, {"/k"}, {"value"}),
      message(op::compare_set, {"/k"}, {"", "desired"}),
      message(op::get, {"/k"}),
      message(op::add, {"init/"}, {}, -2),
      message(op::check, {"/a", "", "/c"}),
      message(op::wait, {}),
      message(op::wait, {"/a", "/b"}),
      message(op::num_keys, {}),
      message(op::delete_key, {""}),
      message(op::append, {"/k"}, {""}),
      message(op::multi_get, {"/a", "/b"}),
      message(op::multi_set, {"/a", "", "/c"}, {"1", "", std::string(300, 'x')}),
      message(op::multi_set, {}),
      message(op::cancel_wait, {}),
      message(op::ping, {}, {}, 0xfedcba98),
      message(op::queue_push, {"/q"}, {"v"}),
      message(op::queue_pop, {"/q"}),
      message(op::queue_size, {"/q"}),
      message(op::list_keys, {}),
      message(op::barrier, {"/b"}, {}, 4),
  };
}

}  // namespace

TEST_CASE("requests have the bytes that PyTorch sends") {
  CHECK(encoded(message(op::validate, {}, {}, tcp_store_magic)) == validated);
  CHECK(encoded(message(op::ping, {}, {}, 0x1234)) == "\x0d\x34\x12\0\0"s);
  CHECK(encoded(message(op::add, {"init/"}, {}, 1)) ==
        "\x04\x05\0\0\0\0\0\0\0init/\x01\0\0\0\0\0\0\0"s);
  CHECK(encoded(message(op::set, {"/k"}, {"v"})) ==
        "\x01\x02\0\0\0\0\0\0\0/k\x01\0\0\0\0\0\0\0v"s);
  CHECK(encoded(message(op::compare_set, {"/k"}, {"", "d"})) ==
        "\x02\x02\0\0\0\0\0\0\0/k\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0d"s);
  CHECK(encoded(message(op::wait, {"/k"})) ==
        "\x06\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k"s);
  CHECK(encoded(message(op::multi_set, {"/k"}, {"v"})) ==
        "\x0b\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k\x01\0\0\0\0\0\0\0v"s);
  CHECK(encoded(message(op::cancel_wait, {})) == "\x0c"s);
  CHECK(encoded(message(op::num_keys, {})) == "\x07"s);
}

TEST_CASE("requests come out as they went in, whole and cut at every byte") {
  const std::vector<tcp_store_message> sent = one_of_each();
  std::string bytes = validated;
  for (const tcp_store_message& m : sent) encode(m, bytes);
  for (const std::size_t piece : {bytes.size(), std::size_t{1}, std::size_t{7}}) {
    tcp_store_parser parser;
    const std::vector<tcp_store_message> got = parse(bytes, piece, parser);
    CHECK(parser.error() == "");
    CHECK(!parser.in_request());
    REQUIRE(got.size() == sent.size() + 1);
    CHECK(got[0].opcode == op::validate);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      CHECK(got[i + 1].opcode == sent[i].opcode);
      CHECK(got[i + 1].keys == sent[i].keys);
      CHECK(got[i + 1].values == sent[i].values);
      CHECK(got[i + 1].number == sent[i].number);
    }
  }
}

TEST_CASE("a request cut at any byte is begun and not complete") {
  for (const tcp_store_message& m : one_of_each()) {
    const std::string bytes = encoded(m);
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      tcp_store_parser parser;
      REQUIRE(parse(validated + bytes.substr(0, cut), 64, parser).size() == 1);
      CHECK(parser.in_request());
      CHECK(!parser.failed());
    }
  }
}

TEST_CASE("S1: legacy requests are the modern ones by other numbers, cut at every byte") {
  // The legacy numbers of PyTorch 1.13, and those that 2.0 added.
  const std::pair<op, char> numbers[] = {
      {op::add, '\3'},          {op::set, '\0'},         {op::compare_set, '\1'},
      {op::get, '\2'},          {op::check, '\4'},       {op::wait, '\5'},
      {op::num_keys, '\6'},     {op::watch_key, '\7'},   {op::delete_key, '\x08'},
      {op::append, '\x09'},     {op::multi_get, '\x0a'}, {op::multi_set, '\x0b'},
      {op::cancel_wait, '\x0c'}};
  std::vector<tcp_store_message> all = one_of_each();
  all.push_back(message(op::watch_key, {"/k"}));
  for (const auto& [first, first_number] : numbers) {
    // Each request comes first once: the first bytes tell the dialect.
    std::vector<tcp_store_message> sent;
    std::string bytes;
    const auto add = [&](op wanted, char number) {
      for (const tcp_store_message& m : all) {
        if (m.opcode != wanted) continue;
        std::string one = encoded(m);
        one[0] = number;
        bytes += one;
        sent.push_back(m);
      }
    };
    add(first, first_number);
    for (const auto& [each, number] : numbers) add(each, number);
    for (const std::size_t piece : {bytes.size(), std::size_t{1}, std::size_t{7}}) {
      tcp_store_parser parser;
      const std::vector<tcp_store_message> got = parse(bytes, piece, parser);
      CHECK(parser.error() == "");
      CHECK(parser.dialect() == tcp_store_dialect::legacy);
      REQUIRE(got.size() == sent.size());
      for (std::size_t i = 0; i < sent.size(); ++i) {
        CHECK(got[i].opcode == sent[i].opcode);
        CHECK(got[i].keys == sent[i].keys);
        CHECK(got[i].values == sent[i].values);
        CHECK(got[i].number == sent[i].number);
      }
    }
  }
  CHECK(error_of("\3" + text_field("init/") + std::string(8, '\0') + "\x0d") ==
        "unknown operation 0x0d of the legacy dialect");
}

TEST_CASE("a client that does not begin with the magic number is refused by name") {
  CHECK(error_of("GET / HTTP/1.1\r\n").find("first byte is 0x47") != std::string::npos);
  CHECK(error_of("\x16\x03\x01").find("not a TCPStore client") != std::string::npos);
  CHECK(error_of("\x0d\x01\0\0\0"s).find("first byte is 0x0d") != std::string::npos);
  CHECK(error_of("\x00\xce\xf7\x85\x3d"s).find("magic number 0x3d85f7ce") !=
        std::string::npos);
  CHECK(error_of(validated + validated) == "a second magic number");
  CHECK(error_of(validated + "\x13") == "unknown operation 0x13");
  CHECK(error_of("\xce\xf7\x85\x3c\x01"s).find("between 2.0 and 2.2") !=
        std::string::npos);
  CHECK(error_of(validated + "\xff") == "unknown operation 0xff");
}

TEST_CASE("lengths are believed up to the limits and not one byte beyond") {
  store_limits limits;
  limits.key_bytes = 8;
  limits.value_bytes = 16;
  limits.keys_per_request = 3;
  limits.request_bytes = 40;
  const auto set = [](std::size_t key, std::size_t value) {
    return validated +
           encoded(message(op::set, {std::string(key, 'k')}, {std::string(value, 'v')}));
  };
  CHECK(error_of(set(8, 16), limits) == "");
  CHECK(error_of(set(9, 1), limits) == "a key of 9 bytes, at most 8 are taken");
  CHECK(error_of(set(8, 17), limits) == "a value of 17 bytes, at most 16 are taken");
  const auto check = [](std::size_t count) {
    return validated + encoded(message(op::check, std::vector<std::string>(count, "k")));
  };
  CHECK(error_of(check(3), limits) == "");
  CHECK(error_of(check(4), limits) == "a list of 4 keys, at most 3 are taken");
  const std::string v(13, 'v');
  CHECK(error_of(validated + encoded(message(op::multi_set, {"a", "b", "c"}, {v, v, v})),
                 limits) == "a request of more than 40 bytes");
}

TEST_CASE("a huge length is refused when it is read, not when it is filled") {
  const std::string huge = "\xff\xff\xff\xff\xff\xff\xff\xff";
  CHECK(error_of(validated + "\x03" + huge) ==
        "a key of 18446744073709551615 bytes, at most 8192 are taken");
  CHECK(error_of(validated + "\x01" + text_field("k") + huge).find("a value of 1844") ==
        0);
  CHECK(error_of(validated + "\x06" + huge).find("a list of 1844") == 0);
  CHECK(error_of(validated + "\x0b" + huge).find("a list of 1844") == 0);
}

TEST_CASE("after an error nothing more is taken") {
  tcp_store_parser parser;
  CHECK(parse(validated + "\x7f", 64, parser).size() == 1);
  const std::string more = encoded(message(op::num_keys, {}));
  auto input = bytes_of(more);
  CHECK(!parser.feed(input));
  CHECK(parser.failed());
}
