// Weights that are loaded into device memory.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "io/reactor_fixture.hpp"
#include "manyworlds/nccl/copy.hpp"
#include "manyworlds/nccl/device_buffer.hpp"
#include "manyworlds/nccl/owned_stream.hpp"
#include "manyworlds/nccl/pinned_pool.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/weights/weight_files.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "nccl/device_fixture.hpp"
#include "weights/weight_folder.hpp"

namespace mw = manyworlds;
using namespace mw::testing;
using namespace manyworlds_tests;

namespace {

using loaded_bytes = std::vector<std::uint8_t>;

/// A device for weights.
class weight_device {
 public:
  mw::tensor make(const mw::shape& of, mw::dtype type) {
    const auto memory =
        std::make_shared<mw::untyped_device_buffer>(pool, of.elements(), type, stream);
    return {of, memory->view(), pool.device(), memory};
  }

  mw::device_pool pool{0};
  mw::owned_stream stream{0};
};

mw::task<loaded_bytes> bytes_on(const mw::tensor& x) {
  loaded_bytes read(x.size_bytes(), 0xee);
  const mw::const_device_view all(x.data(), x.size_bytes(), mw::dtype::uint8, x.stream());
  co_await mw::copy(read, all);
  co_return read;
}

mw::task<loaded_bytes> bytes_in_host(const mw::weight_files& weights, std::string name,
                                     mw::weight_slice part) {
  const mw::tensor x = co_await weights.load(name, std::move(part));
  const auto* const first = static_cast<const std::uint8_t*>(x.data());
  co_return loaded_bytes(first, first + x.size_bytes());
}

/// Loads a part into a device, through `staging`, and into the host.
mw::task<void> check_part(weight_device& on, const mw::weight_files& weights,
                          const mw::stored_tensor& stored, mw::weight_slice part,
                          mw::buffer_view staging) {
  mw::tensor there = on.make(part.shape(), stored.elements.value());
  co_await weights.load_into(there, stored.name, part, staging);
  const loaded_bytes in_host =
      co_await bytes_in_host(weights, stored.name, std::move(part));
  const loaded_bytes on_device = co_await bytes_on(there);
  CHECK(on_device == in_host);
}

mw::task<void> check_all_parts(std::string path) {
  weight_device on;
  const mw::pinned_pool pinned;
  const mw::weight_files weights = co_await mw::weight_files::open(std::move(path));
  const std::size_t request = std::size_t{1} << 20;
  mw::pinned_buffer<std::byte> two(pinned, 2 * request);
  std::vector<std::uint8_t> one(request);
  for (const std::string& name : weights.names()) {
    const mw::stored_tensor& stored = weights.at(name);
    const std::int64_t rows = stored.shape[0];
    const std::vector<std::int64_t> pieces{rows / 2, rows / 4, rows / 4};
    std::vector<mw::weight_slice> parts{mw::weight_slice::whole(stored)};
    for (std::size_t d = 0; d < stored.shape.dimensions(); ++d)
      parts.push_back(mw::weight_slice::split(stored, d, 1, 2));
    parts.push_back(mw::weight_slice::split_pieces(stored, 0, pieces, 0, 2));
    for (const mw::weight_slice& part : parts) {
      CAPTURE(part.shape().text());
      co_await check_part(on, weights, stored, part, {});
      co_await check_part(on, weights, stored, part, two);
      co_await check_part(on, weights, stored, part, one);
    }
  }
}

mw::task<void> check_refusals(std::string path) {
  weight_device on;
  const mw::weight_files weights = co_await mw::weight_files::open(std::move(path));
  std::vector<std::uint8_t> little(4096);
  mw::tensor fits = on.make(weights.at("deep").shape, mw::dtype::int8);
  mw::tensor too_small = on.make(mw::shape(7), mw::dtype::int8);
  CHECK_THROWS_AS((void)weights.load_into(fits, "deep", little), std::invalid_argument);
  CHECK_THROWS_AS((void)weights.load_into(too_small, "deep"), mw::weights_error);
}

}  // namespace

TEST_CASE("weights are the same bytes in device memory, through any staging memory") {
  NEEDS_DEVICE();
  const weight_folder folder;
  // More than a request long; short rows, rows of 64 KiB, and three dimensions.
  const std::string path = folder.write(
      "model.safetensors", safetensors_of({made_tensor("short", "BF16", 2, {8000, 96}, 1),
                                           made_tensor("long", "F32", 4, {8, 98'304}, 2),
                                           made_tensor("deep", "I8", 1, {8, 12, 6}, 3)}));
  reactor_fixture reactor{mw::engine_kind::automatic};
  reactor.run(check_all_parts(path));
}

TEST_CASE("device memory, or staging memory, that does not fit weights is refused") {
  NEEDS_DEVICE();
  const weight_folder folder;
  const std::string path = folder.write(
      "model.safetensors", safetensors_of({made_tensor("deep", "I8", 1, {4, 12, 6})}));
  reactor_fixture reactor{mw::engine_kind::automatic};
  reactor.run(check_refusals(path));
}

TEST_CASE("what is read once for a host goes on to devices") {
  NEEDS_DEVICE();
  const weight_folder folder;
  const written_tensor a = made_tensor("a", "F32", 4, {256, 1024});
  const std::string path = folder.write("x", safetensors_of({a}));
  mw::memory_store store;
  mw::runtime rt;
  const auto body = [&]() -> mw::task<void> {
    weight_device on;
    const mw::weight_files weights = co_await mw::weight_files::open(path);
    mw::world_options options;
    options.name = "weights";
    options.size = 1;
    mw::world w(rt, store, options);
    co_await w;
    mw::tensor there = on.make(mw::shape(256, 1024), mw::dtype::float32);
    co_await weights.load_once(w, there, "a");
    CHECK(co_await bytes_on(there) == a.bytes);
    co_await w.leave();
  };
  rt.run(body());
}
