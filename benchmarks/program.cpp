#include "program.hpp"

#include <cstdio>
#include <exception>

namespace mwbench {

void add_options_of_any(CLI::App& app, common_options& common, unsigned& limit) {
  app.add_flag("--json", common.json, "one object a line, for programs");
  app.add_option("--limit", limit, "seconds after which all of it is killed")
      ->capture_default_str();
  app.add_option("--store", common.store)->group("");
  app.add_option("--role", common.role)->group("");
  app.require_subcommand(1);
  app.fallthrough();
}

int ask(CLI::App& app, const char* name, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", name, e.what());
    return 1;
  }
  return 0;
}

}  // namespace mwbench
