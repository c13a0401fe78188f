// The main program of all unit tests: doctest's, and a test that leaks fails.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <thread>

namespace {

std::size_t entries(const char* directory) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(directory))
    ++count;
  return count;
}

struct resources {
  std::size_t descriptors = entries("/proc/self/fd");
  std::size_t threads = entries("/proc/self/task");
  bool children = [] {
    siginfo_t info{};
    return ::waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) == 0;
  }();

  bool more_than(const resources& before) const {
    return descriptors > before.descriptors || threads > before.threads ||
           (children && !before.children);
  }
};

// The kernel takes a joined thread off its list, and a ring's pages back, a little after
// the call that ended it has returned.
resources settled(const resources& before) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds{2};
  resources now;
  while (now.more_than(before) && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::yield();
    now = resources{};
  }
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
    const auto after = settled(before);
    if (!after.more_than(before)) return;
    ++leaking_tests;
    std::printf(
        "leaked in \"%s\": descriptors %zu -> %zu, threads %zu -> %zu, children %s\n",
        name, before.descriptors, after.descriptors, before.threads, after.threads,
        after.children ? "left" : "none");
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
  // ThreadSanitizer starts a thread of its own beside the program's first: not a test's
  // leak.
  std::thread([] {}).join();
  doctest::Context context(argc, argv);
  const int status = context.run();
  // tests/tally.py reads this line.
  if (leaking_tests > 0) std::printf("[leaks] test cases: %d\n", leaking_tests);
  return status != 0 ? status : leaking_tests > 0;
}
