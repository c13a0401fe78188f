// A build without CUDA: what may be called is there, and says what is missing.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/nccl/copy.hpp"
#include "manyworlds/nccl/device_buffer.hpp"
#include "manyworlds/nccl/device_count.hpp"
#include "manyworlds/nccl/on.hpp"
#include "manyworlds/nccl/owned_stream.hpp"
#include "manyworlds/nccl/pinned_pool.hpp"

namespace mw = manyworlds;

namespace {

std::string refusal(auto&& ask) {
  try {
    ask();
  } catch (const mw::device_error& e) {
    CHECK(e.code() == 0);
    return e.what();
  }
  return "accepted";
}

mw::device_stream a_stream() {
  static int address = 0;
  return reinterpret_cast<CUstream_st*>(&address);
}

mw::task<void> wait_for_stream() { co_await mw::on(a_stream()); }

mw::task<void> copy_something() {
  std::vector<float> here(4);
  const mw::const_device_view there(here.data(), here.size(), a_stream());
  co_await mw::copy(here, there);
}

}  // namespace

TEST_SUITE_BEGIN("without CUDA");

TEST_CASE(
    "a build without CUDA says so, and what to do, wherever it is asked for a GPU") {
  CHECK(MANYWORLDS_HAS_NCCL == 0);
  const char* const reason = "this build has no CUDA: build Manyworlds where";
  for (const auto& said : {
           refusal([] { (void)mw::device_count(); }),
           refusal([] { mw::device_pool pool(0); }),
           refusal([] { mw::owned_stream stream(0); }),
           refusal([] { mw::pinned_pool pool; }),
           refusal([] { mw::sync_wait(wait_for_stream()); }),
           refusal([] { mw::sync_wait(copy_something()); }),
       }) {
    INFO(said);
    CHECK(said.find(reason) != std::string::npos);
  }
}
