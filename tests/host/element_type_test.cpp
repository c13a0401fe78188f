// A receive takes elements of the type that was sent, or bytes.
#include <deque>

#include "cluster.hpp"

namespace manyworlds::host_tests::types {

namespace {

// Sent unasked, kept unasked, and only offered.
constexpr std::size_t counts[] = {2, 4'000, 100'000};

template <class T>
std::vector<T> numbers(std::size_t count) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<T>(i % 100);
  return all;
}

std::span<std::byte> bytes_of(std::vector<std::int32_t>& v) {
  return std::as_writable_bytes(std::span(v));
}

/// What a receive of `room` ends with; a message that was refused stays.
template <class Room>
void expect_refusal(cluster& c, Room&& room, const char* says, std::uint64_t on = 0) {
  receive_op r;
  receive(c, r, 1, 0, std::forward<Room>(room), on);
  REQUIRE(c.until([&] { return r.ended(); }));
  CHECK(r.failed(cause::type_mismatch));
  CHECK(r.failure_detail == says);
  CHECK(r.info.type == dtype::int32);
  CHECK(r.info.source == 0);
}

}  // namespace

TEST_SUITE("host element types") {
  TEST_CASE("a message of another type is refused, whole, and is the next receive's") {
    constexpr const char* says =
        "the receive is for float32, but the message has int32; it stays at the head of "
        "its "
        "lane";
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (const std::size_t count : counts) {
        CAPTURE(count);
        for (const bool receive_first : {false, true}) {
          CAPTURE(receive_first);
          cluster c(2, g);
          const auto sent = numbers<std::int32_t>(count);
          std::vector<float> wrong(count, -1);
          std::vector<std::int32_t> right(count);
          send_op s;
          receive_op early;
          if (receive_first) receive(c, early, 1, 0, wrong);
          send(c, s, 0, 1, sent);
          if (!receive_first) c.settle();
          if (receive_first) {
            REQUIRE(c.until([&] { return early.ended(); }));
            CHECK(early.failed(cause::type_mismatch));
            CHECK(early.failure_detail == says);
          } else {
            expect_refusal(c, wrong, says);
          }
          CHECK(wrong == std::vector<float>(count, -1));
          arrival_op next;
          next.peer = 0;
          c.at(1).start(next);
          REQUIRE(c.until([&] { return next.ended(); }));
          CHECK(next.info.type == dtype::int32);
          receive_op r;
          receive(c, r, 1, 0, right);
          REQUIRE(c.until([&] { return r.ended() && s.ended(); }));
          CHECK(r.done());
          CHECK(s.done());
          CHECK(right == sent);
        }
      }
    }
  }

  TEST_CASE("bytes go with everything, on either side") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (const std::size_t count : counts) {
        cluster c(2, g);
        auto sent = numbers<std::int32_t>(count);
        std::vector<std::int32_t> got(count);
        carry(c, sent, bytes_of(got));
        CHECK(got == sent);
        std::vector<float> as_float(count);
        carry(c, bytes_of(sent), as_float);
        CHECK(std::memcmp(as_float.data(), sent.data(), count * 4) == 0);
      }
    }
  }

  TEST_CASE("signed and unsigned, and types of other sizes, are other types") {
    cluster c(2, ground::simulated);
    const auto sent = numbers<std::int32_t>(8);
    send_op s;
    send(c, s, 0, 1, sent);
    std::vector<std::uint32_t> is_unsigned(8);
    std::vector<std::int64_t> longer(4);
    std::vector<std::int8_t> shorter(32);
    for (const buffer_view& room :
         {buffer_view(is_unsigned), buffer_view(longer), buffer_view(shorter)}) {
      receive_op r;
      receive(c, r, 1, 0, room);
      REQUIRE(c.until([&] { return r.ended(); }));
      CHECK(r.failed(cause::type_mismatch));
    }
  }

  TEST_CASE("every piece of a receive's list is of the message's type, or bytes") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (const std::size_t count : counts) {
        CAPTURE(count);
        cluster c(2, g);
        auto sent = numbers<std::int32_t>(count);
        std::vector<std::int32_t> first(count / 2);
        std::vector<std::int32_t> last(count / 2);
        std::vector<float> wrong(count / 2);
        std::vector<float> nothing;
        send_op s;
        send(c, s, 0, 1, sent);
        c.settle();
        // As a list of several types it has no single type of its own.
        for (const bool wrong_first : {true, false}) {
          std::vector<buffer_view> mixed{first, wrong};
          if (wrong_first) std::swap(mixed[0], mixed[1]);
          expect_refusal(
              c, mixed,
              "the receive is for float32, but the message has int32; it stays at "
              "the head of its lane");
        }
        std::vector<buffer_view> uniform{wrong, wrong};
        expect_refusal(
            c, uniform,
            "the receive is for float32, but the message has int32; it stays at "
            "the head of its lane");
        std::vector<buffer_view> fits{first, bytes_of(last), nothing};
        receive_op r;
        receive(c, r, 1, 0, fits);
        REQUIRE(c.until([&] { return r.ended(); }));
        CHECK(r.done());
        first.insert(first.end(), last.begin(), last.end());
        CHECK(first == sent);
      }
    }
  }

  TEST_CASE("a list of several types is sent as bytes, and goes with every type") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const auto whole = numbers<std::int32_t>(10);
      const auto part = numbers<float>(10);
      const std::vector<const_buffer_view> mixed{whole, part};
      std::vector<float> got(20);
      send_op s;
      receive_op r;
      send(c, s, 0, 1, mixed);
      receive(c, r, 1, 0, got);
      REQUIRE(c.until([&] { return s.ended() && r.ended(); }));
      CHECK(r.done());
      CHECK(r.info.type == dtype::uint8);
    }
  }

  TEST_CASE("what follows a head is of its type too, and of an object it is bytes") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (const std::size_t count : counts) {
        CAPTURE(count);
        cluster c(2, g);
        const auto sent = numbers<std::int32_t>(count);
        std::uint64_t said = 5;
        std::uint64_t heard = 0;
        send_op s;
        s.head = &said;
        s.head_bytes = sizeof said;
        s.gives_payload = true;
        send(c, s, 0, 1, sent);
        receive_op head;
        head.head = &heard;
        head.head_bytes = sizeof heard;
        head.peer = 0;
        c.at(1).start(head);
        REQUIRE(c.until([&] { return head.ended(); }));
        CHECK(head.info.type == dtype::int32);
        std::vector<float> wrong(count);
        expect_refusal(
            c, wrong,
            "the receive is for float32, but the message has int32; it stays at "
            "the head of its lane");
        std::vector<std::int32_t> right(count);
        receive_op r;
        receive(c, r, 1, 0, right);
        REQUIRE(c.until([&] { return r.ended(); }));
        CHECK(r.done());
        CHECK(right == sent);

        struct pair {
          float a;
          std::int32_t b;
        } from{1, 2};
        std::vector<float> as_floats(2);
        carry(c, object(from), as_floats);
        CHECK(as_floats[0] == 1);
      }
    }
  }

  TEST_CASE("no elements are of no type") {
    cluster c(2, ground::simulated);
    const std::vector<std::int32_t> none;
    std::vector<float> room;
    carry(c, none, room);
  }
}

}  // namespace manyworlds::host_tests::types
