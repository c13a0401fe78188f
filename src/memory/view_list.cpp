#include "manyworlds/detail/view_list.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>

namespace manyworlds::inline v0::detail {

namespace {

template <class View>
list_extent measure_views(const View* first, std::size_t count) {
  list_extent total;
  bool typed = false;
  for (std::size_t index = 0; index < count; ++index) {
    const auto& view = *view_at(first, index);
    if (view.empty()) continue;
    if (view.size_bytes() > static_cast<std::size_t>(PTRDIFF_MAX) - total.bytes) {
      throw std::invalid_argument("view list: " + std::to_string(count) +
                                  " views have more bytes than a message can");
    }
    total.bytes += view.size_bytes();
    if (!typed) {
      total.type = view.type();
      typed = true;
    } else if (total.type != view.type()) {
      total.type = dtype::uint8;
    }
  }
  return total;
}

}  // namespace

list_extent measure(const const_buffer_view* first, std::size_t count) {
  return measure_views(first, count);
}

list_extent measure(const const_device_view* first, std::size_t count) {
  return measure_views(first, count);
}

void throw_no_such_view(std::size_t index, std::size_t size) {
  throw std::out_of_range("view list: no view " + std::to_string(index) + " of " +
                          std::to_string(size));
}

}  // namespace manyworlds::inline v0::detail
