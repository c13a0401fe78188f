// The main program of all unit tests: doctest's, and a test that leaks fails.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <thread>

#include "support/entries.hpp"
#include "support/eventually.hpp"

// There under the thread sanitizer only.
extern "C" [[gnu::weak]] void __tsan_init();
// There in sanitized builds only.
extern "C" [[gnu::weak]] void __sanitizer_symbolize_pc(void* pc, const char* format,
                                                       char* text, std::size_t size);

// Defined where a library under test keeps what it opens, as those of a real GPU do, and
// where a test starts what later ones share.
extern "C" [[gnu::weak]] bool libraries_keep_what_they_open();

namespace {

using manyworlds::testing::entries;

// Those that ended and were not waited for as well.
std::set<int> children_of_all_threads() {
  std::set<int> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream children(task.path() / "children");
    found.insert(std::istream_iterator<int>(children), std::istream_iterator<int>());
  }
  return found;
}

// Says what a child is that a test has left, for a failure that does not come twice.
std::string text_of(int pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::string text = "process " + std::to_string(pid) + ':';
  std::ifstream status(folder + "/status");
  for (std::string line; std::getline(status, line);) {
    for (const char* field : {"Name:", "State:", "TracerPid:", "Threads:"}) {
      if (line.starts_with(field)) text += ' ' + line;
    }
  }
  std::replace(text.begin(), text.end(), '\t', ' ');
  // Empty for one that has ended.
  std::ifstream words(folder + "/cmdline");
  for (std::string word; std::getline(words, word, '\0');) text += " [" + word + ']';
  return text;
}

struct resources {
  std::size_t descriptors = entries("/proc/self/fd");
  std::size_t threads = entries("/proc/self/task");
  std::set<int> children = children_of_all_threads();

  bool more_than(const resources& before) const {
    return descriptors > before.descriptors || threads > before.threads ||
           children.size() > before.children.size();
  }
};

// A sanitizer starts a thread beside the program's first: no test's leak. Nor is the
// process that finds functions' names for a report. A passing test has reports under the
// thread sanitizer alone, which suppresses some; elsewhere the process would only cost
// half a second in each of a thousand children.
void start_what_sanitizers_start() {
  std::thread([] {}).join();
  char name[256];
  if (__tsan_init != nullptr && __sanitizer_symbolize_pc != nullptr)
    __sanitizer_symbolize_pc(reinterpret_cast<void*>(&children_of_all_threads), "%f",
                             name, sizeof name);
}

// The kernel takes a joined thread off its list, and a ring's pages back, a little after
// the call that ended it has returned.
resources settled(const resources& before) {
  resources now;
  auto nothing_more = [&] {
    now = resources{};
    return !now.more_than(before);
  };
  static_cast<void>(
      manyworlds::testing::eventually(nothing_more, std::chrono::seconds{20}));
  return now;
}

int leaking_tests = 0;

struct leak_listener : doctest::IReporter {
  explicit leak_listener(const doctest::ContextOptions&) {}

  void test_case_start(const doctest::TestCaseData& data) override {
    name = data.m_name;
    before = resources{};
  }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    // A failed test has left its clean-up half way, and is counted already.
    if (stats.failure_flags != 0) return;
    if (libraries_keep_what_they_open != nullptr && libraries_keep_what_they_open())
      return;
    const auto after = settled(before);
    if (!after.more_than(before)) return;
    ++leaking_tests;
    std::printf(
        "leaked in \"%s\": descriptors %zu -> %zu, threads %zu -> %zu, children %zu -> "
        "%zu\n",
        name, before.descriptors, after.descriptors, before.threads, after.threads,
        before.children.size(), after.children.size());
    for (const int each : after.children) {
      if (!before.children.contains(each))
        std::printf("  left: %s\n", text_of(each).c_str());
    }
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

  const char* name = "";
  resources before;
};

REGISTER_LISTENER("leaks", 1, leak_listener);

}  // namespace

int main(int argc, char** argv) {
  start_what_sanitizers_start();
  doctest::Context context(argc, argv);
  const int status = context.run();
  // tests/tally.py reads this line.
  if (leaking_tests > 0) std::printf("[leaks] test cases: %d\n", leaking_tests);
  return status != 0 ? status : leaking_tests > 0;
}
