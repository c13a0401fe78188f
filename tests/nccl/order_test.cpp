// What rank 0 counts, and what members tell each other: without a device.
#include <doctest/doctest.h>

#include <vector>

#include "nccl/collective_table.hpp"
#include "nccl/order_message.hpp"
#include "nccl/payload_layout.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl;
using namespace std::chrono_literals;
using outcome = collective_table::outcome;

namespace {

collective_terms reduces(std::uint64_t count) {
  collective_terms terms;
  terms.kind = operation_kind::all_reduce;
  terms.type = dtype::float32;
  terms.count = count;
  return terms;
}

payload_layout layout_of(const std::vector<std::size_t>& sizes) {
  std::byte somewhere;
  std::vector<const_device_view> views;
  for (const std::size_t size : sizes) {
    views.emplace_back(&somewhere, size, dtype::uint8, device_stream());
  }
  return payload_layout(const_device_view_list(views));
}

std::vector<std::uint64_t> pieces_of(const payload_layout& layout) {
  std::vector<std::uint64_t> pieces;
  for (layout_cursor at(layout); at.left() > 0;) {
    pieces.push_back(at.left());
    at.advance(at.left());
  }
  return pieces;
}

}  // namespace

TEST_SUITE("gpu order") {
  TEST_CASE("a collective is complete when its last member has entered") {
    collective_table table(3);
    CHECK(table.enter(1, 1, reduces(8), {}).what == outcome::waits);
    CHECK(table.enter(1, 2, reduces(9), {}).what == outcome::waits);
    CHECK(table.enter(0, 1, reduces(8), {}).what == outcome::waits);
    CHECK(table.enter(2, 1, reduces(8), {}).what == outcome::complete);
    CHECK(table.enter(2, 2, reduces(9), {}).what == outcome::waits);
    CHECK(table.enter(0, 2, reduces(9), {}).what == outcome::complete);
  }

  TEST_CASE("who enters with other terms, or out of turn, is named") {
    collective_table table(2);
    CHECK(table.enter(0, 1, reduces(8), {}).what == outcome::waits);
    const auto found = table.enter(1, 1, reduces(9), {});
    CHECK(found.what == outcome::disagrees);
    CHECK(found.other == 0);
    CHECK(found.detail.find("all_reduce of 9 float32 (sum)") != std::string::npos);
    CHECK(table.enter(1, 3, reduces(8), {}).what == outcome::out_of_turn);
    CHECK(table.enter(1, 1, reduces(8), {}).what == outcome::out_of_turn);
  }

  TEST_CASE("law 11: a member that runs ahead is stopped") {
    collective_table table(2);
    std::uint64_t number = 0;
    while (table.enter(1, ++number, reduces(8), {}).what == outcome::waits) {
      REQUIRE(number < 100'000);
    }
    CHECK(number > 1000);
  }

  TEST_CASE("when a member has left, what is open is lost, and all that follows") {
    collective_table table(3);
    CHECK(table.enter(0, 1, reduces(8), {}).what == outcome::waits);
    CHECK(table.enter(2, 1, reduces(8), {}).what == outcome::waits);
    CHECK(table.leave(2) == std::vector<std::uint64_t>{1});
    CHECK(table.enter(1, 1, reduces(8), {}).what == outcome::lost);
    const auto later = table.enter(0, 2, reduces(8), {});
    CHECK(later.what == outcome::lost);
    CHECK(later.other == 2);
    CHECK(table.oldest(time_point(1h), 1s) == nullptr);
  }

  TEST_CASE("who is absent after a while is known") {
    collective_table table(3);
    CHECK(table.enter(1, 1, reduces(8), time_point(1s)).what == outcome::waits);
    CHECK(table.oldest(time_point(3s), 5s) == nullptr);
    const auto* late = table.oldest(time_point(7s), 5s);
    REQUIRE(late);
    CHECK(late->since == 6s);
    CHECK(late->absent == std::vector<rank_t>{0, 2});
  }

  TEST_CASE("what is said of places comes out as it went in") {
    const auto again = [](const order_message& m) { return decode_order(encode(m)); };
    CHECK(std::get<propose_message>(again(propose_message{7})).number == 7);
    const auto promise = std::get<promise_message>(again(promise_message{7, 99}));
    CHECK(promise.number == 7);
    CHECK(promise.time == 99);
    CHECK(std::get<retract_message>(again(retract_message{7})).number == 7);
    CHECK(std::get<connect_message>(again(connect_message{{3, 4}})).place.time == 4);
    CHECK(std::get<connect_message>(again(connect_message{})).place.is_none());
    CHECK(std::holds_alternative<made_message>(again(made_message{})));
    CHECK(std::holds_alternative<crowded_message>(again(crowded_message{})));
    CHECK(std::holds_alternative<places_message>(again(places_message{})));
    const auto launch =
        std::get<collective_launch>(again(collective_launch{5, {6, UINT64_MAX}}));
    CHECK(launch.number == 5);
    CHECK(launch.place.number == 6);
    CHECK(launch.place.time == UINT64_MAX);
  }

  TEST_CASE("law 11: half a place, and a proposal without a number, are refused") {
    const auto refused = [](const order_message& m) {
      CHECK_THROWS_AS((void)decode_order(encode(m)), wire_error);
    };
    refused(propose_message{0});
    refused(promise_message{0, 1});
    refused(promise_message{1, 0});
    refused(retract_message{0});
    refused(connect_message{{1, 0}});
    refused(collective_launch{1, {0, 1}});
  }

  TEST_CASE("pieces of equal size are one run, and come out as they went in") {
    const std::vector<std::size_t> sizes{64, 64, 64, 0, 8, 64, 64};
    const payload_layout layout = layout_of(sizes);
    CHECK(layout.runs().size() == 3);
    CHECK(pieces_of(layout) == std::vector<std::uint64_t>{64, 64, 64, 8, 64, 64});
    wire_writer out;
    layout.write(out);
    wire_reader in(out.view());
    CHECK(payload_layout::read(in, 328).runs() == layout.runs());
  }

  TEST_CASE("a layout that is too fine is refused where it is made") {
    std::vector<std::size_t> sizes;
    for (std::size_t i = 0; i <= payload_layout::most_runs; ++i) sizes.push_back(i + 1);
    CHECK_THROWS_AS(layout_of(sizes), std::invalid_argument);
    sizes.pop_back();
    CHECK_NOTHROW(layout_of(sizes));
  }

  TEST_CASE("law 11: a layout that is not the message's is refused") {
    const auto read = [](std::uint64_t bytes, std::uint32_t pieces, std::uint64_t total) {
      wire_writer out;
      out.put(std::uint16_t{1}).put(bytes).put(pieces);
      wire_reader in(out.view());
      return payload_layout::read(in, total);
    };
    CHECK_NOTHROW(read(64, 4, 256));
    CHECK_THROWS_AS(read(64, 4, 255), wire_error);
    CHECK_THROWS_AS(read(0, 4, 0), wire_error);
    CHECK_THROWS_AS(read(64, 0, 0), wire_error);
    CHECK_THROWS_AS(read(std::uint64_t{1} << 63, 2, 256), wire_error);
    CHECK_THROWS_AS(read(1, 1U << 30, std::uint64_t{1} << 30), wire_error);
  }
}
