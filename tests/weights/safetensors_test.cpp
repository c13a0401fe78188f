// Safetensors: what a header says, which damage is named, and which bytes a part is
// (disco A33 to A41).
#include "manyworlds/weights/safetensors.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "weights/of_pypi.hpp"

namespace mw = manyworlds;

namespace {

using manyworlds_tests::bytes_of;
using manyworlds_tests::bytes_of_pypi;
using manyworlds_tests::header_of_pypi;

/// What is said of a file that has this header, and this number of bytes behind it.
std::string refusal(const std::string& header, std::uint64_t data_bytes) {
  try {
    static_cast<void>(
        mw::safetensors_header::parse(bytes_of(header), 8 + header.size() + data_bytes));
  } catch (const mw::weights_error& e) {
    return e.what();
  }
  return "";
}

std::string described(const std::string& name, const std::string& fields) {
  return "\"" + name + "\":{" + fields + "}";
}

mw::stored_tensor stored(mw::shape shape, std::uint64_t offset = 1000) {
  mw::stored_tensor made;
  made.name = "w";
  made.type = "BF16";
  made.elements = mw::dtype::bfloat16;
  made.element_bytes = 2;
  made.shape = shape;
  made.offset = offset;
  made.bytes = shape.elements() * 2;
  return made;
}

using ranges = std::vector<mw::weight_range>;

std::string slice_refusal(auto&& make) {
  try {
    static_cast<void>(make());
  } catch (const mw::weights_error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_SUITE_BEGIN("weights");

TEST_CASE("a header of PyPI's safetensors says where each tensor lies") {
  std::uint64_t length = header_of_pypi().size();
  REQUIRE(length == 408);
  const auto prefix = std::as_bytes(std::span(&length, 1));
  CHECK(mw::safetensors_header::length_in(prefix.first<8>(), bytes_of_pypi) == 408);
  const auto header =
      mw::safetensors_header::parse(bytes_of(header_of_pypi()), bytes_of_pypi);
  CHECK(header.tensors().size() == 6);
  CHECK(header.metadata().at("made by") == "ü");
  const mw::stored_tensor& w = header.at("w");
  CHECK(w.shape == mw::shape(4, 6));
  CHECK(w.elements == mw::dtype::float32);
  CHECK(w.offset == 8 + 408 + 32);
  CHECK(w.bytes == 96);
  CHECK(header.at("scalar").shape == mw::shape());
  CHECK(header.at("empty").bytes == 0);
  CHECK(header.at("mask").type == "BOOL");
  CHECK_FALSE(header.at("mask").elements.has_value());
  CHECK(header.at("mask").offset + header.at("mask").bytes == bytes_of_pypi);
  CHECK(header.find("v") == nullptr);
  CHECK(slice_refusal([&] { return header.at("v"); }) == "v: there is no such tensor");
}

TEST_CASE("a length beyond the file, or beyond what is allowed, is refused unread") {
  const auto length_in = [](std::uint64_t length, std::uint64_t file) {
    return slice_refusal([&] {
      return mw::safetensors_header::length_in(
          std::as_bytes(std::span(&length, 1)).first<8>(), file);
    });
  };
  CHECK(length_in(100, 108) == "");
  CHECK(length_in(100, 107) == "safetensors: the file ends within its header");
  CHECK(length_in(0, 4) == "safetensors: the file ends within its header");
  CHECK(length_in(std::uint64_t{1} << 40, std::uint64_t{1} << 41) ==
        "safetensors: a header of 1099511627776 bytes: at most 100000000 are allowed");
}

TEST_CASE("disco A40: damage is named with the tensor that has it") {
  const std::string four = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  CHECK(refusal("{" + described("a", four) + "}", 4) == "");
  CHECK(refusal("{}", 0) == "");
  CHECK(refusal("", 0) == "safetensors: its header does not begin with a brace");
  CHECK(refusal(" {}", 0) == "safetensors: its header does not begin with a brace");
  CHECK(refusal("{" + described("a", four), 4).starts_with("safetensors: no JSON: "));
  CHECK(refusal("{\"a\xff\":1}", 0).starts_with("safetensors: no JSON: "));
  CHECK(refusal("{" + described("a", four) + "," + described("a", four) + "}", 4) ==
        "safetensors: \"a\" stands in it twice");
  CHECK(refusal("{" + described("a", four + R"(,"shape":[1])") + "}", 4) ==
        "safetensors: \"shape\" stands in it twice");
  CHECK(refusal("{\"a\":4}", 0) == "a: it has no dtype, shape and data_offsets");
  CHECK(refusal("{\"__metadata__\":{\"a\":1}}", 0) == "__metadata__: \"a\" is no text");
  const auto with = [](const char* type, const char* shape, const char* offsets) {
    return "{" +
           described("a", std::string(R"("dtype":)") + type + R"(,"shape":)" + shape +
                              R"(,"data_offsets":)" + offsets) +
           "}";
  };
  CHECK(refusal(with(R"("F4")", "[1]", "[0,4]"), 4) ==
        "a: its dtype \"F4\" is not known");
  CHECK(refusal(with("4", "[1]", "[0,4]"), 4) == "a: its dtype is no text");
  CHECK(refusal(with(R"("F32")", "[-1]", "[0,4]"), 4) ==
        "a: its shape has a length that is no number");
  CHECK(refusal(with(R"("F32")", "[1.5]", "[0,4]"), 4) ==
        "a: its shape has a length that is no number");
  CHECK(refusal(with(R"("F32")", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4) ==
        "a: a shape of 9 dimensions: a tensor has at most 8");
  CHECK(refusal(with(R"("F32")", "[4611686018427387904,4]", "[0,4]"), 4).find("memory") !=
        std::string::npos);
  CHECK(refusal(with(R"("F32")", "[2]", "[0,4]"), 4) ==
        "a: its shape [2] of F32 does not take its 4 bytes");
  CHECK(refusal(with(R"("F32")", "[1]", "[4,0]"), 4) == "a: it ends before it begins");
  CHECK(refusal(with(R"("F32")", "[1]", "[0]"), 4) ==
        "a: its offsets are no two numbers");
  CHECK(refusal(with(R"("F32")", "[1]", "[0,4]"), 3) ==
        "a: it ends behind the end of the file");
  CHECK(refusal(with(R"("F32")", "[1]", "[0,4]"), 5) ==
        "safetensors: 1 bytes stand behind the last tensor");
  CHECK(refusal(with(R"("F32")", "[1]", "[4,8]"), 8) ==
        "a: it begins at byte 4, and what is before it ends at 0");
  const std::string overlap =
      "{" + described("a", R"("dtype":"U8","shape":[4],"data_offsets":[0,4])") + "," +
      described("b", R"("dtype":"U8","shape":[4],"data_offsets":[3,7])") + "}";
  CHECK(refusal(overlap, 7) == "b: it begins at byte 3, and what is before it ends at 4");
  CHECK(refusal(std::string(100'000, '['), 0).starts_with("safetensors: its header"));
  CHECK(refusal("{\"a\":" + std::string(100'000, '['), 0)
            .starts_with("safetensors: no JSON: "));
}

TEST_CASE("an index names files beside it, and no others") {
  const auto files = mw::parse_weight_index(bytes_of(
      R"({"metadata":{"total_size":8},"weight_map":{"a":"x-1.safetensors","b":"x-2.st"}})"));
  CHECK(files.at("a") == "x-1.safetensors");
  CHECK(files.size() == 2);
  const auto refused = [](const std::string& text) {
    return slice_refusal([&] { return mw::parse_weight_index(bytes_of(text)); });
  };
  CHECK(refused("{}") == "index of weights: it has no weight_map");
  CHECK(refused(R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})") ==
        "index of weights: \"a\" stands in it twice");
  CHECK(refused("[]") == "index of weights: its JSON is no object");
  for (const char* file : {"/etc/passwd", "../x", "..", "", "a\\u0000"}) {
    CAPTURE(file);
    CHECK(refused(std::string(R"({"weight_map":{"a":")") + file + "\"}}") ==
          "a: its file does not lie beside the index");
  }
  CHECK(refused(R"({"weight_map":{"a":1}})") == "weight_map: \"a\" is no text");
}

TEST_CASE("disco A33, A41: rows are one range, columns one for each row") {
  const mw::stored_tensor w = stored({4, 6});
  const auto all = mw::weight_slice::whole(w);
  CHECK(all.ranges() == ranges{{1000, 48, 0}});
  const auto rows = mw::weight_slice::split(w, 0, 1, 2);
  CHECK(rows.shape() == mw::shape(2, 6));
  CHECK(rows.ranges() == ranges{{1024, 24, 0}});
  const auto columns = mw::weight_slice::split(w, 1, 2, 3);
  CHECK(columns.shape() == mw::shape(4, 2));
  CHECK(columns.ranges() ==
        ranges{{1008, 4, 0}, {1020, 4, 4}, {1032, 4, 8}, {1044, 4, 12}});
  // One part of one is all, as one range.
  const auto one = mw::weight_slice::split(w, 1, 0, 1);
  CHECK(one.ranges() == ranges{{1000, 48, 0}});
  const auto nothing = mw::weight_slice::split(stored({0, 6}), 0, 1, 2);
  CHECK(nothing.ranges().empty());
}

TEST_CASE("disco A39: query, key and value are each divided, and stand together") {
  // 4 query rows and 2 each of key and value, of 3 columns.
  const mw::stored_tensor qkv = stored({8, 3}, 0);
  const std::vector<std::int64_t> pieces{4, 2, 2};
  const auto second = mw::weight_slice::split_pieces(qkv, 0, pieces, 1, 2);
  CHECK(second.shape() == mw::shape(4, 3));
  CHECK(second.ranges() == ranges{{12, 12, 0}, {30, 6, 12}, {42, 6, 18}});
}

TEST_CASE("the parts of all workers are every byte of a tensor, each once") {
  for (const mw::shape& shape : {mw::shape(4, 6, 2), mw::shape(12), mw::shape(2, 12)}) {
    for (std::size_t d = 0; d < shape.dimensions(); ++d) {
      for (const std::int64_t parts : {1, 2, 3, 6}) {
        if (shape[d] % parts != 0) continue;
        CAPTURE(shape.text());
        CAPTURE(d);
        std::vector<int> read(shape.elements() * 2);
        for (std::int64_t part = 0; part < parts; ++part) {
          const auto slice = mw::weight_slice::split(stored(shape, 0), d, part, parts);
          std::uint64_t into = 0;
          for (const mw::weight_range& range : slice.ranges()) {
            CHECK(range.into == into);
            into += range.bytes;
            for (std::uint64_t i = 0; i < range.bytes; ++i) ++read[range.offset + i];
          }
          CHECK(into == slice.shape().elements() * 2);
        }
        CHECK(std::ranges::count(read, 1) == static_cast<std::ptrdiff_t>(read.size()));
      }
    }
  }
}

TEST_CASE("disco A40: a part that there is not is named with the shape") {
  const mw::stored_tensor w = stored({4, 6});
  const std::vector<std::int64_t> short_pieces{2, 1};
  CHECK(slice_refusal([&] { return mw::weight_slice::split(w, 2, 0, 2); }) ==
        "w: shape [4, 6] has no dimension 2");
  CHECK(slice_refusal([&] { return mw::weight_slice::split(w, 0, 2, 2); }) ==
        "w: there is no part 2 of 2");
  CHECK(slice_refusal([&] { return mw::weight_slice::split(w, 0, 0, 0); }) ==
        "w: there is no part 0 of 0");
  CHECK(slice_refusal([&] { return mw::weight_slice::split(w, 0, 0, 3); }) ==
        "w: a piece of 4 of dimension 0 of shape [4, 6] does not divide into 3");
  CHECK(slice_refusal(
            [&] { return mw::weight_slice::split_pieces(w, 0, short_pieces, 0, 1); }) ==
        "w: its pieces are 3 long together, and dimension 0 of shape [4, 6] is not");
  const mw::stored_tensor scalar = stored(mw::shape());
  CHECK(slice_refusal([&] { return mw::weight_slice::split(scalar, 0, 0, 1); }) ==
        "w: shape [] has no dimension 0");
  // A row for each byte of a file that says so.
  const mw::stored_tensor wide = stored({std::int64_t{1} << 30, 2});
  CHECK(slice_refusal([&] { return mw::weight_slice::split(wide, 1, 0, 2); }) ==
        "weights: a part of a tensor in more than 16 million places");
}

TEST_SUITE_END();
