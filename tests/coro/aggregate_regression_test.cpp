// g++ 12.2 destroys an aggregate temporary twice when its full-expression awaits.
// Whatever the interface lets a user write in an awaited expression is constructed and
// destroyed exactly once here.
#include <concepts>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coro/test_executor.hpp"
#include "manyworlds/coro/channel.hpp"
#include "manyworlds/coro/offload.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/shield.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/stop.hpp"
#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"

namespace manyworlds::testing {
namespace {

// The shapes of the library's options and arguments.
struct options {
  std::string_view name;
  int rank = 0;
  std::span<const int> ranks{};
};
static_assert(std::is_trivially_destructible_v<options>);

// A braced list becomes this class, not an initializer_list: g++ 12.2 refuses that one in
// an awaited expression ("array used as initializer").
class view_list {
 public:
  template <class... Views>
  requires(std::same_as<Views, tracked>&&...) view_list(Views... views) {
    (views_.push_back(std::move(views)), ...);
  }
  [[nodiscard]] std::size_t size() const { return views_.size(); }

 private:
  std::vector<tracked> views_;
};

struct request {  // a user's own aggregate with a destructor
  tracked token;
  std::string body;
};

task<int> with_options(options o) {
  co_await yield();
  co_return o.rank + static_cast<int>(o.name.size());
}
task<std::size_t> with_list(view_list v) {
  co_await yield();
  co_return v.size();
}
task<std::size_t> with_list_reference(const view_list& v) {
  co_await yield();
  co_return v.size();
}
task<std::string> with_request(request r) {
  co_await yield();
  co_return r.body;
}
task<void> with_request_in_child(request r) {
  co_await yield();
  CHECK(r.body.size() == 40);
}
task<void> with_tracked(tracked) { co_await yield(); }
task<int> with_function(const std::function<int()>& f) {
  co_await yield();
  co_return f();
}

}  // namespace

TEST_SUITE_BEGIN("awaited expressions");

TEST_CASE("options written in an awaited expression") {
  run([]() -> task<void> {
    const int a = co_await with_options({.name = "left", .rank = 1});
    CHECK(a == 5);
    const int b = co_await within(with_options({.name = "left", .rank = 2}), 1s);
    CHECK(b == 6);
  });
}

TEST_CASE("temporaries of classes with constructors end exactly once") {
  lifetimes l;
  run([&]() -> task<void> {
    co_await with_tracked(tracked(l));
    CHECK(l.alive() == 0);
    const auto n = co_await with_list({tracked(l), tracked(l), tracked(l)});
    CHECK(n == 3);
    CHECK(l.alive() == 0);
    const auto m = co_await with_list_reference({tracked(l), tracked(l)});
    CHECK(m == 2);
    CHECK(l.alive() == 0);
    co_await when_all(with_tracked(tracked(l)), with_list({tracked(l)}));
    co_await when_any(with_tracked(tracked(l)), with_list({tracked(l)}));
    co_await shield(with_tracked(tracked(l)));
    co_await within(with_tracked(tracked(l)), 1s);
    co_await stop_on(with_tracked(tracked(l)), std::stop_token());
    CHECK(l.alive() == 0);
  });
  CHECK(l.alive() == 0);
}

TEST_CASE("temporaries end exactly once when the await throws or times out") {
  lifetimes l;
  run([&]() -> task<void> {
    auto fails = [](tracked) -> task<void> {
      co_await yield();
      throw std::runtime_error("no");
    };
    auto hangs = [](tracked) -> task<void> { co_await sleep_for(1h); };
    int caught = 0;
    try {
      co_await fails(tracked(l));
    } catch (const std::runtime_error&) {
      ++caught;
    }
    try {
      co_await within(hangs(tracked(l)), 1ms);
    } catch (const timed_out&) {
      ++caught;
    }
    CHECK(caught == 2);
    CHECK(l.alive() == 0);
  });
}

TEST_CASE("named aggregates are moved through awaited expressions exactly once") {
  lifetimes l;
  run([&]() -> task<void> {
    request r{tracked(l), std::string(40, 'r')};
    const std::string body = co_await with_request(std::move(r));
    CHECK(body == std::string(40, 'r'));
    channel<request> c(2);
    request s{tracked(l), std::string(40, 's')};
    const bool is_in = co_await c.push(std::move(s));
    CHECK(is_in);
    std::optional<request> out = co_await c.pop();
    CHECK(out->body == std::string(40, 's'));
    out.reset();
    request t{tracked(l), std::string(40, 't')};
    co_await scope::run([&](scope& sc) -> task<void> {
      sc.spawn(with_request_in_child, std::move(t));
      co_return;
    });
  });
  CHECK(l.alive() == 0);
}

TEST_CASE("closures by reference in awaited expressions, capturing ones in spawn") {
  lifetimes l;
  run([&]() -> task<void> {
    int calls = 0;
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn([token = tracked(l), &calls]() -> task<void> {
        co_await yield();
        ++calls;
      });
      s.spawn(
          [&calls](tracked) -> task<void> {
            co_await yield();
            ++calls;
          },
          tracked(l));
      co_return;
    });
    auto named = [token = tracked(l), &calls](scope&) -> task<void> {
      ++calls;
      co_return;
    };
    co_await scope::run(named);
    co_await [&]() -> task<void> {
      ++calls;
      co_return;
    }();
    CHECK(calls == 4);
    std::string text(40, 'x');
    const std::function<int()> f = [text] { return static_cast<int>(text.size()); };
    const int size = co_await with_function(f);
    CHECK(size == 40);
  });
  CHECK(l.alive() == 0);
}

// Written `co_await (x ? f() : g())`, the chosen task is destroyed twice by g++ 12.2: the
// branches go into statements of their own, or into a named task.
TEST_CASE("one of two tasks is chosen by a statement, or named before it is awaited") {
  lifetimes l;
  run([&]() -> task<void> {
    for (const bool first : {true, false}) {
      std::size_t count = 0;
      if (first) {
        co_await with_tracked(tracked(l));
      } else {
        count = co_await with_list({tracked(l)});
      }
      CHECK(count == (first ? 0 : 1));
      task<std::size_t> chosen =
          first ? with_list({tracked(l)}) : with_list({tracked(l), tracked(l)});
      count = co_await std::move(chosen);
      CHECK(count == (first ? 1 : 2));
#ifdef __clang__
      count = co_await (first ? with_list({tracked(l)}) : with_list({}));
      CHECK(count == (first ? 1 : 0));
#endif
    }
  });
  CHECK(l.alive() == 0);
}

TEST_CASE("values that offload gives are constructed and destroyed exactly once") {
  lifetimes l;
  worker_thread worker;
  sync_wait([&]() -> task<void> {
    const tracked t = co_await offload(worker, [&] { return tracked(l); });
    CHECK(l.alive() == 1);
  }());
  CHECK(l.alive() == 0);
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
