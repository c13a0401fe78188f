// mwstore COMMAND: serves a store, and reads and changes one: over tcp, in etcd, or in a
// folder.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/engine.hpp"
#include "io/reactor.hpp"
#include "io/resolve.hpp"
#include "link/secret_file.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/root.hpp"
#include "manyworlds/io/signals.hpp"
#include "manyworlds/store/etcd_store.hpp"
#include "manyworlds/store/file_store.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "store/store_relay.hpp"
#include "store/tcp_store_server.hpp"

namespace {

namespace mw = manyworlds;
using mw::task;
using nlohmann::json;

// Exit codes, as the help says them.
constexpr int done = 0;
constexpr int not_there = 1;
constexpr int bad_usage = 2;
constexpr int cannot_reach = 3;

/// What stands on the command line.
struct arguments {
  std::string url;
  std::string key;
  std::vector<std::string> keys;  ///< of wait
  std::string value;
  std::string number;  ///< of add
  double timeout = 10;
  bool as_json = false;
  std::string secret_file;
  // of etcd
  mw::etcd_store_options etcd;
  std::string password_file;
  // of serve and relay
  std::vector<std::string> listen;
  std::vector<int> descriptors;
  bool insecure = false;
  // of get, keys and watch
  bool waits = false;
  bool reads_what_is_there = false;
  bool is_prefix = false;
  double interval = 0.5;
  std::uint64_t count = 0;

  [[nodiscard]] mw::duration limit() const {
    return std::chrono::duration_cast<mw::duration>(
        std::chrono::duration<double>(timeout > 0 ? timeout : 0));
  }
};

/// A command line that is well-formed, and asks for what cannot be.
class usage_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

mw::secret_text secret_of(const arguments& a) {
  if (a.secret_file.empty()) return {};
  return mw::detail::read_secret_file(a.secret_file);
}

/// Runs a task on a reactor of this thread, and returns its exit code.
int run_on_reactor(const std::function<task<int>(mw::detail::reactor&)>& make) {
  mw::detail::reactor home(mw::detail::make_engine(mw::engine_kind::automatic).engine,
                           mw::detail::reactor_options{mw::duration::zero()});
  task<int> work = make(home);
  bool has_ended = false;
  mw::detail::task_root root(
      home, [](void* ended) noexcept { *static_cast<bool*>(ended) = true; }, &has_ended);
  root.start(work.promise());
  home.run_until([&] { return has_ended; });
  return work.promise().take_result();
}

std::unique_ptr<mw::store> open_store(mw::executor& home, const arguments& a) {
  const auto rest_of = [&](const char* scheme) -> std::optional<std::string> {
    if (!a.url.starts_with(scheme)) return std::nullopt;
    return a.url.substr(std::string(scheme).size());
  };
  if (const auto endpoint = rest_of("tcp://")) {
    mw::tcp_store_options options;
    options.secret = secret_of(a);
    return std::make_unique<mw::tcp_store>(home, *endpoint, options);
  }
  if (const auto folder = rest_of("file://")) {
    // Made for what is set, or for what others will set.
    if (a.reads_what_is_there && !std::filesystem::is_directory(*folder))
      throw std::runtime_error("there is no folder \"" + *folder + "\"");
    return std::make_unique<mw::file_store>(*folder);
  }
  std::optional<std::string> endpoints = rest_of("etcd://");
  if (!endpoints && (a.url.starts_with("https://") || a.url.starts_with("http://")))
    endpoints = a.url;
  if (!endpoints)
    throw usage_error("\"" + a.url +
                      "\" names no store: give tcp://host:port, etcd://host:port, "
                      "https://host:port or file:///folder");
  mw::etcd_store_options options = a.etcd;
  if (!a.password_file.empty())
    options.password = mw::detail::read_secret_file(a.password_file).str();
  return std::make_unique<mw::etcd_store>(*endpoints, std::move(options));
}

// --------------------------------------------------------------------------- The output

/// Keys and values are bytes: those that are no UTF-8 are given in hexadecimal.
void put_bytes(json& object, const std::string& name, const std::string& bytes) {
  json text = bytes;
  try {
    static_cast<void>(text.dump());
    object[name] = std::move(text);
  } catch (const json::exception&) {
    std::string digits;
    for (const char c : bytes) {
      constexpr const char* hex = "0123456789abcdef";
      digits += hex[static_cast<unsigned char>(c) >> 4];
      digits += hex[static_cast<unsigned char>(c) & 15];
    }
    object[name + "_hex"] = digits;
  }
}

void print_line(const std::string& line) {
  std::cout << line << '\n' << std::flush;
  if (std::cout) return;
  throw std::runtime_error(std::string("cannot write to standard output: ") +
                           std::strerror(errno));
}

/// Reads all of it, up to what a value may have.
std::string standard_input() {
  const std::size_t most = mw::store_limits().value_bytes;
  std::string text;
  for (char part[65536];;) {
    const ssize_t n = ::read(STDIN_FILENO, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw usage_error(std::string("cannot read standard input: ") +
                        std::strerror(errno));
    if (n == 0) return text;
    text.append(part, static_cast<std::size_t>(n));
    if (text.size() > most)
      throw usage_error("standard input has more than the " + std::to_string(most) +
                        " bytes that a value may have");
  }
}

std::int64_t number_in(const std::string& text) {
  std::int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size()) return number;
  throw usage_error("\"" + text + "\" is no number of 64 bits");
}

void print_entry(const arguments& a, const std::string& key, const std::string& value) {
  if (!a.as_json) return print_line(value);
  json object = json::object();
  put_bytes(object, "key", key);
  put_bytes(object, "value", value);
  print_line(object.dump());
}

void print_number(const arguments& a, std::int64_t number) {
  print_line(a.as_json ? json{{"key", a.key}, {"number", number}}.dump()
                       : std::to_string(number));
}

void print_change(const arguments& a, const std::string& key,
                  const std::optional<std::string>& value) {
  if (!a.as_json) {
    return print_line(value ? "set " + key + " " + *value : "erased " + key);
  }
  json object = json::object();
  put_bytes(object, "key", key);
  if (value) put_bytes(object, "value", *value);
  object["erased"] = !value;
  print_line(object.dump());
}

// ---------------------------------------------------------------------- The operations

task<int> get(mw::store& st, const arguments& a) {
  const std::string& key = a.key;
  std::optional<std::string> value;
  if (a.waits) {
    value = co_await st.get(key, a.limit());
  } else {
    value = co_await st.try_get(key, a.limit());
  }
  if (!value) {
    std::cerr << "mwstore: " << st.address() << " has no key \"" << key << "\"\n";
    co_return not_there;
  }
  print_entry(a, key, *value);
  co_return done;
}

task<int> set(mw::store& st, const arguments& a) {
  std::string value = a.value == "-" ? standard_input() : a.value;
  co_await st.set(a.key, std::move(value), a.limit());
  co_return done;
}

task<int> add(mw::store& st, const arguments& a) {
  const std::int64_t more = number_in(a.number);
  const std::int64_t sum = co_await st.add(a.key, more, a.limit());
  print_number(a, sum);
  co_return done;
}

task<int> keys(mw::store& st, const arguments& a) {
  std::vector<std::string> found = co_await st.keys(a.limit());
  std::sort(found.begin(), found.end());
  const std::string& prefix = a.key;
  for (const std::string& key : found) {
    if (!key.starts_with(prefix)) continue;
    if (!a.as_json) {
      print_line(key);
      continue;
    }
    json object = json::object();
    put_bytes(object, "key", key);
    print_line(object.dump());
  }
  co_return done;
}

task<int> wait(mw::store& st, const arguments& a) {
  mw::store_keys awaited(a.keys);
  co_await st.wait(std::move(awaited), a.limit());
  co_return done;
}

task<int> erase(mw::store& st, const arguments& a) {
  const bool was_set = co_await st.erase(a.key, a.limit());
  if (was_set) co_return done;
  std::cerr << "mwstore: " << st.address() << " has no key \"" << a.key << "\"\n";
  co_return not_there;
}

/// etcd tells each change.
task<int> watch_etcd(mw::etcd_store& st, const arguments& a) {
  mw::etcd_watch watch = a.is_prefix ? st.watch_prefix(a.key, 0) : st.watch(a.key, 0);
  for (std::uint64_t told = 0; a.count == 0 || told < a.count;) {
    const mw::etcd_changes news = co_await watch.next();
    for (const mw::etcd_change& c : news.changes) {
      std::optional<std::string> value;
      if (!c.is_erased) value = c.entry.value;
      print_change(a, c.entry.key, value);
      ++told;
    }
  }
  co_return done;
}

task<std::map<std::string, std::string>> what_is_there(mw::store& st,
                                                       const arguments& a) {
  std::vector<std::string> names = {a.key};
  if (a.is_prefix) names = co_await st.keys(a.limit());
  std::map<std::string, std::string> found;
  for (const std::string& name : names) {
    if (!name.starts_with(a.key)) continue;
    std::optional<std::string> value = co_await st.try_get(name, a.limit());
    if (value) found[name] = std::move(*value);
  }
  co_return found;
}

/// Other stores tell of no change: what is there is compared.
task<int> watch_by_looking(mw::store& st, const arguments& a) {
  std::map<std::string, std::string> before = co_await what_is_there(st, a);
  const std::chrono::duration<double> interval(a.interval);
  for (std::uint64_t told = 0; a.count == 0 || told < a.count;) {
    co_await mw::sleep_for(std::chrono::duration_cast<mw::duration>(interval));
    std::map<std::string, std::string> now = co_await what_is_there(st, a);
    for (const auto& [key, value] : now) {
      const auto old = before.find(key);
      if (old != before.end() && old->second == value) continue;
      print_change(a, key, value);
      ++told;
    }
    for (const auto& [key, value] : before) {
      if (now.contains(key)) continue;
      print_change(a, key, std::nullopt);
      ++told;
    }
    before = std::move(now);
  }
  co_return done;
}

task<int> watch(mw::store& st, const arguments& a) {
  const bool is_etcd = st.address().starts_with("etcd://");
  auto signalled = mw::until_signal({SIGTERM, SIGINT});
  auto watching =
      is_etcd ? watch_etcd(static_cast<mw::etcd_store&>(st), a) : watch_by_looking(st, a);
  co_await mw::when_any(std::move(watching), std::move(signalled));
  co_return done;
}

// ------------------------------------------------------------------ Serving and passing
// on

/// Returns all addresses of the arguments: of a name the first.
task<std::vector<mw::socket_address>> addresses_of(const std::vector<std::string>& said) {
  std::vector<mw::socket_address> all;
  for (const std::string& text : said) {
    mw::detail::resolution found = co_await mw::detail::resolve(text);
    if (!found.ok())
      throw usage_error("cannot listen at \"" + text + "\": " + found.failure());
    all.push_back(found.addresses().front());
  }
  co_return all;
}

void report(std::string_view line) { std::cerr << "mwstore: " << line << '\n'; }

/// Raises this process's limit of descriptors as far as it may: a shell mostly allows
/// 1024, and a large job has more clients.
void allow_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

task<int> serve(mw::detail::reactor& home, const arguments& a) {
  allow_descriptors();
  auto signalled = mw::until_signal({SIGTERM, SIGINT});
  mw::detail::tcp_store_server_options options;
  options.secret = secret_of(a);
  options.insecure = a.insecure;
  options.report = report;
  std::vector<mw::socket_address> places = co_await addresses_of(a.listen);
  for (const mw::socket_address& each : places) {
    if (each.is_loopback() || a.insecure || !a.secret_file.empty()) continue;
    throw usage_error(each.text() +
                      " is open to the network: give --secret-file FILE, or --insecure");
  }
  std::vector<mw::detail::listener> listeners;
  for (const int fd : a.descriptors)
    listeners.push_back(mw::detail::listener::from_descriptor(home, fd));
  std::optional<mw::detail::tcp_store_server> server;
  std::vector<std::string> shown;
  if (!listeners.empty()) {
    for (const auto& l : listeners) shown.push_back(l.address().text());
    server.emplace(home, std::move(listeners), options);
  } else {
    server.emplace(home, std::span<const mw::socket_address>(places), options);
    for (const mw::socket_address& p : places) {
      const std::uint16_t port = p.port() == 0 ? server->address().port() : p.port();
      shown.push_back(p.with_port(port).text());
    }
  }
  for (const std::string& at : shown)
    print_line(a.as_json ? json{{"address", "tcp://" + at}}.dump() : "tcp://" + at);
  co_await mw::when_any(server->serve(), std::move(signalled));
  co_return done;
}

task<int> relay(mw::detail::reactor& home, const arguments& a) {
  allow_descriptors();
  auto signalled = mw::until_signal({SIGTERM, SIGINT});
  constexpr std::string_view scheme = "tcp://";
  if (!a.url.starts_with(scheme))
    throw usage_error("\"" + a.url + "\" has no relay: give tcp://host:port");
  mw::detail::store_relay_options options;
  options.report = report;
  std::vector<mw::socket_address> places = co_await addresses_of(a.listen);
  options.listen = places.front();
  mw::detail::store_relay passing(home, a.url.substr(scheme.size()), secret_of(a),
                                  options);
  const std::string at = "tcp://" + passing.address().text();
  print_line(a.as_json ? json{{"address", at}}.dump() : at);
  co_await mw::when_any(passing.serve(), std::move(signalled));
  co_return done;
}

// ---------------------------------------------------------------------- The command line

using operation = task<int> (*)(mw::store&, const arguments&);

/// The store lives in the frame of what uses it.
task<int> perform(mw::detail::reactor& home, const arguments& a, operation what) {
  const std::unique_ptr<mw::store> st = open_store(home, a);
  co_return co_await what(*st, a);
}

/// What the command line asks for.
using command = std::function<int()>;

void add_store_options(CLI::App& sub, arguments& a) {
  sub.add_option("--timeout", a.timeout, "seconds that it may take")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  sub.add_flag("--json", a.as_json,
               "one JSON object a line; bytes that are no UTF-8 as "
               "key_hex and value_hex");
  sub.add_option(
      "--secret-file", a.secret_file,
      "the secret of a store over tcp, in a file that only its owner can read");
  sub.add_option("--prefix", a.etcd.prefix, "of etcd: where the store's keys lie")
      ->capture_default_str();
  sub.add_option("--user", a.etcd.user, "of etcd");
  sub.add_option("--password-file", a.password_file,
                 "of etcd, a file that only its owner can read");
  sub.add_option("--ca", a.etcd.ca_file, "of etcd: the authority of its certificate");
  sub.add_option("--cert", a.etcd.certificate_file, "of etcd: this client's certificate");
  sub.add_option("--key", a.etcd.key_file, "of etcd: the certificate's key");
}

CLI::App& add_operation(CLI::App& app, arguments& a, command& chosen, const char* name,
                        const char* help, operation what) {
  CLI::App& sub = *app.add_subcommand(name, help);
  sub.add_option("store", a.url,
                 "tcp://host:port, etcd://host:port[,host:port], "
                 "https://host:port or file:///folder")
      ->required();
  add_store_options(sub, a);
  sub.callback([&a, &chosen, what] {
    a.reads_what_is_there = (what == get && !a.waits) || what == keys || what == erase;
    chosen = [&a, what] {
      return run_on_reactor(
          [&a, what](mw::detail::reactor& home) { return perform(home, a, what); });
    };
  });
  return sub;
}

void add_operations(CLI::App& app, arguments& a, command& chosen) {
  const auto key = [&a](CLI::App& sub, const char* help) {
    return sub.add_option("key", a.key, help);
  };
  CLI::App& getting = add_operation(app, a, chosen, "get", "print a value", get);
  key(getting, "the key")->required();
  getting.add_flag("--wait", a.waits, "until it is set, or --timeout");
  CLI::App& setting = add_operation(app, a, chosen, "set", "set a key", set);
  key(setting, "the key")->required();
  setting.add_option("value", a.value, "the value; - reads it from standard input")
      ->required();
  CLI::App& adding =
      add_operation(app, a, chosen, "add", "add to a number and print the sum", add);
  key(adding, "the key")->required();
  adding.add_option("number", a.number, "what is added")->required();
  key(add_operation(app, a, chosen, "keys", "list the keys", keys),
      "only those that begin with it");
  add_operation(app, a, chosen, "wait", "wait until all keys are set, or --timeout", wait)
      .add_option("keys", a.keys, "the keys")
      ->required();
  key(add_operation(app, a, chosen, "erase", "erase a key", erase), "the key")
      ->required();
  CLI::App& watching = add_operation(app, a, chosen, "watch",
                                     "print changes until a signal: etcd tells each one; "
                                     "other stores are looked at every "
                                     "--interval, and only what differs then is told",
                                     watch);
  key(watching, "the key")->required();
  watching.add_flag("--all", a.is_prefix, "all keys that begin with it");
  watching.add_option("--interval", a.interval, "seconds between two looks")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  watching.add_option("--count", a.count, "end after this number of changes")
      ->check(CLI::NonNegativeNumber);
}

void add_services(CLI::App& app, arguments& a, command& chosen) {
  a.listen = {"127.0.0.1:0"};
  CLI::App& serving = *app.add_subcommand(
      "serve", "serve a store over tcp until SIGTERM or SIGINT; prints its addresses");
  serving.add_option("--listen", a.listen, "host:port, several; port 0 chooses one")
      ->capture_default_str();
  serving.add_option("--listen-fd", a.descriptors,
                     "sockets that listen, which this program was started with");
  serving.add_option("--secret-file", a.secret_file,
                     "what clients must prove to know; mwstore secret makes such a file");
  serving.add_flag("--insecure", a.insecure, "beyond loopback without a secret");
  serving.add_flag("--json", a.as_json, "print addresses as JSON");
  serving.callback([&] {
    chosen = [&a] {
      return run_on_reactor([&a](mw::detail::reactor& home) { return serve(home, a); });
    };
  });
  CLI::App& passing = *app.add_subcommand(
      "relay",
      "let clients on this machine that prove no secret, such as PyTorch's, use a "
      "store that demands it");
  passing.add_option("store", a.url, "tcp://host:port")->required();
  passing.add_option("--listen", a.listen, "a port of loopback")->expected(1);
  passing.add_option("--secret-file", a.secret_file, "the store's secret")->required();
  passing.add_flag("--json", a.as_json, "print the address as JSON");
  passing.callback([&] {
    chosen = [&a] {
      return run_on_reactor([&a](mw::detail::reactor& home) { return relay(home, a); });
    };
  });
  CLI::App& making = *app.add_subcommand(
      "secret", "make a file with a random secret, which only its owner can read");
  making.add_option("file", a.secret_file, "the file, which must not exist")->required();
  making.callback([&] {
    chosen = [&a] {
      mw::detail::make_secret_file(a.secret_file);
      return done;
    };
  });
}

/// A socket with the number of a standard stream would get what is printed.
void hold_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // Reading and writing fail there, as they do where nothing is open.
    if (::fcntl(fd, F_GETFD) < 0)
      static_cast<void>(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

/// CLI11 says only that a command is missing.
std::string words_of(const CLI::ParseError& e, const CLI::App& app,
                     const std::string& first) {
  const bool is_option = first.empty() || first.front() == '-';
  const auto is_it = [&](const CLI::App* each) { return each->get_name() == first; };
  if (is_option || !app.get_subcommands(is_it).empty()) return e.what();
  return "\"" + first + "\" is no command: mwstore --help lists them";
}

int exit_code_of(const mw::store_error& e) {
  return e.kind() == mw::store_error_kind::timed_out ? not_there : cannot_reach;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Serves a store, and reads and changes one: over tcp, in etcd, or in a folder.\n"
      "Exit codes: 0 done; 1 the key is not set, or was not in time; 2 the command line "
      "is "
      "wrong; 3 the store cannot be reached, or refuses, or the output cannot be "
      "written."};
  app.require_subcommand(1);
  hold_standard_streams();
  arguments a;
  command chosen;
  add_operations(app, a, chosen);
  add_services(app, a, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    std::cerr << "mwstore: " << words_of(e, app, argc > 1 ? argv[1] : "") << '\n';
    return bad_usage;
  }
  try {
    return chosen();
  } catch (const mw::store_error& e) {
    std::cerr << "mwstore: " << e.what() << '\n';
    return exit_code_of(e);
  } catch (const usage_error& e) {
    std::cerr << "mwstore: " << e.what() << '\n';
    return bad_usage;
  } catch (const std::invalid_argument& e) {
    std::cerr << "mwstore: " << e.what() << '\n';
    return bad_usage;
  } catch (const std::exception& e) {
    std::cerr << "mwstore: " << e.what() << '\n';
    return cannot_reach;
  }
}
