// Function tables: how a call's arguments reach a function, and how a call that does not
// fit is refused (disco A48).
#include "manyworlds/spmd/function_table.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "manyworlds/mw.hpp"
#include "spmd/register_file.hpp"

namespace manyworlds::spmd_tests {

namespace {

struct layer {
  std::string path;
  int part = 0;
};

constexpr remote_function<layer(std::string, int)> load{"load", alone};
constexpr remote_function<std::string(const layer&)> path_of{"path_of"};
constexpr remote_function<void(layer&, int)> move_to{"move_to"};
constexpr remote_function<int(worker_id)> odd{"odd"};
constexpr remote_function<std::vector<int>(std::vector<int>)> twice{"twice"};
constexpr remote_function<std::vector<int>(int)> fill{"fill"};

layer run_load(const worker& me, std::string path, int part) {
  return {std::move(path), part + me.id()};
}
std::string run_path_of(const layer& of) { return of.path + std::to_string(of.part); }
task<void> run_move_to(worker&, layer& which, int part) {
  which.part = part;
  co_return;
}
int run_odd(worker_id) { throw std::runtime_error("it is odd"); }

const function_table& functions() {
  static const function_table all{
      {load, run_load},
      {path_of, run_path_of},
      {move_to, run_move_to},
      {odd, blocking(run_odd)},
      {fill,
       [](int count) { return std::vector<int>(static_cast<std::size_t>(count), 7); }},
      {twice, [](std::vector<int> x) -> task<std::vector<int>> {
         for (int& each : x) each *= 2;
         co_return x;
       }}};
  return all;
}

/// A worker without a session: what executes its calls.
struct bench {
  register_file registers;
  worker_facts facts{.id = 3};

  /// Runs a function. What it gives goes into the register, if there is one.
  void call(std::string_view name, const value_writer& values, register_id into = {}) {
    frame.emplace(value_reader(values.written()), registers, into == register_id());
    worker me = access::make<worker>(facts);
    sync_wait(access::core(*functions().find(name)).run(me, *frame));
    if (into != register_id()) registers.fill(into, frame->take_result());
  }
  template <class T>
  [[nodiscard]] T answer() const {
    value_reader in(frame->answer().written());
    return argument<T>::read(in);
  }
  /// Says why the call was refused.
  std::string refusal(std::string_view name, const value_writer& values,
                      register_id into = {}) {
    try {
      call(name, values, into);
    } catch (const value_error& e) {
      return std::to_string(frame->taken()) + ": " + e.what();
    }
    return "";
  }

  std::optional<call_frame> frame;
};

template <class... T>
value_writer values(const T&... each) {
  value_writer out;
  const auto write = [&]<class V>(const V& value) {
    if constexpr (std::is_same_v<V, register_id>) {
      out.reference(value);
    } else {
      argument<V>::write(out, value);
    }
  };
  (write(each), ...);
  return out;
}

constexpr register_id layer_at{.index = 0, .generation = 1};
constexpr register_id numbers_at{.index = 1, .generation = 1};

}  // namespace

TEST_SUITE_BEGIN("spmd");

static_assert(load.is_alone() && !path_of.is_alone());
static_assert(load.types() != path_of.types());
static_assert(remote_function<int(const layer&)>("a").types() ==
              remote_function<int(const std::string&)>("b").types());
static_assert(remote_function<int(layer&)>("a").types() !=
              remote_function<int(const layer&)>("a").types());

TEST_CASE("a table finds functions by name, and refuses names that say nothing") {
  CHECK(functions().find("load")->is_alone());
  CHECK(functions().find("odd")->blocks());
  CHECK_FALSE(functions().find("twice")->blocks());
  CHECK(functions().find("lode") == nullptr);
  CHECK(functions().find("") == nullptr);
  CHECK(functions().entries().size() == 6);
  CHECK(function_table{}.find("load") == nullptr);
  const auto make_twice = [] {
    return function_table{{load, run_load}, {path_of, run_path_of}, {load, run_load}};
  };
  CHECK_THROWS_WITH(make_twice(), "function table: two functions are called \"load\"");
  constexpr remote_function<void()> nameless{""};
  const auto make_nameless = [&] { return function_table{{nameless, [] {}}}; };
  CHECK_THROWS_WITH(make_nameless(), "function table: a function without a name");
  const std::string long_name(256, 'x');
  const remote_function<void()> longest{long_name};
  const auto make_long = [&] { return function_table{{longest, [] {}}}; };
  CHECK_THROWS_AS(make_long(), std::invalid_argument);
}

TEST_CASE("arguments reach tasks and plain functions, values and registers alike") {
  bench b;
  b.call("load", values(std::string("a/b"), 4), layer_at);
  b.call("path_of", values(layer_at));
  CHECK(b.answer<std::string>() == "a/b7");
  b.call("move_to", values(layer_at, 40));
  b.call("path_of", values(layer_at));
  CHECK(b.answer<std::string>() == "a/b40");
  b.call("twice", values(std::vector<int>{1, 2}));
  CHECK(b.answer<std::vector<int>>() == std::vector<int>{2, 4});
}

TEST_CASE("a large answer is there when its function has ended, and is not copied") {
  bench b;
  b.call("fill", values(100'000));
  REQUIRE(b.frame->answer().beside().size() == 1);
  const const_buffer_view large = b.frame->answer().beside()[0];
  CHECK(large.size_bytes() == 400'000);
  const auto* const numbers = static_cast<const int*>(large.data());
  CHECK(std::count(numbers, numbers + 100'000, 7) == 100'000);
}

TEST_CASE("a call that does not fit is refused by the argument, and begins nothing") {
  bench b;
  b.call("load", values(std::string("a"), 1), layer_at);
  b.call("twice", values(std::vector<int>{1}), numbers_at);
  CHECK(b.refusal("load", values(4, 4), numbers_at) ==
        "1: an integer, where a text is wanted");
  CHECK(b.refusal("load", values(std::string("a")), numbers_at) ==
        "2: missing: the function takes 2");
  CHECK(b.refusal("load", values(std::string("a"), 1, 2), numbers_at) ==
        "3: one too many: the function takes 2");
  CHECK(b.refusal("path_of", values(4)).starts_with("1: an integer, where a dref of "));
  CHECK(b.refusal("path_of", values(numbers_at))
            .starts_with("1: a register of std::vector<"));
  CHECK(b.refusal("path_of", values(register_id{9, 1})) ==
        "1: register 9 holds nothing on this worker");
  CHECK(b.refusal("path_of", values(register_id{0, 2})) ==
        "1: register 0 holds nothing on this worker");
  // What cannot travel stays: a layer is no value.
  CHECK(b.refusal("load", values(std::string("a"), 1)).find("which is no value") !=
        std::string::npos);
}

TEST_CASE("what a function throws comes out of its call, and the worker goes on") {
  bench b;
  CHECK_THROWS_WITH(b.call("odd", values(worker_id::none)), "it is odd");
  b.call("twice", values(std::vector<int>{4}));
  CHECK(b.answer<std::vector<int>>() == std::vector<int>{8});
}

TEST_CASE("disco A14: a function that was declared alone has no world") {
  const worker_facts facts;
  const worker me = access::make<worker>(facts);
  CHECK_THROWS_AS(static_cast<void>(me.world()), world_error);
}

TEST_SUITE_END();

}  // namespace manyworlds::spmd_tests
