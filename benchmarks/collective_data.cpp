#include "collective_data.hpp"

#include <algorithm>
#include <cstring>
#include <span>

namespace mwbench {

namespace {

/// Values are small enough for sums of floats to be exact.
int value_of(mw::rank_t rank, std::size_t at) noexcept {
  return static_cast<int>((at + static_cast<std::size_t>(rank) * 5) % 61);
}

bool is_divided(collective_kind kind) noexcept {
  return kind >= collective_kind::gather && kind <= collective_kind::all_to_all;
}

template <class Element>
std::span<Element> elements(std::vector<float>& memory, std::size_t count) noexcept {
  return {reinterpret_cast<Element*>(memory.data()), count};
}

template <class Element>
std::span<const Element> elements(const std::vector<float>& memory,
                                  std::size_t count) noexcept {
  return {reinterpret_cast<const Element*>(memory.data()), count};
}

}  // namespace

collective_data::collective_data(collective_kind kind, std::size_t size, mw::rank_t rank,
                                 mw::rank_t members)
    : kind_(kind),
      rank_(rank),
      members_(members),
      parts_(is_divided(kind) ? static_cast<std::size_t>(members) : 1),
      part_(kind == collective_kind::barrier
                ? 0
                : std::max(size / element_size() / parts_, std::size_t{1})),
      source_(bytes() / sizeof(float) + 1),
      target_(source_.size()) {
  for (std::size_t i = 0; i < count(); ++i) {
    if (adds()) {
      source_[i] = static_cast<float>(value_of(rank, i));
    } else {
      elements<char>(source_, count())[i] = static_cast<char>(value_of(rank, i));
    }
  }
  target_ = source_;
}

bool collective_data::adds() const noexcept {
  return kind_ == collective_kind::reduce || kind_ == collective_kind::all_reduce ||
         kind_ == collective_kind::reduce_scatter;
}

double collective_data::bus_factor() const noexcept {
  const double others = static_cast<double>(members_ - 1) / members_;
  if (kind_ == collective_kind::all_reduce) return 2 * others;
  return is_divided(kind_) ? others : 1;
}

std::size_t collective_data::source_count() const noexcept {
  switch (kind_) {
    case collective_kind::gather:
    case collective_kind::all_gather:
      return part_;
    case collective_kind::scatter:
      return rank_ == 0 ? count() : 0;
    default:
      return count();
  }
}

std::size_t collective_data::target_count() const noexcept {
  switch (kind_) {
    case collective_kind::reduce:
    case collective_kind::gather:
      return rank_ == 0 ? count() : 0;
    case collective_kind::scatter:
    case collective_kind::reduce_scatter:
      return part_;
    default:
      return count();
  }
}

mw::const_buffer_view collective_data::source() const noexcept {
  if (adds()) return elements<float>(source_, source_count());
  return elements<char>(source_, source_count());
}

mw::buffer_view collective_data::target() noexcept {
  if (adds()) return elements<float>(target_, target_count());
  return elements<char>(target_, target_count());
}

int collective_data::expected(std::size_t at) const noexcept {
  const std::size_t own = static_cast<std::size_t>(rank_) * part_;
  const auto sum_of = [this](std::size_t place) {
    int sum = 0;
    for (mw::rank_t rank = 0; rank < members_; ++rank) sum += value_of(rank, place);
    return sum;
  };
  const auto giver = static_cast<mw::rank_t>(at / part_);
  switch (kind_) {
    case collective_kind::reduce:
    case collective_kind::all_reduce:
      return sum_of(at);
    case collective_kind::reduce_scatter:
      return sum_of(own + at);
    case collective_kind::scatter:
      return value_of(0, own + at);
    case collective_kind::gather:
    case collective_kind::all_gather:
      return value_of(giver, at % part_);
    case collective_kind::all_to_all:
      return value_of(giver, own + at % part_);
    default:
      return value_of(0, at);
  }
}

void collective_data::spoil() noexcept {
  // The root of a broadcast sends its buffer.
  if (kind_ == collective_kind::broadcast && rank_ == 0) return;
  constexpr unsigned char never = 0xC3;
  std::memset(target_.data(), never, target_.size() * sizeof(float));
}

std::size_t collective_data::wrong() const noexcept {
  std::size_t count = 0;
  for (std::size_t i = 0; i < target_count(); ++i) {
    const int got = adds() ? static_cast<int>(target_[i])
                           : int{elements<char>(target_, target_count())[i]};
    count += got != expected(i) ? 1 : 0;
  }
  return count;
}

}  // namespace mwbench
