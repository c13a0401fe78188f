// Plugin: a shared object with functions of its own, which workers load.
#pragma once

#include <cstdint>
#include <version>

#include "manyworlds/coro/executor.hpp"
#include "manyworlds/detail/access.hpp"
#include "manyworlds/spmd/function_table.hpp"
#include "manyworlds/version.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// What a plugin must have in common with the program that loads it, since objects pass
/// between them. Numbers only: it is read before anything else is known of the plugin.
struct plugin_build {
  std::uint32_t major_part, minor_part, patch_part;
  std::uint32_t compiler;          ///< which C++ ABI it follows
  std::uint32_t standard_library;  ///< its release
  std::uint32_t library_layout;    ///< what else its layout depends on
  std::uint64_t layout;            ///< the sizes of what passes between them

  /// Returns that of the headers in use.
  [[nodiscard]] static constexpr plugin_build here() noexcept {
    plugin_build b{MANYWORLDS_VERSION_MAJOR,
                   MANYWORLDS_VERSION_MINOR,
                   MANYWORLDS_VERSION_PATCH,
                   0,
                   0,
                   0,
                   0};
#if defined(__GXX_ABI_VERSION)
    b.compiler = __GXX_ABI_VERSION;
#endif
#if defined(_GLIBCXX_RELEASE)
    b.standard_library = _GLIBCXX_RELEASE;
    b.library_layout = _GLIBCXX_USE_CXX11_ABI;
#elif defined(_LIBCPP_VERSION)
    b.standard_library = _LIBCPP_VERSION;
    b.library_layout = 2;
#endif
    b.layout = value_code("plugin")
                   .with(sizeof(std::vector<std::string>))
                   .with(sizeof(executor))
                   .with(sizeof(task<int>::promise_type))
                   .with(sizeof(tensor))
                   .with(sizeof(any_value))
                   .with(sizeof(value_reader))
                   .with(sizeof(value_writer))
                   .with(sizeof(worker_facts))
                   .with(sizeof(call_frame))
                   .with(sizeof(remote_callable))
                   .with(sizeof(function_table::entry))
                   .number();
    return b;
  }

  friend bool operator==(const plugin_build&, const plugin_build&) noexcept = default;
};

/// What a plugin says of itself: first what decides whether the rest can be used.
struct plugin_facts {
  plugin_build build = plugin_build::here();
  /// Returns the executor of the calling thread, as the plugin's library sees it.
  executor* (*current)() noexcept = &executor::current;
  const function_table& (*functions)() = nullptr;
};

}  // namespace detail

/// The functions of a shared object that workers load: `mesh::load`, `mesh::upload`. It
/// defines one object of this type, under the name `manyworlds_plugin`, which is declared
/// below.
///
///     const mw::function_table& functions() {
///       static const mw::function_table all{{fetch, run_fetch}};
///       return all;
///     }
///     const mw::plugin manyworlds_plugin(functions);
///
/// Program and plugin are of one version of the library, and of compilers with one ABI.
/// They share the library's state: either both link the shared library, or the plugin
/// links the static one (compiled with `-fvisibility=hidden`), and the worker's program
/// is linked with `-rdynamic` (`export_dynamic` in Meson, `ENABLE_EXPORTS` in CMake).
/// What differs is refused with its name.
///
/// A plugin is never unloaded: values that it made, and what they refer to, may live as
/// long as the process. Thread: what it initialises runs on the worker's compute thread,
/// and so does the function here, once for each worker. Errors: what that throws fails
/// the `load`.
class plugin {
 public:
  constexpr explicit plugin(const function_table& (*functions)()) noexcept
      : facts_{.functions = functions} {}

 private:
  friend struct detail::access;
  /// What `detail::access::core` gives.
  [[nodiscard]] const detail::plugin_facts& existing_core() const noexcept {
    return facts_;
  }

  detail::plugin_facts facts_;
};

}  // namespace manyworlds::inline v0

/// What a plugin defines. Others declare it only.
extern "C" MANYWORLDS_EXPORT const manyworlds::plugin manyworlds_plugin;
