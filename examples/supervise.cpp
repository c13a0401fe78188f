// A program that is supervised: started again when it fails, and ended with all that it
// has started. Ctrl-C or SIGTERM ends it in order.
//
//     supervise ./engine --port 0
//     supervise --restarts 3 --grace 2 -- sh -c 'echo ready; sleep 1; exit 3'
#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>
#include <string>
#include <string_view>
#include <vector>
using namespace std::chrono_literals;

namespace {

struct wishes {
  std::vector<std::string> command;
  std::size_t restarts = 5;
  double grace_s = 10;
  std::string log;
};

void say(std::string_view line) {
  std::printf("supervise: %.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(stdout);
}

void show_end(const mw::process_end& end) {
  std::string line = end.reason.text();
  if (end.starts_again_in) {
    const auto pause =
        std::chrono::duration_cast<std::chrono::milliseconds>(*end.starts_again_in);
    line += "; again in " + std::to_string(pause.count()) + " ms";
  }
  say(line);
}

mw::process_options options_for(const wishes& w, mw::process_guard& guard) {
  mw::process_options how(w.command.front(), {w.command.begin() + 1, w.command.end()});
  const auto show = [](const mw::output_line& line) {
    std::printf("  | %.*s\n", static_cast<int>(line.text.size()), line.text.data());
    std::fflush(stdout);
  };
  mw::process_output output = mw::lines(show);
  if (!w.log.empty()) output = mw::tee(std::move(output), mw::to_file(w.log));
  how.output(std::move(output));
  if (w.restarts > 0)
    how.restart({.when = mw::restart_when::on_failure, .most = w.restarts});
  how.when_ended(show_end).guarded_by(guard);
  return how;
}

/// Ends the program when the signal comes.
mw::task<void> stop_when_told(mw::supervised_process& program, mw::duration patience,
                              mw::task<mw::received_signal> told) {
  const mw::received_signal came = co_await std::move(told);
  say(came.text() + ": stopping");
  co_await program.stop(mw::grace(patience));
}

/// Gives the exit code.
mw::task<int> supervise(mw::runtime& rt, const wishes& w, mw::process_guard& guard,
                        mw::task<mw::received_signal> told) {
  mw::supervised_process program(rt, options_for(w, guard));
  mw::exit_reason last;
  const auto patience =
      std::chrono::duration_cast<mw::duration>(std::chrono::duration<double>(w.grace_s));
  const auto body = [&](mw::scope& s) -> mw::task<void> {
    s.spawn(stop_when_told(program, patience, std::move(told)));
    last = co_await program.ended();
    co_await program.stop();
    s.cancel();
  };
  co_await mw::scope::run(body);
  if (last.kind == mw::exit_kind::not_started) co_return 127;
  co_return last.kind == mw::exit_kind::stopped ? 0 : last.code + last.signal;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Starts a program, starts it again when it fails, and ends it in order."};
  wishes w;
  app.add_option("command", w.command, "the program and its arguments")->required();
  app.add_option("--restarts", w.restarts, "in ten minutes")->capture_default_str();
  app.add_option("--grace", w.grace_s, "seconds between SIGTERM and SIGKILL")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--log", w.log, "also writes its output to this file");
  app.prefix_command();
  CLI11_PARSE(app, argc, argv);
  mw::process_guard guard;  // before any thread
  auto told = mw::until_signal({SIGTERM, SIGINT});
  mw::runtime rt({.log_from = mw::log_level::error});
  return rt.run(supervise(rt, w, guard, std::move(told)));
}
