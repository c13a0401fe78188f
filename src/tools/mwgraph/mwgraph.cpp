// mwgraph COMMAND: jobs that are graphs of roles.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/mpmd/graph_error.hpp"
#include "mpmd/spoken_text.hpp"
#include "mwgraph/command.hpp"

namespace {

namespace mw = manyworlds;

/// Returns what is wrong with the line. CLI11 takes a command that it does not know for
/// an argument too many.
std::string words_of(const CLI::ParseError& e, const CLI::App& app,
                     const std::string& first) {
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands({})) names.push_back(each->get_name());
  const std::vector<std::string_view> known(names.begin(), names.end());
  const bool is_command = !first.empty() && first.front() != '-';
  for (const std::string_view each : known)
    if (each == first) return e.what();
  if (!is_command) return e.what();
  return fmt::format("{} is no command: {}{}", mw::detail::in_quotes(first),
                     mw::detail::one_of(known), mw::detail::did_you_mean(first, known));
}

int refuse(const std::string& why, int code) {
  mwgraph::complain(why);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Jobs that are graphs of roles: programs, and worlds between them.\n"
      "Exit codes: 0 done; 1 failed; 2 the command line or the description is wrong, and "
      "nothing was started. run and wait end with the job's own code, once it has "
      "begun."};
  app.require_subcommand(1);
  mwgraph::command chosen;
  mwgraph::add_check(app, chosen);
  mwgraph::add_picture(app, chosen);
  mwgraph::add_run(app, chosen);
  mwgraph::add_start(app, chosen);
  mwgraph::add_status(app, chosen);
  mwgraph::add_events(app, chosen);
  mwgraph::add_why(app, chosen);
  mwgraph::add_logs(app, chosen);
  mwgraph::add_wait(app, chosen);
  mwgraph::add_stop(app, chosen);
  mwgraph::add_forget(app, chosen);
  mwgraph::add_agent(app, chosen);
  mwgraph::add_master(app, chosen);
  mwgraph::add_plan(app, chosen);
  try {
    app.parse(argc, argv);
    return chosen();
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    return refuse(words_of(e, app, argc > 1 ? argv[1] : ""), mwgraph::is_wrong);
  } catch (const mw::graph_error& e) {
    // As compilers do, so that editors find the places.
    fmt::print(stderr, "{}\n", e.what());
    return mwgraph::is_wrong;
  } catch (const mwgraph::usage_error& e) {
    return refuse(e.what(), mwgraph::is_wrong);
  } catch (const std::exception& e) {
    return refuse(e.what(), mwgraph::has_failed);
  }
}
