#include "manyworlds/memory/buffer_view.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>

namespace manyworlds::inline v0::detail {

void refuse_view(const void* data, std::size_t count, dtype type) {
  if (static_cast<std::size_t>(type) >= dtype_count) {
    throw std::invalid_argument(
        "buffer view: " + std::to_string(static_cast<unsigned>(type)) +
        " is no element type");
  }
  if (count > static_cast<std::size_t>(PTRDIFF_MAX) / size_of(type)) {
    throw std::invalid_argument("buffer view: " + std::to_string(count) +
                                " elements of " + std::string{name_of(type)} +
                                " are more than memory has");
  }
  if (data == nullptr && count != 0) {
    throw std::invalid_argument("buffer view: null pointer with " +
                                std::to_string(count) + " elements of " +
                                std::string{name_of(type)});
  }
}

void check_slice(std::size_t offset, std::size_t count, std::size_t size) {
  if (offset <= size && count <= size - offset) return;
  throw std::out_of_range("buffer view: slice of " + std::to_string(count) +
                          " elements at " + std::to_string(offset) +
                          " leaves a view of " + std::to_string(size));
}

}  // namespace manyworlds::inline v0::detail
