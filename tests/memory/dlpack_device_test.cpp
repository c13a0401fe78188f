#include "manyworlds/memory/dlpack_device.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "official_dlpack.hpp"

namespace mw = manyworlds;

namespace {

constexpr std::int32_t host = 1;
constexpr std::int32_t cuda = 2;
constexpr std::int32_t pinned = 3;
constexpr std::int32_t managed = 13;

// Addresses only: nothing here touches a device.
struct addresses {
  std::array<float, 64> memory{};
  int a_stream = 0;
  mw::device_stream stream() {
    return mw::device_stream(reinterpret_cast<CUstream_st*>(&a_stream));
  }
};

struct matrix {
  std::array<std::int64_t, 2> shape{4, 16};
  std::array<std::int64_t, 2> strides{16, 1};
  mw::dlpack::tensor tensor(void* data, mw::dlpack::device where) {
    return {data, where, 2, {2, 32, 1}, shape.data(), strides.data(), 0};
  }
};

std::string refusal(const mw::dlpack::tensor& t, int device) {
  addresses a;
  try {
    (void)mw::dlpack::readable_on_device(t, device, a.stream());
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "accepted";
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE_BEGIN("dlpack_device");

TEST_CASE("a contiguous CUDA tensor is a device view on the stream given with it") {
  addresses a;
  matrix m;
  for (const std::int32_t type : {cuda, managed}) {
    const auto tensor = m.tensor(a.memory.data(), {type, 3});
    const mw::device_view view = mw::dlpack::writable_on_device(tensor, 3, a.stream());
    CHECK(view.data() == a.memory.data());
    CHECK(view.count() == 64);
    CHECK(view.type() == mw::dtype::float32);
    CHECK(view.stream() == a.stream());
    CHECK(mw::dlpack::readable_on_device(tensor, 3, a.stream()).count() == 64);
  }
}

TEST_CASE("a tensor of another device is refused, naming both") {
  addresses a;
  matrix m;
  const std::string said = refusal(m.tensor(a.memory.data(), {cuda, 5}), 3);
  CHECK(has(said, "is on device 5, but wanted on device 3"));
  CHECK(has(said, "cuda:5"));
  CHECK(has(said, "[4, 16]"));
}

TEST_CASE("host and pinned tensors are no device memory, and device tensors no host's") {
  addresses a;
  matrix m;
  CHECK(has(refusal(m.tensor(a.memory.data(), {host, 0}), 0), "CUDA device memory"));
  CHECK(has(refusal(m.tensor(a.memory.data(), {pinned, 0}), 0), "CUDA device memory"));
  CHECK(mw::dlpack::readable(m.tensor(a.memory.data(), {pinned, 0})).count() == 64);
  CHECK_THROWS_AS((void)mw::dlpack::readable(m.tensor(a.memory.data(), {cuda, 0})),
                  std::invalid_argument);
}

TEST_CASE("strides and lanes are refused on a device as on the host") {
  addresses a;
  matrix m;
  m.strides = {1, 4};
  CHECK(has(refusal(m.tensor(a.memory.data(), {cuda, 0}), 0), "not contiguous"));
  matrix wide;
  auto tensor = wide.tensor(a.memory.data(), {cuda, 0});
  tensor.dtype.lanes = 4;
  CHECK(has(refusal(tensor, 0), "lanes"));
}

TEST_CASE("a device tensor marked read-only cannot be received into") {
  addresses a;
  matrix m;
  DLManagedTensorVersioned official{};
  official.version = {1, 0};
  official.flags = mw::dlpack::flag_read_only;
  official.dl_tensor.data = a.memory.data();
  official.dl_tensor.device.device_type = kDLCUDA;
  official.dl_tensor.ndim = 2;
  official.dl_tensor.dtype = {2, 32, 1};
  official.dl_tensor.shape = m.shape.data();
  CHECK(mw::dlpack::readable_on_device(official, 0, a.stream()).count() == 64);
  CHECK_THROWS_AS((void)mw::dlpack::writable_on_device(official, 0, a.stream()),
                  std::invalid_argument);
}

TEST_CASE("an exported device view comes back as the same view") {
  addresses a;
  auto kept = std::make_shared<int>(1);
  const std::array<std::int64_t, 2> shape{8, 8};
  {
    const auto tensor = mw::dlpack::export_tensor(
        mw::device_view(a.memory.data(), 64, a.stream()), 2, kept, shape);
    CHECK(tensor->dl_tensor.device.device_type == cuda);
    CHECK(tensor->dl_tensor.device.device_id == 2);
    CHECK(kept.use_count() == 2);
    const auto view = mw::dlpack::writable_on_device(*tensor, 2, a.stream());
    CHECK(view.data() == a.memory.data());
    CHECK(view.count() == 64);
    const auto read_only = mw::dlpack::export_read_only(
        mw::const_device_view(a.memory.data(), 64, a.stream()), 2, nullptr);
    CHECK_THROWS_AS((void)mw::dlpack::writable_on_device(*read_only, 2, a.stream()),
                    std::invalid_argument);
  }
  CHECK(kept.use_count() == 1);
  CHECK_THROWS_AS(
      (void)mw::dlpack::export_tensor(mw::device_view(a.memory.data(), 63, a.stream()), 2,
                                      nullptr, shape),
      std::invalid_argument);
}
