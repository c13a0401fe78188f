// What a reactor looks at, and how often.
#include "io/poller_list.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

using namespace manyworlds;

TEST_SUITE_BEGIN("poller_list");

namespace {

/// Far more looks than after which one that finds nothing is quiet.
constexpr int long_quiet = 10'000;
/// Looks within which each quiet one is looked at.
constexpr int soon = 8;

class counting final : public poller {
 public:
  bool poll() noexcept override {
    ++looks;
    if (const auto act = std::exchange(does, nullptr)) act();
    return std::exchange(has_something, false) || always_has_something;
  }
  bool prepare_sleep(std::optional<duration>&) noexcept override {
    ++asked;
    return !has_something;
  }
  void cancel_sleep() noexcept override { ++awoken; }

  int looks = 0;
  int asked = 0;
  int awoken = 0;
  bool has_something = false;
  bool always_has_something = false;
  std::function<void()> does;
};

/// The pollers of a process with many links.
struct many_links {
  explicit many_links(std::size_t count) : links(count) {
    for (counting& l : links) list.add(l);
  }
  ~many_links() {
    for (counting& l : links) list.remove(l);
  }

  bool look(int times = 1) {
    bool found = false;
    for (int n = 0; n < times; ++n) {
      found = list.look([this](work_kind) { return is_used_up; });
    }
    return found;
  }
  int looks() const {
    int all = 0;
    for (const counting& l : links) all += l.looks;
    return all;
  }

  std::vector<counting> links;
  poller_list list;
  bool is_used_up = false;
};

}  // namespace

TEST_CASE("pollers that have long found nothing take turns, and none waits for long") {
  many_links m(32);
  m.look(long_quiet);
  const int before = m.looks();
  m.look(soon);
  CHECK(m.looks() - before == 32);
  for (counting& l : m.links) {
    l.has_something = true;
    bool found = false;
    for (int n = 0; n < soon && !found; ++n) found = m.look();
    CHECK(found);
    CHECK(!l.has_something);
  }
}

TEST_CASE("a poller that finds something again is looked at in each look") {
  many_links m(32);
  m.look(long_quiet);
  counting& active = m.links[7];
  active.has_something = true;
  m.look(soon);
  REQUIRE(!active.has_something);
  const int before = active.looks;
  m.look(100);
  CHECK(active.looks == before + 100);
}

TEST_CASE("law 9: pollers that use up each turn hold up no quiet one, nor one another") {
  many_links m(8);
  m.look(long_quiet);
  for (std::size_t at : {std::size_t{0}, std::size_t{5}, std::size_t{7}}) {
    m.links[at].always_has_something = true;
  }
  m.look(2 * soon);
  m.is_used_up = true;
  counting& quiet = m.links[3];
  quiet.has_something = true;
  const int before_0 = m.links[0].looks;
  const int before_5 = m.links[5].looks;
  m.look(2 * soon);
  CHECK(!quiet.has_something);
  CHECK(m.links[0].looks >= before_0 + 3);
  CHECK(m.links[5].looks >= before_5 + 3);
}

TEST_CASE("laws 2 and 9: who has not looked for long looks at all") {
  many_links m(32);
  m.look(long_quiet);
  m.list.look_at_all_next();
  m.links[0].always_has_something = m.links[31].always_has_something = true;
  m.is_used_up = true;
  std::vector<int> before;
  for (const counting& l : m.links) before.push_back(l.looks);
  // A look that is cut short goes on in the next.
  m.look(3);
  for (std::size_t at = 0; at < m.links.size(); ++at) {
    CHECK(m.links[at].looks > before[at]);
  }
}

TEST_CASE("a look at all does not lead to another") {
  many_links m(320);
  m.look(long_quiet);
  m.list.look_at_all_next();
  m.look();
  for (const int expected : {320 / soon, 320, 320 / soon, 320}) {
    const int before = m.looks();
    m.list.look_at_all_next();
    m.look();
    CHECK(m.looks() - before == expected);
  }
}

TEST_CASE("all are asked before a sleep, and all are looked at after it") {
  many_links m(32);
  m.look(long_quiet);
  std::optional<duration> limit;
  CHECK(m.list.prepare_sleep(limit));
  for (const counting& l : m.links) CHECK(l.asked == 1);
  m.list.cancel_sleep();
  const int before = m.looks();
  for (const counting& l : m.links) CHECK(l.awoken == 1);
  m.look();
  CHECK(m.looks() - before == 32);
}

TEST_CASE("a quiet poller that has something prevents a sleep and is looked at next") {
  many_links m(32);
  m.look(long_quiet);
  m.links[19].has_something = true;
  std::optional<duration> limit;
  CHECK(!m.list.prepare_sleep(limit));
  m.list.cancel_sleep();
  for (const counting& l : m.links) CHECK(l.awoken == l.asked);
  CHECK(m.look());
  CHECK(!m.links[19].has_something);
}

TEST_CASE("pollers leave, end and come while they are looked at, quiet or not") {
  for (const int looks_before : {1, long_quiet}) {
    poller_list list;
    const auto look = [&list] { return list.look([](work_kind) { return false; }); };
    std::vector<std::unique_ptr<counting>> all;
    for (int n = 0; n < 5; ++n) {
      all.push_back(std::make_unique<counting>());
      list.add(*all.back());
    }
    for (int n = 0; n < looks_before; ++n) look();
    // The third takes out its neighbours and itself, and puts itself back.
    counting& acts = *all[2];
    acts.does = [&] {
      for (const std::size_t gone : {std::size_t{1}, std::size_t{3}}) {
        list.remove(*all[gone]);
        all[gone].reset();
      }
      list.remove(acts);
      list.add(acts);
    };
    acts.has_something = true;
    for (int n = 0; n < soon; ++n) look();
    CHECK(!acts.has_something);
    const int before = acts.looks;
    look();
    CHECK(acts.looks == before + 1);
    for (const auto& p : all) {
      if (p) list.remove(*p);
    }
    CHECK(list.empty());
    CHECK(!look());
  }
}

TEST_SUITE_END();
