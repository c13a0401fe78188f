// Tensors: what they own, what they refuse, and how other frameworks' memory becomes one.
#include "manyworlds/memory/tensor.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "official_dlpack.hpp"

namespace mw = manyworlds;

namespace {

template <class F>
std::string refusal_of(F&& make) {
  try {
    static_cast<void>(make());
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

/// A tensor of another framework, which counts how often it was released.
struct foreign_tensor {
  std::vector<float> elements = {1, 2, 3, 4, 5, 6};
  std::array<std::int64_t, 2> shape{2, 3};
  int released = 0;
  DLManagedTensorVersioned managed{};

  foreign_tensor() {
    managed.version = {1, 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) {
      ++static_cast<foreign_tensor*>(self->manager_ctx)->released;
    };
    managed.dl_tensor.data = elements.data();
    managed.dl_tensor.device = {kDLCPU, 0};
    managed.dl_tensor.ndim = 2;
    managed.dl_tensor.dtype = {kDLFloat, 32, 1};
    managed.dl_tensor.shape = shape.data();
  }
};

}  // namespace

TEST_SUITE_BEGIN("tensor");

static_assert(std::is_trivially_destructible_v<mw::shape>);
static_assert(std::is_nothrow_move_constructible_v<mw::tensor>);
static_assert(std::is_nothrow_move_assignable_v<mw::tensor>);
static_assert(!std::is_copy_constructible_v<mw::tensor>);

TEST_CASE("a shape has lengths, and the number of elements that they make") {
  const mw::shape rows(2, 3);
  CHECK(rows.dimensions() == 2);
  CHECK(rows[1] == 3);
  CHECK(rows.elements() == 6);
  CHECK(rows.text() == "[2, 3]");
  CHECK(mw::shape().elements() == 1);
  CHECK(mw::shape().text() == "[]");
  CHECK(mw::shape(4, 0, 5).elements() == 0);
  CHECK(rows == mw::shape(std::vector<std::int64_t>{2, 3}));
  CHECK_FALSE(rows == mw::shape(3, 2));
  CHECK_FALSE(mw::shape(2) == mw::shape(2, 0));
}

TEST_CASE("a shape that no memory could have is refused with its lengths") {
  CHECK(refusal_of([] { return mw::shape(2, -1); }) ==
        "shape [2, -1]: a negative length");
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  CHECK(
      refusal_of([&] { return mw::shape(huge, 2); }).ends_with("than memory has bytes"));
  CHECK(refusal_of([&] { return mw::shape(huge, huge, huge); }) != "");
  // Nothing is nothing, however long the other dimensions are.
  CHECK(mw::shape(huge, huge, 0).elements() == 0);
  const std::vector<std::int64_t> many(9, 1);
  CHECK(refusal_of([&] { return mw::shape(many); }) ==
        "a shape of 9 dimensions: a tensor has at most 8");
}

TEST_CASE("a tensor owns memory for its elements, at a multiple of 64 bytes") {
  mw::tensor x({2, 3}, mw::dtype::float32);
  CHECK(x.count() == 6);
  CHECK(x.size_bytes() == 24);
  CHECK(reinterpret_cast<std::uintptr_t>(x.data()) % 64 == 0);
  CHECK(x.place().is_host());
  for (float& each : x.as<float>()) each = 7;
  CHECK(x.view().data() == x.data());
  CHECK(x.view().count() == 6);

  mw::tensor y = std::move(x);
  CHECK(y.as<float>()[5] == 7);
  CHECK(x.empty());  // NOLINT(bugprone-use-after-move): a moved-from one is empty
  CHECK(x.shape() == mw::shape(0));
  y.reshape({3, 2, 1});
  CHECK(y.shape()[2] == 1);
  CHECK(y.as<float>()[0] == 7);

  const mw::tensor zeros = mw::tensor::zeros({100}, mw::dtype::int64);
  for (const std::int64_t each : zeros.as<std::int64_t>()) CHECK(each == 0);
  CHECK(mw::tensor({0, 5}, mw::dtype::bfloat16).empty());
  CHECK(mw::tensor(mw::shape(), mw::dtype::float64).count() == 1);
}

TEST_CASE(
    "a copy has the values, and a shape with another number of elements is refused") {
  const std::vector<int> values{1, 2, 3, 4};
  const mw::tensor x = mw::tensor::copy_of(values, {2, 2});
  CHECK(x.type() == mw::dtype::int32);
  CHECK(x.as<int>()[3] == 4);
  CHECK(x.data() != values.data());
  CHECK(mw::tensor::copy_of(values).shape() == mw::shape(4));
  CHECK(refusal_of([&] { return mw::tensor::copy_of(values, {3}); }) ==
        "tensor of shape [3]: it has 3 elements, and the view has 4");
  mw::tensor y = mw::tensor::copy_of(values);
  CHECK(refusal_of([&] { return y.reshape({5}), 0; }) ==
        "tensor of shape [5]: it has 5 elements, and the tensor has 4");
  CHECK(y.shape() == mw::shape(4));
}

TEST_CASE("elements are not read as those of another type") {
  mw::tensor x({2}, mw::dtype::float32);
  CHECK(refusal_of([&] { return x.as<int>().size(); }) ==
        "tensor of shape [2], float32, in host memory: its elements are no int32");
  CHECK(refusal_of([&] { return mw::tensor({2}, static_cast<mw::dtype>(77)); }) != "");
}

TEST_CASE("elements of a pool are given back with the tensor") {
  const auto registry = std::make_shared<mw::detail::pool_registry>();
  mw::shared_pool pool(registry, 1 << 16);
  for (int i = 0; i < 1000; ++i) {
    mw::tensor x({60'000}, mw::dtype::uint8, pool);
    std::memset(x.data(), i, x.size_bytes());
  }
  CHECK_THROWS_AS(mw::tensor({50'000'000}, mw::dtype::uint8, pool), std::bad_alloc);
}

TEST_CASE("device memory is referred to, kept, and never read by the host") {
  const auto owner = std::make_shared<int>(0);
  auto* const stream = reinterpret_cast<CUstream_st*>(std::uintptr_t{16});
  float elements[4];
  mw::tensor x({2, 2}, mw::device_view(elements, 4, stream), 1, owner);
  CHECK(owner.use_count() == 2);
  CHECK(x.place().device == 1);
  CHECK(x.device_view().data() == elements);
  CHECK(x.stream() == mw::device_stream(stream));
  CHECK(refusal_of([&] { return x.view(); }) ==
        "tensor of shape [2, 2], float32, on device 1: the host cannot read it; copy it "
        "first");
  CHECK(refusal_of([&] { return x.as<float>().size(); }) != "");
  mw::tensor host({4}, mw::dtype::float32);
  CHECK(
      refusal_of([&] { return host.device_view(); }) ==
      "tensor of shape [4], float32, in host memory: a device view is of device memory");
  CHECK(refusal_of([&] {
          return mw::tensor({2}, mw::device_view(elements, 2, stream), -1, owner);
        }) == "tensor of device memory: there is no device -1");
  x = mw::tensor();
  CHECK(owner.use_count() == 1);
}

TEST_CASE("another framework's tensor is shared, and released once") {
  foreign_tensor given;
  {
    mw::tensor x = mw::tensor::adopt(&given.managed);
    CHECK(x.data() == given.elements.data());
    CHECK(x.shape() == mw::shape(2, 3));
    CHECK(x.type() == mw::dtype::float32);
    x.as<float>()[1] = 20;
    CHECK(given.elements[1] == 20);
    const mw::tensor y = std::move(x);
    CHECK(given.released == 0);
  }
  CHECK(given.released == 1);
}

TEST_CASE("a foreign tensor that is refused is released at once") {
  foreign_tensor read_only;
  read_only.managed.flags = mw::dlpack::flag_read_only;
  CHECK(refusal_of([&] { return mw::tensor::adopt(&read_only.managed); }) != "");
  CHECK(read_only.released == 1);
  foreign_tensor deep;
  std::vector<std::int64_t> ones(9, 1);
  deep.managed.dl_tensor.shape = ones.data();
  deep.managed.dl_tensor.ndim = 9;
  CHECK(refusal_of([&] { return mw::tensor::adopt(&deep.managed); }) ==
        "a shape of 9 dimensions: a tensor has at most 8");
  CHECK(deep.released == 1);
  foreign_tensor another;
  another.managed.version.major = 2;
  CHECK(refusal_of([&] { return mw::tensor::adopt(&another.managed); }) != "");
  CHECK(another.released == 1);
  DLManagedTensor* const none = nullptr;
  CHECK(refusal_of([&] { return mw::tensor::adopt(none); }) ==
        "a null pointer is no DLPack tensor");
}

TEST_CASE("a foreign tensor on a device stays there") {
  foreign_tensor given;
  given.managed.dl_tensor.device = {kDLCUDA, 3};
  auto* const stream = reinterpret_cast<CUstream_st*>(std::uintptr_t{16});
  mw::tensor x = mw::tensor::adopt(&given.managed, stream);
  CHECK(x.place().device == 3);
  CHECK(x.stream() == mw::device_stream(stream));
  CHECK(x.shape() == mw::shape(2, 3));
}

TEST_CASE("a tensor that is given away keeps its memory until it is released") {
  const std::vector<float> values{1, 2, 3, 4};
  mw::tensor x = mw::tensor::copy_of(values, {2, 2});
  const void* const elements = x.data();
  mw::dlpack::owned_tensor given = std::move(x).to_dlpack();
  CHECK(x.empty());  // NOLINT(bugprone-use-after-move): a moved-from one is empty
  REQUIRE(given);
  CHECK(given->dl_tensor.data == elements);
  CHECK(given->dl_tensor.ndim == 2);
  CHECK(given->dl_tensor.shape[1] == 2);
  const mw::tensor back = mw::tensor::adopt(given.release());
  CHECK(back.as<float>()[3] == 4);
  CHECK(back.data() == elements);
}

TEST_SUITE_END();
