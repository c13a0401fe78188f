// What g++ 12 does to a temporary closure in an awaited expression, and which spellings
// are right with every compiler.
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "coro/test_executor.hpp"
#include "manyworlds/coro/offload.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/body.hpp"

namespace manyworlds::testing {
namespace {

// Owns nothing, so that a second end does no harm but to the count.
struct counts {
  int made = 0;
  int ended = 0;
};
class counted {
 public:
  explicit counted(counts& c) noexcept : counts_(&c) { ++counts_->made; }
  counted(const counted& other) noexcept : counts_(other.counts_) { ++counts_->made; }
  counted(counted&& other) noexcept : counts_(other.counts_) { ++counts_->made; }
  ~counted() { ++counts_->ended; }

 private:
  counts* counts_;
};
struct counted_aggregate {
  counted c;
  void operator()() const {}
};

template <class F>
task<void> by_value(F f) {
  f();
  co_return;
}
template <class F>
task<void> by_value_of_function(F f) {
  return by_value(std::move(f));
}
template <class F>
task<void> forwarded(F&& f) {
  return by_value<std::decay_t<F>>(std::forward<F>(f));
}
template <class F>
task<void> by_reference(const F& f) {
  return by_value(f);
}
template <class F>
task<void> on_the_heap(F&& f) {
  auto kept = std::make_shared<std::decay_t<F>>(std::forward<F>(f));
  return by_value([kept] { (*kept)(); });
}
task<void> erased(std::function<void()> f) { return by_value(std::move(f)); }
struct converting {
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, converting>)
      // NOLINTNEXTLINE: implicit, as the parameter of a function would be.
      converting(F&& f)
      : kept(std::forward<F>(f)) {}
  std::function<void()> kept;
};
task<void> converted(converting c) { return by_value(std::move(c.kept)); }

/// What was destroyed but never made.
template <class F>
int ended_too_often(F&& awaiting) {
  counts c;
  run(awaiting(c));
  return c.ended - c.made;
}

constexpr bool twice = frees_temporary_closures_twice;

}  // namespace

TEST_SUITE_BEGIN("awaited expressions");

// The closure is broken before a function sees it, so that no shape of a parameter helps.
// Where a newer compiler makes this fail, `frees_temporary_closures_twice` may go.
TEST_CASE("g++ 12 destroys a temporary closure's captures twice, however it is taken") {
  int shapes = 0;
  const auto is_wrong = [&](auto awaiting) {
    ++shapes;
    CHECK(ended_too_often(awaiting) == (twice ? 1 : 0));
  };
  is_wrong([](counts& n) -> task<void> {
    const counted c(n);
    co_await by_value([c] {});
  });
  is_wrong([](counts& n) -> task<void> {
    const counted c(n);
    co_await by_value_of_function([c] {});
  });
  is_wrong([](counts& n) -> task<void> {
    const counted c(n);
    co_await forwarded([c] {});
  });
  is_wrong([](counts& n) -> task<void> {
    const counted c(n);
    co_await by_reference([c] {});
  });
  is_wrong([](counts& n) -> task<void> {
    const counted c(n);
    co_await on_the_heap([c] {});
  });
  is_wrong([](counts& n) -> task<void> {
    const counted c(n);
    co_await erased([c] {});
  });
  is_wrong([](counts& n) -> task<void> {
    const counted c(n);
    co_await converted([c] {});
  });
  is_wrong([](counts& n) -> task<void> {
    counted c(n);
    co_await forwarded([d = std::move(c)] {});
  });
  is_wrong([](counts& n) -> task<void> {
    const counted c(n);
    co_await forwarded([c]() mutable {});
  });
  is_wrong([](counts& n) -> task<void> {
    const counted c(n);
    co_await forwarded(std::function<void()>([c] {}));
  });
  is_wrong([](counts& n) -> task<void> {
    const counted c(n);
    co_await forwarded(counted_aggregate{c});
  });
  is_wrong([](counts& n) -> task<void> {
    const counted c(n);
    co_await [c]() -> task<void> { co_return; }();
  });
  CHECK(shapes == 12);
}

TEST_CASE("closures with a name, by reference, bound or made elsewhere end once") {
  const auto is_right = [](auto awaiting) { CHECK(ended_too_often(awaiting) == 0); };
  is_right([](counts& n) -> task<void> {
    const auto named = [c = counted(n)] {};
    co_await forwarded(named);
  });
  is_right([](counts& n) -> task<void> {
    auto named = [c = counted(n)] {};
    co_await forwarded(std::move(named));
  });
  is_right([](counts& n) -> task<void> {
    const counted c(n);
    co_await forwarded([&] { (void)c; });
  });
  is_right([](counts& n) -> task<void> {
    co_await forwarded(std::bind_front([](const counted&) {}, counted(n)));
  });
  is_right([](counts& n) -> task<void> {
    const counted c(n);
    task<void> named = forwarded([c] {});
    co_await std::move(named);
  });
  is_right([](counts& n) -> task<void> {
    const counted c(n);
    co_await [&] { return forwarded([c] {}); }();
  });
}

TEST_CASE("call_in_task may be spawned, named and waited for with what captures") {
  counts n;
  {
    const counted c(n);
    int calls = 0;
    run([&]() -> task<void> {
      task<void> named = call_in_task([c, &calls]() -> task<void> {
        ++calls;
        co_return;
      });
      co_await std::move(named);
      co_await scope::run([&](scope& s) -> task<void> {
        s.spawn(call_in_task([c, &calls]() -> task<void> {
          ++calls;
          co_return;
        }));
        co_return;
      });
      co_await call_in_task(std::bind_front(
          [](int& count, const counted&) -> task<void> {
            ++count;
            co_return;
          },
          std::ref(calls), c));
    });
    sync_wait(call_in_task([c, &calls]() -> task<void> {
      ++calls;
      co_return;
    }));
    CHECK(calls == 4);
  }
  CHECK(n.made == n.ended);
}

namespace {
using closure = decltype([c = std::shared_ptr<int>()] { (void)c; });
using by_reference_closure = decltype([] {});
using bound =
    decltype(std::bind_front([](const std::shared_ptr<int>&) {}, std::shared_ptr<int>()));
using bound_counted =
    decltype(std::bind_front([](const counted&) {}, std::declval<counted>()));
using bound_closure = decltype(std::bind_front(std::declval<closure>(), 1));

}  // namespace
static_assert(may_be_freed_twice<closure> == twice);
static_assert(may_be_freed_twice<const closure> == twice);
static_assert(may_be_freed_twice<counted_aggregate> == twice);
static_assert(!may_be_freed_twice<closure&>);
static_assert(!may_be_freed_twice<const closure&>);
static_assert(!may_be_freed_twice<by_reference_closure>);
static_assert(!may_be_freed_twice<bound>);
static_assert(!may_be_freed_twice<std::function<void()>>);
static_assert(!may_be_freed_twice<bound_counted>);
static_assert(may_be_freed_twice<bound_closure> == twice);

TEST_SUITE_END();
}  // namespace manyworlds::testing
