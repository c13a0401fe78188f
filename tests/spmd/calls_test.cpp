// Calls of sessions: what is given to functions and comes back, over threads and
// processes (disco A1 to A8, A13, A14, A34 to A38, A42, A48, A66 to A68, A70).
#include <array>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "session_fixture.hpp"
#include "spmd/mesh_name.hpp"
#include "weights/weight_folder.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::spmd_tests {

using manyworlds_tests::made_tensor;
using manyworlds_tests::safetensors_of;
using manyworlds_tests::weight_folder;
using manyworlds_tests::written_tensor;

TEST_CASE("disco A1 A2 A3 A4 A5: values reach each worker and come back as they were") {
  in_each_kind(2, [](session& s) -> task<void> {
    CHECK(co_await s.call(add_one, 1).all() == ints(2, 2));
    CHECK(co_await s.call(add_one_real, 1.5).from(1) == 2.0);
    CHECK(co_await s.call(with_suffix, "hello").from(0) == "hello_suffix");
    CHECK(co_await s.call(longer, ints(1, 2, 3, 4)).from(0) == ints(1, 2, 3, 4, 5));
    const std::array<std::size_t, 5> sizes{0, 1, 4096, 4097, 1 << 20};
    for (const std::size_t size : sizes) {
      std::vector<std::byte> sent(size);
      for (std::size_t i = 0; i < size; ++i) sent[i] = static_cast<std::byte>(i * 7);
      const std::vector<std::byte> back = co_await s.call(same_bytes, sent).from(1);
      CHECK(back == sent);
    }
    const auto given = co_await s
                           .call(same_values, true, std::optional<int>(), dtype::bfloat16,
                                 sampling{5, 0.5F})
                           .from(0);
    CHECK(std::get<0>(given));
    CHECK(!std::get<1>(given).has_value());
    CHECK(std::get<2>(given) == dtype::bfloat16);
    CHECK(std::get<3>(given).top == 5);
    const any_value shaped = co_await s.call(same_any, shape(1, 2, 3), 0).from(1);
    CHECK(shaped.as<shape>() == shape(1, 2, 3));
  });
}

TEST_CASE("disco A6, A7: tensors go to workers and come back, beyond a pipe's buffer") {
  in_each_kind(2, [](session& s) -> task<void> {
    const std::array<std::int64_t, 2> sizes{6, 2 << 20};
    for (const std::int64_t size : sizes) {
      tensor x({2, size / 2}, dtype::float32);
      std::iota(x.as<float>().begin(), x.as<float>().end(), 0.0F);
      const tensor y = co_await s.call(plus_one_each, x).from(0);
      REQUIRE(y.shape() == x.shape());
      CHECK(y.as<float>().front() == 1);
      CHECK(y.as<float>().back() == static_cast<float>(size));
      const dref<tensor> there = co_await s.put(x);
      const tensor z = co_await s.copy_from(there, 1);
      CHECK(std::ranges::equal(z.as<float>(), x.as<float>()));
      co_await s.copy_to(there, 1, y);
      const tensor changed = co_await s.copy_from(there, 1);
      CHECK(changed.as<float>().front() == 1);
      const tensor kept = co_await s.copy_from(there, 0);
      CHECK(kept.as<float>().front() == 0);
    }
  });
}

TEST_CASE(
    "disco A13: a function's registers stay on the workers, which exchange data in its "
    "mesh") {
  in_each_kind(3, [](session& s) -> task<void> {
    const dref<part_of_model> w = co_await s.call(load_part, 10);
    const std::vector<int> x = ints(1, 2);
    CHECK(co_await s.call(scaled_sum, w, x).from(2) == ints(33, 66));
    // Each worker has its own.
    for (int k = 0; k < 3; ++k)
      CHECK(co_await s.mesh(k).call(scaled_sum, w, x).from(k) ==
            ints(10 + k, 20 + 2 * k));
    const dref<int> one = co_await s.call(add_one, 0);
    co_await s.call(add_to, one, 5);
    const dref<int> next = co_await s.issue(one_more, one);
    co_await next;
    CHECK(co_await s.call(one_more, next).all() == ints(8, 8, 8));
  });
}

TEST_CASE(
    "disco A8, A14: meshes have their own ranks and worlds; what does not divide is "
    "refused") {
  in_each_kind(4, [](session& s) -> task<void> {
    CHECK(s.size() == 4);
    for (int k = 0; k < 4; ++k)
      CHECK(co_await s.call(place_alone).from(k) == ints(k, k, 4, 1));
    CHECK(co_await s.call(rank_here).all() == ints(0, 1, 2, 3));
    const mesh odd = s.mesh({3, 1});
    CHECK(co_await odd.call(rank_here).all() == ints(0, 1));
    CHECK(co_await odd.call(size_here).from(3) == 2);
    const std::vector<mesh> halves = s.split(2);
    REQUIRE(halves.size() == 2);
    const dref<part_of_model> w = co_await s.call(load_part, 0);
    const std::vector<int> x{1};
    CHECK(co_await halves[0].call(scaled_sum, w, x).from(0) == ints(1));
    CHECK(co_await halves[1].call(scaled_sum, w, x).from(3) == ints(5));
    CHECK_THROWS_AS((void)s.split(3), std::invalid_argument);
    CHECK_THROWS_AS((void)s.mesh({0, 0}), std::invalid_argument);
    CHECK_THROWS_AS((void)s.mesh({4}), std::invalid_argument);
  });
}

TEST_CASE("disco A48: what no worker can run is an error of that call alone") {
  in_each_kind(2, [](session& s) -> task<void> {
    const refusal unknown = co_await refusal_of(s.call(nowhere));
    CHECK(unknown.cause == cause::handler_failed);
    CHECK(unknown.says("it has no function \"nowhere\""));
    const refusal other = co_await refusal_of(s.call(other_types, 1, 2));
    CHECK(other.says("other types"));
    const refusal unasked = co_await refusal_of(s.call(add_one, 1).from(7));
    CHECK(unasked.cause == cause::invalid_argument);
    const refusal again = co_await refusal_of(s.call(rank_here).replayable());
    CHECK(again.cause == cause::invalid_argument);
    const std::string endless(256, 'x');
    const remote_function<void()> nameless{endless, alone};
    const refusal too_long = co_await refusal_of(s.call(nameless));
    CHECK(too_long.cause == cause::invalid_argument);
    CHECK(co_await s.call(add_one, 1).from(0) == 2);
    // A register of another type, which only the workers can see.
    const dref<part_of_model> w = co_await s.call(load_other, 1);
    const std::vector<int> x = ints(1);
    const refusal other_type = co_await refusal_of(s.call(scaled_sum, w, x));
    CHECK(other_type.says("argument 1: a register of"));
  });
}

TEST_CASE("disco A67: two tasks that call and sync by turns get their own replies") {
  in_each_kind(2, [](session& s) -> task<void> {
    auto caller = [&](int first) -> task<void> {
      for (int i = first; i < first + 200; ++i) {
        REQUIRE(co_await s.call(add_one, i).from(i % 2) == i + 1);
        if (i % 10 == 0) co_await s.sync();
      }
    };
    co_await when_all(caller(0), caller(100'000));
  });
}

TEST_CASE("S-a: a worker begins the calls of all meshes in the order they were issued") {
  in_each_kind(2, [](session& s) -> task<void> {
    const mesh both = s.mesh({1, 0});
    const dref<int> last = co_await s.call(add_one, -1);
    std::vector<int> before;
    for (int i = 1; i <= 300; ++i) {
      if (i % 3 == 1) {
        (void)co_await s.issue(exchanged, last, i);
      } else if (i % 3 == 2) {
        (void)co_await both.issue(exchanged, last, i);
      } else {
        before = co_await s.call(exchanged, last, i).all();
        REQUIRE(before == ints(i - 1, i - 1));
      }
    }
  });
}

TEST_CASE("disco A66: a worker that is busy suspends the issuer alone") {
  in_each_kind(2, [](session& s) -> task<void> {
    int ticks = 0;
    auto ticking = [&]() -> task<int> {
      for (;; ++ticks) co_await sleep_for(1ms);
    };
    auto issuing = [&]() -> task<int> {
      (void)co_await s.issue(sleep_ms, 200);
      int issued = 0;
      for (; issued < 500; ++issued) (void)co_await s.issue(add_one, issued);
      co_await s.sync();
      co_return issued;
    };
    const auto [never, issued] = co_await when_any(ticking(), issuing());
    CHECK(issued == 500);
    CHECK(ticks > 10);
  });
}

TEST_CASE(
    "disco A42: registers that are dropped are used again, also in the order of use") {
  in_each_kind(2, [](session& s) -> task<void> {
    for (int i = 0; i < 2000; ++i) {
      const dref<int> x = co_await s.issue(add_one, i);
      const dref<int> y = co_await s.issue(one_more, x);
      if (i % 100 == 0) CHECK(co_await s.call(one_more, y).from(1) == i + 3);
    }
    co_await s.sync();
  });
}

namespace {

/// What the controller and each worker have told each other so far.
std::vector<transfer_counters> told_so_far(runtime& controller, const session& s) {
  const mesh& all = s;
  const std::string& name = detail::access::core_ptr(all)->name();
  std::vector<transfer_counters> told(s.size());
  std::size_t found = 0;
  for (const auto& each : detail::access::core(controller).reports().report().worlds) {
    for (std::size_t k = 0; k < told.size(); ++k) {
      if (each.name != detail::control_name(name, static_cast<int>(k), 1)) continue;
      REQUIRE(each.transfers.has_value());
      told[k] = each.transfers->counters;
      ++found;
    }
  }
  REQUIRE(found == told.size());
  return told;
}

}  // namespace

TEST_CASE("disco A68, A70: a call is told its own workers only, and a sync each once") {
  runtime rt;
  auto whole = [&]() -> task<void> {
    // No question of a busy machine comes between.
    session_options patient;
    patient.suspect_after = 10min;
    patient.lost_after = 20min;
    session s = co_await start_session(rt, worker_kind::threads, 8, patient);
    co_await s.sync();
    const std::vector<transfer_counters> before = told_so_far(rt, s);
    co_await s.sync();
    const std::vector<transfer_counters> between = told_so_far(rt, s);
    CHECK(co_await s.mesh({1, 3}).call(add_one, 1).from(3) == 2);
    const std::vector<transfer_counters> after = told_so_far(rt, s);
    for (std::size_t k = 0; k < 8; ++k) {
      CAPTURE(k);
      CHECK(between[k].messages_sent - before[k].messages_sent == 1);
      CHECK(between[k].messages_received - before[k].messages_received == 1);
      const bool is_called = k == 1 || k == 3;
      CHECK((after[k].messages_sent > between[k].messages_sent) == is_called);
      CHECK((after[k].bytes_sent > between[k].bytes_sent) == is_called);
    }
    co_await s.close();
  };
  rt.run(in_time(whole()));
}

namespace {

written_tensor numbered_weights(std::string name, std::vector<std::int64_t> lengths,
                                float first) {
  written_tensor made = made_tensor(std::move(name), "F32", 4, std::move(lengths));
  std::vector<float> numbers(made.bytes.size() / sizeof(float));
  std::iota(numbers.begin(), numbers.end(), first);
  std::memcpy(made.bytes.data(), numbers.data(), made.bytes.size());
  return made;
}

/// Makes a vector without a braced list, as `ints` does.
template <class... Numbers>
std::vector<float> reals(Numbers... numbers) {
  return {static_cast<float>(numbers)...};
}

}  // namespace

TEST_CASE(
    "disco A34, A35, A36, A37, A38: workers load all weights of files, each its part, "
    "what was divided before, or the same") {
  const weight_folder folder;
  const std::string path = folder.write(
      "all.safetensors", safetensors_of({numbered_weights("a", {2, 4}, 0),
                                         numbered_weights("b", {4, 2}, 10)}));
  for (int k = 0; k < 2; ++k) {
    const float first = 100.0F * static_cast<float>(k + 1);
    folder.write(std::to_string(k), safetensors_of({numbered_weights("a", {2}, first),
                                                    numbered_weights("b", {1}, 7)}));
  }
  in_each_kind(2, [&](session& s) -> task<void> {
    const std::vector<float> all =
        reals(0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17);
    for (int k = 0; k < 2; ++k)
      CHECK(co_await s.call(weights_of, path, -1).from(k) == all);
    CHECK(co_await s.call(weights_of, path, 0).from(1) ==
          reals(4, 5, 6, 7, 14, 15, 16, 17));
    CHECK(co_await s.call(weights_of, path, 1).from(0) ==
          reals(0, 1, 4, 5, 10, 12, 14, 16));
    for (int k = 0; k < 2; ++k) {
      const std::string own = folder.at(std::to_string(k));
      const int first = 100 * (k + 1);
      CHECK(co_await s.call(weights_of, own, -1).on(k).from(k) ==
            reals(first, first + 1, 7));
    }
  });
}

}  // namespace manyworlds::spmd_tests
