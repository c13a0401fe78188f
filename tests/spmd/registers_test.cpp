// Registers: a name never means two values (S-d, disco A42 to A45).
#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "spmd/dropped_registers.hpp"
#include "spmd/register_file.hpp"
#include "spmd/register_table.hpp"

namespace manyworlds::spmd_tests {

namespace {

held_value held(std::uint64_t value) {
  return {std::make_shared<std::uint64_t>(value), type_token::of<std::uint64_t>()};
}
std::uint64_t value_in(register_file& file, register_id which) {
  return *static_cast<std::uint64_t*>(file.find(which).value.get());
}

}  // namespace

TEST_SUITE_BEGIN("spmd");

TEST_CASE("disco A45: over a million operations no name means a value of another") {
  register_table table;
  register_file file;
  std::unordered_map<std::uint64_t, std::uint64_t> live;  // name to value
  std::vector<register_id> names;
  std::mt19937_64 random(1);
  std::size_t most_live = 0;
  std::size_t wrong = 0;
  const auto key = [](register_id id) {
    return std::uint64_t{id.index} << 32 | id.generation;
  };
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    if (names.size() < 50 || (random() % 2 == 0 && names.size() < 1000)) {
      const register_id fresh = table.allocate();
      wrong += live.contains(key(fresh)) ? 1 : 0;
      file.fill(fresh, held(i));
      live[key(fresh)] = i;
      names.push_back(fresh);
      most_live = std::max(most_live, names.size());
    } else {
      const std::size_t at = random() % names.size();
      const register_id gone = names[at];
      wrong += value_in(file, gone) == live[key(gone)] ? 0 : 1;
      file.release(gone);
      table.release(gone);
      live.erase(key(gone));
      names[at] = names.back();
      names.pop_back();
      CHECK_FALSE(table.is_live(gone));
    }
  }
  CHECK(wrong == 0);
  CHECK(file.held() == names.size());
  // Disco A42: the file is as large as what lived at once.
  CHECK(table.size() <= most_live);
  CHECK(file.size() <= most_live);
}

TEST_CASE("a name that was released, or fails, is refused for what it is") {
  register_file file;
  const register_id old{4, 1}, renewed{4, 3};
  file.fill(old, held(1));
  file.fill(renewed, held(2));  // it overtakes the release of the old one
  CHECK(file.held() == 1);
  file.release(old);
  CHECK(value_in(file, renewed) == 2);
  CHECK_THROWS_WITH(file.find(old), "register 4 holds nothing on this worker");
  CHECK_THROWS_WITH(file.fill(old, held(3)),
                    "register 4 is filled by a later call already");
  // A call into it fills it again.
  file.fill(renewed, held(3));
  CHECK(value_in(file, renewed) == 3);
  CHECK(file.held() == 1);
  file.fail({5, 1}, 17, "load");
  CHECK_THROWS_WITH(file.find({5, 1}),
                    "call 17 of load, which should have made it, failed");
  file.release({5, 1});
  CHECK_THROWS_WITH(file.find({5, 1}), "register 5 holds nothing on this worker");
  CHECK_THROWS_WITH(file.fill({register_file::most_registers, 1}, held(1)),
                    "there is no register 1048576");
  CHECK(file.size() == 6);
}

TEST_CASE("a table is full when all of its indices are in use, and not before") {
  register_table table;
  std::vector<register_id> names;
  for (int i = 0; i < 3; ++i) {
    CHECK(!table.is_full(3));
    names.push_back(table.allocate());
  }
  CHECK(table.is_full(3));
  table.release(names[1]);
  CHECK(!table.is_full(3));
}

TEST_CASE("disco A43: drefs that are dropped on other threads are released once each") {
  const auto dropped = std::make_shared<dropped_registers>();
  constexpr std::uint32_t each = 20'000;
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < each; ++i) {
        dropped_registers::drop(
            std::make_unique<register_node>(register_id{t * each + i, 1}, dropped));
      }
    });
  }
  std::vector<int> seen(3 * each);
  const auto count = [&](register_id id) { ++seen[id.index]; };
  while (std::any_of(threads.begin(), threads.end(),
                     [](std::thread& t) { return t.joinable(); })) {
    dropped->release_all(count);
    for (std::thread& t : threads) {
      if (t.joinable() && dropped->empty()) t.join();
    }
  }
  dropped->release_all(count);
  CHECK(std::count(seen.begin(), seen.end(), 1) == 3 * each);
}

TEST_CASE("disco A44: a dref may be dropped when its session is gone") {
  auto dropped = std::make_shared<dropped_registers>();
  auto first = std::make_unique<register_node>(register_id{1, 1}, dropped);
  auto second = std::make_unique<register_node>(register_id{2, 1}, dropped);
  const std::weak_ptr<dropped_registers> watched = dropped;
  dropped.reset();
  CHECK_FALSE(watched.expired());
  dropped_registers::drop(std::move(first));
  CHECK_FALSE(watched.expired());
  dropped_registers::drop(std::move(second));
  CHECK(watched.expired());
}

TEST_SUITE_END();

}  // namespace manyworlds::spmd_tests
