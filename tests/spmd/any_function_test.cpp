// Functions that are known only at run time: called by their names with any values, over
// threads and processes, and what is wrong is named (disco A48; calls without types).
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "session_fixture.hpp"

namespace manyworlds::spmd_tests {

namespace {

/// Says why a value is no T.
template <class T>
std::string why_not(const any_value& value) {
  try {
    static_cast<void>(value.as<T>());
  } catch (const value_error& e) {
    return e.what();
  }
  return "";
}

any_value nested(std::size_t levels) {
  any_value all = 7;
  for (std::size_t i = 0; i < levels; ++i) all = std::vector<any_value>(1, all);
  return all;
}

/// Reads what the values of a call say, in place of a worker.
any_value read_any(std::span<const std::byte> written, std::span<std::byte> beside = {}) {
  value_reader in(written, beside);
  any_value found = in.any();
  if (!in.is_at_end()) throw value_error("more");
  return found;
}

}  // namespace

TEST_SUITE_BEGIN("spmd");

static_assert(std::is_convertible_v<int, any_value> &&
              std::is_convertible_v<const char (&)[2], any_value> &&
              std::is_convertible_v<std::vector<any_value>, any_value>);
static_assert(!std::is_convertible_v<void*, any_value> &&
              !std::is_convertible_v<dref<int>, any_value> &&
              !std::is_convertible_v<part_of_model, any_value>);
static_assert(remote_value<any_value> && remote_value<std::vector<any_value>>);

TEST_CASE("an any_value is what it was made of, and says of which kind") {
  CHECK(any_value().kind() == value_kind::none);
  CHECK(any_value(std::optional<int>()).kind() == value_kind::none);
  CHECK(any_value(true).as<bool>());
  CHECK(any_value(-7).as<long long>() == -7);
  CHECK(any_value(7U).as<std::int8_t>() == 7);
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  CHECK(any_value(most).kind() == value_kind::unsigned_integer);
  CHECK(any_value(most).as<std::uint64_t>() == most);
  CHECK(any_value(2.5).as<float>() == 2.5F);
  CHECK(any_value(4).as<double>() == 4);
  CHECK(any_value("a\0b").as<std::string>() == "a");
  CHECK(any_value(std::string("a\0b", 3)).as<std::string_view>().size() == 3);
  CHECK(any_value(std::vector<std::byte>(5)).as<std::vector<std::byte>>().size() == 5);
  CHECK(any_value(dtype::bfloat16).as<dtype>() == dtype::bfloat16);
  CHECK(any_value(shape(2, 3)).as<shape>() == shape(2, 3));
  CHECK(any_value(memory_place{3}).as<memory_place>().device == 3);
  CHECK(any_value(ints(1, 2)).kind() == value_kind::elements);
  CHECK(any_value(ints(1, 2)).as<std::vector<int>>() == ints(1, 2));
  CHECK(any_value(sampling{5, 0.5F}).as<sampling>().top == 5);
  any_value mixed = std::tuple<int, std::string, std::vector<bool>>(1, "x", {true});
  CHECK(mixed.kind() == value_kind::list);
  const any_value copy = mixed;
  mixed = 4;
  const auto parts = copy.as<std::vector<any_value>>();
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].as<int>() == 1);
  CHECK(parts[1].as<std::string>() == "x");
  CHECK(parts[2].as<std::vector<bool>>() == std::vector<bool>{true});
  const any_value list = any_value::list(1, "x", any_value::list());
  CHECK(std::get<1>(list.as<std::tuple<int, std::string, any_value>>()) == "x");
  CHECK(list.as<std::vector<any_value>>()[2].as<std::vector<any_value>>().empty());
}

TEST_CASE("what is large is kept with an any_value, and a tensor is not copied") {
  std::vector<float> numbers(10'000);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  const any_value kept = numbers;
  const std::vector<float> before = std::exchange(numbers, {});
  CHECK(kept.as<std::vector<float>>() == before);
  CHECK(kept.as<std::span<const float>>()[9'999] == 9'999);
  tensor x = tensor::copy_of(before, {100, 100});
  const void* const where = x.data();
  const any_value given = std::move(x);
  const any_value list = any_value::list(given, kept, "end", given);
  CHECK(given.as<tensor>().data() == where);
  CHECK(given.as<tensor>().shape() == shape(100, 100));
  const auto parts = list.as<std::vector<any_value>>();
  const tensor first = parts.at(0).as<tensor>(), last = parts.at(3).as<tensor>();
  CHECK(first.as<float>()[9'999] == 9'999);
  CHECK(parts[1].as<std::vector<float>>() == before);
  CHECK(last.data() != where);
  CHECK(last.as<float>()[1] == 1);
  CHECK(any_value(tensor::zeros({2}, dtype::int8)).as<tensor>().shape() == shape(2));
}

TEST_CASE("an any_value of another kind, or out of range, is refused by what it is") {
  CHECK(why_not<std::string>(4) == "an integer, where a text is wanted");
  CHECK(why_not<int>("x") == "a text, where an integer is wanted");
  CHECK(why_not<int>(any_value()) == "nothing, where an integer is wanted");
  CHECK(why_not<std::int8_t>(128) == "a number that is out of the range of an integer");
  CHECK(why_not<unsigned>(-1) ==
        "a number that is out of the range of an unsigned integer");
  CHECK(why_not<float>(1e300) == "a number that is out of the range of a float");
  CHECK(why_not<float>(std::numeric_limits<double>::infinity()) == "");
  CHECK(why_not<int>(1.0) == "a floating-point number, where an integer is wanted");
  CHECK(why_not<std::vector<float>>(ints(1)) ==
        "elements of int32, where float32 is wanted");
  CHECK(why_not<std::pair<int, int>>(std::tuple(1, 2, 3)) ==
        "a list of 3, where 2 are wanted");
  CHECK(why_not<sampling>(dtype::int8) == "a dtype, where a record is wanted");
  CHECK(why_not<tensor>(true) == "a bool, where a tensor is wanted");
}

TEST_CASE(
    "lists stand within lists up to 64 levels, and what was sent of more is refused") {
  const any_value deepest = nested(any_value::most_levels);
  any_value inner = deepest;
  for (std::size_t i = 0; i < any_value::most_levels; ++i)
    inner = inner.as<std::vector<any_value>>().at(0);
  CHECK(inner.as<int>() == 7);
  CHECK_THROWS_WITH(nested(any_value::most_levels + 1),
                    "lists within lists of more than 64 levels");
  value_writer deep;
  for (int i = 0; i < 1'000'000; ++i) deep.list(1);
  deep.none();
  CHECK_THROWS_WITH(read_any(deep.written()),
                    "lists within lists of more than 64 levels");
  // Empty lists end their levels.
  const std::vector<std::vector<std::string>> empty(100);
  CHECK(any_value(empty).as<std::vector<std::vector<std::string>>>() == empty);
}

TEST_CASE(
    "disco A64, law 11: lengths of 2^40, drefs and kinds that are not there are no "
    "any_value") {
  const auto with_length = [](value_kind kind, std::size_t behind) {
    std::vector<std::byte> bytes(1 + behind + 8 + 1);
    bytes[0] = static_cast<std::byte>(kind);
    const std::uint64_t length = std::uint64_t{1} << 40;
    std::memcpy(bytes.data() + 1 + behind, &length, sizeof length);
    return bytes;
  };
  CHECK_THROWS_AS(read_any(with_length(value_kind::list, 0)), value_error);
  CHECK_THROWS_AS(read_any(with_length(value_kind::text, 0)), value_error);
  CHECK_THROWS_AS(read_any(with_length(value_kind::bytes, 0)), value_error);
  CHECK_THROWS_AS(read_any(with_length(value_kind::record, 0)), value_error);
  CHECK_THROWS_AS(read_any(with_length(value_kind::elements, 1)), value_error);
  value_writer named;
  named.list(1);
  named.reference({1, 1});
  CHECK_THROWS_WITH(read_any(named.written()), "a dref, where a value is wanted");
  CHECK_THROWS_AS(read_any({}), value_error);
  // Each list says that all bytes behind it are its values: nothing is reserved for that.
  std::vector<std::byte> greedy;
  for (std::uint64_t i = 0; i < 63; ++i) {
    value_writer one;
    one.list((std::size_t{8} << 20) - 9 * (i + 1));
    greedy.insert(greedy.end(), one.written().begin(), one.written().end());
  }
  greedy.resize(std::size_t{8} << 20);
  CHECK_THROWS_AS(read_any(greedy), value_error);
}

TEST_CASE("law 11: an any_value of wrong bytes is refused, or is written again") {
  const any_value whole = any_value::list(
      1, "text", std::vector<any_value>(2, any_value(ints(1, 2, 3))), shape(2, 3),
      std::vector<std::byte>(5000), std::optional<bool>(), sampling{1, 2});
  value_writer out;
  out.any(whole);
  std::vector<std::byte> beside(5000);
  const std::vector<std::byte> sent(out.written().begin(), out.written().end());
  std::mt19937_64 random(3);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes = sent;
    for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (i % 4 == 0) bytes.resize(random() % bytes.size());
    try {
      const any_value read = read_any(bytes, beside);
      value_writer again;
      again.any(read);
      REQUIRE(again.written().size() <= bytes.size());
    } catch (const value_error&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
  CHECK(refused < 20'000);
}

TEST_CASE(
    "a call without types takes each kind of value, and gives what the function does") {
  in_each_kind(2, [](session& s) -> task<void> {
    const any_function add("add_one");
    CHECK((co_await s.call(add, 4).from(1)).as<int>() == 5);
    const std::vector<any_value> all = co_await s.call(add, 4U).all();
    REQUIRE(all.size() == 2);
    CHECK(all[1].as<std::int64_t>() == 5);
    const any_value text = co_await s.call(any_function("suffix"), "hello").from(0);
    CHECK(text.as<std::string>() == "hello_suffix");
    const any_value real = co_await s.call(any_function("add_one_real"), 1).from(0);
    CHECK(real.as<double>() == 1.5);
    const any_value longest = co_await s.call(any_function("longer"), ints(1, 2)).from(0);
    CHECK(longest.as<std::vector<int>>() == ints(1, 2, 3));
    const sampling given{5, 0.5F};
    const any_value four =
        co_await s
            .call(any_function("same_values"), true, any_value(), dtype::int8, given)
            .from(0);
    CHECK(four.as<std::vector<any_value>>().at(3).as<sampling>().top == 5);
    const std::array<std::int64_t, 2> sizes{6, 2 << 20};
    for (const std::int64_t size : sizes) {
      const tensor x = tensor::zeros({2, size / 2}, dtype::float32);
      const any_value y = co_await s.call(any_function("plus_one_each"), x).from(1);
      const tensor seen = y.as<tensor>();
      CHECK(seen.shape() == x.shape());
      CHECK(seen.as<float>()[3] == 1);
    }
    const any_value nothing = co_await s.call(any_function("sleep_ms"), 0).from(0);
    CHECK(nothing.kind() == value_kind::none);
  });
}

TEST_CASE("drefs with types and without are arguments, and one becomes the other") {
  in_each_kind(3, [](session& s) -> task<void> {
    const any_function scaled("scaled_sum");
    dref<any_value> w = co_await s.call(any_function("load_part"), 10);
    const any_value there = co_await s.call(scaled, w, ints(1, 2)).from(2);
    CHECK(there.as<std::vector<int>>() == ints(33, 66));
    const dref<part_of_model> typed = std::move(w).as<part_of_model>();
    CHECK(!w);
    const std::vector<int> x = ints(1);
    CHECK(co_await s.call(scaled_sum, typed, x).from(0) == ints(33));
    const any_value again = co_await s.issue(scaled, typed, x).from(0);
    CHECK(again.as<std::vector<int>>() == ints(33));
    // A value that is kept, changed, and asked for later.
    const dref<any_value> count = co_await s.issue(any_function("add_one"), 0);
    co_await count;
    (void)co_await s.issue(any_function("add_to"), count, 5);
    CHECK((co_await s.copy_from(count, 1)).as<int>() == 6);
    co_await s.call(any_function("add_one"), 10).on(1).into(count);
    CHECK((co_await s.copy_from(count, 1)).as<int>() == 11);
    CHECK((co_await s.copy_from(count, 2)).as<int>() == 6);
  });
}

TEST_CASE("arguments of any number come from a list of values and drefs") {
  in_each_kind(2, [](session& s) -> task<void> {
    const any_function kinds("kinds_of");
    const dref<int> one = co_await s.call(add_one, 0);
    any_arguments given;
    CHECK((co_await s.call(kinds, given).from(0)).as<std::string>() == "");
    given.add(true);
    given.add("x");
    given.add(one);
    given.add(tensor::zeros({3000}, dtype::float32));
    given.add(std::vector<any_value>(2, any_value(1)));
    CHECK(given.size() == 5);
    const any_value said = co_await s.call(kinds, given).from(1);
    CHECK(said.as<std::string>() == "a bool, a text, an integer, a tensor, a list");
    std::vector<any_value> many;
    for (int i = 0; i < 1000; ++i) many.emplace_back(i);
    const any_function total("total");
    CHECK((co_await s.call(total, any_arguments(many)).from(0)).as<double>() == 499'500);
    // One argument, which is a list.
    CHECK((co_await s.call(kinds, many).from(0)).as<std::string>() == "a list");
    any_arguments late;
    {
      const dref<int> dropped = co_await s.call(add_one, 0);
      late.add(dropped);
    }
    const refusal gone = co_await refusal_of(s.call(kinds, late));
    CHECK(gone.cause == cause::register_lost);
    CHECK_THROWS_AS(late.add(dref<int>()), std::invalid_argument);
  });
}

TEST_CASE(
    "disco A48: a call without types is refused by the argument that does not fit") {
  in_each_kind(2, [](session& s) -> task<void> {
    const any_function add("add_one"), scaled("scaled_sum");
    const std::string model(type_token::of<part_of_model>().name());
    const dref<part_of_model> w = co_await s.call(load_part, 1);
    const dref<int> number = co_await s.call(add_one, 1);
    const auto why = [](auto call) -> task<std::string> {
      const refusal r = co_await refusal_of(std::move(call));
      CHECK(r.cause == cause::handler_failed);
      CHECK(!r.workers.empty());
      co_return r.workers.empty() ? "" : r.workers.front().text;
    };
    CHECK(co_await why(s.call(any_function("nowhere"))) ==
          "it has no function \"nowhere\"");
    CHECK(co_await why(s.call(add, "x")) ==
          "argument 1: a text, where an integer is wanted");
    CHECK(co_await why(s.call(add)) == "argument 1: missing: the function takes 1");
    CHECK(co_await why(s.call(add, 1, 2, 3)) ==
          "argument 2: one too many: the function takes 1");
    CHECK(co_await why(s.call(add, std::int64_t{1} << 40)) ==
          "argument 1: a number that is out of the range of an integer");
    CHECK(co_await why(s.call(add, number)) ==
          "argument 1: a dref, where an integer is wanted");
    CHECK(co_await why(s.call(scaled, 1, ints(1))) ==
          "argument 1: an integer, where a dref of " + model + " is wanted");
    CHECK(co_await why(s.call(scaled, number, ints(1))) ==
          "argument 1: a register of int, where " + model + " is wanted");
    CHECK(co_await why(s.call(any_function("kinds_of"), 1, w)) ==
          "argument 2: a register of " + model + ", which is no value");
    const std::string unkept = co_await why(s.call(any_function("load_part"), 1).from(0));
    CHECK(unkept.starts_with("it gives "));
    // The dref of a function that gives nothing is one that no call can take.
    const dref<any_value> nothing = co_await s.call(any_function("add_to"), number, 1);
    co_await nothing;
    const std::string empty = co_await why(s.call(any_function("one_more"), nothing));
    CHECK(empty.ends_with(" of add_to gave nothing"));
    CHECK_THROWS_AS(any_function(""), std::invalid_argument);
    const refusal too_long =
        co_await refusal_of(s.call(any_function(std::string(256, 'x'))));
    CHECK(too_long.cause == cause::invalid_argument);
    // A type that was guessed wrong is found at its use, and all goes on.
    dref<any_value> guessed = co_await s.call(any_function("load_part"), 1);
    const dref<int> wrong = std::move(guessed).as<int>();
    CHECK(
        (co_await why(s.call(one_more, wrong))).starts_with("argument 1: a register of"));
    CHECK((co_await s.call(add, 1).from(0)).as<int>() == 2);
  });
}

TEST_CASE("what is wrong inside a function is not said to be an argument of the call") {
  in_each_kind(1, [](session& s) -> task<void> {
    const refusal r = co_await refusal_of(s.call(any_function("total"), "x", 1));
    CHECK(r.workers.front().text == "a text, where a floating-point number is wanted");
  });
}

TEST_CASE("a worker's table says whether a function without types is alone") {
  in_each_kind(3, [](session& s) -> task<void> {
    const mesh pair = s.mesh({2, 0});
    // Alone, its rank is its id whether the call says so or not.
    const any_value unsaid = co_await pair.call(any_function("place_alone")).from(2);
    CHECK(unsaid.as<std::vector<int>>() == co_await pair.call(place_alone).from(2));
    const any_value said = co_await pair.call(any_function("place_alone", alone)).from(2);
    CHECK(said.as<std::vector<int>>() == unsaid.as<std::vector<int>>());
    // What the workers do together has the mesh's world.
    const std::vector<any_value> ranks =
        co_await pair.call(any_function("rank_here")).all();
    CHECK(ranks.at(0).as<int>() == 0);
    CHECK((co_await s.call(any_function("meet")).from(1)).as<int>() == 3);
    const refusal r = co_await refusal_of(s.call(any_function("meet", alone)));
    CHECK(r.says("its function \"meet\" is not mw::alone"));
    const refusal again =
        co_await refusal_of(s.call(any_function("load_part"), 1).replayable());
    CHECK(again.cause == cause::invalid_argument);
    CHECK((co_await s.call(any_function("meet")).from(0)).as<int>() == 3);
  });
}

TEST_CASE("disco A59: a call without types is made again on a worker that was replaced") {
  in_each_kind(2, [](session& s) -> task<void> {
    const any_function load("load_part", alone);
    const dref<any_value> w = co_await s.call(load, 10).replayable();
    const any_function keep("kept_list", alone);
    any_arguments given;
    given.add("x");
    given.add(w);
    given.add(std::vector<double>(1000, 0.5));
    const refusal opaque = co_await refusal_of(s.call(keep, given).replayable());
    CHECK(opaque.says("which is no value"));
    const dref<any_value> list =
        co_await s.call(keep, "x", std::vector<double>(1000, 0.5)).replayable();
    co_await s.respawn(1);
    const any_value sums =
        co_await s.call(any_function("scaled_sum"), w, ints(1)).from(1);
    CHECK(sums.as<std::vector<int>>() == ints(21));
    const any_value kept = co_await s.copy_from(list, 1);
    const auto parts = kept.as<std::tuple<std::string, std::vector<double>>>();
    CHECK(std::get<1>(parts) == std::vector<double>(1000, 0.5));
  });
}

TEST_CASE("a function takes any number of arguments, as a task or on its own thread") {
  in_each_kind(2, [](session& s) -> task<void> {
    const any_value sum = co_await s.call(any_function("total"), 1, 2.5, 3U).from(0);
    CHECK(sum.as<double>() == 6.5);
    CHECK((co_await s.call(any_function("total")).from(0)).as<double>() == 0);
    // Registers are given as copies of their values.
    const tensor x = tensor::zeros({5000}, dtype::float32);
    const dref<tensor> there = co_await s.put(x);
    const dref<any_value> kept =
        co_await s.call(any_function("kept_list"), there, x, "end");
    const any_value list = co_await s.copy_from(kept, 1);
    const auto parts = list.as<std::vector<any_value>>();
    REQUIRE(parts.size() == 3);
    CHECK(parts[0].as<tensor>().shape() == shape(5000));
    CHECK(parts[1].as<tensor>().count() == 5000);
    // What it gives need be no value.
    const dref<any_value> w = co_await s.call(any_function("scale_of"), 1, 2);
    const any_value sums =
        co_await s.call(any_function("scaled_sum"), w, ints(1)).from(0);
    CHECK(sums.as<std::vector<int>>() == ints(5));
  });
}

TEST_CASE("an any_value is a parameter and a result of functions with types") {
  in_each_kind(2, [](session& s) -> task<void> {
    const any_value back = co_await s.call(same_any, "x", 1).from(0);
    CHECK(back.as<std::string>() == "x");
    const any_value numbers =
        co_await s.call(same_any, std::vector<double>(10'000, 0.5), 1).from(1);
    CHECK(numbers.as<std::vector<double>>() == std::vector<double>(10'000, 0.5));
    const dref<any_value> kept = co_await s.call(same_any, 3, 2);
    CHECK((co_await s.call(any_function("same_any"), kept, 1).from(1)).as<int>() == 3);
    CHECK((co_await s.copy_from(kept, 0)).as<int>() == 3);
    const refusal typed = co_await refusal_of(s.call(typed_total, 1.5));
    CHECK(typed.says("other types"));
  });
}

TEST_CASE("a dref of another session is no argument of a call without types") {
  runtime rt;
  rt.run([](runtime& of) -> task<void> {
    session a = co_await start_session(of, worker_kind::threads, 1);
    session b = co_await start_session(of, worker_kind::threads, 1);
    const dref<int> x = co_await a.call(add_one, 1);
    any_arguments given;
    given.add(x);
    CHECK_THROWS_AS((void)b.call(any_function("one_more"), x), std::invalid_argument);
    CHECK_THROWS_AS((void)b.call(any_function("one_more"), given), std::invalid_argument);
    CHECK((co_await a.call(any_function("one_more"), given).from(0)).as<int>() == 3);
    co_await a.close();
    co_await b.close();
  }(rt));
}

TEST_SUITE_END();

}  // namespace manyworlds::spmd_tests
