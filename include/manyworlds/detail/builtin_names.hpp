// Built-in names: what every worker can be asked to do, with tensors and plugins.
#pragma once

#include <cstdint>
#include <string>

#include "manyworlds/address.hpp"
#include "manyworlds/memory/reduction.hpp"
#include "manyworlds/memory/tensor.hpp"
#include "manyworlds/spmd/any_value.hpp"
#include "manyworlds/spmd/remote_function.hpp"

namespace manyworlds::inline v0 {
class plugin;
}  // namespace manyworlds::inline v0

namespace manyworlds::inline v0::detail {

struct held_value;

/// Keeps a tensor in a register.
inline constexpr remote_function<tensor(tensor)> put_function{"mw.put", alone};
/// Makes a tensor of zeros.
inline constexpr remote_function<tensor(shape, dtype)> empty_function{"mw.empty", alone};
/// Gives a copy of a register's tensor.
inline constexpr remote_function<tensor(const tensor&)> copy_function{"mw.copy", alone};
/// Gives a copy of a register's value.
inline constexpr remote_function<any_value(const any_value&)> copy_any_function{
    "mw.copy_any", alone};

/// Shows the controller a register's value, on a worker in its process.
inline constexpr remote_function<void(const held_value&)> local_function{"mw.local",
                                                                         alone};
/// Loads a plugin from a file.
inline constexpr remote_function<plugin(std::string)> load_function{"mw.load", alone};
/// Says whether the worker has the content of this SHA-256 and size, or could open it: as
/// the descriptor of another process.
inline constexpr remote_function<bool(std::string, std::uint64_t, std::int64_t, int)>
    find_content_function{"mw.find_content", alone};
/// Loads a plugin from content, called as the file that it was read from. It is here, or
/// there as above, or it is the tensor.
inline constexpr remote_function<plugin(std::string, std::string, std::uint64_t,
                                        std::int64_t, int, tensor)>
    load_content_function{"mw.load_content", alone};

// What the workers of a mesh do together, as the namesakes of its world.
inline constexpr remote_function<void(tensor&, rank_t)> broadcast_function{
    "mw.broadcast"};
inline constexpr remote_function<void(tensor&, reduction)> all_reduce_function{
    "mw.all_reduce"};
inline constexpr remote_function<void(const tensor&, tensor&)> all_gather_function{
    "mw.all_gather"};
inline constexpr remote_function<void(const tensor&, tensor&, rank_t)> gather_function{
    "mw.gather"};
inline constexpr remote_function<void(const tensor&, tensor&, rank_t)> scatter_function{
    "mw.scatter"};
/// Rank 0 sends, rank 1 receives.
inline constexpr remote_function<void(const tensor&, tensor&)> transfer_function{
    "mw.transfer"};

}  // namespace manyworlds::inline v0::detail
