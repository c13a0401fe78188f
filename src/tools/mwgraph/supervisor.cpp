#include "mwgraph/supervisor.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "link/secret_file.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/io/signals.hpp"
#include "manyworlds/launch/process_guard.hpp"
#include "manyworlds/launch/supervised_process.hpp"
#include "manyworlds/serve/hosted_store.hpp"
#include "manyworlds/store/store_error.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "mpmd/job_meeting.hpp"
#include "mwgraph/command.hpp"
#include "mwgraph/job_watch.hpp"

namespace mwgraph {

namespace mw = manyworlds;
using mw::detail::job_meeting;

namespace {

constexpr mw::duration between_looks = std::chrono::milliseconds(100);
// A master leaves when it has told how the job has ended, and its agents have gone.
constexpr mw::duration patience_with_last_words = std::chrono::seconds(2);
// A master or an agent that ends is followed at once, and one of many that end in a row
// within a second (B68): their jobs wait for them.
constexpr mw::restart_policy always_again{
    mw::restart_when::on_failure, 1000, std::chrono::minutes(10),
    std::chrono::milliseconds(20), std::chrono::milliseconds(500)};

// Where masters have ended in a row that told nothing under a term of their own, the next
// will not do so, either: what keeps them from that, such as a context that is damaged,
// they have printed.
constexpr int most_mute_masters = 5;

/// The two programs of a job that this one starts, which are this one itself.
class job_programs {
 public:
  job_programs(mw::runtime& rt, mw::process_guard& guard, std::string job,
               const job_folder& folder, std::string store,
               const supervisor_options& options)
      : guard_(guard),
        job_(std::move(job)),
        folder_(folder),
        store_(std::move(store)),
        master_(rt, master_options(options)),
        agent_(rt, agent_options(options)) {}

  [[nodiscard]] mw::task<void> start() {
    co_await master_.started();
    co_await agent_.started();
  }
  /// Ends when one of them is not started again, and says why.
  [[nodiscard]] mw::task<std::string> given_up() {
    auto end = [](mw::supervised_process& of, const char* what) -> mw::task<std::string> {
      const mw::exit_reason reason = co_await of.ended();
      // Both end so with their job, and how it has ended is told by then.
      if (reason.is_success()) co_await mw::sleep_for(patience_with_last_words);
      co_return fmt::format("the {} has ended: {}", what, reason.text());
    };
    auto mute = [this]() -> mw::task<std::string> {
      co_await never_led_;
      co_return fmt::format("{} masters have ended before they told how the job stands",
                            most_mute_masters);
    };
    auto either =
        co_await mw::when_any(end(master_, "master"), end(agent_, "agent"), mute());
    auto& [master, agent, none] = either;
    if (master) co_return std::move(*master);
    co_return agent ? std::move(*agent) : std::move(*none);
  }
  /// A master of that term has told how the job stands.
  void note_status(std::uint64_t term) noexcept {
    if (term <= term_) return;
    term_ = term;
    mute_masters_ = 0;
    is_mute_.reset();
  }
  /// Ends once masters still cannot lead. The job runs on (law G-c), but none of them
  /// would end it as it is asked to.
  [[nodiscard]] mw::task<void> without_master() {
    mute_masters_ = std::min(mute_masters_, most_mute_masters - 2);
    is_mute_.reset();
    co_await is_mute_;
  }
  [[nodiscard]] mw::task<void> stop() {
    co_await agent_.stop(mw::grace(std::chrono::seconds(30)));
    co_await master_.stop(mw::grace(std::chrono::seconds(1)));
  }

 private:
  [[nodiscard]] mw::process_options own_program(std::vector<std::string> line) const {
    const std::string own = std::filesystem::read_symlink("/proc/self/exe").string();
    line.insert(line.end(),
                {job_, "--store", store_, "--secret-file", folder_.secret_file()});
    mw::process_options how(own, std::move(line));
    how.guarded_by(guard_);
    how.restart(always_again);
    return how;
  }
  [[nodiscard]] mw::process_options master_options(const supervisor_options& options) {
    auto how = own_program({"master", "--context", folder_.context_file(), "--graph",
                            folder_.graph_file(), "--nodes",
                            std::to_string(options.nodes), "--listen",
                            // Where the store has the address of a name.
                            store_.substr(0, store_.rfind(':')) + ":0"});
    how.when_ended([this](const mw::process_end&) {
      if (++mute_masters_ < most_mute_masters) return;
      if (term_ == 0) return never_led_.set();
      if (!is_mute_.is_set())
        complain("no master can lead: the job runs on, and nothing is started again");
      is_mute_.set();
    });
    return how;
  }
  [[nodiscard]] mw::process_options agent_options(const supervisor_options& options) {
    std::vector<std::string> line{"agent", "--node", "here", "--log-dir",
                                  options.logs.empty() ? folder_.logs() : options.logs};
    if (!options.devices.empty()) line.insert(line.end(), {"--devices", options.devices});
    return own_program(std::move(line));
  }

  mw::process_guard& guard_;
  const std::string job_;
  const job_folder& folder_;
  const std::string store_;
  std::uint64_t term_ = 0;  // the highest under which a master has told anything
  int mute_masters_ = 0;    // that have ended since
  mw::event never_led_;
  mw::event is_mute_;
  mw::supervised_process master_;
  mw::supervised_process agent_;
};

/// Prints what happens. That nothing can be printed, as on a disk that is full, is no
/// reason to end a job (law G-c).
class event_printer {
 public:
  explicit event_printer(bool prints) noexcept : prints_(prints) {}
  void print_news(const nlohmann::json& status) {
    if (!prints_) return;
    try {
      for (const std::string& each : reader_.news(status)) print(each + "\n");
    } catch (const std::system_error&) {
      prints_ = false;
    }
  }

 private:
  bool prints_;
  event_reader reader_;
};

/// Prints what happens, and returns the job's exit code once it is over.
mw::task<int> follow(job_meeting& meeting, job_programs& programs, bool prints) {
  event_printer printer(prints);
  // Of 200 instances a status is 60 KiB of JSON: it is read when it has changed.
  std::string last;
  const status_source told = [&]() -> mw::task<std::optional<std::string>> {
    auto now = co_await meeting.published();
    if (now == last) now.reset();
    if (now) last = *now;
    co_return now;
  };
  for (;;) {
    std::optional<nlohmann::json> status;
    try {
      status = co_await status_of(told);
    } catch (const mw::store_error& e) {
      // The store is this process's own: it is asked again.
      complain(e.what());
    }
    if (status) programs.note_status(status->value("term", std::uint64_t{0}));
    if (status) printer.print_news(*status);
    if (status && is_over(*status)) co_return status->value("exit_code", has_failed);
    co_await mw::sleep_for(between_looks);
  }
}

/// Returns what is told of a job that is over, also where no master has told that it is:
/// those who wait for its end would wait on.
std::string end_from(const std::string& last, int code) {
  nlohmann::json end = nlohmann::json::parse(last, nullptr, false);
  if (end.is_object() && is_over(end)) return last;
  if (!end.is_object()) end = nlohmann::json::object();
  end["stage"] = "stopped";
  end["exit_code"] = code;
  end["why"] = "it was ended before its master had seen all of it end";
  for (const char* const list : {"nodes", "instances", "edges", "events"})
    if (!end.contains(list)) end[list] = nlohmann::json::array();
  return end.dump();
}

/// On a disk that is full there may be room for a few bytes.
void tell_end(const job_folder& folder, const std::string& last, int code) {
  for (const std::string& told : {end_from(last, code), end_from("", code)}) {
    try {
      folder.tell_end(told);
      return;
    } catch (const std::system_error& e) {
      complain(fmt::format("the job's end cannot be told: {}", e.what()));
    }
  }
}

}  // namespace

int supervise(const mw::job_graph& graph, const job_folder& folder,
              const supervisor_options& options) {
  folder.keep_graph(graph.to_json());
  mw::process_guard guard;
  auto first = mw::until_signal({SIGTERM, SIGINT});
  auto second = mw::until_signal({SIGTERM, SIGINT});
  mw::runtime_options how;
  how.secret = mw::detail::read_secret_file(folder.secret_file());
  mw::runtime rt(how);
  mw::hosted_store host(rt, options.listen,
                        mw::hosted_store_options{.secret = how.secret});
  mw::tcp_store_options client;
  client.secret = how.secret;
  mw::tcp_store store(rt, host.address(), client);
  job_meeting meeting(store, graph.name());
  job_programs programs(rt, guard, graph.name(), folder, host.address(), options);
  folder.tell(graph.name(), host.address());

  int code = has_failed;
  auto pass_on = [&]() -> mw::task<void> {
    co_await std::move(first);
    co_await meeting.ask_to_stop("a signal");
    co_await std::move(second);
  };
  auto stop_without_master = [&]() -> mw::task<void> {
    static_cast<void>(co_await meeting.asked_to_stop());
    co_await programs.without_master();
  };
  auto obey = [&]() -> mw::task<void> {
    co_await mw::when_any(pass_on(), stop_without_master());
  };
  auto run = [&]() -> mw::task<void> {
    co_await programs.start();
    if (options.is_there) options.is_there();
    auto ended = co_await mw::when_any(follow(meeting, programs, options.prints_events),
                                       programs.given_up(), obey());
    if (const auto& over = std::get<0>(ended)) code = *over;
    if (const auto& why = std::get<1>(ended)) complain(*why);
    co_await programs.stop();
    tell_end(folder, (co_await meeting.published()).value_or(""), code);
    // Those who ask look there first; those who wait ask more often than this.
    co_await mw::sleep_for(3 * between_looks);
  };
  rt.run(run());
  return code;
}

}  // namespace mwgraph
