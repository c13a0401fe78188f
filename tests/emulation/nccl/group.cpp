#include "group.hpp"

#include "complaint.hpp"
#include "connecting.hpp"
#include "job.hpp"
#include "plan.hpp"
#include "settings.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <thread>

namespace nccl_emulation {

namespace {

bool about_arguments(ncclResult_t result) {
  return result == ncclInvalidArgument || result == ncclInvalidUsage;
}

void finish(communicator& c, ncclResult_t result) {
  if (!c.blocking) set_state(c, result);
  if (result != ncclSuccess && !about_arguments(result)) c.unusable.store(result);
}

// A group succeeds or fails as a whole (src/group.cc groupCleanup).
void finish(const group_work& work, ncclResult_t result) {
  for (const auto& j : work.jobs)
    if (!j.ending && !j.subject->blocking) set_state(*j.subject, result);
  for (const auto& e : work.entries) finish(*e.c, result);
}

ncclResult_t run_jobs(const std::vector<job>& jobs) {
  std::vector<ncclResult_t> results(jobs.size(), ncclSuccess);
  auto one = [&](std::size_t i) {
    cudaSetDevice(jobs[i].subject->device);
    results[i] = jobs[i].run();
  };
  if (jobs.size() == 1) {
    one(0);
  } else {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < jobs.size(); ++i) threads.emplace_back(one, i);
    for (auto& thread : threads) thread.join();
  }
  for (auto result : results)
    if (result != ncclSuccess) return result;
  return ncclSuccess;
}

// Each communicator's on a thread of its own, as NCCL does (src/group.cc, groupLaunch).
ncclResult_t connect_all(const group_work& work) {
  std::vector<job> jobs;
  for (const auto& e : work.entries)
    if (lacks_connections(*e.c, e.tasks))
      jobs.push_back({e.c, false, [&e] { return connect(*e.c, e.tasks); }});
  return run_jobs(jobs);
}

ncclResult_t run_group(group_work& work) {
  auto result = run_jobs(work.jobs);
  if (result == ncclSuccess) result = connect_all(work);
  for (auto& e : work.entries) {
    if (result != ncclSuccess) break;
    cudaSetDevice(e.c->device);
    result = launch(e.c, std::move(e.tasks));
  }
  return result;
}

// Sends to oneself need their receive in the same group.
ncclResult_t check_self(const group_work& work) {
  for (const auto& e : work.entries) {
    const auto to_self = [&](call what) {
      return std::count_if(e.tasks.begin(), e.tasks.end(), [&](const task& t) {
        return t.what == what && t.root == e.c->rank;
      });
    };
    if (to_self(call::send) != to_self(call::receive))
      return complain(ncclInvalidUsage, "a send to self without its receive");
  }
  return ncclSuccess;
}

void begin_in_background(const std::shared_ptr<group_work>& work) {
  std::vector<shared_communicator> all;
  for (const auto& j : work->jobs) all.push_back(j.subject);
  for (const auto& e : work->entries) all.push_back(e.c);
  for (const auto& c : all) set_state(*c, ncclInProgress);
  auto started = std::make_shared<background_job>([work] {
    // The kernel comes onto its stream later than the call returns: who records an event
    // at once records it too early.
    if (!work->entries.empty())
      sleep_for(chosen().async_ms, work->entries.front().c->cut());
    const auto result = run_group(*work);
    finish(*work, result);
  });
  for (const auto& c : all)
    if (!c->job) c->job = started;
}

}  // namespace

group& group::current() {
  thread_local group only;
  return only;
}

ncclResult_t group::note(ncclResult_t result) {
  if (depth_ > 0 && result != ncclSuccess && result != ncclInProgress) error_ = result;
  return result;
}

ncclResult_t group::agree_on_blocking(const communicator& c) {
  if (blocking_ == -1) blocking_ = c.blocking;
  if (blocking_ == c.blocking) return ncclSuccess;
  return complain(
      ncclInvalidArgument,
      "Blocking and nonblocking communicators are not allowed in the same group.");
}

ncclResult_t group::add(job j) {
  if (j.ending)
    blocking_ = 1;
  else if (const auto result = agree_on_blocking(*j.subject))
    return result;
  if (!work_) work_ = std::make_shared<group_work>();
  work_->jobs.push_back(std::move(j));
  return ncclSuccess;
}

ncclResult_t group::add(const shared_communicator& c, task t) {
  if (const auto result = agree_on_blocking(*c)) return result;
  if (!work_) work_ = std::make_shared<group_work>();
  auto& entries = work_->entries;
  auto found = std::find_if(entries.begin(), entries.end(),
                            [&](const auto& e) { return e.c == c; });
  if (found == entries.end()) found = entries.insert(entries.end(), {c, {}});
  found->tasks.push_back(std::move(t));
  return ncclSuccess;
}

ncclResult_t group::end(const char* call) {
  if (depth_ == 0)
    return complain(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--depth_ > 0) return ncclSuccess;
  auto work = std::exchange(work_, nullptr);
  auto result = std::exchange(error_, ncclSuccess);
  if (work) {
    if (result == ncclSuccess) result = check_self(*work);
    if (result == ncclSuccess)
      result = give_out(std::move(work), call);
    else
      finish(*work, result);
  }
  blocking_ = -1;
  return result;
}

ncclResult_t group::give_out(std::shared_ptr<group_work> work, const char* call) {
  if (!work->jobs.empty() && !work->entries.empty()) {
    finish(*work, ncclInvalidUsage);
    return complain(ncclInvalidUsage, "creation and communication in one group");
  }
  std::vector<std::unique_ptr<use>> uses;
  for (const auto& e : work->entries) uses.push_back(std::make_unique<use>(e.c, call));
  // One that is still being made may be aborted by another thread: that is what its early
  // handle is for.
  for (const auto& j : work->jobs)
    if (!j.ending && !j.beside_call && j.subject->initialised)
      uses.push_back(std::make_unique<use>(j.subject, call));
  if (blocking_ == 0) {
    begin_in_background(work);
    return ncclInProgress;
  }
  // Of the caller's thread alone (2.28.9 src/group.cc, ncclGroupEndInternal): a thread
  // that had none is given a context on GPU 0.
  int before = 0;
  cudaGetDevice(&before);
  const auto result = run_group(*work);
  cudaSetDevice(before);
  finish(*work, result);
  return result;
}

}  // namespace nccl_emulation
