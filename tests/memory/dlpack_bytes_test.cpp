// Tensors that are only passed on: their bytes, whatever their elements.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "manyworlds/memory/dlpack.hpp"
#include "manyworlds/memory/dlpack_device.hpp"
#include "official_dlpack.hpp"

namespace tensors_as_bytes {

namespace mw = manyworlds;

namespace {

using mw::dlpack::data_type;

constexpr mw::dlpack::device on_host{1, 0};
constexpr mw::dlpack::device on_cuda{2, 0};

constexpr std::uint8_t opaque = 3, complex = 5, boolean = 6;

struct hand_made {
  explicit hand_made(data_type type, std::vector<std::int64_t> extents = {3, 5})
      : shape(std::move(extents)), strides(shape.size()), element(type) {
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
      strides[i] = stride;
      stride *= shape[i];
    }
  }

  mw::dlpack::tensor tensor(mw::dlpack::device where = on_host) {
    return {memory.data(), where,        static_cast<std::int32_t>(shape.size()),
            element,       shape.data(), strides.data(),
            offset};
  }
  mw::dlpack::managed_tensor_versioned versioned(std::uint32_t minor,
                                                 std::uint64_t flags = 0,
                                                 mw::dlpack::device where = on_host) {
    return {{1, minor}, nullptr, nullptr, flags, tensor(where)};
  }

  std::array<std::byte, 4096> memory{};
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  data_type element;
  std::uint64_t offset = 0;
};

template <class Take>
std::string refusal(Take&& take) {
  try {
    take();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "accepted";
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

int a_stream = 0;
mw::device_stream stream() {
  return mw::device_stream(reinterpret_cast<CUstream_st*>(&a_stream));
}

}  // namespace

TEST_SUITE_BEGIN("dlpack_bytes");

TEST_CASE(
    "the bytes of every kind of element can be sent and received, on both memories") {
  struct row {
    const char* what;
    data_type type;
    std::size_t bytes;
  };
  // 15 elements each.
  const std::vector<row> rows{
      {"int16", {kDLInt, 16, 1}, 30},
      {"uint16", {kDLUInt, 16, 1}, 30},
      {"int32, which has a dtype", {kDLInt, 32, 1}, 60},
      {"bool", {boolean, 8, 1}, 15},
      {"complex32", {complex, 32, 1}, 60},
      {"complex64", {complex, 64, 1}, 120},
      {"complex128", {complex, 128, 1}, 240},
      {"float8_e3m4", {7, 8, 1}, 15},
      {"float8_e4m3", {8, 8, 1}, 15},
      {"float8_e4m3b11fnuz", {9, 8, 1}, 15},
      {"float8_e4m3fn", {10, 8, 1}, 15},
      {"float8_e4m3fnuz", {11, 8, 1}, 15},
      {"float8_e5m2", {12, 8, 1}, 15},
      {"float8_e5m2fnuz", {13, 8, 1}, 15},
      {"float8_e8m0fnu", {14, 8, 1}, 15},
      {"float128", {kDLFloat, 128, 1}, 240},
      {"int128", {kDLInt, 128, 1}, 240},
      {"a kind to come", {77, 24, 1}, 45},
      {"four float32", {kDLFloat, 32, 4}, 240},
      {"three bytes of one bit short of two", {kDLUInt, 15, 1}, 30},
      {"float4_e2m1fn in pairs, as torch has it", {17, 4, 2}, 15},
      {"eight bits in a vector", {kDLUInt, 1, 8}, 15},
  };
  for (const row& r : rows) {
    CAPTURE(r.what);
    hand_made t(r.type);
    t.offset = 8;
    const auto out = mw::dlpack::readable_bytes(t.tensor());
    CHECK(out.data() == t.memory.data() + 8);
    CHECK(out.size_bytes() == r.bytes);
    CHECK(out.type() == mw::dtype::uint8);
    CHECK(mw::dlpack::writable_bytes(t.versioned(0)).size_bytes() == r.bytes);
    const auto far = t.tensor(on_cuda);
    const auto device_out = mw::dlpack::readable_bytes_on_device(far, 0, stream());
    CHECK(device_out.data() == t.memory.data() + 8);
    CHECK(device_out.size_bytes() == r.bytes);
    CHECK(device_out.type() == mw::dtype::uint8);
    const auto device_in =
        mw::dlpack::writable_bytes_on_device(t.versioned(1, 0, on_cuda), 0, stream());
    CHECK(device_in.size_bytes() == r.bytes);
    CHECK(device_in.stream() == stream());
  }
}

TEST_CASE(
    "elements of less than a byte are packed, and rounded up once behind the last") {
  struct row {
    data_type type;
    std::int64_t count;
    std::size_t packed;
    std::size_t padded;
  };
  const std::vector<row> rows{
      {{17, 4, 1}, 1, 1, 1},      {{17, 4, 1}, 15, 8, 15},    {{17, 4, 1}, 16, 8, 16},
      {{16, 6, 1}, 4, 3, 4},      {{15, 6, 1}, 5, 4, 5},      {{kDLInt, 4, 1}, 3, 2, 3},
      {{kDLUInt, 1, 1}, 9, 2, 9}, {{boolean, 1, 1}, 8, 1, 8}, {{kDLUInt, 2, 3}, 5, 4, 15},
      {{kDLUInt, 7, 1}, 8, 7, 8}, {{17, 4, 2}, 5, 5, 10},
  };
  for (const row& r : rows) {
    CAPTURE(int{r.type.code});
    CAPTURE(r.count);
    hand_made t(r.type, {r.count});
    CHECK(mw::dlpack::readable_bytes(t.versioned(1)).size_bytes() == r.packed);
    CHECK(mw::dlpack::readable_bytes(t.versioned(1, mw::dlpack::flag_padded))
              .size_bytes() == r.padded);
    CHECK(mw::dlpack::writable_bytes_on_device(t.versioned(1, 0, on_cuda), 0, stream())
              .size_bytes() == r.packed);
  }
}

TEST_CASE("a tensor that does not say whether such elements are packed is refused") {
  for (const data_type type :
       {data_type{kDLUInt, 1, 1}, data_type{kDLInt, 4, 1}, data_type{boolean, 1, 1}}) {
    hand_made t(type);
    for (const std::string& said :
         {refusal([&] { (void)mw::dlpack::readable_bytes(t.tensor()); }),
          refusal([&] { (void)mw::dlpack::readable_bytes(t.versioned(0)); })}) {
      CHECK_MESSAGE(has(said, "whether elements of less than a byte are packed"), said);
    }
  }
  // These floats came with the rule.
  hand_made floats(data_type{17, 4, 1});
  CHECK(mw::dlpack::readable_bytes(floats.tensor()).size_bytes() == 8);
}

TEST_CASE("what is not one run of bytes has none: by strides, not by dimensions of one") {
  const data_type half{kDLInt, 16, 1};
  hand_made t(half, {2, 1, 4});
  t.strides[1] = 999;
  CHECK(mw::dlpack::readable_bytes(t.tensor()).size_bytes() == 16);
  t.strides[0] = 8;
  CHECK(has(refusal([&] { (void)mw::dlpack::readable_bytes(t.tensor()); }),
            "is not contiguous"));
  t.strides = {1, 1, 2};
  CHECK(has(refusal([&] { (void)mw::dlpack::writable_bytes(t.tensor()); }),
            "is not contiguous"));
  hand_made nothing(half, {3, 0, 2});
  nothing.strides = {99, 98, 97};
  CHECK(mw::dlpack::writable_bytes(nothing.tensor()).empty());
  hand_made scalar(data_type{complex, 64, 1}, {});
  CHECK(mw::dlpack::writable_bytes(scalar.tensor()).size_bytes() == 8);
  auto no_strides = t.tensor();
  no_strides.strides = nullptr;
  CHECK(mw::dlpack::readable_bytes(no_strides).size_bytes() == 16);
}

TEST_CASE("sizes, handles and memories that cannot be are refused by their bytes too") {
  hand_made handle(data_type{opaque, 64, 1});
  CHECK(has(refusal([&] { (void)mw::dlpack::readable_bytes(handle.tensor()); }),
            "a handle means nothing elsewhere"));
  for (const data_type none : {data_type{kDLInt, 0, 1}, data_type{kDLInt, 8, 0}}) {
    hand_made t(none);
    CHECK(has(refusal([&] { (void)mw::dlpack::readable_bytes(t.tensor()); }),
              "its elements have no size"));
  }
  hand_made huge(data_type{complex, 128, 65'535},
                 {std::numeric_limits<std::int64_t>::max() / 2});
  CHECK(has(refusal([&] { (void)mw::dlpack::readable_bytes(huge.tensor()); }),
            "no number of elements"));
  hand_made t(data_type{kDLInt, 16, 1});
  CHECK(has(refusal([&] { (void)mw::dlpack::readable_bytes(t.tensor(on_cuda)); }),
            "is not in host memory"));
  CHECK(has(refusal([&] {
              (void)mw::dlpack::readable_bytes_on_device(t.tensor(), 0, stream());
            }),
            "is not in CUDA device memory"));
  CHECK(has(refusal([&] {
              (void)mw::dlpack::writable_bytes(
                  t.versioned(0, mw::dlpack::flag_read_only));
            }),
            "is read-only"));
  CHECK(has(refusal([&] {
              (void)mw::dlpack::writable_bytes_on_device(
                  t.versioned(0, mw::dlpack::flag_read_only, on_cuda), 0, stream());
            }),
            "is read-only"));
}

TEST_CASE("the typed functions say which take the bytes") {
  hand_made t(data_type{kDLInt, 16, 1});
  CHECK(has(refusal([&] { (void)mw::dlpack::readable(t.tensor()); }),
            "pass it on as bytes, by readable_bytes() or writable_bytes()"));
  CHECK(has(refusal([&] {
              (void)mw::dlpack::writable_on_device(t.tensor(on_cuda), 0, stream());
            }),
            "by readable_bytes_on_device() or writable_bytes_on_device()"));
}

TEST_SUITE_END();

}  // namespace tensors_as_bytes
