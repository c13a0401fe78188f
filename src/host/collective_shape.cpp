#include "host/collective_shape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

/// Says which buffers of this member count; the others may hold anything.
struct used_buffers {
  bool in = true;
  bool out = true;
};

used_buffers used_by(operation_kind kind, bool is_root) noexcept {
  using enum operation_kind;
  switch (kind) {
    case broadcast:
      return {is_root, true};
    case reduce:
    case gather:
      return {true, is_root};
    case scatter:
      return {is_root, true};
    default:
      return {};
  }
}

const_buffer_view source_of(const operation& op) {
  return op.source.empty() ? const_buffer_view() : op.source[0];
}
buffer_view target_of(const operation& op) {
  return op.target.empty() ? buffer_view() : op.target[0];
}

std::size_t total(std::span<const std::size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::string wrong_count(const char* buffer, std::size_t has, std::size_t wants,
                        const std::string& why) {
  return fmt::format("{} has {} elements, but {} are needed: {}", buffer, has, wants,
                     why);
}

/// Returns where this rank's part of the longer buffer begins, in elements. Returns
/// nothing if the buffers may not be in the same place at all.
std::optional<std::size_t> place_of_own_part(const operation& op, rank_t self) {
  using enum operation_kind;
  const collective_part& part = *op.collective;
  const auto at = static_cast<std::size_t>(self);
  switch (op.kind) {
    case broadcast:
    case reduce:
    case all_reduce:
      return 0;
    case gather:
    case all_gather:
      return part.is_variable ? total(part.target_counts.first(at))
                              : at * source_of(op).count();
    case scatter:
    case reduce_scatter:
      return part.is_variable ? total(part.source_counts.first(at))
                              : at * target_of(op).count();
    default:
      return std::nullopt;
  }
}

std::string validate_overlap(const operation& op, rank_t self) {
  using enum operation_kind;
  const const_buffer_view in = source_of(op);
  const buffer_view out = target_of(op);
  if (in.empty() || out.empty()) return {};
  const auto* first = static_cast<const std::byte*>(in.data());
  const auto* second = static_cast<const std::byte*>(out.data());
  if (first + in.size_bytes() <= second || second + out.size_bytes() <= first) return {};
  const std::optional<std::size_t> own = place_of_own_part(op, self);
  if (!own) return "in and out overlap";
  const std::size_t distance = *own * size_of(in.type());
  const bool in_is_longer = op.kind == scatter || op.kind == reduce_scatter;
  const bool in_place =
      in_is_longer ? first + distance == second : second + distance == first;
  if (in_place) return {};
  return fmt::format(
      "in and out overlap: they may share only this rank's own part, which begins at "
      "element {}",
      *own);
}

std::string validate_counts(std::span<const std::size_t> counts, const char* buffer,
                            std::size_t has, rank_t size) {
  if (counts.size() != static_cast<std::size_t>(size)) {
    return fmt::format("{} counts were given for {} members", counts.size(), size);
  }
  // One by one first: their sum may wrap around.
  for (const std::size_t count : counts) {
    if (count > has) {
      return fmt::format("a count of {} exceeds the buffer of {} elements", count, has);
    }
  }
  if (total(counts) != has) {
    return wrong_count(buffer, has, total(counts), "the sum of all counts");
  }
  return {};
}

std::string validate_variable(const operation& op, rank_t self, rank_t size,
                              used_buffers used) {
  using enum operation_kind;
  const collective_part& part = *op.collective;
  const std::size_t in = source_of(op).count();
  const std::size_t out = target_of(op).count();
  const auto at = static_cast<std::size_t>(self);
  const bool divides_in =
      op.kind == scatter || op.kind == reduce_scatter || op.kind == all_to_all;
  const bool divides_out =
      op.kind == gather || op.kind == all_gather || op.kind == all_to_all;
  if (divides_in && used.in) {
    std::string wrong = validate_counts(part.source_counts, "in", in, size);
    if (!wrong.empty()) return wrong;
    if (!divides_out && out != part.source_counts[at]) {
      return wrong_count("out", out, part.source_counts[at], "this rank's count");
    }
  }
  if (divides_in && divides_out && part.source_counts.size() > at &&
      part.target_counts.size() > at &&
      part.source_counts[at] != part.target_counts[at]) {
    return fmt::format("this rank sends itself {} elements, but expects {} from itself",
                       part.source_counts[at], part.target_counts[at]);
  }
  if (divides_out && used.out) {
    std::string wrong = validate_counts(part.target_counts, "out", out, size);
    if (!wrong.empty()) return wrong;
    if (!divides_in && in != part.target_counts[at]) {
      return wrong_count("in", in, part.target_counts[at], "this rank's count");
    }
  }
  return {};
}

std::string validate_sizes(const operation& op, rank_t size, used_buffers used) {
  using enum operation_kind;
  const std::size_t in = source_of(op).count();
  const std::size_t out = target_of(op).count();
  const auto members = static_cast<std::size_t>(size);
  const auto each = [size] { return fmt::format("{} members' parts", size); };
  switch (op.kind) {
    case broadcast:
    case reduce:
    case all_reduce:
      if (used.in && used.out && in != out) {
        return wrong_count("out", out, in, "as many as in");
      }
      return {};
    case gather:
    case all_gather:
      if (used.out && out != in * members) {
        return wrong_count("out", out, in * members, each());
      }
      return {};
    case scatter:
    case reduce_scatter:
      if (used.in && in != out * members) {
        return wrong_count("in", in, out * members, each());
      }
      return {};
    default:
      if (in % members != 0) {
        return fmt::format("{} elements cannot be divided among {} members", in, size);
      }
      if (in != out) return wrong_count("out", out, in, "as many as in");
      return {};
  }
}

/// Mixes the counts of those kinds in which all members give the same counts.
std::uint64_t agreed_counts(const collective_part& part, operation_kind kind) noexcept {
  std::span<const std::size_t> counts;
  if (kind == operation_kind::all_gather) counts = part.target_counts;
  if (kind == operation_kind::reduce_scatter) counts = part.source_counts;
  // FNV-1a, a word at a time.
  std::uint64_t mixed = 0xcbf29ce484222325;
  for (const std::size_t count : counts) mixed = (mixed ^ count) * 0x100000001b3;
  return counts.empty() ? 0 : mixed;
}

}  // namespace

bool reduces(operation_kind kind) noexcept {
  using enum operation_kind;
  return kind == reduce || kind == all_reduce || kind == reduce_scatter;
}

bool has_root(operation_kind kind) noexcept {
  using enum operation_kind;
  return kind == broadcast || kind == reduce || kind == gather || kind == scatter;
}

parts::parts(std::span<const std::size_t> counts, std::size_t element_bytes)
    : element_bytes_(element_bytes), starts_(counts.size() + 1) {
  std::partial_sum(counts.begin(), counts.end(), starts_.begin() + 1);
}

std::size_t parts::longest() const noexcept {
  if (starts_.empty()) return (elements_ + members_ - 1) / members_ * element_bytes_;
  std::size_t most = 0;
  for (std::size_t r = 0; r + 1 < starts_.size(); ++r) {
    most = std::max(most, starts_[r + 1] - starts_[r]);
  }
  return most * element_bytes_;
}

std::string validate_collective(const operation& op, rank_t self, rank_t size) {
  if (op.kind == operation_kind::barrier) return {};
  if (!op.collective) return "this collective needs buffers, and has none";
  const collective_part& part = *op.collective;
  if (has_root(op.kind) && (part.root < 0 || part.root >= size)) {
    return fmt::format("there is no root {} in a world of {} members", part.root, size);
  }
  if (reduces(op.kind) && part.by > reduction::avg) {
    return fmt::format("there is no reduction {}", static_cast<int>(part.by));
  }
  const used_buffers used = used_by(op.kind, part.root == self);
  const const_buffer_view in = source_of(op);
  const buffer_view out = target_of(op);
  const bool has_both = used.in && used.out && !in.empty() && !out.empty();
  if (has_both && in.type() != out.type()) {
    return fmt::format("in has elements of {}, but out of {}", name_of(in.type()),
                       name_of(out.type()));
  }
  std::string wrong = part.is_variable ? validate_variable(op, self, size, used)
                                       : validate_sizes(op, size, used);
  if (!wrong.empty()) return wrong;
  return used.in && used.out ? validate_overlap(op, self) : std::string();
}

collective_shape shape_of(const operation& op, rank_t self, rank_t size) {
  collective_shape s;
  MW_ASSERT(self >= 0 && self < size, "this process is a member");
  s.kind = op.kind;
  if (op.kind == operation_kind::barrier) return s;
  const collective_part& part = *op.collective;
  s.root = has_root(op.kind) ? part.root : no_rank;
  if (reduces(op.kind)) s.by = part.by;
  s.is_variable = part.is_variable;
  const used_buffers used = used_by(op.kind, part.root == self);
  const const_buffer_view in = source_of(op);
  const buffer_view out = target_of(op);
  // Without elements the type is unknown, and meaningless.
  s.type = used.in && !in.empty() ? in.type() : used.out ? out.type() : in.type();
  const std::size_t element = size_of(s.type);
  MW_ASSERT(std::has_single_bit(element), "the size of an element is a power of two");
  // Elements are 1, 2, 4 or 8 bytes long, and a division is slow.
  const auto elements = [shift = std::countr_zero(element)](std::size_t bytes) {
    return bytes >> shift;
  };
  if (used.in) s.in = {static_cast<const std::byte*>(in.data()), in.size_bytes()};
  if (used.out) s.out = {static_cast<std::byte*>(out.data()), out.size_bytes()};
  if (s.is_variable) {
    if (used.in && !part.source_counts.empty()) {
      s.in_parts = parts(part.source_counts, element);
    }
    if (used.out && !part.target_counts.empty()) {
      s.out_parts = parts(part.target_counts, element);
    }
  } else {
    s.in_parts = parts(elements(s.in.size()), size, element);
    s.out_parts = parts(elements(s.out.size()), size, element);
  }
  using enum operation_kind;
  switch (op.kind) {
    case broadcast:
    case reduce_scatter:
      s.bytes = std::max(s.in.size(), s.out.size());
      break;
    case all_gather:
      s.bytes = s.out.size();
      break;
    case reduce:
    case all_reduce:
      s.bytes = s.in.size();
      break;
    case gather:
      s.bytes = s.is_variable ? 0 : s.in.size();
      break;
    case scatter:
      s.bytes = s.is_variable ? 0 : s.out.size();
      break;
    default:
      s.bytes = s.is_variable ? 0 : s.in.size() / static_cast<std::size_t>(size);
  }
  s.agreed_sizes = elements(s.bytes);
  if (s.is_variable) s.agreed_sizes = agreed_counts(part, op.kind);
  return s;
}

}  // namespace manyworlds::inline v0::detail::host
