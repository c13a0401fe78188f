#include "spmd/worker_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "manyworlds/nccl/copy.hpp"
#include "manyworlds/nccl/device_buffer.hpp"
#include "manyworlds/nccl/device_count.hpp"
#include "manyworlds/spmd/worker.hpp"

namespace manyworlds::inline v0 {

namespace detail {

// The bytes of zeros that one copy takes.
constexpr std::size_t most_zeros = std::size_t{256} << 10;

std::vector<int> device_list_of(const session_options& limits, int workers) {
  std::vector<int> devices;
  const std::string_view text = limits.devices;
  const auto refuse = [&](std::string_view why) {
    throw std::invalid_argument(fmt::format("session: its devices \"{}\" {}", text, why));
  };
  if (text.empty()) return devices;
  if (limits.backend != backend_kind::nccl) refuse("need the backend nccl");
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    int device = -1;
    const auto read = std::from_chars(at, end, device);
    if (read.ec != std::errc() || device < 0 || (read.ptr != end && *read.ptr != ','))
      refuse("are no list of numbers, as \"0,1,2\"");
    devices.push_back(device);
    if (read.ptr == end) break;
    at = read.ptr + 1;
  }
  if (devices.size() < static_cast<std::size_t>(workers))
    refuse(fmt::format("are too few for the {} workers of a host", workers));
  return devices;
}

task<tensor> copy_to_host(const tensor& from) {
  if (from.place().is_host()) co_return tensor::copy_of(from.view(), from.shape());
  tensor made(from.shape(), from.type());
  co_await copy(made.view(), from.device_view());
  co_return made;
}

std::shared_ptr<worker_device> worker_device::open(const worker_seat& seat) {
  if (seat.limits.backend != backend_kind::nccl) return nullptr;
  const std::vector<int> named = device_list_of(seat.limits, seat.on_host + 1);
  const int number =
      named.empty() ? seat.on_host : named[static_cast<std::size_t>(seat.on_host)];
  const int seen = device_count();
  if (number >= seen) {
    throw device_error(fmt::format(
        "worker {} is to have device {}, and its process sees {}: session_options::"
        "devices says which workers share one",
        seat.id, number, seen == 1 ? "device 0 only" : fmt::format("{} devices", seen)));
  }
  return std::make_shared<worker_device>(number);
}

tensor worker_device::make(const shape& of, dtype type) {
  // The memory is given back before the stream ends in the order of which it is.
  struct held {
    std::shared_ptr<worker_device> by;
    untyped_device_buffer memory;
  };
  const auto made = std::make_shared<held>(held{
      shared_from_this(), untyped_device_buffer(pool_, of.elements(), type, stream())});
  return {of, made->memory.view(), number(), made};
}

task<tensor> worker_device::copy_of(const tensor& from) {
  tensor made = make(from.shape(), from.type());
  if (from.place().is_host()) {
    co_await copy(made.device_view(), from.view());
  } else {
    co_await copy(made.device_view(), from.device_view());
  }
  co_return made;
}

task<tensor> worker_device::zeros(shape of, dtype type) {
  tensor made = make(of, type);
  const std::size_t count = std::min(made.count(), most_zeros / size_of(type));
  const tensor zeros = tensor::zeros(shape(static_cast<std::int64_t>(count)), type);
  for (std::size_t done = 0; done < made.count(); done += count) {
    const std::size_t next = std::min(count, made.count() - done);
    co_await copy(made.device_view().slice(done, next), zeros.view().slice(0, next));
  }
  co_return made;
}

}  // namespace detail

tensor worker::new_tensor(const shape& of, dtype type) const {
  if (!facts_.device) return tensor(of, type);
  return facts_.device->make(of, type);
}

task<tensor> worker::copy_of(const tensor& from) const {
  if (!facts_.device) return host_copy_of(from);
  return facts_.device->copy_of(from);
}

task<tensor> worker::host_copy_of(const tensor& from) {
  return detail::copy_to_host(from);
}

}  // namespace manyworlds::inline v0
