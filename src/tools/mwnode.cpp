// mwnode: runs the workers of a session on this machine, for a controller on another one.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "launch/own_address.hpp"
#include "launch/variable_reader.hpp"
#include "link/secret_file.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/io/signals.hpp"
#include "manyworlds/launch/process_guard.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "spmd/node_agent.hpp"

namespace {

namespace mw = manyworlds;

constexpr int has_failed = 1;
constexpr int bad_usage = 2;
constexpr int of_signal = 128;

/// What stands on the command line.
struct arguments {
  std::string controller;
  int node = 0;
  std::string secret_file;
  bool insecure = false;
  std::string interface;
  std::string log_folder;
  double wait = 60;
  std::vector<std::string> program;
};

struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void add_options(CLI::App& app, arguments& a) {
  app.add_option("CONTROLLER", a.controller,
                 "where the controller's nodes join, as \"10.0.0.1:7070\"")
      ->required();
  app.add_option("PROGRAM", a.program,
                 "what each worker runs, and its arguments; behind \"--\"")
      ->required();
  app.add_option("--node", a.node, "this node's number, from 0 on")
      ->required()
      ->check(CLI::Range(0, 4095));
  app.add_option("--secret-file", a.secret_file,
                 "a file with the secret of the controller's runtime");
  app.add_flag("--insecure", a.insecure, "the network is trusted: without a secret");
  app.add_option("--interface", a.interface,
                 "the interface or address where other members reach this node's "
                 "workers, in place of the one that leads to the controller");
  app.add_option("--log-dir", a.log_folder,
                 "a folder, with a file for each worker's output, in place of the own "
                 "output");
  app.add_option("--wait", a.wait, "seconds to wait for the controller")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
}

mw::socket_address own_address_of(const arguments& a) {
  if (!mw::detail::port_of(a.controller)) {
    throw usage_error(
        fmt::format("CONTROLLER: \"{}\" is no address with a port", a.controller));
  }
  mw::launch_context way;
  way.size = 2;
  way.store = a.controller;
  way.interface = a.interface;
  try {
    return mw::detail::own_address(way);
  } catch (const mw::launch_error& e) {
    // The network may have it later.
    if (a.interface.empty()) {
      throw std::runtime_error(
          fmt::format("no way leads to \"{}\" (--interface)", a.controller));
    }
    throw usage_error(fmt::format(
        "--interface: \"{}\" is no interface or address of this machine", a.interface));
  }
}

mw::runtime_options runtime_of(const arguments& a, const mw::socket_address& own) {
  mw::runtime_options how;
  how.listen = own.with_port(0).text();
  how.insecure = a.insecure;
  if (!a.secret_file.empty()) {
    try {
      how.secret = mw::detail::read_secret_file(a.secret_file);
    } catch (const std::runtime_error& e) {
      throw usage_error(fmt::format("--secret-file: {}", e.what()));
    }
  }
  if (!own.is_loopback() && how.secret.empty() && !a.insecure) {
    throw usage_error(fmt::format(
        "--secret-file: it is missing, since others reach this node at {} (or "
        "--insecure, if the network is trusted)",
        how.listen.view()));
  }
  return how;
}

int run(const arguments& a) {
  // What a worker has started ends too when this process is killed.
  mw::process_guard guard;
  const mw::socket_address own = own_address_of(a);
  const mw::runtime_options how = runtime_of(a, own);
  if (!a.log_folder.empty()) std::filesystem::create_directories(a.log_folder);
  auto told_to_end = mw::until_signal({SIGTERM, SIGINT});
  mw::runtime rt(how);
  mw::tcp_store_options secret;
  secret.secret = how.secret;
  mw::tcp_store meeting(rt, a.controller, secret);
  mw::process_options program(a.program.front(),
                              {a.program.begin() + 1, a.program.end()});
  program.guarded_by(guard);
  mw::detail::node_agent agent(rt, meeting,
                               {.node = a.node,
                                .store = a.controller,
                                .listen = how.listen.str(),
                                .log_folder = a.log_folder,
                                .wait = std::chrono::duration_cast<mw::duration>(
                                    std::chrono::duration<double>(a.wait))},
                               std::move(program));
  int order = 0;
  auto obey = [&](mw::task<mw::received_signal> came) -> mw::task<void> {
    order = (co_await std::move(came)).number;
    agent.end();
  };
  auto serve = [&]() -> mw::task<void> {
    co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
      s.spawn(obey(std::move(told_to_end)));
      co_await agent.run();
      s.cancel();
    });
  };
  rt.run(serve());
  return order == 0 ? 0 : of_signal + order;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Runs the workers of a session on this machine, for a controller on another one "
      "(mw::nodes). It ends when the session does, and its workers end with it.\n"
      "Exit codes: 0 the session has ended; 1 it could not be reached or joined, or its "
      "controller "
      "is gone; 2 the command line is wrong; 128 + n after signal n."};
  arguments a;
  add_options(app, a);
  try {
    app.parse(argc, argv);
    return run(a);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    fmt::print(stderr, "mwnode: {}\n", e.what());
    return bad_usage;
  } catch (const usage_error& e) {
    fmt::print(stderr, "mwnode: {}\n", e.what());
    return bad_usage;
  } catch (const std::invalid_argument& e) {
    fmt::print(stderr, "mwnode: {}\n", e.what());
    return bad_usage;
  } catch (const std::exception& e) {
    fmt::print(stderr, "mwnode: node {}: {}\n", a.node, e.what());
    return has_failed;
  }
}
