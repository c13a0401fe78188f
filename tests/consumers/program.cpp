// What every consumer builds and runs: two runtimes in one process form two worlds and
// talk in both. Exits with 1 on anything wrong, and when it takes too long.
#include <chrono>
#include <cstdio>
#include <exception>
#include <manyworlds/mw.hpp>
#include <numeric>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

/// Rank 0: sends the numbers from 1 to `count`, gives the sum that comes back.
mw::task<int> ask(mw::runtime& rt, mw::store& store, mw::world_name name, int count) {
  mw::world w(rt, store, {.name = name, .rank = 0, .size = 2, .form = 10s});
  co_await w;
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 1);
  co_await w.send_message(count, numbers, mw::to{1});
  const auto sum = co_await w.recv_message<int>(mw::from{1}).within(10s);
  co_await w.leave();
  co_return sum.head;
}

/// Rank 1: receives them, sends their sum, gives them as text.
mw::task<std::string> answer(mw::runtime& rt, mw::store& store, mw::world_name name) {
  mw::world w(rt, store, {.name = name, .rank = 1, .size = 2, .form = 10s});
  co_await w;
  const auto count = co_await w.recv_message<int>(mw::from{0}).within(10s);
  std::vector<int> numbers(static_cast<std::size_t>(count.head));
  co_await w.recv(numbers, mw::from{0});
  const int sum = std::accumulate(numbers.begin(), numbers.end(), 0);
  co_await w.send_message(sum, mw::to{0}).delivered();
  std::string text;
  for (const int number : numbers) text += " " + std::to_string(number);
  co_await w.leave();
  co_return text;
}

struct conversation {
  const char* name;
  int count;
  mw::started<int> sum;
  mw::started<std::string> numbers;

  bool print() {
    if (!sum.wait_for(20s) || !numbers.wait_for(20s)) {
      std::printf("%s: not over after 20 s\n", name);
      return false;
    }
    const int got = sum.get();
    std::printf("%s: rank 1 received%s, rank 0 the sum %d\n", name, numbers.get().c_str(),
                got);
    return got == count * (count + 1) / 2;
  }
};

bool talk() {
  mw::memory_store store;
  mw::runtime first;
  mw::runtime second;
  // Rank 0 of one world and rank 1 of the other, on both sides.
  conversation left{"left", 3, first.start(ask(first, store, "left", 3)),
                    second.start(answer(second, store, "left"))};
  conversation right{"right", 4, second.start(ask(second, store, "right", 4)),
                     first.start(answer(first, store, "right"))};
  return left.print() && right.print();
}

}  // namespace

int main() try {
  const auto linked = mw::linked_version();
  std::printf("manyworlds %d.%d.%d\n", linked.major_part, linked.minor_part,
              linked.patch_part);
  return linked == mw::header_version && talk() ? 0 : 1;
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
