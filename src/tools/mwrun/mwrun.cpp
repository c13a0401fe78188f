// mwrun: starts the workers of a job on this node as torchrun does, and starts again only
// what failed.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "launch/error_record.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/worker_thread.hpp"
#include "manyworlds/io/signals.hpp"
#include "manyworlds/launch/rendezvous.hpp"
#include "manyworlds/version.hpp"
#include "mwrun/end_orders.hpp"
#include "mwrun/job_of_line.hpp"
#include "mwrun/meeting_of_line.hpp"
#include "mwrun/say.hpp"
#include "mwrun/under_guard.hpp"
#include "settle_process.hpp"

extern char** environ;

namespace {

namespace mw = manyworlds;
using namespace mwrun;
using namespace std::chrono_literals;

constexpr int bad_usage = 2;
constexpr int has_failed = 1;
constexpr int of_signal = 128;

/// Returns the signals that go to the workers where no option names them.
std::vector<int> usual_signals() {
  std::vector<int> numbers{SIGTERM, SIGINT, SIGQUIT};
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  // nohup ignores it, so that the job outlives the terminal.
  if (hangup.sa_handler != SIG_IGN) numbers.push_back(SIGHUP);
  return numbers;
}

/// Says lines on a thread of its own: a terminal that is stuck does not hold up what is
/// decided about workers. The destructor waits for it.
class teller {
 public:
  void tell(std::string_view line) { thread_.post(*new message(line)); }

 private:
  struct message final : mw::detail::work {
    explicit message(std::string_view line)
        : work([](work& w) noexcept {
            const std::unique_ptr<message> self(static_cast<message*>(&w));
            say(self->text);
          }),
          text(line) {}
    std::string text;
  };

  mw::worker_thread thread_{"mw-messages"};
};

/// Names the limit of this process that is behind an error; empty if it may be any.
const char* limit_behind(const std::error_code& error) {
  if (error == std::errc::resource_unavailable_try_again)
    return ": there can be no other process or thread (ulimit -u)";
  if (error == std::errc::too_many_files_open) return " (ulimit -n)";
  return "";
}

std::optional<std::string> variable_here(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

mw::launch_variables all_variables() {
  mw::launch_variables all;
  for (char** each = environ; each && *each; ++each) {
    const char* const equals = std::strchr(*each, '=');
    if (equals)
      all.emplace(std::string(static_cast<const char*>(*each), equals), equals + 1);
  }
  return all;
}

using awaited_signals = std::vector<mw::task<mw::received_signal>>;

/// Blocks the signals on this thread: before others are started.
awaited_signals await_each(const std::vector<int>& numbers) {
  awaited_signals waits;
  for (const int number : numbers) waits.push_back(mw::until_signal({number}));
  return waits;
}

/// Ends the job on orders. Batch systems signal each process of a job, so that one order
/// comes from the guard and to this process as well: of both counts the larger one holds.
class job_ending {
 public:
  job_ending(mw::launch_agent& agent, teller& messages)
      : agent_(agent), messages_(messages) {}

  /// Ends when the guard has ended, and nothing else can be waited for.
  [[nodiscard]] mw::task<void> obey_guard(guard_link& link) {
    for (;;) {
      const int number = co_await link.next_order();
      if (number == 0) break;
      // The guard has told apart already which signals are one order.
      order(++by_guard_, number);
    }
    // The agent ends the workers in order, and what does not heed that is killed. All of
    // it ends within a second, also where other nodes were still to hear something.
    for (int i = 0; i < 2; ++i) {
      co_await mw::sleep_for(450ms);
      agent_.end(SIGTERM);
    }
  }
  [[nodiscard]] mw::task<void> obey_signals(std::vector<int> numbers,
                                            awaited_signals waits) {
    for (;;) {
      const auto came = co_await mw::when_any(std::move(waits));
      for (const auto& each : came) {
        if (each && by_signals_.count(each->number))
          order(by_signals_.counted(), each->number);
      }
      waits = await_each(numbers);
    }
  }

 private:
  /// The first order goes to the workers, and the second one ends their grace.
  void order(std::size_t counted, int number) {
    if (counted <= given_) return;
    ++given_;
    messages_.tell(name_of_signal(number) + (given_ == 1
                                                 ? ": the workers are told to end"
                                                 : " again: the workers are killed"));
    agent_.end(number);
  }

  mw::launch_agent& agent_;
  teller& messages_;
  std::size_t by_guard_ = 0;
  end_orders by_signals_;
  std::size_t given_ = 0;
};

mw::task<mw::launch_result> run_job(mw::launch_agent& agent, teller& messages,
                                    guard_link& link, std::vector<int> numbers,
                                    awaited_signals waits) {
  job_ending ending(agent, messages);
  auto ended =
      co_await mw::when_any(agent.run(), ending.obey_guard(link),
                            ending.obey_signals(std::move(numbers), std::move(waits)));
  if (auto& result = std::get<0>(ended)) co_return std::move(*result);
  co_return mw::launch_result();
}

/// Runs the job to its end. When it returns, all is said of it.
mw::launch_result run_here(mw::launch_options job, mw::runtime_options how,
                           std::vector<int> numbers, guard_link& link) {
  awaited_signals waits = await_each(numbers);
  teller messages;
  job.guard = &link.guard();
  job.told = [&messages](std::string_view line) { messages.tell(line); };
  // What happens to the workers is told by the agent.
  how.log_from = mw::log_level::error;
  mw::runtime rt(how);
  try {
    // For mwstat. A job runs also where it cannot be asked.
    rt.serve_dumps();
  } catch (const std::system_error& e) {
    messages.tell(fmt::format("mwstat cannot ask this process: {}", e.what()));
  }
  mw::launch_agent agent(rt, std::move(job));
  return rt.run(run_job(agent, messages, link, std::move(numbers), std::move(waits)));
}

int code_of(const mw::launch_result& end, const command_line& line) {
  if (end.is_success) return 0;
  if (!line.propagate_exit_code) return has_failed;
  if (end.signal != 0) return of_signal + end.signal;
  if (end.failures.empty()) return has_failed;
  const int code = end.failures.front().code();
  // No failure is told as a success.
  return code < 0 ? of_signal - code : std::max(code, has_failed);
}

/// Says what failed as torchrun does, and hands the root cause to who started us.
void report(const mw::launch_result& end, const command_line& line) {
  if (!end.cause.empty()) say(end.cause);
  if (end.failures.empty()) return;
  const std::string summary = mw::failure_summary(line.program, end.failures) + "\n";
  // Where it cannot be printed, the exit code is still the job's.
  std::fwrite(summary.data(), 1, summary.size(), stderr);
  const mw::worker_failure& root = end.failures.front();
  const auto own_file = variable_here("TORCHELASTIC_ERROR_FILE");
  if (!own_file || own_file->empty() || root.error_file.empty()) return;
  std::string why_not;
  const auto record = mw::detail::read_error_record(root.error_file, why_not);
  if (record && !mw::detail::pass_on_error(*record, root.code(), *own_file))
    say(fmt::format("the error file {} cannot be written", *own_file));
}

/// Runs in the agent. `log_folder` is one of its own where no option names another.
int run_agent(const command_line& line, const std::string& log_folder,
              const std::vector<int>& numbers, guard_link& link) {
  mw::launch_options job = job_of(line, all_variables());
  const mw::runtime_options how = meet(line, job);
  if (line.log_dir.empty()) {
    job.log_folder = log_folder;
    if (job.log_folder.empty()) {
      say("there are no log and error files: TMPDIR, or else /tmp, takes no folder "
          "(--log-dir names another place)");
    }
  }
  const mw::launch_result end = run_here(std::move(job), how, numbers, link);
  report(end, line);
  return code_of(end, line);
}

int run(const command_line& line) {
  if (line.dry_run) {
    mw::launch_options job = job_of(line, all_variables());
    static_cast<void>(meet(line, job));
    print_plan(job);
    return 0;
  }
  guard_plan plan;
  plan.signals =
      line.signals_to_handle.empty() ? usual_signals() : line.signals_to_handle;
  plan.keeps_descendants = line.keep_descendants;
  // The one of the two processes that ends last removes it.
  std::optional<own_log_folder> logs;
  if (line.log_dir.empty()) logs.emplace();
  const agent_end end = run_under_guard(plan, [&](guard_link& link) {
    return run_agent(line, logs ? logs->path() : "", plan.signals, link);
  });
  logs.reset();
  if (end.signal != 0) end_as_signaled(end.signal);
  return end.code;
}

int answer(const command_line& line, bool as_launch) {
  switch (line.asks) {
    case request::help:
      fmt::print("{}", help_text(as_launch));
      return 0;
    case request::version:
      fmt::print("mwrun {}.{}.{}\n", mw::header_version.major_part,
                 mw::header_version.minor_part, mw::header_version.patch_part);
      return 0;
    case request::completion:
      fmt::print("{}", completion_for(line.completion));
      return 0;
    case request::run:
      break;
  }
  return run(line);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 0 ? argv[0] : "mwrun";
  const bool as_launch = name.substr(name.rfind('/') + 1) == "mwlaunch";
  mw::tools::settle_process();
  try {
    return answer(read_command_line({argv + 1, argv + argc}, &variable_here, as_launch),
                  as_launch);
  } catch (const usage_error& e) {
    say(e.what());
    return bad_usage;
  } catch (const std::invalid_argument& e) {
    say(e.what());
    return bad_usage;
  } catch (const mw::rendezvous_error& e) {
    say(e.what());
    return e.kind() == mw::rendezvous_error_kind::bad_options ? bad_usage : has_failed;
  } catch (const std::system_error& e) {
    say(fmt::format("{}{}", e.what(), limit_behind(e.code())));
    return has_failed;
  } catch (const std::exception& e) {
    say(e.what());
    return has_failed;
  }
}
