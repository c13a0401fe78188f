#include "mwgraph/job_line.hpp"

#include <fmt/format.h>

#include "link/secret_file.hpp"
#include "manyworlds/store/store_error.hpp"
#include "mpmd/job_store.hpp"
#include "mwgraph/command.hpp"

namespace mwgraph {

namespace mw = manyworlds;
using mw::detail::job_meeting;

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

std::optional<std::string> end_of(const job_line& line) {
  if (!line.store.empty()) return std::nullopt;
  return mw::detail::end_of_job(line.folder, line.job);
}

/// The store of a job that was started here goes with it; what was told last stays.
static mw::task<std::optional<std::string>> told_by(job_meeting& meeting,
                                                    const job_line& line) {
  if (auto end = end_of(line)) co_return end;
  std::optional<std::string> told;
  try {
    told = co_await meeting.published();
  } catch (const mw::store_error&) {
    told = end_of(line);
    if (!told) throw;
  }
  co_return told;
}

int ask_job(const job_line& line,
            const std::function<mw::task<int>(job_meeting&)>& asked) {
  const job_address job = find_job(line);
  const mw::tcp_store_options options = client_of(job);
  mw::runtime rt(mw::runtime_options{});
  const auto store = mw::detail::open_job_store(rt, job.store, options);
  job_meeting meeting(*store, job.job);
  return rt.run(asked(meeting));
}

int ask_status(const job_line& line,
               const std::function<mw::task<int>(status_source)>& asked) {
  const auto tell_end = [&](std::string end) {
    mw::runtime rt(mw::runtime_options{});
    return rt.run(
        asked([&end]() -> mw::task<std::optional<std::string>> { co_return end; }));
  };
  if (auto end = end_of(line)) return tell_end(std::move(*end));
  try {
    return ask_job(line, [&](job_meeting& meeting) {
      return asked([&]() { return told_by(meeting, line); });
    });
  } catch (const usage_error&) {
    // Between the two looks it may have ended.
    auto end = end_of(line);
    if (!end) throw;
    return tell_end(std::move(*end));
  }
}

}  // namespace mwgraph
