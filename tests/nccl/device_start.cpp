// Makes a device's context before the first test: its threads and descriptors stay with
// the process, and are no test's leak.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include "nccl/device_fixture.hpp"

namespace {

struct starts_device : doctest::IReporter {
  explicit starts_device(const doctest::ContextOptions&) {}

  void test_run_start() override {
    if (!manyworlds::testing::no_device().empty()) return;
    // Sixty-four communicators of 10 to 12 descriptors come near the usual 1,024.
    rlimit descriptors{};
    if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
      descriptors.rlim_cur = descriptors.rlim_max;
      (void)::setrlimit(RLIMIT_NOFILE, &descriptors);
    }
    const auto& cuda = manyworlds::testing::cuda();
    if (cuda.cudaSetDevice(manyworlds::testing::first_device()) != cudaSuccess) return;
    cudaStream_t stream = nullptr;
    if (cuda.cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess)
      (void)cuda.cudaStreamDestroy(stream);
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override {
    manyworlds::testing::keeps_roots = false;
  }
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

REGISTER_LISTENER("device", 1, starts_device);

}  // namespace

// The main program asks.
extern "C" bool libraries_keep_what_they_open() {
  if (manyworlds::testing::keeps_roots) return true;
  return manyworlds::testing::no_device().empty() && !manyworlds::testing::is_emulated();
}
