// Shape: the lengths of a tensor's dimensions.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0 {

/// Holds the lengths of at most eight dimensions, the slowest first (C order). Without
/// dimensions it is that of one element.
///
///     const mw::shape rows(128, 64);
///     const std::size_t all = rows.elements();  // 8192
///     mw::tensor x({128, 64}, mw::dtype::float32);
///
/// It is trivially destructible, so that it can be written in an awaited expression.
///
/// Errors: the constructors throw std::invalid_argument for a negative length, for more
/// than eight dimensions, and for more elements than an address space has bytes.
class shape {
 public:
  /// How many lengths it may have.
  static constexpr std::size_t most_dimensions = 8;

  constexpr shape() noexcept = default;
  /// Takes the lengths one by one.
  // It is no initializer_list: g++ 12.2 refuses one in an awaited expression.
  template <std::integral... Lengths>
  requires(sizeof...(Lengths) > 0 && sizeof...(Lengths) <= most_dimensions)
      shape(Lengths... lengths)
      : lengths_{static_cast<std::int64_t>(lengths)...}, dimensions_(sizeof...(Lengths)) {
    check();
  }
  explicit shape(std::span<const std::int64_t> lengths);

  [[nodiscard]] constexpr std::size_t dimensions() const noexcept { return dimensions_; }
  /// Returns the length of a dimension. Precondition: it exists.
  [[nodiscard]] constexpr std::int64_t operator[](std::size_t dimension) const noexcept {
    MW_ASSERT(dimension < dimensions_, "a shape has a length for each of its dimensions");
    return lengths_[dimension];
  }
  /// Returns the lengths. Lifetime: that of this object.
  [[nodiscard]] constexpr std::span<const std::int64_t> lengths() const& noexcept {
    return {lengths_.data(), dimensions_};
  }
  void lengths() const&& = delete;
  /// Returns how many elements a tensor of this shape has.
  [[nodiscard]] constexpr std::size_t elements() const noexcept {
    std::size_t product = 1;
    for (std::size_t i = 0; i < dimensions_; ++i)
      product *= static_cast<std::size_t>(lengths_[i]);
    return product;
  }
  /// Returns "[2, 3]", for people.
  [[nodiscard]] std::string text() const;

  friend constexpr bool operator==(const shape& a, const shape& b) noexcept {
    return a.dimensions_ == b.dimensions_ && a.lengths_ == b.lengths_;
  }

 private:
  /// Throws std::invalid_argument unless it is a shape.
  void check() const;

  std::array<std::int64_t, most_dimensions> lengths_{};
  std::size_t dimensions_ = 0;
};

}  // namespace manyworlds::inline v0
