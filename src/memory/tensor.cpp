#include "manyworlds/memory/tensor.hpp"

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "manyworlds/memory/dlpack_device.hpp"
#include "memory/dlpack_tensor.hpp"

namespace manyworlds::inline v0 {

namespace {

/// A cache line, and the width of the widest vectors.
constexpr std::align_val_t tensor_alignment{64};

[[noreturn]] void refuse_tensor(const tensor& t, const std::string& why) {
  const int device = t.place().device;
  throw std::invalid_argument(
      "tensor of shape " + t.shape().text() + ", " + std::string(name_of(t.type())) +
      (t.place().is_host() ? ", in host memory"
                           : ", on device " + std::to_string(device)) +
      ": " + why);
}

std::size_t checked_bytes(const shape& of, dtype type) {
  // As for a view: an invalid type, and more bytes than an address space has.
  static constexpr char elsewhere = 0;
  detail::check_view(&elsewhere, of.elements(), type);
  return of.elements() * size_of(type);
}

void check_elements(const shape& of, std::size_t count, const char* what) {
  if (of.elements() == count) return;
  throw std::invalid_argument("tensor of shape " + of.text() + ": it has " +
                              std::to_string(of.elements()) + " elements, and " + what +
                              " has " + std::to_string(count));
}

}  // namespace

tensor::tensor(class shape of, dtype type) : shape_(of), type_(type) {
  const std::size_t bytes = checked_bytes(of, type);
  if (bytes == 0) return;
  data_ = ::operator new(bytes, tensor_alignment);
  // If the owner cannot be made, its deleter is called.
  owner_ = std::shared_ptr<void>(
      data_, [](void* memory) { ::operator delete(memory, tensor_alignment); });
}

tensor::tensor(class shape of, dtype type, shared_pool& pool) : shape_(of), type_(type) {
  const std::size_t bytes = checked_bytes(of, type);
  if (bytes == 0) return;
  const auto buffer = std::make_shared<shared_buffer>(pool.allocate(bytes));
  data_ = buffer->data();
  owner_ = buffer;
}

tensor::tensor(class shape of, buffer_view memory, std::shared_ptr<void> owner)
    : owner_(std::move(owner)), data_(memory.data()), shape_(of), type_(memory.type()) {
  check_elements(of, memory.count(), "the view");
}

tensor::tensor(class shape of, class device_view memory, int device,
               std::shared_ptr<void> owner)
    : owner_(std::move(owner)),
      data_(memory.data()),
      shape_(of),
      stream_(memory.stream()),
      place_{device},
      type_(memory.type()) {
  if (device < 0) {
    throw std::invalid_argument("tensor of device memory: there is no device " +
                                std::to_string(device));
  }
  check_elements(of, memory.count(), "the view");
}

tensor tensor::zeros(class shape of, dtype type) {
  tensor made(of, type);
  if (!made.empty()) std::memset(made.data_, 0, made.size_bytes());
  return made;
}

tensor tensor::copy_of(const_buffer_view values, class shape of) {
  check_elements(of, values.count(), "the view");
  tensor made(of, values.type());
  if (!made.empty()) std::memcpy(made.data_, values.data(), values.size_bytes());
  return made;
}

tensor tensor::adopt_elements(const dlpack::tensor& seen, device_stream on,
                              std::shared_ptr<void> owner) {
  tensor made;
  // These check the number of dimensions and every length, before they are read here.
  if (dlpack::detail::is_on_cuda(seen.device)) {
    auto elements = dlpack::detail::import_tensor_on(seen, seen.device.device_id, on);
    made.data_ = elements.data();
    made.type_ = elements.type();
    made.stream_ = on;
    made.place_.device = seen.device.device_id;
  } else {
    const buffer_view elements = dlpack::detail::import_tensor(seen);
    made.data_ = elements.data();
    made.type_ = elements.type();
  }
  const std::span lengths(seen.shape, static_cast<std::size_t>(seen.ndim));
  made.shape_ = decltype(shape_)(std::span<const std::int64_t>(lengths));
  made.owner_ = std::move(owner);
  return made;
}

dlpack::owned_tensor tensor::to_dlpack() && {
  // Taken first, so that this tensor is empty whatever follows.
  tensor given(std::move(*this));
  const std::span<const std::int64_t> lengths = given.shape_.lengths();
  const bool is_host = given.place_.is_host();
  // An empty shape means one dimension there, of as many elements: here of one.
  if (is_host) {
    const buffer_view elements = given.view();
    return dlpack::export_tensor(elements, std::move(given.owner_), lengths);
  }
  const auto elements = given.device_view();
  return dlpack::export_tensor(elements, given.place_.device, std::move(given.owner_),
                               lengths);
}

void tensor::reshape(class shape to) {
  check_elements(to, count(), "the tensor");
  shape_ = to;
}

void* tensor::host_elements(dtype wanted) const {
  if (!place_.is_host()) refuse_tensor(*this, "the host cannot read it; copy it first");
  if (wanted != type_)
    refuse_tensor(*this, "its elements are no " + std::string(name_of(wanted)));
  return data_;
}

void* tensor::device_elements() const {
  if (place_.is_host()) refuse_tensor(*this, "a device view is of device memory");
  return data_;
}

namespace detail {

void refuse_null_tensor() {
  throw std::invalid_argument("a null pointer is no DLPack tensor");
}

bool lie_on_device(const tensor* from, const tensor* into) {
  const tensor& any = from ? *from : *into;
  if (from && into && from->place().is_host() != into->place().is_host())
    refuse_tensor(*from, "the operation's other tensor lies in other memory");
  return !any.place().is_host();
}

}  // namespace detail

}  // namespace manyworlds::inline v0
