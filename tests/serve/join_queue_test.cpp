// Join queue: who stands in it, and who gets whom.
#include "serve/join_queue.hpp"

#include <atomic>
#include <string>
#include <vector>

#include "../world/world_fixture.hpp"
#include "link/wire.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("serve");

namespace {

const char* const list_key = "mw/accept/decode/waiting";
const char* const bell_key = "mw/accept/decode/bell";

task<std::vector<std::uint64_t>> take(join_queue& queue, std::size_t most) {
  std::vector<std::uint64_t> ids;
  for (const join_entry& each : co_await queue.take(most)) ids.push_back(each.id);
  co_return ids;
}

task<void> enter(join_queue& queue, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t id = first; id <= last; ++id)
    co_await queue.enter(join_entry(id, "record " + std::to_string(id)));
}

/// Another acceptor takes all entries when we are just about to: once, or each time.
class rivals_store final : public store {
 public:
  [[nodiscard]] std::string address() const override { return "memory"; }
  [[nodiscard]] task<store_reply> perform(store_request request) override {
    return perform_behind(std::move(request));
  }
  std::atomic<bool> rival_takes = false;
  std::atomic<bool> rival_goes_on = false;
  std::atomic<int> tries = 0;

 private:
  task<store_reply> perform_behind(store_request request) {
    if (request.operation == store_operation::compare_set) ++tries;
    if (rival_takes && request.operation == store_operation::compare_set) {
      rival_takes = rival_goes_on.load();
      join_entries none_left;
      none_left.mark = static_cast<std::uint64_t>(tries);
      store_request rival(store_operation::set, request.keys, request.limit);
      rival.value = none_left.encode();
      co_await under_.perform(std::move(rival));
    }
    co_return co_await under_.perform(std::move(request));
  }

  memory_store under_;
};

}  // namespace

TEST_CASE("those who wait are taken in the order they came, and each once") {
  node n;
  memory_store store;
  join_queue queue(access::core(n.rt), store, "decode");
  n.run(enter(queue, 1, 5));
  CHECK(n.run(take(queue, 2)) == std::vector<std::uint64_t>{1, 2});
  CHECK(n.run(take(queue, 9)) == std::vector<std::uint64_t>{3, 4, 5});
  n.run(queue.erase_if_empty());
  // Each has a notice, which it erases when it reads it.
  CHECK(n.run(store.num_keys()) == 5);
  for (std::uint64_t id = 1; id <= 5; ++id) n.run(queue.await_notice(id));
  CHECK(n.run(store.num_keys()) == 0);
}

TEST_CASE("who enters again stands there once, with its latest record") {
  node n;
  memory_store store;
  join_queue queue(access::core(n.rt), store, "decode");
  n.run(queue.enter(join_entry(1, "old")));
  n.run(enter(queue, 2, 2));
  n.run(queue.enter(join_entry(1, "new")));
  CHECK(!n.run(queue.holds(join_entry(1, "old"))));
  CHECK(n.run(queue.holds(join_entry(1, "new"))));
  CHECK(n.run(take(queue, 9)) == std::vector<std::uint64_t>{2, 1});
}

TEST_CASE("an acceptor does not take those whom another has just taken") {
  node n;
  rivals_store store;
  join_queue queue(access::core(n.rt), store, "decode");
  n.run(enter(queue, 1, 3));
  store.rival_takes = true;
  auto taken = n.rt.start(take(queue, 9));
  CHECK(!taken.wait_for(50ms));
  n.run(enter(queue, 4, 4));
  CHECK(n.finish(taken) == std::vector<std::uint64_t>{4});
}

TEST_CASE("who loses to others again and again tries less and less often") {
  node n;
  rivals_store store;
  store.rival_takes = store.rival_goes_on = true;
  join_queue queue(access::core(n.rt), store, "decode");
  auto entering = n.rt.start(enter(queue, 1, 1));
  CHECK(!entering.wait_for(300ms));
  CHECK(store.tries > 1);
  // At 1, 2, 4 .. 100 ms these are ten.
  CHECK(store.tries < 30);
  store.rival_goes_on = store.rival_takes = false;
  n.finish(entering);
  CHECK(n.run(take(queue, 9)) == std::vector<std::uint64_t>{1});
}

TEST_CASE("who is left behind by an acceptor without room rings for the others") {
  node n;
  memory_store store;
  join_queue queue(access::core(n.rt), store, "decode");
  n.run(enter(queue, 1, 2));
  (void)n.run(store.erase(bell_key));
  (void)n.run(take(queue, 1));
  CHECK(n.run(store.check(store_keys(bell_key))));
}

TEST_CASE("law 9: the queue is bounded; the oldest entries make room") {
  node n;
  memory_store store;
  join_queue queue(access::core(n.rt), store, "decode");
  n.run(enter(queue, 1, join_queue::most + 2), 60s);
  const auto ids = n.run(take(queue, 2 * join_queue::most));
  CHECK(ids.size() == join_queue::most);
  CHECK(ids.front() == 3);
}

TEST_CASE("law 11: what is no queue is refused, said, and written over") {
  for (const std::string garbage : {"x", "garbage that is longer than a mark"}) {
    CHECK_THROWS_AS((void)join_entries::decode(garbage), wire_error);
    node n;
    memory_store store;
    n.run(store.set(list_key, garbage));
    join_queue queue(access::core(n.rt), store, "decode");
    n.run(enter(queue, 1, 1));
    CHECK(n.log.has("is not a join queue, and is overwritten"));
    CHECK(n.run(take(queue, 9)) == std::vector<std::uint64_t>{1});
  }
}

TEST_CASE("an acceptor that ends leaves those who wait in the queue") {
  node n;
  memory_store store;
  join_queue queue(access::core(n.rt), store, "decode");
  n.run(enter(queue, 1, 1));
  n.run(queue.erase_if_empty());
  CHECK(n.run(take(queue, 9)) == std::vector<std::uint64_t>{1});
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
