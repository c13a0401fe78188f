#include "manyworlds/memory/shape.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace manyworlds::inline v0 {

shape::shape(std::span<const std::int64_t> lengths) : dimensions_(lengths.size()) {
  if (lengths.size() > most_dimensions) {
    throw std::invalid_argument("a shape of " + std::to_string(lengths.size()) +
                                " dimensions: a tensor has at most " +
                                std::to_string(most_dimensions));
  }
  std::copy(lengths.begin(), lengths.end(), lengths_.begin());
  check();
}

void shape::check() const {
  constexpr auto most =
      static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  std::size_t product = 1;
  bool fits = true;
  bool is_empty = false;
  for (const std::int64_t length : lengths()) {
    if (length < 0)
      throw std::invalid_argument("shape " + text() + ": a negative length");
    is_empty = is_empty || length == 0;
  }
  // A length of zero makes the product zero wherever it stands.
  for (const std::int64_t length : lengths()) {
    if (is_empty) break;
    const auto factor = static_cast<std::size_t>(length);
    fits = fits && factor <= most / product;
    if (fits) product *= factor;
  }
  if (!fits)
    throw std::invalid_argument("shape " + text() +
                                ": more elements than memory has bytes");
}

std::string shape::text() const {
  std::string all = "[";
  for (const std::int64_t length : lengths())
    all += (all.size() == 1 ? "" : ", ") + std::to_string(length);
  return all + "]";
}

}  // namespace manyworlds::inline v0
