#include "manyworlds/interop/reply_feed.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "../world/world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("interop");

namespace {

bytes bytes_of(const std::string& text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}
std::string text_of(const bytes& data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

/// A leader and a worker with threads of their own. A request is a number of replies, or
/// "hold".
class calls {
 public:
  calls() {
    auto lead = [this](world& w) { return workers->serve(w); };
    auto work = [this](world& w) { return server_.serve(w); };
    leading_ = here.rt.start(keep(here.rt, store_, {.name = "w", .rank = 0, .size = 2},
                                  lead, after_close::form_again));
    working_ =
        there.rt.start(keep(there.rt, store_, {.name = "w", .rank = 1, .size = 2}, work));
  }
  ~calls() {
    there.rt.stop();
    here.rt.stop();
    (void)working_->wait_for(20s);
    (void)leading_->wait_for(20s);
  }

  // Outlives the runtimes: their tasks use it to their end.
  std::optional<dispatcher> workers{std::in_place, dispatch_options{.patience = 20s}};
  std::atomic<int> replied{0};
  std::atomic<int> unwound{0};
  node here;
  node there;

 private:
  task<void> answer(served_call& c) {
    struct leaving {
      explicit leaving(calls& c) : of(c) {}
      ~leaving() { ++of.unwound; }
      calls& of;
    } const counts(*this);
    const std::string asked(reinterpret_cast<const char*>(c.data().data()),
                            c.data().size());
    if (asked == "throw") throw std::runtime_error("no such model");
    if (asked == "hold") {
      const std::string first = "first";
      co_await c.reply(first);
      event never;
      co_await never;
    }
    for (int i = 0; i < std::stoi(asked); ++i) {
      const std::string text = std::to_string(i);
      co_await c.reply(text);
      ++replied;
    }
  }

  memory_store store_;
  call_server server_{[this](served_call& c) { return answer(c); }};
  std::optional<started<void>> leading_;
  std::optional<started<void>> working_;
};

/// Takes all that comes, or up to `at_most`, and checks each against its number.
int read_numbers(reply_feed& feed, int at_most, failure& why) {
  int next = 0;
  for (;;) {
    const auto got = feed.take(20s);
    if (got.replies.empty() && !got.is_over) return -1;
    for (const bytes& each : got.replies) {
      if (text_of(each) != std::to_string(next++)) return -2;
    }
    if (got.is_over) why = got.why;
    if (got.is_over || next >= at_most) return next;
  }
}

}  // namespace

TEST_CASE("another thread takes all replies of a call in order, then its end") {
  calls c;
  for (const int count : {0, 1, 5000}) {
    reply_feed feed(c.here.rt, *c.workers, bytes_of(std::to_string(count)));
    failure why;
    CHECK(read_numbers(feed, count + 1, why) == count);
    CHECK(!why);
    // It stays over.
    CHECK(feed.take(0ms).is_over);
  }
}

TEST_CASE("no more is on its way to a feed than its window and its call's hold") {
  calls c;
  reply_feed_options options;
  options.window = 4000;
  reply_feed feed(c.here.rt, *c.workers, bytes_of("50000"), options);
  int next = 0;
  for (bool is_over = false; !is_over;) {
    const auto got = feed.take(20s);
    REQUIRE((got.is_over || !got.replies.empty()));
    for (const bytes& each : got.replies) {
      REQUIRE(text_of(each) == std::to_string(next));
      ++next;
    }
    // Of 65 bytes at the least, in 64 KiB of the call's and 4000 bytes twice.
    REQUIRE(c.replied - next < 2000);
    is_over = got.is_over;
  }
  CHECK(next == 50000);
}

TEST_CASE("dropping a feed cancels its handler") {
  calls c;
  {
    reply_feed feed(c.here.rt, *c.workers, bytes_of("hold"));
    CHECK(text_of(feed.take(20s).replies.at(0)) == "first");
    CHECK(feed.take(1ms).replies.empty());
  }
  const auto until = clock::now() + 20s;
  while (c.unwound == 0 && clock::now() < until) std::this_thread::yield();
  CHECK(c.unwound == 1);
}

TEST_CASE("dropping a feed that is full ends its task") {
  calls c;
  std::atomic<int> told{0};
  auto token = std::make_shared<int>(0);
  const std::weak_ptr<int> of_the_task = token;
  const auto until = clock::now() + 20s;
  {
    reply_feed_options options;
    options.window = 1;
    options.ready = [&told, token = std::move(token)] { ++told; };
    reply_feed feed(c.here.rt, *c.workers, bytes_of("50000"), std::move(options));
    while (told == 0 && clock::now() < until) std::this_thread::yield();
  }
  while (!of_the_task.expired() && clock::now() < until) std::this_thread::yield();
  CHECK(of_the_task.expired());
}

TEST_CASE("a loop is told nothing by a feed that it has dropped") {
  calls c;
  std::atomic<int> told{0};
  {
    reply_feed_options options;
    options.ready = [&told] { ++told; };
    reply_feed feed(c.here.rt, *c.workers, bytes_of("hold"), options);
    REQUIRE(feed.take(20s).replies.size() == 1);
  }
  const int before = told;
  const auto until = clock::now() + 20s;
  while (c.unwound == 0 && clock::now() < until) std::this_thread::yield();
  CHECK(c.unwound == 1);
  CHECK(told == before);
}

TEST_CASE("a take without a limit waits for what comes") {
  calls c;
  reply_feed_options options;
  options.limit = 20s;
  reply_feed feed(c.here.rt, *c.workers, bytes_of("hold"), options);
  CHECK(feed.take(duration::max()).replies.size() == 1);
}

TEST_CASE("a feed tells how its call failed, also when its runtime ends first") {
  calls c;
  reply_feed thrown(c.here.rt, *c.workers, bytes_of("throw"));
  const auto got = thrown.take(20s);
  CHECK(got.is_over);
  CHECK(got.why.cause == cause::handler_failed);
  CHECK(got.why.detail == "no such model");
  reply_feed cut(c.here.rt, *c.workers, bytes_of("hold"));
  CHECK(cut.take(20s).replies.size() == 1);
  c.here.rt.stop();
  failure why;
  for (bool is_over = false; !is_over;) {
    const auto next = cut.take(20s);
    REQUIRE((next.is_over || !next.replies.empty()));
    is_over = next.is_over;
    why = next.why;
  }
  CHECK(bool(why));
}

TEST_CASE("a loop is told once that there is something, after it found nothing") {
  calls c;
  std::mutex mutex;
  std::condition_variable changed;
  int told = 0;
  reply_feed_options options;
  options.ready = [&] {
    const std::lock_guard lock(mutex);
    ++told;
    changed.notify_one();
  };
  reply_feed feed(c.here.rt, *c.workers, bytes_of("1000"), options);
  int next = 0;
  int seen = 0;
  for (bool is_over = false; !is_over;) {
    {
      std::unique_lock lock(mutex);
      REQUIRE(changed.wait_for(lock, 20s, [&] { return told > seen; }));
      seen = told;
    }
    for (;;) {
      const auto got = feed.try_take();
      for (const bytes& each : got.replies) {
        REQUIRE(text_of(each) == std::to_string(next));
        ++next;
      }
      is_over = got.is_over;
      if (got.replies.empty() || is_over) break;
    }
  }
  CHECK(next == 1000);
  // The end may be taken before it is told.
  const std::lock_guard lock(mutex);
  CHECK(told <= 1001);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
