#include "mwrun/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>
#include <numeric>
#include <utility>

namespace mwrun {

namespace {

using namespace std::chrono_literals;

// ------------------------------------------------------------------------ Values of
// words

int number_in(std::string_view option, std::string_view text, int least, int most) {
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number =
      parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  if (is_number && value >= least && value <= most) return value;
  throw usage_error(fmt::format("{}: \"{}\" was given: expected a number from {} to {}",
                                option, text, least, most));
}

mw::duration seconds_in(std::string_view option, std::string_view text) {
  const auto given = seconds_of_text(text);
  if (given && *given >= 0s) return *given;
  throw usage_error(
      fmt::format("{}: \"{}\" was given: expected seconds, 0 or more", option, text));
}

std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

/// Two commas in a row stand for one within a filter, as torchrun has it.
std::vector<std::string> filters_in(std::string_view text) {
  std::vector<std::string> filters;
  std::string filter;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_comma = text[i] == ',';
    const bool is_escaped = is_comma && i + 1 < text.size() && text[i + 1] == ',';
    if (is_comma && !is_escaped) {
      if (!filter.empty()) filters.push_back(std::exchange(filter, {}));
      continue;
    }
    filter += text[i];
    if (is_escaped) ++i;
  }
  if (!filter.empty()) filters.push_back(std::move(filter));
  return filters;
}

std::vector<int> ranks_in(std::string_view option, std::string_view text) {
  std::vector<int> ranks;
  for (const std::string& each : parts_of(text, ','))
    ranks.push_back(number_in(option, each, 0, 1 << 20));
  return ranks;
}

unsigned streams_in(std::string_view option, std::string_view text) {
  return static_cast<unsigned>(
      number_in(option, text, stream_choice::none, stream_choice::both));
}

/// Reads "3", or "0:3,1:2" by local rank.
stream_choice choice_in(std::string_view option, std::string_view text) {
  stream_choice choice;
  if (text.find(':') == std::string_view::npos) {
    choice.otherwise = streams_in(option, text);
    return choice;
  }
  for (const std::string& each : parts_of(text, ',')) {
    const std::size_t colon = std::min(each.find(':'), each.size());
    const std::string_view pair = each;
    const int rank = number_in(option, pair.substr(0, colon), 0, 1 << 20);
    const std::string_view streams = pair.substr(std::min(colon + 1, pair.size()));
    choice.by_local_rank[rank] = streams_in(option, streams);
  }
  return choice;
}

void read_nodes(std::string_view text, command_line& line) {
  constexpr int most = 4096;
  const std::size_t colon = std::min(text.find(':'), text.size());
  line.min_nodes = number_in("--nnodes", text.substr(0, colon), 1, most);
  line.max_nodes = colon == text.size()
                       ? line.min_nodes
                       : number_in("--nnodes", text.substr(colon + 1), 1, most);
  if (line.min_nodes > line.max_nodes) {
    throw usage_error(
        fmt::format("--nnodes: \"{}\" was given: expected MIN:MAX, not more than", text));
  }
}

std::map<std::string, std::string> pairs_in(std::string_view text) {
  std::map<std::string, std::string> pairs;
  for (const std::string& each : parts_of(text, ',')) {
    const std::size_t equals = each.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw usage_error(fmt::format(
          "--rdzv-conf: \"{}\" was given: expected KEY=VALUE,KEY=VALUE", text));
    }
    pairs[each.substr(0, equals)] = each.substr(equals + 1);
  }
  return pairs;
}

std::vector<int> signals_in(std::string_view text) {
  static const std::map<std::string, int, std::less<>> known = {
      {"SIGTERM", SIGTERM}, {"SIGINT", SIGINT},   {"SIGHUP", SIGHUP},
      {"SIGQUIT", SIGQUIT}, {"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2}};
  std::vector<int> signals;
  for (const std::string& each : parts_of(text, ',')) {
    const auto found = known.find(each);
    if (found == known.end()) {
      throw usage_error(fmt::format(
          "--signals-to-handle: \"{}\" was given: expected of SIGTERM, SIGINT, SIGHUP, "
          "SIGQUIT, SIGUSR1, SIGUSR2",
          each));
    }
    signals.push_back(found->second);
  }
  return signals;
}

void check_workers(const std::string& text) {
  if (text == "cpu" || text == "gpu" || text == "auto") return;
  try {
    (void)number_in("--nproc-per-node", text, 1, 4096);
  } catch (const usage_error&) {
    throw usage_error(fmt::format(
        "--nproc-per-node: \"{}\" was given: expected a number, cpu, gpu or auto", text));
  }
}

// ------------------------------------------------------------------------------- Options

/// Describes the options to CLI11, which keeps their values in order and writes the help.
class option_table {
 public:
  option_table(CLI::App& app, command_line& line) : app_(app), line_(line) {}

  void add_all(bool as_launch) {
    add_torchruns();
    add_logs();
    add_ours();
    if (as_launch) {
      line_.use_env = false;
      flag("--use-env", line_.use_env, "no --local-rank argument for the program");
    }
  }
  /// Options that may also be given by PET_OPTION.
  [[nodiscard]] const std::vector<std::string>& with_variables() const noexcept {
    return with_variables_;
  }

 private:
  using reader = std::function<void(const std::string& name, const std::string& value)>;

  void value(const std::string& names, const char* of, reader read, const char* what,
             bool has_variable = true) {
    const std::string name = first_long(names);
    app_.add_option_function<std::string>(
            both_spellings(names),
            [name, read = std::move(read)](const std::string& v) { read(name, v); }, what)
        ->type_name(of);
    if (has_variable) with_variables_.push_back(name);
  }
  void text(const std::string& names, std::string& into, const char* of, const char* what,
            bool has_variable = true) {
    auto read = [&into](const std::string&, const std::string& v) { into = v; };
    value(names, of, read, what, has_variable);
  }
  void flag(const std::string& names, bool& into, const char* what,
            bool has_variable = false) {
    app_.add_flag_function(
        both_spellings(names), [&into](std::int64_t) { into = true; }, what);
    if (has_variable) with_variables_.push_back(first_long(names));
  }
  void ignored(const std::string& names, const char* of, const char* what) {
    value(
        names, of, [](const std::string&, const std::string&) {}, what);
  }

  [[nodiscard]] static std::string first_long(const std::string& names) {
    return names.substr(names.find("--"));
  }
  /// "-t,--a-b" is also known as "--a_b".
  [[nodiscard]] static std::string both_spellings(const std::string& names) {
    std::string other = first_long(names);
    std::replace(other.begin() + 2, other.end(), '-', '_');
    return other == first_long(names) ? names : names + "," + other;
  }

  void add_torchruns();
  void add_logs();
  void add_ours();

  CLI::App& app_;
  command_line& line_;
  std::vector<std::string> with_variables_;
};

void option_table::add_torchruns() {
  command_line& l = line_;
  value(
      "--nnodes", "N|MIN:MAX", [&l](auto&, auto& v) { read_nodes(v, l); },
      "nodes, or the least and the most of them");
  value(
      "--nproc-per-node", "N|cpu|gpu|auto",
      [&l](auto&, auto& v) {
        check_workers(v);
        l.nproc_per_node = v;
      },
      "workers on each node");
  text("--rdzv-backend", l.rdzv_backend, "NAME",
       "static, standalone, c10d, tcp, etcd, etcd-v2, file, or what is registered");
  text("--rdzv-endpoint", l.rdzv_endpoint, "HOST:PORT", "where the nodes meet");
  text("--rdzv-id", l.rdzv_id, "ID", "names the run");
  value(
      "--rdzv-conf", "K=V,...", [&l](auto&, auto& v) { l.rdzv_conf = pairs_in(v); },
      "join_timeout, last_call_timeout, close_timeout, in seconds");
  flag("--standalone", l.standalone, "one node, a store of its own, a fresh id", true);
  value(
      "--max-restarts", "N",
      [&l](auto& n, auto& v) { l.max_restarts = number_in(n, v, 0, 1 << 30); },
      "restarts before the run fails");
  ignored("--monitor-interval", "S", "taken and not needed: nothing is polled");
  ignored("--start-method", "NAME", "taken and not needed: programs are executed");
  text("--event-log-handler", l.event_log_handler, "NAME",
       "where events go: null, console, file or file:PATH");
  text("--role", l.role, "NAME", "the role of this node's workers");
  flag("-m,--module", l.module, "run the program as a Python module", true);
  flag("--no-python", l.no_python, "execute the program, without Python", true);
  flag("--run-path", l.run_path, "run the script by runpy", true);
  value(
      "--node-rank", "N",
      [&l](auto& n, auto& v) { l.node_rank = number_in(n, v, 0, 4095); },
      "this node's place, of a static run");
  text("--master-addr", l.master_addr, "HOST", "of node 0, of a static run");
  value(
      "--master-port", "PORT",
      [&l](auto& n, auto& v) { l.master_port = number_in(n, v, 0, 65535); },
      "of node 0, of a static run");
  text("--local-addr", l.local_addr, "HOST", "how the others reach this node");
  text("--numa-binding", l.numa_binding, "KIND",
       "binds workers: node, socket, exclusive or core-complex", false);
  value(
      "--signals-to-handle", "NAME,...",
      [&l](auto&, auto& v) { l.signals_to_handle = signals_in(v); },
      "signals that are passed on to the workers");
  value(
      "--shutdown-timeout", "S",
      [&l](auto& n, auto& v) { l.shutdown_timeout = seconds_in(n, v); },
      "from SIGTERM to SIGKILL, whatever the cause");
  flag("--virtual-local-rank", l.virtual_local_rank,
       "each worker sees its one GPU as device 0", true);
}

void option_table::add_logs() {
  command_line& l = line_;
  text("--log-dir", l.log_dir, "FOLDER", "for the workers' files; /dev/null for none");
  value(
      "-r,--redirects", "0-3|RANK:0-3,...",
      [&l](auto& n, auto& v) { l.redirects = choice_in(n, v); },
      "into files alone: 1 output, 2 errors, 3 both");
  value(
      "-t,--tee", "0-3|RANK:0-3,...", [&l](auto& n, auto& v) { l.tee = choice_in(n, v); },
      "into files and to the console");
  text("--log-line-prefix-template", l.log_line_prefix_template, "TEXT",
       "with ${role_name}, ${local_rank}, ${rank}, ${hostname}");
  value(
      "--local-ranks-filter", "R,...",
      [&l](auto& n, auto& v) { l.local_ranks_filter = ranks_in(n, v); },
      "the console shows these local ranks alone");
  value(
      "--duplicate-stdout-filters", "TEXT,...",
      [&l](auto&, auto& v) { l.duplicate_stdout_filters = filters_in(v); },
      "lines with such a text go to filtered_stdout.log too");
  value(
      "--duplicate-stderr-filters", "TEXT,...",
      [&l](auto&, auto& v) { l.duplicate_stderr_filters = filters_in(v); },
      "lines with such a text go to filtered_stderr.log too");
  value(
      "--logs-specs", "NAME",
      [](auto& n, auto&) {
        throw usage_error(n + ": log specifications are Python, which mwrun has not");
      },
      "of torchrun alone", false);
}

void option_table::add_ours() {
  command_line& l = line_;
  const auto ours = [this](const char* names, const char* of, reader read,
                           const char* what) { value(names, of, read, what, false); };
  ours(
      "--restart-scope", "group|worker",
      [&l](auto& n, auto& v) {
        if (v != "group" && v != "worker") {
          throw usage_error(
              fmt::format("{}: \"{}\" was given: expected group or worker", n, v));
        }
        l.scope = v == "worker" ? restart_scope::worker : restart_scope::group;
      },
      "what is started again when a worker is lost");
  ours(
      "--max-restarts-per-rank", "N",
      [&l](auto& n, auto& v) { l.max_restarts_per_rank = number_in(n, v, 0, 1 << 30); },
      "of one rank within the window");
  ours(
      "--restart-window", "S",
      [&l](auto& n, auto& v) { l.restart_window = seconds_in(n, v); },
      "restarts count for this time; without it for the whole run");
  ours(
      "--hang-timeout", "S",
      [&l](auto& n, auto& v) { l.hang_timeout = seconds_in(n, v); },
      "a worker that is stuck for this time is ended");
  ours(
      "--spares", "N", [&l](auto& n, auto& v) { l.spares = number_in(n, v, 0, 4096); },
      "nodes that wait to take another's place");
  ours(
      "--exit-barrier-timeout", "S",
      [&l](auto& n, auto& v) { l.exit_barrier_timeout = seconds_in(n, v); },
      "how long nodes that are done wait for the others");
  flag("--propagate-exit-code", l.propagate_exit_code,
       "exit with the first failed worker's code, not with 1");
  flag("--keep-descendants", l.keep_descendants,
       "leave what a worker has started when it exits with 0");
  ours(
      "--ranks-filter", "R,...",
      [&l](auto& n, auto& v) { l.ranks_filter = ranks_in(n, v); },
      "the console shows these ranks alone");
  text("--secret-file", l.secret_file, "FILE", "the run's secret", false);
  text("--health-endpoint", l.health_endpoint, "[ADDRESS:]PORT",
       "answers probes by HTTP; TORCHELASTIC_HEALTH_CHECK_PORT does the same", false);
  flag("--insecure", l.insecure, "the network is trusted");
  ours(
      "--agent-lost-after", "S",
      [&l](auto& n, auto& v) { l.agent_lost_after = seconds_in(n, v); },
      "a node that is silent for this time is lost");
  text("--print-completion", l.completion, "bash|zsh", "print a shell's completion",
       false);
  flag("--dry-run", l.dry_run, "print commands and environments as JSON, start nothing");
}

// ----------------------------------------------------------------- Words before CLI11

std::size_t distance_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

/// Knows the options' names, and brings each word to one of them.
class word_reader {
 public:
  explicit word_reader(const CLI::App& app) {
    for (const CLI::Option* each : app.get_options()) {
      for (const std::string& name : each->get_lnames()) long_["--" + name] = each;
      for (const std::string& name : each->get_snames()) short_["-" + name] = each;
    }
  }

  /// Returns the options' words, each value within its option's word, and leaves the
  /// number of words that they were in `used`. A word "--" ends the options.
  [[nodiscard]] std::vector<std::string> options(const std::vector<std::string>& words,
                                                 std::size_t& used) const {
    std::vector<std::string> found;
    for (used = 0; used < words.size();) {
      const std::string& word = words[used];
      if (word.size() < 2 || word[0] != '-') break;
      ++used;
      if (word == "--") break;
      take(word, words, used, found);
    }
    return found;
  }

  [[nodiscard]] std::vector<std::string> long_names() const {
    std::vector<std::string> names;
    for (const auto& [name, option] : long_) names.push_back(name);
    return names;
  }

 private:
  static bool takes_value(const CLI::Option& option) {
    return option.get_items_expected_max() > 0;
  }

  void take(const std::string& word, const std::vector<std::string>& words,
            std::size_t& used, std::vector<std::string>& found) const {
    const bool is_long = word[1] == '-';
    const std::size_t end =
        is_long ? std::min(word.find('='), word.size()) : std::size_t{2};
    const std::string said = word.substr(0, end);
    const CLI::Option& option = is_long ? by_long(said) : by_short(said);
    const std::string name = "--" + option.get_lnames().front();
    std::optional<std::string> value;
    // "-r3" and "-r=3" are "-r 3", as argparse reads them.
    if (end < word.size()) value = word.substr(end + (word[end] == '=' ? 1 : 0));
    if (!takes_value(option)) {
      if (value) throw usage_error(said + " takes no value");
      found.push_back(name);
      return;
    }
    if (!value) {
      if (used == words.size()) throw usage_error(said + ": a value is missing");
      value = words[used++];
    }
    if (value->empty()) {
      // CLI11 takes the next word for the value behind an equals sign with nothing.
      found.push_back(name);
      found.emplace_back();
    } else {
      found.push_back(name + "=" + *value);
    }
  }

  [[nodiscard]] const CLI::Option& by_long(const std::string& said) const {
    const auto exact = long_.find(said);
    if (exact != long_.end()) return *exact->second;
    // argparse takes the beginning of one option's name for it, in either spelling.
    const CLI::Option* only = nullptr;
    std::string matches;
    for (auto at = long_.lower_bound(said);
         at != long_.end() && at->first.starts_with(said); ++at) {
      if (at->second == only) continue;
      matches += (only ? ", " : "") + at->first;
      if (only) throw usage_error(said + " may be each of " + matches);
      only = at->second;
    }
    if (only) return *only;
    throw usage_error(
        fmt::format("there is no option {}; the nearest is {}", said, nearest_to(said)));
  }
  [[nodiscard]] const CLI::Option& by_short(const std::string& said) const {
    const auto found = short_.find(said);
    if (found != short_.end()) return *found->second;
    throw usage_error("there is no option " + said);
  }
  /// A name may have been cut, and then written wrongly.
  [[nodiscard]] std::string nearest_to(const std::string& said) const {
    const auto distance = [&](const std::string& name) {
      const std::string_view cut = std::string_view(name).substr(0, said.size());
      return std::min(distance_between(said, name), distance_between(said, cut) + 1);
    };
    const auto is_nearer = [&](const auto& a, const auto& b) {
      return distance(a.first) < distance(b.first);
    };
    return std::min_element(long_.begin(), long_.end(), is_nearer)->first;
  }

  std::map<std::string, const CLI::Option*> long_;
  std::map<std::string, const CLI::Option*> short_;
};

std::string variable_of(std::string option) {
  option.erase(0, 2);
  std::string name = "PET_";
  for (const char c : option)
    name +=
        c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

/// The options that variables set, where no word does.
std::vector<std::string> options_of_variables(const CLI::App& app,
                                              const option_table& table,
                                              const std::vector<std::string>& given,
                                              variable_lookup variable) {
  std::vector<std::string> words;
  for (const std::string& option : table.with_variables()) {
    const auto is_given = [&](const std::string& word) {
      return word == option || word.starts_with(option + "=");
    };
    const std::optional<std::string> value = variable(variable_of(option));
    if (!value || value->empty()) continue;
    if (std::any_of(given.begin(), given.end(), is_given)) continue;
    const CLI::Option* const known = app.get_option(option);
    if (known->get_items_expected_max() > 0) {
      words.push_back(option + "=" + *value);
    } else if (number_in(variable_of(option), *value, 0, 1 << 30) != 0) {
      words.push_back(option);
    }
  }
  return words;
}

void describe(CLI::App& app, option_table& table, bool as_launch) {
  app.set_help_flag("-h,--help", "print this and exit");
  // As argparse has it: of an option that is given twice the last counts.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_flag_function(
      "--version", [](std::int64_t) {}, "print the version and exit");
  table.add_all(as_launch);
  app.footer(
      "Options of torchrun may also be given by variables: PET_NNODES, PET_MAX_RESTARTS\n"
      "and so on; a word wins. What follows the first word that is no option is the\n"
      "program's, and ${local_rank} in it is the worker's local rank.");
}

void check_together(const command_line& line) {
  if (line.module && line.no_python)
    throw usage_error("--module and --no-python: a module is run by Python");
  if (line.program.empty()) throw usage_error("the program is missing");
  static const char* const bindings[] = {"", "node", "socket", "exclusive",
                                         "core-complex"};
  if (std::find(std::begin(bindings), std::end(bindings), line.numa_binding) ==
      std::end(bindings)) {
    throw usage_error(fmt::format(
        "--numa-binding: \"{}\" was given: expected node, socket, exclusive or "
        "core-complex",
        line.numa_binding));
  }
}

}  // namespace

std::optional<mw::duration> seconds_of_text(std::string_view text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr double longest = 1e9;
  const bool is_number =
      parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  if (!is_number || !(value >= -longest && value <= longest)) return std::nullopt;
  return std::chrono::duration_cast<mw::duration>(std::chrono::duration<double>(value));
}

command_line read_command_line(const std::vector<std::string>& words,
                               variable_lookup variable, bool as_launch) {
  command_line line;
  CLI::App app;
  option_table table(app, line);
  describe(app, table, as_launch);
  const word_reader reader(app);
  std::size_t used = 0;
  const std::vector<std::string> given = reader.options(words, used);
  std::vector<std::string> all = options_of_variables(app, table, given, variable);
  all.insert(all.end(), given.begin(), given.end());
  for (const std::string& each : all) {
    if (each == "--help") line.asks = request::help;
    if (each == "--version") line.asks = request::version;
    if (each.starts_with("--print-completion=")) line.asks = request::completion;
  }
  if (line.asks == request::help || line.asks == request::version) return line;
  // CLI11 takes the last word first. The request for a completion is one of its options.
  std::reverse(all.begin(), all.end());
  try {
    app.parse(std::move(all));
  } catch (const CLI::ParseError& e) {
    throw usage_error(e.what());
  }
  if (used < words.size()) line.program = words[used];
  for (std::size_t i = used + 1; i < words.size(); ++i)
    line.arguments.push_back(words[i]);
  if (line.asks == request::run) check_together(line);
  return line;
}

std::string help_text(bool as_launch) {
  command_line line;
  CLI::App app("Starts workers on this node, watches them, and starts again what fails.",
               as_launch ? "mwlaunch" : "mwrun");
  option_table table(app, line);
  describe(app, table, as_launch);
  return app.help();
}

std::string completion_for(std::string_view shell) {
  command_line line;
  CLI::App app;
  option_table table(app, line);
  describe(app, table, false);
  std::string names;
  for (const std::string& name : word_reader(app).long_names()) {
    if (name.find('_') == std::string::npos) names += (names.empty() ? "" : " ") + name;
  }
  if (shell == "bash") {
    return fmt::format(
        "_mwrun() {{\n"
        "  local word=${{COMP_WORDS[COMP_CWORD]}}\n"
        "  if [[ $word == -* ]]; then COMPREPLY=($(compgen -W \"{}\" -- \"$word\"))\n"
        "  else COMPREPLY=($(compgen -f -- \"$word\")); fi\n"
        "}}\n"
        "complete -o filenames -F _mwrun mwrun\n",
        names);
  }
  if (shell == "zsh") {
    return fmt::format(
        "#compdef mwrun\n_mwrun() {{\n  compadd -- {}\n  _files\n}}\ncompdef _mwrun "
        "mwrun\n",
        names);
  }
  throw usage_error(
      fmt::format("--print-completion: \"{}\" was given: expected bash or zsh", shell));
}

}  // namespace mwrun
