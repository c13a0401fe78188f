#include "host/collective_signature.hpp"

#include <fmt/format.h>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

struct field {
  unsigned at;
  unsigned bits;

  [[nodiscard]] constexpr std::uint64_t mask() const noexcept {
    return (std::uint64_t{1} << bits) - 1;
  }
  [[nodiscard]] constexpr std::uint64_t of(std::uint64_t word) const noexcept {
    return word >> at & mask();
  }
  [[nodiscard]] constexpr std::uint64_t put(std::uint64_t value) const noexcept {
    return (value & mask()) << at;
  }
};

constexpr field sequence_field{0, 16};
constexpr field kind_field{16, 4};
constexpr field type_field{20, 4};
constexpr field reduction_field{24, 3};
constexpr field algorithm_field{27, 2};
constexpr field pages_field{29, 1};
constexpr field root_field{30, 13};
constexpr field variable_field{43, 1};
constexpr field sizes_field{44, 20};

/// Returns the top bits of a product with the golden ratio: sizes that differ in a
/// power of two differ here too.
std::uint64_t mixed(std::uint64_t sizes) noexcept {
  return sizes * 0x9e3779b97f4a7c15 >> sizes_field.at;
}

/// The type of a member without elements, which means nothing.
constexpr std::uint64_t any_type = 15;
static_assert(dtype_count < any_type);
static_assert(any_type <= type_field.mask());
constexpr auto first_algorithm = static_cast<std::uint64_t>(algorithm::flat);
static_assert(static_cast<std::uint64_t>(algorithm::ring) - first_algorithm <=
              algorithm_field.mask());
static_assert(static_cast<std::uint64_t>(avg) <= reduction_field.mask());
static_assert(sizes_field.at + sizes_field.bits == 64);

constexpr auto first_kind = static_cast<std::uint64_t>(operation_kind::barrier);
static_assert(static_cast<std::uint64_t>(operation_kind::all_to_all) - first_kind <
              kind_field.mask());

bool differ(field f, std::uint64_t a, std::uint64_t b) noexcept {
  return f.of(a) != f.of(b);
}

std::string number_of_type(std::uint64_t word) {
  const auto type = dtype_from_wire(static_cast<std::uint8_t>(type_field.of(word)));
  return type ? std::string(name_of(*type)) : "no type";
}

}  // namespace

collective_signature::collective_signature(const collective_shape& shape, algorithm use,
                                           std::uint64_t sequence,
                                           bool may_use_pages) noexcept {
  MW_ASSERT(
      shape.kind >= operation_kind::barrier && shape.kind <= operation_kind::all_to_all,
      "a collective is of a known kind");
  const bool has_elements = !shape.in.empty() || !shape.out.empty();
  word_ =
      sequence_field.put(sequence) |
      kind_field.put(static_cast<std::uint64_t>(shape.kind) - first_kind + 1) |
      type_field.put(has_elements ? static_cast<std::uint64_t>(shape.type) : any_type) |
      reduction_field.put(static_cast<std::uint64_t>(shape.by)) |
      algorithm_field.put(static_cast<std::uint64_t>(use) - first_algorithm) |
      pages_field.put(may_use_pages ? 1 : 0) |
      root_field.put(static_cast<std::uint64_t>(shape.root + 1)) |
      variable_field.put(shape.is_variable ? 1 : 0) |
      sizes_field.put(mixed(shape.agreed_sizes));
}

bool collective_signature::agrees_with(collective_signature other) const noexcept {
  const bool either_type =
      type_field.of(word_) == any_type || type_field.of(other.word_) == any_type;
  const std::uint64_t ignored =
      either_type ? type_field.put(type_field.mask()) : std::uint64_t{0};
  return ((word_ ^ other.word_) & ~ignored) == 0;
}

std::string collective_signature::text(collective_signature other) const {
  const std::uint64_t kind = kind_field.of(word_);
  const auto known = static_cast<operation_kind>(kind + first_kind - 1);
  const bool is_kind = kind > 0 && known <= operation_kind::all_to_all;
  std::string text =
      fmt::format("{} {}", is_kind ? name_of(known) : "collective of no kind",
                  sequence_field.of(word_));
  const std::uint64_t a = word_;
  const std::uint64_t b = other.word_;
  std::string more;
  const auto add = [&more](const std::string& what) {
    more += (more.empty() ? "" : ", ") + what;
  };
  if (differ(type_field, a, b)) add(number_of_type(a));
  if (differ(reduction_field, a, b) && reduction_field.of(a) <= 4) {
    add(std::string(name_of(static_cast<reduction>(reduction_field.of(a)))));
  }
  if (differ(root_field, a, b)) {
    const auto root = static_cast<std::int64_t>(root_field.of(a)) - 1;
    add(root < 0 ? "no root" : fmt::format("root {}", root));
  }
  if (differ(variable_field, a, b)) {
    add(variable_field.of(a) ? "parts that differ" : "equal parts");
  }
  if (differ(sizes_field, a, b)) add("with other counts");
  if (more.empty() && differ(algorithm_field, a, b)) {
    add(std::string(
        name_of(static_cast<algorithm>(algorithm_field.of(a) + first_algorithm))));
  }
  if (more.empty() && differ(pages_field, a, b)) {
    add(pages_field.of(a) ? "by the default rules" : "by a rule of its own");
  }
  return more.empty() ? text : text + " (" + more + ")";
}

}  // namespace manyworlds::inline v0::detail::host
