#include "manyworlds/memory/dlpack.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "official_dlpack.hpp"

namespace mw = manyworlds;

namespace {

struct described {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  bool null_strides = false;
  mw::dlpack::data_type type{2, 32, 1};
  mw::dlpack::device where{1, 0};
  void* data = nullptr;
  std::uint64_t offset = 0;

  mw::dlpack::tensor tensor() {
    return {data,  where,        static_cast<std::int32_t>(shape.size()),
            type,  shape.data(), null_strides ? nullptr : strides.data(),
            offset};
  }
};

std::string refusal(described d) {
  std::array<float, 64> memory{};
  if (d.data == nullptr) d.data = memory.data();
  try {
    (void)mw::dlpack::readable(d.tensor());
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_SUITE_BEGIN("dlpack");

static_assert(sizeof(mw::dlpack::tensor) == sizeof(DLTensor));
static_assert(offsetof(mw::dlpack::tensor, byte_offset) ==
              offsetof(DLTensor, byte_offset));
static_assert(offsetof(mw::dlpack::tensor, dtype) == offsetof(DLTensor, dtype));
static_assert(sizeof(mw::dlpack::managed_tensor) == sizeof(DLManagedTensor));
static_assert(sizeof(mw::dlpack::managed_tensor_versioned) ==
              sizeof(DLManagedTensorVersioned));
static_assert(offsetof(mw::dlpack::managed_tensor_versioned, deleter) ==
              offsetof(DLManagedTensorVersioned, deleter));
static_assert(offsetof(mw::dlpack::managed_tensor_versioned, dl_tensor) ==
              offsetof(DLManagedTensorVersioned, dl_tensor));
static_assert(mw::dlpack::plain_tensor<DLTensor>);
static_assert(mw::dlpack::any_managed_tensor<DLManagedTensorVersioned>);
static_assert(!mw::dlpack::plain_tensor<DLManagedTensor> &&
              !mw::dlpack::plain_tensor<int>);

TEST_CASE("a contiguous tensor is a view of its elements, behind the offset") {
  std::array<float, 64> memory{};
  described d{.shape = {2, 3, 4}, .strides = {12, 4, 1}};
  d.data = memory.data();
  d.offset = 8;
  const auto view = mw::dlpack::writable(d.tensor());
  CHECK(view.data() == memory.data() + 2);
  CHECK(view.count() == 24);
  CHECK(view.type() == mw::dtype::float32);

  d.null_strides = true;
  CHECK(mw::dlpack::readable(d.tensor()).count() == 24);
  described scalar{};
  scalar.data = memory.data();
  CHECK(mw::dlpack::readable(scalar.tensor()).count() == 1);
}

TEST_CASE("strides along dimensions of one, and of tensors of nothing, do not matter") {
  CHECK(refusal({.shape = {2, 1, 4}, .strides = {4, 999, 1}}) == "accepted");
  CHECK(refusal({.shape = {1, 5}, .strides = {-7, 1}}) == "accepted");
  CHECK(refusal({.shape = {3, 0, 2}, .strides = {99, 98, 97}}) == "accepted");
  described nothing{.shape = {0}, .strides = {1}};
  CHECK(mw::dlpack::writable(nothing.tensor()).empty());
}

TEST_CASE("pinned host memory is host memory") {
  CHECK(refusal({.shape = {4}, .strides = {1}, .where = {3, 0}}) == "accepted");
  CHECK(refusal({.shape = {4}, .strides = {1}, .where = {11, 0}}) == "accepted");
}

TEST_CASE("every element type has its code, and no other code passes") {
  const auto type_of = [](std::uint8_t code, std::uint8_t bits) {
    std::array<double, 1> memory{};
    described d{.shape = {1}, .strides = {1}, .type = {code, bits, 1}};
    d.data = memory.data();
    return mw::dlpack::readable(d.tensor()).type();
  };
  CHECK(type_of(kDLInt, 8) == mw::dtype::int8);
  CHECK(type_of(kDLInt, 64) == mw::dtype::int64);
  CHECK(type_of(kDLUInt, 32) == mw::dtype::uint32);
  CHECK(type_of(kDLFloat, 16) == mw::dtype::float16);
  CHECK(type_of(kDLFloat, 64) == mw::dtype::float64);
  CHECK(type_of(kDLBfloat, 16) == mw::dtype::bfloat16);
  CHECK(type_of(10, 8) == mw::dtype::float8_e4m3);
  CHECK(type_of(12, 8) == mw::dtype::float8_e5m2);
  int passed = 0;
  for (int code = 0; code < 256; ++code) {
    for (int bits = 0; bits < 256; ++bits) {
      const mw::dlpack::data_type type{static_cast<std::uint8_t>(code),
                                       static_cast<std::uint8_t>(bits), 1};
      passed += refusal({.shape = {1}, .strides = {1}, .type = type}) == "accepted";
    }
  }
  CHECK(passed == static_cast<int>(mw::dtype_count));
}

TEST_CASE("what cannot be a view is refused with shape, strides, type and device") {
  CHECK(refusal({.shape = {2, 3}, .strides = {1, 2}}) ==
        "dlpack tensor of shape [2, 3], strides [1, 2], float32, on cpu:0: "
        "is not contiguous; make a contiguous copy");
  CHECK(refusal({.shape = {4}, .strides = {1}, .where = {2, 1}}) ==
        "dlpack tensor of shape [4], strides [1], float32, on cuda:1: "
        "is not in host memory; copy it there first");
  CHECK(refusal({.shape = {4}, .strides = {1}, .type = {6, 8, 1}}) ==
        "dlpack tensor of shape [4], strides [1], bool8, on cpu:0: "
        "no element type of messages; pass it on as bytes, by readable_bytes() or "
        "writable_bytes()");
  CHECK(refusal({.shape = {4}, .strides = {1}, .type = {2, 32, 4}}) ==
        "dlpack tensor of shape [4], strides [1], float32 x 4 lanes, on cpu:0: "
        "vector lanes are not supported; pass it on as bytes, by readable_bytes() or "
        "writable_bytes()");
  CHECK(refusal({.shape = {4}, .strides = {1}, .where = {77, 0}})
            .find("device type 77:0") != std::string::npos);
}

TEST_CASE("a corrupt tensor is refused before it is looked into") {
  CHECK(refusal({.shape = {-1}, .strides = {1}}).find("no number of elements") !=
        std::string::npos);
  const std::int64_t huge = std::int64_t{1} << 40;
  CHECK(refusal({.shape = {huge, huge}, .strides = {huge, 1}})
            .find("no number of elements") != std::string::npos);
  described d{};
  auto t = d.tensor();
  t.ndim = -3;
  CHECK_THROWS_AS((void)mw::dlpack::readable(t), std::invalid_argument);
  t.ndim = 1 << 30;
  CHECK_THROWS_AS((void)mw::dlpack::readable(t), std::invalid_argument);
  t.ndim = 2;
  t.shape = nullptr;
  CHECK_THROWS_AS((void)mw::dlpack::readable(t), std::invalid_argument);
  described null{.shape = {4}, .strides = {1}};
  CHECK_THROWS_AS((void)mw::dlpack::readable(null.tensor()), std::invalid_argument);
}

TEST_CASE(
    "an offset that leads around the end of memory, to null or beyond, is refused") {
  std::array<float, 4> memory{};
  described d{.shape = {1}, .strides = {1}};
  d.data = memory.data();
  const std::uint64_t to_null =
      0 - std::uint64_t{reinterpret_cast<std::uintptr_t>(d.data)};
  for (const std::uint64_t offset : {to_null, to_null + 8, ~std::uint64_t{0}}) {
    d.offset = offset;
    CHECK(refusal(d).find("offset") != std::string::npos);
    CHECK_THROWS_AS((void)mw::dlpack::readable_bytes(d.tensor()), std::invalid_argument);
  }
}

TEST_CASE("a managed tensor of the official header reads like ours and goes back once") {
  std::array<std::int32_t, 6> memory{};
  std::array<std::int64_t, 2> shape{2, 3};
  int returned = 0;
  DLManagedTensorVersioned managed{};
  managed.version = {1, 1};
  managed.manager_ctx = &returned;
  managed.deleter = [](DLManagedTensorVersioned* self) {
    ++*static_cast<int*>(self->manager_ctx);
  };
  managed.dl_tensor = {memory.data(), {kDLCPU, 0}, 2, {kDLInt, 32, 1},
                       shape.data(),  nullptr,     0};
  {
    const std::unique_ptr<DLManagedTensorVersioned, mw::dlpack::release> held{&managed};
    CHECK(mw::dlpack::writable(*held).count() == 6);

    managed.flags = 1;
    CHECK(mw::dlpack::readable(*held).count() == 6);
    CHECK_THROWS_WITH_AS(
        (void)mw::dlpack::writable(*held),
        "dlpack tensor of shape [2, 3], strides null, int32, on cpu:0: is "
        "read-only and cannot be received into",
        std::invalid_argument);
    managed.version.major = 2;
    CHECK_THROWS_AS((void)mw::dlpack::readable(*held), std::invalid_argument);
    CHECK(returned == 0);
  }
  CHECK(returned == 1);

  DLManagedTensor older{managed.dl_tensor, nullptr, nullptr};
  CHECK(mw::dlpack::readable(older).data() == memory.data());
}

TEST_CASE("an exported tensor keeps its memory until the consumer lets go") {
  auto memory = std::make_shared<std::vector<float>>(6);
  const std::weak_ptr<std::vector<float>> watch = memory;
  auto* const data = memory->data();
  const mw::buffer_view view{*memory};
  const std::array<std::int64_t, 2> shape{2, 3};
  auto exported = mw::dlpack::export_tensor(view, std::move(memory), shape);

  // What a consumer in C finds at the address it is given.
  DLManagedTensorVersioned theirs_copy{};
  std::memcpy(&theirs_copy, exported.get(), sizeof theirs_copy);
  const auto* const theirs = &theirs_copy;
  CHECK(!watch.expired());
  CHECK(theirs->version.major == 1);
  CHECK(theirs->flags == 0);
  CHECK(theirs->dl_tensor.data == data);
  CHECK(theirs->dl_tensor.ndim == 2);
  CHECK(theirs->dl_tensor.strides[0] == 3);
  CHECK(theirs->dl_tensor.strides[1] == 1);
  CHECK(mw::dlpack::writable(*theirs).count() == 6);
  auto* const consumed = exported.release();
  consumed->deleter(consumed);
  CHECK(watch.expired());
}

TEST_CASE("an export without a shape has one dimension, and a wrong shape is refused") {
  auto memory = std::make_shared<const std::vector<mw::bf16>>(5);
  const auto exported = mw::dlpack::export_read_only(*memory, memory);
  CHECK(exported->dl_tensor.ndim == 1);
  CHECK(exported->dl_tensor.shape[0] == 5);
  CHECK(exported->flags == mw::dlpack::flag_read_only);
  CHECK(mw::dlpack::readable(*exported).type() == mw::dtype::bfloat16);
  CHECK_THROWS_AS((void)mw::dlpack::writable(*exported), std::invalid_argument);

  const std::array<std::int64_t, 2> wrong{2, 3};
  CHECK_THROWS_WITH_AS((void)mw::dlpack::export_read_only(*memory, memory, wrong),
                       "dlpack export: shape [2, 3] does not have the view's 5 elements",
                       std::invalid_argument);
}

TEST_SUITE_END();
