#include "manyworlds/mpmd/job_client.hpp"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "io/descriptor.hpp"
#include "link/secret_file.hpp"
#include "manyworlds/coro/offload.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/worker_thread.hpp"
#include "manyworlds/mpmd/graph_error.hpp"
#include "manyworlds/store/store_error.hpp"
#include "mpmd/job_address.hpp"
#include "mpmd/job_meeting.hpp"
#include "mpmd/job_store.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace manyworlds::inline v0 {

namespace detail {

using nlohmann::json;

constexpr duration between_looks_at_job = std::chrono::milliseconds(100);
constexpr duration patience_with_store = std::chrono::minutes(1);

// --- how it stands --------------------------------------------------------------------

static instance_id instance_named(const std::string& text) {
  instance_id id;
  const std::size_t dot = text.rfind('.');
  if (dot == std::string::npos) return id;
  id.role = text.substr(0, dot);
  std::from_chars(text.data() + dot + 1, text.data() + text.size(), id.index);
  return id;
}

static job_status::instance instance_from(const json& all) {
  job_status::instance one;
  one.id = instance_named(all.value("instance", ""));
  one.node = all.value("node", "");
  const std::string phase = all.value("phase", "");
  one.state = all.value("life", phase == "running" ? "ordered" : phase);
  one.incarnation = all.value("incarnation", std::uint64_t{0});
  one.pid = all.value("pid", std::int64_t{0});
  one.steps = all.value("steps", std::uint64_t{0});
  one.failures = all.value("failures", std::size_t{0});
  one.last_end = all.value("last_end", "");
  return one;
}

/// A master of a later version may tell more, or less.
static job_status status_from(const std::string& text) {
  job_status status;
  const json all = json::parse(text, nullptr, false);
  if (!all.is_object()) return status;
  try {
    status.stage = all.value("stage", "");
    status.term = all.value("term", std::uint64_t{0});
    status.exit_code = all.value("exit_code", 0);
    status.why = all.value("why", "");
    status.waits_for = all.value("waits_for", "");
    status.job_restarts = all.value("job_restarts", std::uint64_t{0});
    for (const json& each : all.value("instances", json::array()))
      status.instances.push_back(instance_from(each));
  } catch (const json::exception& e) {
    throw std::runtime_error(
        fmt::format("what its master tells is no status: {}", e.what()));
  }
  return status;
}

static tcp_store_options client_with(const std::string& secret_file) {
  tcp_store_options client;
  if (!secret_file.empty()) client.secret = read_secret_file(secret_file);
  return client;
}

class job_client_core {
 public:
  job_client_core(runtime& rt, std::string job, job_client::options options)
      : runtime_(rt), job_(std::move(job)), options_(std::move(options)) {
    find();
  }

  [[nodiscard]] const std::string& job() const noexcept { return job_; }
  /// The store of a job that was started here goes with it; what was told last stays.
  [[nodiscard]] task<job_status> status() {
    if (const auto end = end_told()) co_return status_from(*end);
    find();
    std::optional<std::string> told;
    try {
      if (meeting_) told = co_await meeting_->published();
    } catch (const store_error&) {
      const auto end = end_told();
      if (!end) throw;
      told = end;
    }
    co_return status_from(told.value_or(""));
  }
  /// Does the same, and bears a store that is away for a while (law G-c). That of a job
  /// of this machine does not come again.
  [[nodiscard]] task<job_status> status_in_time() {
    const auto end = std::chrono::steady_clock::now() + patience_with_store;
    while (!options_.store.empty()) {
      try {
        job_status now = co_await status();
        co_return now;
      } catch (const store_error& e) {
        if (e.kind() != store_error_kind::unreachable) throw;
        if (std::chrono::steady_clock::now() > end) throw;
      }
      co_await sleep_for(between_looks_at_job);
    }
    co_return co_await status();
  }
  /// What is over has nothing to stop.
  [[nodiscard]] task<void> stop(std::string why) {
    if (end_told()) co_return;
    find();
    if (!meeting_) co_return;
    try {
      co_await meeting_->ask_to_stop(std::move(why));
    } catch (const store_error&) {
      if (!end_told()) throw;
    }
  }

 private:
  /// One that is over may be followed by another of its name.
  void find() {
    if (meeting_ || end_told()) return;
    try {
      const job_address at = address();
      store_ = open_job_store(runtime_, at.store, client_with(at.secret_file));
    } catch (const std::runtime_error&) {
      // It may have ended since.
      if (!end_told()) throw;
      return;
    }
    meeting_.emplace(*store_, job_);
  }
  [[nodiscard]] job_address address() const {
    if (options_.store.empty()) return address_of_job(options_.folder, job_);
    return {job_, options_.store, options_.secret_file};
  }
  [[nodiscard]] std::optional<std::string> end_told() const {
    if (!options_.store.empty()) return std::nullopt;
    return end_of_job(options_.folder, job_);
  }

  runtime& runtime_;
  const std::string job_;
  const job_client::options options_;
  /// Null where the job was over from the beginning.
  std::unique_ptr<store> store_;
  std::optional<job_meeting> meeting_;
};

// --- its start ------------------------------------------------------------------------

/// A file of this text, which goes with it.
class graph_file {
 public:
  explicit graph_file(const std::string& text) : path_("/tmp/mw-graph-XXXXXX.json") {
    const unique_descriptor file(::mkostemps(path_.data(), 5, O_CLOEXEC));
    if (!file) throw std::system_error(errno, std::generic_category(), path_);
    const bool is_written = ::write(file.get(), text.data(), text.size()) ==
                            static_cast<ssize_t>(text.size());
    if (is_written) return;
    const int why = errno;
    ::unlink(path_.c_str());
    throw std::system_error(why, std::generic_category(), path_);
  }
  graph_file(const graph_file&) = delete;
  graph_file& operator=(const graph_file&) = delete;
  ~graph_file() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// Runs a program that leaves others behind, so that it is none of `supervised_process`,
/// and returns its exit code and what it printed. It blocks.
static std::pair<int, std::string> run_command(std::vector<std::string> line) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "pipe");
  const unique_descriptor out(pipe[0]);
  unique_descriptor in(pipe[1]);
  std::vector<char*> words;
  for (std::string& word : line) words.push_back(word.data());
  words.push_back(nullptr);
  // A reactor's thread has blocked signals, which the job would never hear.
  sigset_t none;
  ::sigemptyset(&none);
  posix_spawnattr_t how;
  ::posix_spawnattr_init(&how);
  ::posix_spawnattr_setsigmask(&how, &none);
  ::posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, in.get(), STDERR_FILENO);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, words[0], &actions, &how, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&how);
  if (error != 0) throw std::system_error(error, std::generic_category(), line[0]);
  in = unique_descriptor();
  std::string said;
  std::array<char, 4096> some{};
  for (ssize_t got = 0; (got = ::read(out.get(), some.data(), some.size())) > 0;)
    said.append(some.data(), static_cast<std::size_t>(got));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), said};
}

static task<void> start_job(job_graph graph, job_client::options options) {
  auto objections = graph.check();
  if (!objections.empty()) throw graph_error(std::move(objections));
  const graph_file file(graph.to_json());
  std::vector<std::string> line{options.program, "start", file.path(), "--nodes",
                                std::to_string(options.nodes)};
  if (!options.folder.empty()) line.insert(line.end(), {"--folder", options.folder});
  worker_thread runner("mw-submit");
  const auto run = [&line] { return run_command(line); };
  const std::pair<int, std::string> end = co_await offload(runner, run);
  if (end.first != 0)
    throw std::runtime_error(fmt::format("{} start has ended with {}: {}",
                                         options.program, end.first, end.second));
}

}  // namespace detail

using namespace detail;

task<job_client> job_client::submit(runtime& rt, job_graph graph) {
  return submit(rt, std::move(graph), options());
}

task<job_client> job_client::submit(runtime& rt, job_graph graph, options how) {
  std::string name = graph.name();
  how.store.clear();
  co_await start_job(std::move(graph), how);
  co_return job_client(rt, std::move(name), std::move(how));
}

job_client::job_client(runtime& rt, std::string job)
    : job_client(rt, std::move(job), options()) {}
job_client::job_client(runtime& rt, std::string job, options how)
    : core_(std::make_unique<job_client_core>(rt, std::move(job), std::move(how))) {}
job_client::job_client(job_client&&) noexcept = default;
job_client& job_client::operator=(job_client&&) noexcept = default;
job_client::~job_client() = default;

const std::string& job_client::job() const noexcept { return core_->job(); }
task<job_status> job_client::status() { return core_->status(); }

task<job_status> job_client::until_over() {
  for (;;) {
    job_status now = co_await core_->status_in_time();
    if (now.is_over()) co_return now;
    co_await sleep_for(between_looks_at_job);
  }
}

task<void> job_client::stop(std::string why) { return core_->stop(std::move(why)); }

}  // namespace manyworlds::inline v0
