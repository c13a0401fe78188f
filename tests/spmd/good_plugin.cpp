// A plugin, as users write one.
#include <atomic>
#include <stdexcept>

#include "plugin_functions.hpp"

namespace manyworlds::spmd_tests {

struct kept_words {
  virtual ~kept_words() = default;
  std::string words;
};

namespace {

std::atomic<int> initialised{0};
const int counted = ++initialised;

struct own_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

task<int> add_up(worker& me) {
  std::vector<int> x{me.id() + 1};
  co_await me.world().all_reduce(x, sum);
  co_await sleep_for(std::chrono::milliseconds(1));
  co_return x[0];
}

const function_table& functions() {
  static const function_table all{
      {doubled, [](int x) { return 2 * x; }},
      {doubled_slowly, blocking([](int x) { return 2 * x; })},
      {added_up, add_up},
      {keep_words,
       [](std::string words) {
         kept_words kept;
         kept.words = std::move(words);
         return kept;
       }},
      {words_of, [](const kept_words& kept) { return kept.words; }},
      {throws_own, [](const std::string& text) -> int { throw own_error(text); }},
      {times_initialised, [] { return initialised.load(); }},
      {any_function("plugin.total", alone),
       [](std::span<const any_value> given) {
         double total = 0;
         for (const any_value& each : given) total += each.as<double>();
         return total;
       }},
  };
  return all;
}

}  // namespace

}  // namespace manyworlds::spmd_tests

const mw::plugin manyworlds_plugin(manyworlds::spmd_tests::functions);
