// Methods with types: what they take and give at a calls edge, and what they refuse.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "calls_site.hpp"
#include "manyworlds/mpmd.hpp"
#include "manyworlds/spmd.hpp"
#include "support/eventually.hpp"

namespace manyworlds::typed_calls_tests {

using namespace std::chrono_literals;

TEST_SUITE_BEGIN("mpmd");

namespace {

constexpr remote_function<float(std::vector<float>, int)> weigh{"weigh"};
constexpr remote_function<std::string(std::string)> greet{"greet"};
constexpr remote_function<std::uint64_t()> count{"count"};
constexpr remote_function<void(int)> note{"note"};
constexpr remote_function<double(std::span<const double>, std::string_view)> look{"look"};
constexpr remote_function<tensor(tensor)> twice{"twice"};
constexpr remote_function<int(int)> pick{"pick"};
constexpr remote_function<any_value(any_value)> echo{"echo"};
constexpr remote_function<void(std::string)> stuck{"stuck"};

/// What the methods of one instance have noted.
struct notes {
  std::atomic<int> noted = 0;
  std::atomic<bool> was_begun = false;
  std::atomic<bool> was_stopped = false;
};

task<float> run_weigh(std::vector<float> v, int k) {
  co_await sleep_for(1ms);
  co_return std::accumulate(v.begin(), v.end(), 0.0f) * static_cast<float>(k);
}

void add_methods(role_methods& to, std::uint32_t index, notes& kept) {
  to.on(weigh, run_weigh)
      .on(greet,
          [index](role_call& call, std::string name) {
            return call.from().role + std::to_string(index) + ":" + name;
          })
      .on(count, [] { return std::uint64_t{1} << 63U; })
      .on(note, [&kept](int n) { kept.noted += n; })
      .on(look,
          [](std::span<const double> v, std::string_view name) {
            return v[1] + static_cast<double>(name.size());
          })
      .on(twice,
          [](const tensor& given) -> task<tensor> {
            tensor result = tensor::copy_of(given.view(), given.shape());
            for (float& each : result.as<float>()) each *= 2;
            co_return result;
          })
      .on(pick,
          [index](int n) -> int {
            if (n == static_cast<int>(index)) throw value_error("not by this one");
            return n * 10;
          })
      .on(echo, [](any_value given) { return given; })
      .on(stuck, [&kept](role_call& call, std::string) -> task<void> {
        const auto cancelled = [&kept] { kept.was_stopped = true; };
        const std::stop_callback told(call.stop_token(), cancelled);
        kept.was_begun = true;
        co_await sleep_for(20s);
      });
}

/// Keeps what its base refers to.
struct kept_notes {
  std::array<notes, 4> all_notes;
};

class typed_site : public kept_notes, public calls_edge_tests::site {
 public:
  explicit typed_site(std::uint32_t instances)
      : site(instances, {}, [this](role_methods& to, std::uint32_t index) {
          add_methods(to, index, all_notes[index]);
        }) {
    until(instances);
  }
};

bool says(const failure& f, std::string_view part) {
  const bool found = f.text().find(part) != std::string::npos;
  CHECK_MESSAGE(found, f.text());
  return found;
}

}  // namespace

TEST_CASE("graph B12: a method takes and gives the types of its name") {
  typed_site s(1);
  const std::vector<float> v{1, 2, 3.5f};
  CHECK(s.run(s.group.any(weigh, {v, 2})) == 13.0f);
  CHECK(s.run(s.group.at(0, greet, {"you"})) == "0:you");
  CHECK(s.run(s.group.first(count, {})) == std::uint64_t{1} << 63U);
  s.run(s.group.any(note, 7, {.within = 10s}));
  CHECK(s.all_notes[0].noted == 7);
  const std::vector<double> reals{1, 2.5};
  CHECK(s.run(s.group.any(look, {reals, "four"})) == 6.5);
  const any_value mixed = any_value::list(1, "two", std::vector<int>{3});
  const any_value back = s.run(s.group.any(echo, mixed));
  CHECK(std::get<1>(back.as<std::tuple<int, std::string, std::vector<int>>>()) == "two");
  // A method of any bytes goes beside them.
  CHECK(s.run(s.group.any("who", "x")) == "0:x");
}

TEST_CASE("graph B12: results of methods with types stand in the order of ranks") {
  typed_site s(2);
  CHECK(s.run(s.group.all(greet, {"x"})) == std::vector<std::string>{"0:x", "1:x"});
  s.run(s.group.all(note, 3));
  CHECK(s.all_notes[0].noted == 3);
  CHECK(s.all_notes[1].noted == 3);
  CHECK(s.run(s.group.scatter(greet, {"a", "b"})) ==
        std::vector<std::string>{"0:a", "1:b"});
  CHECK(s.run(s.group.batch(greet, {"a", "b", "c", "d", "e"})) ==
        std::vector<std::string>{"0:a", "0:b", "0:c", "1:d", "1:e"});
  const std::vector<std::tuple<std::vector<float>, int>> pairs{{{1}, 2}, {{3}, 4}};
  CHECK(s.run(s.group.batch(weigh, pairs)) == std::vector<float>{2, 12});
  CHECK(s.run(s.group.batch(pick, {})).empty());
}

TEST_CASE("graph B16: of methods with types one of four fails by name") {
  typed_site s(4);
  const auto all = s.run(s.group.outcomes(pick, 2));
  REQUIRE(all.size() == 4);
  for (const std::size_t n : {0u, 1u, 3u}) {
    REQUIRE(all[n]);
    CHECK(*all[n].result == 20);
  }
  CHECK_FALSE(all[2]);
  CHECK_FALSE(all[2].result.has_value());
  CHECK(all[2].from == instance_id{"decode", 2});
  // The method has begun, so that the error is its own.
  CHECK(all[2].why.cause == cause::handler_failed);
  CHECK(says(all[2].why, "not by this one"));
  CHECK(says(all[2].why, "pick of instance 2 at edge"));
  const auto each = s.run(s.group.batch_outcomes(pick, {0, 1, 0, 3, 2}));
  REQUIRE(each.size() == 5);
  CHECK_FALSE(each[0]);
  CHECK(each[1].from == instance_id{"decode", 0});
  CHECK(each[1].result == 10);
  CHECK(each[4].result == 20);
}

TEST_CASE("graph B13: a call with other types is refused, and names both sides") {
  typed_site s(1);
  const auto refusal = [&]<class R, class... P>(remote_function<R(P...)> as,
                                                role_group::values<P...> given) {
    const failure f = s.why(s.group.any(as, std::move(given)));
    CHECK(f.cause == cause::invalid_argument);
    says(f, "of instance 0 at edge");
    return f;
  };
  constexpr remote_function<void(std::string)> by_text{"note"};
  CHECK(says(refusal(by_text, {"x"}), "argument 1: a text, where an integer is wanted"));
  constexpr remote_function<float(std::vector<double>, int)> of_doubles{"weigh"};
  CHECK(says(refusal(of_doubles, {{1, 2}, 3}),
             "argument 1: elements of float64, where float32 is wanted"));
  constexpr remote_function<void(int, int, int)> of_three{"note"};
  CHECK(says(refusal(of_three, {1, 2, 3}), "3 arguments, where 1 are wanted"));
  CHECK(s.all_notes[0].noted == 0);
  constexpr remote_function<std::vector<int>(std::string)> to_list{"greet"};
  CHECK(says(refusal(to_list, {"x"}), "the result: a text, where elements is wanted"));
  constexpr remote_function<void(std::string)> of_bytes{"who"};
  CHECK(says(refusal(of_bytes, {"x"}), "takes bytes, and values have come"));
  const failure bytes = s.why(s.group.any("greet", "x"));
  CHECK(bytes.cause == cause::invalid_argument);
  CHECK(says(bytes, "takes values, and bytes have come"));
  // Numbers are converted as those of other calls by value.
  constexpr remote_function<long(short)> of_short{"pick"};
  CHECK(s.run(s.group.any(of_short, 7)) == 70);
}

TEST_CASE("graph B13: a method with types that the role has not is refused at once") {
  typed_site s(1);
  constexpr remote_function<std::string(std::string)> typo{"great"};
  const failure f = s.why(s.group.any(typo, {"x"}));
  CHECK(f.cause == cause::unsupported);
  CHECK(says(f, "did you mean \"greet\""));
}

TEST_CASE("graph: large values go there and back") {
  typed_site s(1);
  std::vector<float> large(std::size_t{2} * 1024 * 1024, 0.5f);
  CHECK(s.run(s.group.any(weigh, {large, 1})) == 1024.0f * 1024.0f);
  tensor given = tensor::copy_of(large);
  const tensor doubled = s.run(s.group.any(twice, given));
  const auto values = doubled.as<float>();
  REQUIRE(values.size() == large.size());
  CHECK(std::all_of(values.begin(), values.end(), [](float v) { return v == 1; }));
  const std::vector<double> reals(1000, 4);
  CHECK(s.run(s.group.any(look, {reals, ""})) == 4);
}

TEST_CASE("graph: a question may be moved, and outlives its arguments") {
  typed_site s(1);
  std::optional<task<std::string>> kept;
  {
    const std::string name(100, 'x');
    kept = s.group.any(greet, name);
  }
  task<std::string> moved = std::move(*kept);
  kept.reset();
  CHECK(s.run(std::move(moved)) == "0:" + std::string(100, 'x'));
}

TEST_CASE("graph: a question that is cancelled ends its method") {
  typed_site s(1);
  notes& kept = s.all_notes[0];
  const auto cancelled = [&]() -> task<void> {
    const auto body = [&](scope& own) -> task<void> {
      own.spawn(s.group.any(stuck, {"x"}));
      while (!kept.was_begun.load()) co_await sleep_for(1ms);
      own.cancel();
    };
    co_await scope::run(body);
  };
  s.run(cancelled());
  CHECK(testing::eventually([&] { return kept.was_stopped.load(); }));
  CHECK(s.run(s.group.any(greet, {"x"})) == "0:x");
}

TEST_CASE("graph: names with types are registered once, among all names") {
  role_methods all;
  all.on("greet", [](role_call&) -> task<std::string> { co_return ""; });
  const auto same = [](std::string name) { return name; };
  CHECK_THROWS_AS(all.on(greet, same), std::invalid_argument);
  constexpr remote_function<std::string(std::string)> nameless{""};
  CHECK_THROWS_AS(all.on(nameless, same), std::invalid_argument);
}

TEST_CASE("graph B75: packed values are read, or refused") {
  using args = std::tuple<std::string, std::vector<float>, std::vector<float>>;
  const std::vector<float> small{1, 2}, large(2000, 3);
  const std::string all =
      detail::pack_arguments<std::string, std::vector<float>, std::vector<float>>(
          "text", large, small);
  const auto read = [](std::string_view packed) {
    detail::unpacked_values from = detail::unpacked_arguments(packed);
    const auto all =
        detail::read_arguments<std::string, std::vector<float>, std::vector<float>>(from);
    return args(std::get<0>(all).value, std::get<1>(all).value, std::get<2>(all).value);
  };
  CHECK(read(all) == args("text", large, small));
  for (std::size_t cut = 0; cut < all.size(); ++cut)
    CHECK_THROWS_AS(static_cast<void>(read(all.substr(0, cut))), world_error);
  // Bytes to which no value refers.
  for (const std::size_t more : {1U, 8U, 64U, 1000U})
    CHECK_THROWS_AS(static_cast<void>(read(all + std::string(more, 'x'))), world_error);
  std::string longer = all;
  longer[0] = '\xff';
  longer[7] = '\x7f';
  CHECK_THROWS_AS(static_cast<void>(read(longer)), world_error);
}

TEST_SUITE_END();

}  // namespace manyworlds::typed_calls_tests
