// Shared objects that are no plugins: without what a plugin defines, with another thing
// under its name, and with one of another build.
#include "manyworlds/spmd/plugin.hpp"

#if defined(IS_SMALL)
extern const int other_thing asm("manyworlds_plugin");
const int other_thing = 3;
#elif defined(IS_OF_ANOTHER_BUILD)
// What stands behind the numbers of its build is no address of anything.
struct other_plugin {
  manyworlds::detail::plugin_build build{0, 0, 7, 1, 2, 3, 0x4};
  std::uint64_t behind[2]{1, 1};
};
static_assert(sizeof(other_plugin) == sizeof(manyworlds::plugin));
extern const other_plugin plugin_of_another_build asm("manyworlds_plugin");
const other_plugin plugin_of_another_build;
#else
extern "C" int number_of_no_plugin();
int number_of_no_plugin() { return 7; }
#endif
