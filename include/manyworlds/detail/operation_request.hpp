// Operation request: describes an operation before it is awaited.
#pragma once

#include <cstddef>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "manyworlds/detail/collective_part.hpp"
#include "manyworlds/detail/device_part.hpp"
#include "manyworlds/detail/operation.hpp"
#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/source_position.hpp"

namespace manyworlds::inline v0::detail {

class world_core;

/// Describes an operation without its buffers, as the functions of `world` give it.
struct operation_request {
  operation_request(world_core& of, operation_kind k, rank_t with, lane l,
                    source_position at) noexcept
      : core(&of), kind(k), peer(with), on(l), where(at) {}

  world_core* core;
  operation_kind kind;
  rank_t peer;
  lane on;
  user_word user;
  bool takes_fresh_lanes = false;
  bool delivered = false;
  bool discards = false;
  const void* head = nullptr;
  std::size_t head_bytes = 0;
  bool gives_payload = false;
  std::optional<duration> limit;
  std::stop_token stop;
  source_position where;
};

/// The buffers of an operation that has none.
struct no_list {};

/// The buffers and the parameters of a collective on host memory.
class collective_request {
 public:
  collective_request() noexcept {}
  collective_request(const_buffer_view from, buffer_view into) noexcept
      : source(from), target(into) {}

  const_buffer_view source;
  buffer_view target;
  collective_part part;
};

/// The buffers and the parameters of an operation on device memory.
class device_request {
 public:
  device_request() noexcept {}
  device_request(device_gather_list from, device_scatter_list into) noexcept
      : source(std::move(from)), target(std::move(into)) {}

  device_gather_list source;
  device_scatter_list target;
  device_part part;
};

/// The list of a message with the head that was written in the call: a temporary would be
/// gone where the operation is not awaited in the same expression.
template <class List, class Head>
class list_with_head : public List {
 public:
  list_with_head(List&& list, const Head& h) : List(std::move(list)), head(h) {}
  Head head;
};

/// The list of a message to several members.
class fan_out_list : public gather_list {
 public:
  fan_out_list(gather_list&& data, send_targets to) noexcept
      : gather_list(std::move(data)), targets(to) {}
  send_targets targets;
};

/// The list behind a head given as `Head&&`: one that has a name is referred to.
template <class List, class Head>
using list_behind = std::conditional_t<std::is_lvalue_reference_v<Head>, List,
                                       list_with_head<List, std::remove_cvref_t<Head>>>;

template <class Head, class List>
[[nodiscard]] list_behind<List, Head> put_behind(
    [[maybe_unused]] const std::remove_reference_t<Head>& head, List&& list) {
  if constexpr (std::is_lvalue_reference_v<Head>) {
    return std::move(list);
  } else {
    return {std::move(list), head};
  }
}

/// Refuses what cannot travel as the head of a message.
template <class Head>
constexpr void check_head() noexcept {
  static_assert(
      std::is_trivially_copyable_v<Head>,
      "a head is copied byte by byte, so that it is a trivially copyable struct: "
      "give texts and containers as the data behind it");
  static_assert(sizeof(Head) <= operation::largest_head,
                "a head is at most 4 KiB: give the rest as the data behind it");
}

}  // namespace manyworlds::inline v0::detail
