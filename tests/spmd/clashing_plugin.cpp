// A plugin with a function that is there already, in the program or, with CLASHES_WITH,
// in another plugin.
#include "plugin_functions.hpp"

static const mw::function_table& functions() {
  static const mw::function_table all{
      {mw::remote_function<int(int)>("clashing.own", mw::alone), [](int x) { return x; }},
      {mw::remote_function<int(int)>(CLASHES_WITH, mw::alone), [](int x) { return x; }},
  };
  return all;
}

const mw::plugin manyworlds_plugin(functions);
