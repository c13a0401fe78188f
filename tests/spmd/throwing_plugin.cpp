// A plugin with a table that cannot be made.
#include "plugin_functions.hpp"

static const mw::function_table& functions() {
  using namespace manyworlds::spmd_tests;
  static const mw::function_table all{
      {doubled, [](int x) { return x; }},
      {doubled, [](int x) { return x; }},
  };
  return all;
}

const mw::plugin manyworlds_plugin(functions);
