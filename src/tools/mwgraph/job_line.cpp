#include "mwgraph/job_line.hpp"

#include <fmt/format.h>

#include "link/secret_file.hpp"
#include "mpmd/job_store.hpp"
#include "mwgraph/command.hpp"

namespace mwgraph {

namespace mw = manyworlds;

void add_job_line(CLI::App& sub, job_line& line) {
  sub.add_option("JOB", line.job, "the job's name")->required();
  add_place_of_job(sub, line);
}

void add_place_of_job(CLI::App& sub, job_line& line) {
  sub.add_option("--folder", line.folder,
                 "where jobs of this machine leave what finds them");
  sub.add_option("--store", line.store,
                 "the job's meeting store, as \"10.0.0.1:7070\" or "
                 "\"etcd://10.0.0.1:2379\", if it was started on another machine");
  sub.add_option("--secret-file", line.secret_file, "a file with the job's secret");
  sub.add_flag("--insecure", line.insecure, "the network is trusted: without a secret");
}

job_address find_job(const job_line& line) {
  if (!line.store.empty()) return {line.job, line.store, line.secret_file};
  try {
    return mw::detail::address_of_job(line.folder, line.job);
  } catch (const std::runtime_error& e) {
    throw usage_error(e.what());
  }
}

mw::tcp_store_options client_of(const job_address& job) {
  mw::tcp_store_options options;
  if (!job.secret_file.empty()) {
    try {
      options.secret = mw::detail::read_secret_file(job.secret_file);
    } catch (const std::runtime_error& e) {
      throw usage_error(fmt::format("--secret-file: {}", e.what()));
    }
  }
  return options;
}

int ask_job(const job_line& line,
            const std::function<mw::task<int>(mw::detail::job_meeting&)>& asked) {
  const job_address job = find_job(line);
  const mw::tcp_store_options options = client_of(job);
  mw::runtime rt(mw::runtime_options{});
  const auto store = mw::detail::open_job_store(rt, job.store, options);
  mw::detail::job_meeting meeting(*store, job.job);
  return rt.run(asked(meeting));
}

int ask_status(const job_line& line,
               const std::function<mw::task<int>(status_source)>& asked) {
  const auto told_last = [&line]() -> std::optional<std::string> {
    if (!line.store.empty()) return std::nullopt;
    return mw::detail::end_of_job(line.folder, line.job);
  };
  if (const auto ended = told_last()) {
    mw::runtime rt(mw::runtime_options{});
    const auto told = [&ended]() -> mw::task<std::optional<std::string>> {
      co_return ended;
    };
    return rt.run(asked(told));
  }
  return ask_job(line, [&](mw::detail::job_meeting& meeting) {
    // Its store goes with a job; what it has told last stays.
    return asked([&]() -> mw::task<std::optional<std::string>> {
      if (auto ended = told_last()) co_return ended;
      co_return co_await meeting.published();
    });
  });
}

}  // namespace mwgraph
