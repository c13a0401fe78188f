/// Lists of device views: one message whose bytes lie in many places of a device.
#pragma once

#include "manyworlds/memory/device_view.hpp"
#include "manyworlds/memory/gather_list.hpp"

namespace manyworlds::inline v0 {

using device_view_list = basic_view_list<device_view>;
using const_device_view_list = basic_view_list<const_device_view>;

/// What is sent from a device: as `gather_list`, of device views.
using device_gather_list = basic_gather_list<const_device_view>;
/// Where on a device what is received goes: as `scatter_list`, of device views.
using device_scatter_list = basic_gather_list<device_view>;

/// A list that owns its views: what a function that chooses blocks returns.
using device_view_batch = basic_view_batch<device_view>;
using const_device_view_batch = basic_view_batch<const_device_view>;

}  // namespace manyworlds::inline v0
