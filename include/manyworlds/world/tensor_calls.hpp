// Tensor calls: the operations of a world on tensors, wherever these lie.
#pragma once

#include <type_traits>
#include <utility>

#include "manyworlds/detail/access.hpp"
#include "manyworlds/memory/tensor.hpp"
#include "manyworlds/world/world_operation.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// The buffers and the parameters of an operation on tensors, which lie in host memory or
/// on a device, but not in both.
class tensor_request {
 public:
  /// Errors: std::invalid_argument if one lies in host memory and one on a device.
  tensor_request(const tensor* from, tensor* into)
      : is_on_device(lie_on_device(from, into)) {
    if (is_on_device) {
      if (from) device_source = from->device_view();
      if (into) device_target = into->device_view();
    } else {
      if (from) source = from->view();
      if (into) target = into->view();
    }
  }

  const_buffer_view source;
  buffer_view target;
  collective_part part;
  const_device_view device_source;
  device_view device_target;
  device_part on_device;
  bool is_on_device;
};

template <class Result>
class operation_awaiter_for<Result, tensor_request> : public operation_awaiter {
 public:
  operation_awaiter_for(operation_request&& request, tensor_request&& asked) noexcept
      : operation_awaiter(std::move(request)), asked_(std::move(asked)) {
    if (asked_.is_on_device) {
      asked_.on_device.source = const_device_view_list::of_one(asked_.device_source);
      asked_.on_device.target = device_view_list::of_one(asked_.device_target);
      device = &asked_.on_device;
    } else {
      source = const_view_list::of_one(asked_.source);
      target = view_list::of_one(asked_.target);
      if (is_collective(kind)) collective = &asked_.part;
    }
  }
  Result await_resume() {
    operation_awaiter::await_resume();
    if constexpr (!std::is_void_v<Result>) return info;
  }

 private:
  tensor_request asked_;
};

template <class Result>
using tensor_operation = world_operation<Result, tensor_request>;

}  // namespace detail

/// The operations of a world on tensors. Each does what its namesake does on views of the
/// elements: in host memory as `collective_calls`, in device memory as `device_calls`. A
/// part of `world`.
///
///     mw::tensor x({4, 4}, mw::dtype::float32);
///     mw::tensor all({2, 4, 4}, mw::dtype::float32);
///     co_await w.recv(x, mw::from{1});
///     co_await w.all_reduce(x, mw::sum).within(10s);
///     co_await w.all_gather(x, all);
///
/// Shapes do not travel and are not compared: the number of elements and their type are.
///
/// Lifetime: the tensors must live until the await ends. Errors: those of the namesakes;
/// std::invalid_argument if one tensor lies in host memory and another on a device.
template <class World>
class tensor_calls {
 public:
  /// Sends the tensor's elements to `peer`.
  detail::tensor_operation<void> send(const tensor& data, to peer, lane on = {},
                                      user_word user = {},
                                      source_position where = source_position()) {
    detail::operation_request r(core(), operation_kind::send, peer.rank(), on, where);
    r.user = user;
    return detail::tensor_operation<void>(std::move(r), {&data, nullptr});
  }
  /// Receives as many elements as the tensor has.
  detail::tensor_operation<message_info> recv(tensor& data, from peer, lane on = {},
                                              source_position where = source_position()) {
    return detail::tensor_operation<message_info>(
        detail::operation_request(core(), operation_kind::receive, peer.rank(), on,
                                  where),
        {nullptr, &data});
  }
  /// Gives all members the root's elements.
  detail::tensor_operation<void> broadcast(tensor& data, root at,
                                           source_position where = source_position()) {
    return collective(operation_kind::broadcast, data, data, sum, at.rank(), where);
  }
  /// Combines the members' elements, in place at each of them.
  detail::tensor_operation<void> all_reduce(tensor& data, reduction by,
                                            source_position where = source_position()) {
    return collective(operation_kind::all_reduce, data, data, by, no_rank, where);
  }
  /// Combines the members' elements into `out` of each.
  detail::tensor_operation<void> all_reduce(const tensor& in, tensor& out, reduction by,
                                            source_position where = source_position()) {
    return collective(operation_kind::all_reduce, in, out, by, no_rank, where);
  }
  /// Combines the members' elements, in place at the root.
  detail::tensor_operation<void> reduce(tensor& data, reduction by, root at,
                                        source_position where = source_position()) {
    return collective(operation_kind::reduce, data, data, by, at.rank(), where);
  }
  /// Combines the members' elements into the root's `out`.
  detail::tensor_operation<void> reduce(const tensor& in, tensor& out, reduction by,
                                        root at,
                                        source_position where = source_position()) {
    return collective(operation_kind::reduce, in, out, by, at.rank(), where);
  }
  /// Collects the members' `in` in every `out`, by rank.
  detail::tensor_operation<void> all_gather(const tensor& in, tensor& out,
                                            source_position where = source_position()) {
    return collective(operation_kind::all_gather, in, out, sum, no_rank, where);
  }
  /// Collects the members' `in` in the root's `out`, by rank.
  detail::tensor_operation<void> gather(const tensor& in, tensor& out, root at,
                                        source_position where = source_position()) {
    return collective(operation_kind::gather, in, out, sum, at.rank(), where);
  }
  /// Gives each member the part of the root's `in` that its rank has.
  detail::tensor_operation<void> scatter(const tensor& in, tensor& out, root at,
                                         source_position where = source_position()) {
    return collective(operation_kind::scatter, in, out, sum, at.rank(), where);
  }
  /// Combines the members' `in`, of which each gets its rank's part.
  detail::tensor_operation<void> reduce_scatter(
      const tensor& in, tensor& out, reduction by,
      source_position where = source_position()) {
    return collective(operation_kind::reduce_scatter, in, out, by, no_rank, where);
  }
  /// Gives each member the part of every `in` that its rank has.
  detail::tensor_operation<void> all_to_all(const tensor& in, tensor& out,
                                            source_position where = source_position()) {
    return collective(operation_kind::all_to_all, in, out, sum, no_rank, where);
  }

 private:
  [[nodiscard]] detail::world_core& core() const {
    return detail::access::core(static_cast<const World&>(*this));
  }
  detail::tensor_operation<void> collective(operation_kind kind, const tensor& in,
                                            tensor& out, reduction by, rank_t at,
                                            source_position where) {
    detail::tensor_request asked(&in, &out);
    asked.part.by = by;
    asked.part.root = at;
    asked.on_device.by = by;
    asked.on_device.root = at;
    return detail::tensor_operation<void>(
        detail::operation_request(core(), kind, no_rank, {}, where), std::move(asked));
  }
};

}  // namespace manyworlds::inline v0
