// Commands of mwgraph: each has a file of its own, which adds it to the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "manyworlds/mpmd/job_graph.hpp"

namespace mwgraph {

// Exit codes, as the help says them.
inline constexpr int done = 0;
inline constexpr int has_failed = 1;
/// Of the command line, or of a job's description.
inline constexpr int is_wrong = 2;

/// What the command line asks for; returns the exit code. Errors of it are caught by
/// `main`: a graph_error is printed an objection a line.
using command = std::function<int()>;

/// A command line, or a file that it names, which cannot be used.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Each adds its command, which is put into `chosen` where the line names it.
void add_check(CLI::App& app, command& chosen);
void add_picture(CLI::App& app, command& chosen);
void add_agent(CLI::App& app, command& chosen);
void add_master(CLI::App& app, command& chosen);
void add_run(CLI::App& app, command& chosen);
void add_start(CLI::App& app, command& chosen);
void add_status(CLI::App& app, command& chosen);
void add_events(CLI::App& app, command& chosen);
void add_wait(CLI::App& app, command& chosen);
void add_stop(CLI::App& app, command& chosen);
void add_why(CLI::App& app, command& chosen);
void add_logs(CLI::App& app, command& chosen);
void add_plan(CLI::App& app, command& chosen);
void add_forget(CLI::App& app, command& chosen);

/// Adds the argument FILE, a description in TOML or JSON.
void add_file(CLI::App& sub, std::string& file);
/// Reads the description. Errors: graph_error, usage_error.
[[nodiscard]] manyworlds::job_graph read_graph(const std::string& file);

/// Refuses a file that cannot declare what a machine has. Errors: usage_error.
void check_devices(const std::string& file);

/// Returns "1 role", "2 roles".
[[nodiscard]] std::string counted(std::uint64_t number, std::string_view thing);

/// Prints to standard output. Errors: std::system_error.
void print(const std::string& text);
/// Says on standard error what went wrong. Where that cannot be written, on a disk that
/// is full, nothing else fails for it.
void complain(std::string_view what) noexcept;

}  // namespace mwgraph
