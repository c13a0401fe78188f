// Robust words: held to the last moment, let go in order, and never left saying that a
// dead thread lives.
#include "link/robust_word.hpp"

#include <pthread.h>

#include <random>
#include <thread>

#include "death_fixture.hpp"

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("robust word");

namespace {

using shm::life_word;
using shm::robust_step;
using shm::robust_word;
using shm::robust_words;

bool says_dead(const life_word& word) { return (word.load() & FUTEX_OWNER_DIED) != 0; }
bool says_nobody(const life_word& word) {
  return (word.load() & ~std::uint32_t{FUTEX_WAITERS}) == 0;
}

constexpr robust_step hold_steps[] = {robust_step::announced, robust_step::written,
                                      robust_step::woken, robust_step::listed,
                                      robust_step::settled};
constexpr robust_step release_steps[] = {robust_step::announced, robust_step::listed,
                                         robust_step::written, robust_step::woken,
                                         robust_step::settled};

/// Ends the process as a kill from outside does, at one step.
struct killed_at {
  robust_step when;
  void operator()(robust_step now) const noexcept {
    if (now == when) ::kill(::getpid(), SIGKILL);
  }
};

}  // namespace

TEST_CASE("a thread that ends holding a word is dead, whatever becomes of its process") {
  word_page page;
  std::unique_ptr<robust_words> words;
  std::unique_ptr<robust_word> word;
  std::thread([&] {
    words = std::make_unique<robust_words>();
    word = std::make_unique<robust_word>(*words, page.at(3));
    CHECK(word->hold());
    CHECK(page.word(3).load() == static_cast<std::uint32_t>(::gettid()));
    CHECK(words->size() == 1);
  }).join();
  // A joined thread has let go of its memory, which the kernel does after this.
  CHECK(says_dead(page.word(3)));
  word = nullptr;
  CHECK(says_dead(page.word(3)));
}

TEST_CASE("of words let go in any order only those still held are found at the end") {
  word_page page;
  child_process child([&](child_process::voice v) {
    robust_words words;
    robust_word a(words, page.at(0)), b(words, page.at(1)), c(words, page.at(2)),
        d(words, page.at(3));
    for (robust_word* w : {&a, &b, &c, &d}) {
      if (!w->hold()) ::_exit(2);
    }
    b.release();
    d.release();
    a.release();
    if (!b.hold() || words.size() != 2) ::_exit(2);
    v.say();
    v.wait_for_ever();
  });
  REQUIRE(child.hear());
  child.kill();
  child.reap();
  CHECK(page.word(0).load() == 0);
  CHECK(says_dead(page.word(1)));
  CHECK(says_dead(page.word(2)));
  CHECK(page.word(3).load() == 0);
}

TEST_CASE(
    "killed between any two steps, a word that was written and not cleared is dead") {
  for (const bool watched : {false, true}) {
    CAPTURE(watched);
    for (const robust_step when : hold_steps) {
      CAPTURE(static_cast<int>(when));
      word_page page;
      if (watched) page.word().store(FUTEX_WAITERS);
      child_process child([&](child_process::voice) {
        robust_words words;
        robust_word word(words, page.at(0));
        word.hold(killed_at{when});
      });
      CHECK(WIFSIGNALED(child.reap()));
      const bool was_promised = when != robust_step::announced;
      CHECK(says_dead(page.word()) == was_promised);
      CHECK(says_nobody(page.word()) == !was_promised);
      // Killed before the holder woke the watcher, the kernel must know of it.
      if (watched && when == robust_step::written)
        CHECK((page.word().load() & FUTEX_WAITERS) != 0);
    }
    for (const robust_step when : release_steps) {
      CAPTURE(static_cast<int>(when));
      word_page page;
      if (watched) page.word().store(FUTEX_WAITERS);
      child_process child([&](child_process::voice) {
        robust_words words;
        robust_word word(words, page.at(0));
        if (!word.hold()) ::_exit(2);
        word.release(killed_at{when});
      });
      CHECK(WIFSIGNALED(child.reap()));
      const bool still_held =
          when == robust_step::announced || when == robust_step::listed;
      CHECK(says_dead(page.word()) == still_held);
      CHECK(says_nobody(page.word()) == !still_held);
    }
  }
}

TEST_CASE("killed at any moment, a word never says that the dead thread holds it") {
  std::mt19937 random(20261121);
  std::uniform_int_distribution<int> moment(0, 300);
  int deaths = 0;
  int goodbyes = 0;
  for (int i = 0; i < 60; ++i) {
    word_page page;
    child_process child([&](child_process::voice v) {
      robust_words words;
      robust_word first(words, page.at(0));
      robust_word second(words, page.at(1));
      v.say();
      for (;;) {
        first.hold();
        second.hold();
        first.release();
        second.release();
      }
    });
    REQUIRE(child.hear());
    const auto until = steady::now() + std::chrono::microseconds(moment(random));
    // Where it shares our CPU it runs only meanwhile.
    while (steady::now() < until) std::this_thread::yield();
    child.kill();
    child.reap();
    for (const std::size_t at : {0u, 1u}) {
      CHECK((says_dead(page.word(at)) || says_nobody(page.word(at))));
      ++(says_dead(page.word(at)) ? deaths : goodbyes);
    }
  }
  CHECK(deaths > 0);
  CHECK(goodbyes > 0);
}

TEST_CASE("no more words are held than the kernel reads at the end of a thread") {
  word_page page;
  std::thread([&] {
    robust_words words;
    std::vector<std::unique_ptr<word_page>> pages;
    std::vector<std::unique_ptr<robust_word>> held;
    for (std::size_t i = 0; i < robust_words::most; ++i) {
      if (i % word_page::words == 0) pages.push_back(std::make_unique<word_page>());
      held.push_back(
          std::make_unique<robust_word>(words, pages.back()->at(i % word_page::words)));
      REQUIRE(held.back()->hold());
    }
    robust_word one_more(words, page.at(0));
    CHECK_FALSE(one_more.hold());
    CHECK(page.word().load() == 0);
    held.pop_back();
    CHECK(one_more.hold());
    one_more.release();
    held.clear();
  }).join();
}

TEST_CASE(
    "glibc's own list is back when ours is gone: a robust mutex tells of its owner") {
  pthread_mutexattr_t robust;
  ::pthread_mutexattr_init(&robust);
  ::pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_t mutex;
  ::pthread_mutex_init(&mutex, &robust);
  std::thread([&] {
    { robust_words words; }
    ::pthread_mutex_lock(&mutex);
  }).join();
  CHECK(::pthread_mutex_lock(&mutex) == EOWNERDEAD);
  ::pthread_mutex_consistent(&mutex);
  ::pthread_mutex_unlock(&mutex);
  ::pthread_mutex_destroy(&mutex);
  ::pthread_mutexattr_destroy(&robust);
}

TEST_CASE("a forked child neither lets go of its parent's words nor takes them with it") {
  word_page page;
  std::thread([&] {
    robust_words words;
    robust_word word(words, page.at(0));
    REQUIRE(word.hold());
    const std::uint32_t held = page.word().load();
    child_process child([&](child_process::voice) {
      word.release();
      ::_exit(words.is_mine() ? 2 : 0);
    });
    const int status = child.reap();
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(page.word().load() == held);
  }).join();
  CHECK(page.word().load() == 0);
}

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
