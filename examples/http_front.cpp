// A front: HTTP with streamed answers (server-sent events) before workers that come and
// go. A client that hangs up ends its call, and the worker's handler. In terminals, in
// any order:
//
//   http_front --port 8080                   hosts the store at --store too
//   http_front --role worker                 any number of them
//   curl -N 'http://127.0.0.1:8080/generate?prompt=hello&tokens=20'
//
// A worker ends its answers and leaves at SIGTERM, the front at SIGTERM or Ctrl-C.
#include <fmt/format.h>
#include <httplib.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <manyworlds/interop/reply_feed.hpp>
#include <manyworlds/mw.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace mw = manyworlds;
using namespace std::chrono_literals;

namespace {

constexpr mw::service_name service = "generate";

std::string text_of(std::span<const std::byte> data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}
std::vector<std::byte> bytes_of(const std::string& text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

// --- a worker

/// Answers "TOKENS PAUSE_MS PROMPT" with that many replies, with that pause between them.
mw::task<void> generate(mw::served_call& call) {
  const std::string request = text_of(call.data());
  int tokens = 0, pause = 0, at = 0;
  if (std::sscanf(request.c_str(), "%d %d %n", &tokens, &pause, &at) != 2)
    throw std::runtime_error("a request is TOKENS PAUSE_MS PROMPT");
  const std::string prompt = request.substr(static_cast<std::size_t>(at));
  struct telling {
    explicit telling(const std::string& p) : prompt(p) {
      fmt::print("begun {}\n", prompt);
    }
    // This runs also when the call is cancelled: the task unwinds.
    ~telling() {
      fmt::print("{} {} after {}\n", is_whole ? "ended" : "cancelled", prompt, said);
    }
    const std::string& prompt;
    int said = 0;
    bool is_whole = false;
  } tells(prompt);
  for (; tells.said < tokens; ++tells.said) {
    if (pause > 0) co_await mw::sleep_for(pause * 1ms);  // computes
    const std::string token = fmt::format("{}-{}", prompt, tells.said);
    co_await call.reply(token);
  }
  tells.is_whole = true;
}

mw::task<void> work(mw::runtime& rt, mw::store& store) {
  mw::call_server server(generate);
  const auto serve = [&](mw::world& w) { return server.serve(w); };
  auto connected =
      mw::connect(rt, store, {.service = service}, serve, mw::after_close::form_again);
  co_await std::move(connected);
}

// --- the front

/// One answer, on a thread of the HTTP server.
class answer {
 public:
  answer(mw::runtime& rt, mw::dispatcher& workers, std::vector<std::byte> request)
      : tokens_(rt, workers, std::move(request), {.limit = 60s}) {
    ++open;
  }
  answer(const answer&) = delete;
  answer& operator=(const answer&) = delete;
  ~answer() { --open; }

  /// Called repeatedly until it returns false or the sink is done.
  bool go_on(httplib::DataSink& sink) {
    // Look whether the client is still there when no token comes.
    const auto got = tokens_.take(50ms);
    std::string events;
    for (const std::vector<std::byte>& each : got.replies)
      events += "data: " + text_of(each) + "\n\n";
    if (got.is_over) {
      events += got.why ? "event: error\ndata: " + got.why.text() + "\n\n"
                        : std::string("event: end\ndata: \n\n");
    }
    // Returning false cancels the call: the feed is destroyed.
    if (!events.empty() && !sink.write(events.data(), events.size())) return false;
    if (got.is_over) sink.done();
    return got.is_over || sink.is_writable();
  }

  static inline std::atomic<int> open{0};

 private:
  mw::reply_feed tokens_;
};

/// Serves until it is destroyed, also when main ends by an exception.
class http_thread {
 public:
  explicit http_thread(httplib::Server& http)
      : http_(http), serving_([&http] { http.listen_after_bind(); }) {
    // A stop before that would be lost.
    while (!http_.is_running()) std::this_thread::yield();
  }
  http_thread(const http_thread&) = delete;
  http_thread& operator=(const http_thread&) = delete;
  ~http_thread() {
    http_.stop();
    serving_.join();
  }

 private:
  httplib::Server& http_;
  std::thread serving_;
};

void route(httplib::Server& http, mw::runtime& rt, mw::dispatcher& workers) {
  http.Get("/generate", [&](const httplib::Request& asked, httplib::Response& reply) {
    const auto value = [&](const char* name, const char* otherwise) {
      return asked.has_param(name) ? asked.get_param_value(name) : std::string(otherwise);
    };
    const std::string request = value("tokens", "10") + " " + value("pause_ms", "20") +
                                " " + value("prompt", "hello");
    auto streamed = std::make_shared<answer>(rt, workers, bytes_of(request));
    reply.set_chunked_content_provider("text/event-stream",
                                       [streamed](std::size_t, httplib::DataSink& sink) {
                                         return streamed->go_on(sink);
                                       });
  });
}

mw::task<void> lead(mw::runtime& rt, mw::store& store, mw::dispatcher& workers) {
  const auto serve = [&](mw::world& w) -> mw::task<void> {
    fmt::print("a worker has come\n");
    co_await workers.serve(w);
  };
  auto accepted = mw::accept(rt, store, {.service = service}, serve);
  co_await std::move(accepted);
}

mw::task<void> stop_on(mw::runtime& rt, mw::task<mw::received_signal> signal) {
  (void)co_await std::move(signal);
  rt.stop(30s);
}

/// Runs `t` until it ends; a signal stops the runtime, which has 30 s for what is open.
mw::task<void> until_signalled(mw::runtime& rt, mw::task<mw::received_signal> signal,
                               mw::task<void> t) {
  auto both = [&](mw::scope& s) -> mw::task<void> {
    s.spawn(stop_on(rt, std::move(signal)));
    co_await std::move(t);
    s.cancel();
  };
  co_await mw::scope::run(both);
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("An HTTP front before workers that come and go.");
  std::string role = "front", address = "127.0.0.1:29500";
  int port = 0;
  app.add_option("--role", role)->check(CLI::IsMember({"front", "worker"}));
  app.add_option("--store", address, "address of the store, which the front hosts")
      ->capture_default_str();
  app.add_option("--port", port, "port of HTTP; 0 chooses one")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);

  // Do this before any thread is started: threads inherit what is blocked.
  auto signal = mw::until_signal({SIGTERM, SIGINT});
  // It outlives the runtime: the runtime's tasks use it to their end.
  mw::dispatcher workers({.name = "generate"});
  mw::runtime rt({.log_from = mw::log_level::error});
  std::optional<mw::hosted_store> host;
  if (role == "front") host.emplace(rt, address);
  mw::tcp_store store(rt, host ? host->address() : address);
  if (role == "worker") {
    rt.run(until_signalled(rt, std::move(signal), work(rt, store)));
    fmt::print("left\n");
    return 0;
  }
  httplib::Server http;
  route(http, rt, workers);
  port = port ? (http.bind_to_port("127.0.0.1", port) ? port : -1)
              : http.bind_to_any_port("127.0.0.1");
  if (port < 0) throw std::runtime_error("the port is in use");
  fmt::print("store {}\nhttp://127.0.0.1:{}\n", host->address(), port);
  const http_thread serving(http);
  rt.start(until_signalled(rt, std::move(signal), lead(rt, store, workers))).get();
  // The calls have ended; their last tokens may be on the way to the clients.
  for (int i = 0; i < 500 && answer::open > 0; ++i) std::this_thread::sleep_for(10ms);
  fmt::print("left\n");
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "http_front: {}\n", e.what());
  return 1;
}
