/// Device lists: one message with bytes in many places of a device.
#pragma once

#include "manyworlds/memory/device_view.hpp"
#include "manyworlds/memory/gather_list.hpp"

namespace manyworlds::inline v0 {

using device_view_list = detail::basic_view_list<device_view>;

using const_device_view_list = detail::basic_view_list<const_device_view>;

/// The argument of a send from a device: a `gather_list` of device views.
using device_gather_list = detail::basic_gather_list<const_device_view>;

/// The argument of a receive on a device: a `scatter_list` of device views.
using device_scatter_list = detail::basic_gather_list<device_view>;

/// A list that owns its views. A function that chooses blocks returns it.
using device_view_batch = detail::basic_view_batch<device_view>;

using const_device_view_batch = detail::basic_view_batch<const_device_view>;

}  // namespace manyworlds::inline v0
