// mwrun's command line: torchrun's options and ours, read into what they mean.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/time.hpp"

namespace mwrun {

namespace mw = manyworlds;

/// A command line that cannot be meant. Its text is one line that names the option.
class usage_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What is asked of the program apart from running a job.
enum class request : std::uint8_t { run, help, version, completion };

/// Which streams of a worker are meant, as torchrun's `--redirects` and `--tee` say it.
struct stream_choice {
  enum bits : unsigned { none = 0, out = 1, err = 2, both = 3 };

  /// Returns the bits of one local rank.
  [[nodiscard]] unsigned of(int local_rank) const noexcept {
    const auto found = by_local_rank.find(local_rank);
    return found == by_local_rank.end() ? otherwise : found->second;
  }

  unsigned otherwise = none;
  std::map<int, unsigned> by_local_rank;
};

/// What is started again when a worker is lost.
enum class restart_scope : std::uint8_t { group, worker };

/// What a command line, with the variables below it, asks for. Fields are called as
/// torchrun's options are; those behind `scope` are ours.
struct command_line {
  request asks = request::run;

  int min_nodes = 1;
  int max_nodes = 1;
  /// A number, or "cpu", "gpu" or "auto".
  std::string nproc_per_node = "1";
  std::string rdzv_backend = "static";
  std::string rdzv_endpoint;
  std::string rdzv_id = "none";
  std::map<std::string, std::string> rdzv_conf;
  bool standalone = false;
  int max_restarts = 0;
  std::string role = "default";
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  std::string log_dir;
  stream_choice redirects;
  stream_choice tee;
  std::string log_line_prefix_template;
  std::vector<int> local_ranks_filter;
  std::vector<std::string> duplicate_stdout_filters;
  std::vector<std::string> duplicate_stderr_filters;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  std::optional<int> master_port;
  std::string local_addr;
  std::vector<int> signals_to_handle;
  mw::duration shutdown_timeout = std::chrono::seconds(30);
  bool virtual_local_rank = false;
  std::string numa_binding;
  std::string event_log_handler = "null";
  /// Of mwlaunch: without it, `--local-rank=N` is given to the program.
  bool use_env = true;

  restart_scope scope = restart_scope::group;
  std::optional<int> max_restarts_per_rank;
  std::optional<mw::duration> restart_window;
  std::optional<mw::duration> hang_timeout;
  std::optional<int> spares;
  mw::duration exit_barrier_timeout = std::chrono::seconds(300);
  bool propagate_exit_code = false;
  bool keep_descendants = false;
  std::vector<int> ranks_filter;
  std::string secret_file;
  bool insecure = false;
  std::string health_endpoint;
  mw::duration agent_lost_after = std::chrono::seconds(5);
  bool dry_run = false;
  /// The shell that is asked for; of `request::completion`.
  std::string completion;

  /// The program and its arguments, byte for byte.
  std::string program;
  std::vector<std::string> arguments;
};

/// Looks a variable up; nothing if it is not set.
using variable_lookup = std::optional<std::string> (*)(std::string_view name);

/// Reads the words behind the program's name. A word wins over the option's variable
/// PET_OPTION. Options are also known by `_` in place of `-`, and by each beginning that
/// no other option shares. Everything behind the first word that is no option is the
/// program's. `as_launch` reads as torch.distributed.launch does. Errors: usage_error.
[[nodiscard]] command_line read_command_line(const std::vector<std::string>& words,
                                             variable_lookup variable,
                                             bool as_launch = false);

/// Returns seconds, with a fraction; nothing for what is no number, or beyond 1e9.
[[nodiscard]] std::optional<mw::duration> seconds_of_text(std::string_view text);

/// Returns the help, as `--help` prints it.
[[nodiscard]] std::string help_text(bool as_launch = false);

/// Returns a script for a shell, "bash" or "zsh", that completes the options. Errors:
/// usage_error.
[[nodiscard]] std::string completion_for(std::string_view shell);

}  // namespace mwrun
